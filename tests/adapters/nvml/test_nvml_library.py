"""How the shared library of the driver is found, which may be installed while we run."""

import pathlib
import subprocess
import sys
import types

import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.nvml import nvml
from dra_driver.model import driver
from dra_driver.sim.gpus import gpu_errors

# ruff: noqa: N802 - doubles have the names of pynvml

CODES = gpu_errors.CODES

needs_a_gpu = pytest.mark.skipif(
    not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver on this machine"
)


class LateLibrary(types.ModuleType):
    """Stands in for `pynvml` on a node where the loader alone does not find the library."""

    NVML_INIT_FLAG_NO_GPUS = 1
    NVMLError = gpu_errors.NVMLError

    def __init__(self, opened):
        super().__init__("pynvml")
        self.opened = opened
        self.closed = 0

    def nvmlInitWithFlags(self, flags):
        assert flags == self.NVML_INIT_FLAG_NO_GPUS
        if not self.opened:
            raise self.NVMLError(CODES["NVML_ERROR_LIBRARY_NOT_FOUND"])

    def nvmlShutdown(self):
        self.closed += 1


@pytest.fixture
def opened(monkeypatch):
    """The paths of libraries that were loaded; `pynvml` is one that finds those only."""
    paths = []
    monkeypatch.setitem(sys.modules, "pynvml", LateLibrary(paths))
    return paths


def layout(seen, given=()):
    """Of a driver that is installed below `seen`, and is on the host what it is here."""
    return driver_root.Layout(driver_root.Root(str(seen), pathlib.Path(seen)), given)


def opener(paths):
    def load(path):
        if not pathlib.Path(path).is_file():
            raise OSError(path)
        paths.append(path)
        return path

    return load


def test_the_library_is_found_under_the_driver_root_once_it_is_there(opened, tmp_path):
    adapter = nvml.Nvml(layout=layout(tmp_path), opener=opener(opened))
    directory = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"

    with pytest.raises(errors.Retryable) as caught:
        adapter.init()
    assert str(tmp_path) in str(caught.value)
    assert "/usr/lib/x86_64-linux-gnu" in str(caught.value)

    directory.mkdir(parents=True)
    (directory / "libnvidia-ml.so.1").touch()
    adapter.init()
    adapter.init()
    assert opened == [f"{directory}/libnvidia-ml.so.1"]


def test_directories_for_the_library_can_be_given(opened, tmp_path):
    directory = tmp_path / "opt" / "gpu" / "lib"
    directory.mkdir(parents=True)
    (directory / "libnvidia-ml.so.1").touch()

    given = layout(tmp_path, ["/nowhere", "/opt/gpu/lib"])
    nvml.Nvml(layout=given, opener=opener(opened)).init()

    assert opened == [f"{directory}/libnvidia-ml.so.1"]


def test_a_library_that_the_loader_does_not_find_is_opened_by_its_path(
    opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(driver, "LIBRARY_DIRS", (str(tmp_path),))
    late = tmp_path / "libnvidia-ml.so.1"
    adapter = nvml.Nvml(layout=layout("/"), opener=opener(opened))

    with pytest.raises(errors.Retryable, match="NVML Shared Library Not Found"):
        adapter.init()
    late.touch()
    adapter.init()

    assert opened == [str(late)]


def test_the_loaders_own_library_comes_first_under_the_root_of_the_host(
    opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(driver, "LIBRARY_DIRS", (str(tmp_path),))
    opened.append("already found by the loader")
    (tmp_path / "libnvidia-ml.so.1").touch()

    nvml.Nvml(layout=layout("/", ["/nowhere"]), opener=opener(opened)).init()

    assert opened == ["already found by the loader"]


def test_the_directories_of_the_settings_come_before_it(opened, tmp_path):
    opened.append("already found by the loader")
    mine = tmp_path / "libnvidia-ml.so.1"
    mine.touch()

    nvml.Nvml(layout=layout("/", [str(tmp_path)]), opener=opener(opened)).init()

    assert opened == ["already found by the loader", str(mine)]


@pytest.mark.parametrize("target", ["/opt/real", "../../opt/real"])
def test_a_link_to_the_library_ends_inside_the_driver_root(opened, tmp_path, target):
    for directory in ("opt/real", "usr/lib64"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "opt/real/libnvidia-ml.so.1").touch()
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to(f"{target}/libnvidia-ml.so.1")

    nvml.Nvml(layout=layout(tmp_path), opener=opener(opened)).init()

    assert opened == [f"{tmp_path}/opt/real/libnvidia-ml.so.1"]


def test_a_library_that_cannot_be_loaded_is_told_with_what_the_loader_says(tmp_path):
    """As one for another architecture; the next directory may have the right one."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").write_text("no library".ljust(100))

    with pytest.raises(nvml.NoLibrary) as caught:
        nvml.Nvml(layout=layout(tmp_path)).init()

    assert f"cannot be loaded: {tmp_path}/usr/lib64/libnvidia-ml.so.1: " in str(caught.value)
    assert "invalid ELF header" in str(caught.value)


def test_a_library_that_no_link_leads_to_is_told_with_what_makes_the_link(tmp_path):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.580.65.06").touch()

    with pytest.raises(nvml.NoLibrary) as caught:
        nvml.Nvml(layout=layout(tmp_path)).init()

    assert str(caught.value).endswith(
        f"; {tmp_path}/usr/lib64 has libnvidia-ml.so.580.65.06, and no link libnvidia-ml.so.1 that "
        "leads to it: ldconfig on the node, or ln -s libnvidia-ml.so.580.65.06 "
        f"{tmp_path}/usr/lib64/libnvidia-ml.so.1"
    )


@pytest.mark.parametrize("seen", ["/", "elsewhere"])
def test_a_driver_that_is_nowhere_is_told_with_the_settings_that_may_find_it(
    opened, tmp_path, monkeypatch, seen
):
    monkeypatch.setattr(driver, "LIBRARY_DIRS", ("/nowhere",))
    place = tmp_path if seen == "elsewhere" else seen
    with pytest.raises(nvml.NoLibrary) as caught:
        nvml.Nvml(layout=layout(place), opener=opener(opened)).init()

    assert "--driver-root" in str(caught.value)
    assert "--library-dirs" in str(caught.value)


def test_importing_the_adapter_does_not_load_the_bindings():
    code = (
        "import sys, dra_driver.adapters.nvml.nvml as m; m.Nvml(); print('pynvml' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "False\n"


def test_the_real_bindings_without_a_driver_say_that_it_is_missing(tmp_path):
    adapter = nvml.Nvml(layout=layout(tmp_path))

    with pytest.raises(errors.Retryable, match=r"no libnvidia-ml\.so\.1"):
        adapter.discover()


@pytest.mark.gpu
@needs_a_gpu
def test_a_real_library_is_loaded_from_a_driver_root(tmp_path):
    directory = tmp_path / "usr" / "lib64"
    directory.mkdir(parents=True)
    code = (
        "import pathlib, sys\n"
        "from dra_driver.adapters.driver import driver_root\n"
        "from dra_driver.adapters.nvml import nvml\n"
        "root = driver_root.Root('/run/nvidia/driver', pathlib.Path(sys.argv[1]))\n"
        "found = nvml.Nvml(layout=driver_root.Layout(root)).discover()\n"
        "assert found.gpus, found\n"
        "print(pathlib.Path('/proc/self/maps').read_text())\n"
    )
    with nvml.Nvml().session():
        maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
    real = next(line.split()[-1] for line in maps.splitlines() if "libnvidia-ml.so" in line)
    (directory / "libnvidia-ml.so.1").write_bytes(pathlib.Path(real).read_bytes())

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert str(directory / "libnvidia-ml.so.1") in done.stdout
    assert real not in done.stdout
