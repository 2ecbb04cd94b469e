"""Library and kernel module of different versions: which process can get over that."""

import pathlib
import sys
import types

import pytest

from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.nvml import nvml
from dra_driver.sim.gpus import gpu_errors

# ruff: noqa: N802 - doubles have the names of pynvml

MISMATCH = gpu_errors.CODES["NVML_ERROR_LIB_RM_VERSION_MISMATCH"]
NOT_LOADED = gpu_errors.CODES["NVML_ERROR_DRIVER_NOT_LOADED"]


class Bindings(types.ModuleType):
    """Stands in for `pynvml`. `module` is the version that is loaded into the kernel."""

    NVML_INIT_FLAG_NO_GPUS = 1
    NVMLError = gpu_errors.NVMLError

    def __init__(self):
        super().__init__("pynvml")
        self.module = None
        self.mapped = None

    def load(self, path):
        """A library stays in a process, whatever becomes of its file."""
        self.mapped = pathlib.Path(path).read_text()
        return self.mapped

    def nvmlInitWithFlags(self, _flags):
        if self.module is None:
            raise self.NVMLError(NOT_LOADED)
        if self.module != self.mapped:
            raise self.NVMLError(MISMATCH)

    def nvmlShutdown(self):
        pass


class Node:
    """A driver root with a library of some version, and a process on it."""

    def __init__(self, root, monkeypatch):
        self.directory = root / "usr/lib64"
        self.directory.mkdir(parents=True)
        self.layout = driver_root.Layout(driver_root.Root("/run/nvidia/driver", root))
        self.told = []
        self._monkeypatch = monkeypatch
        self.start()

    def start(self):
        """A new process."""
        self.bindings = Bindings()
        self._monkeypatch.setitem(sys.modules, "pynvml", self.bindings)
        self.process = nvml.Nvml(layout=self.layout, opener=self.bindings.load)
        self.process.when_outdated(self.told.append)

    def install(self, version):
        """As a package does: the link leads to another file, which is new."""
        (self.directory / f"libnvidia-ml.so.{version}").write_text(version)
        link = self.directory / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")

    def fails(self, kind):
        with pytest.raises(nvml.Mismatch) as caught:
            self.process.init()
        assert type(caught.value) is kind
        return str(caught.value)

    def works(self):
        self.process.init()
        self.process.shutdown()


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def test_a_process_that_used_the_driver_before_is_outdated_once_it_is_replaced(node):
    node.install("580.65.06")
    node.bindings.module = "580.65.06"
    node.works()
    node.install("590.1")
    node.bindings.module = "590.1"

    said = node.fails(nvml.Outdated)

    assert node.told == [said]
    assert "NVML error 18" in said


def test_so_it_is_where_it_does_not_see_the_new_library(node):
    """Its container has the driver root that was mounted when it started."""
    node.install("580.65.06")
    node.bindings.module = "580.65.06"
    node.works()
    node.bindings.module = "590.1"

    node.fails(nvml.Outdated)


def test_a_new_process_that_meets_another_module_waits_for_that_to_be_loaded(node):
    node.install("590.1")
    node.bindings.module = "580.65.06"

    said = [node.fails(nvml.Mismatch) for _ in range(3)]
    node.bindings.module = "590.1"
    node.works()

    assert node.told == []
    assert "load the module of the library, or reboot the node" in said[0]


def test_a_new_process_is_outdated_once_the_library_is_another_than_the_one_that_it_loaded(node):
    node.install("580.65.06")
    node.bindings.module = "590.1"
    node.fails(nvml.Mismatch)
    node.install("590.1")

    node.fails(nvml.Outdated)
    node.start()
    node.bindings.module = "590.1"

    node.works()


def test_a_library_that_was_replaced_in_its_own_file_is_another_one(node):
    node.install("580.65.06")
    node.bindings.module = "590.1"
    node.fails(nvml.Mismatch)
    (node.directory / "libnvidia-ml.so.580.65.06").write_text("another length")

    node.fails(nvml.Outdated)


def test_a_library_that_is_replaced_while_the_old_module_is_loaded_changes_nothing(node):
    node.install("580.65.06")
    node.bindings.module = "580.65.06"
    node.works()
    node.install("590.1")

    node.works()

    assert node.told == []


def test_a_module_that_is_not_loaded_is_no_mismatch(node):
    node.install("580.65.06")
    node.bindings.module = "580.65.06"
    node.works()
    node.bindings.module = None

    with pytest.raises(nvml.errors.Retryable) as caught:
        node.process.init()

    assert not isinstance(caught.value, nvml.Mismatch)
    assert node.told == []
