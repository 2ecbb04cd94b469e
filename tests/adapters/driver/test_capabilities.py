"""Which capability nodes a MIG instance has. Links to nodes of the kernel's memory devices (major
1) stand in for those of the nvidia module, where making nodes is not what is tested."""

import os
import pathlib
import stat

import pytest

from dra_driver import errors
from dra_driver.adapters.driver import capabilities, driver_root
from dra_driver.model import driver

HOST = "/run/nvidia/driver"
NULL, ZERO, FULL = 3, 5, 7
"""Minor numbers of `/dev/null`, `/dev/zero` and `/dev/full`."""
DEVICES = """\
Character devices:
  1 nvidia-caps
195 nvidia
195 nvidiactl
235 nvidia-caps-imex-channels

Block devices:
  9 nvidia-caps
"""
ACCESS = "/proc/driver/nvidia/capabilities/gpu2/mig/gi7/access"
ACCESS_OF_CI = "/proc/driver/nvidia/capabilities/gpu2/mig/gi7/ci0/access"


def write_access(proc, path, minor, mode=0o444, modify=1):
    file = proc / path.removeprefix("/proc/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: {modify}\n"
    )
    return file


@pytest.fixture
def proc(tmp_path):
    """procfs with GPU instance 7 of GPU 2 and its compute instance."""
    directory = tmp_path / "proc"
    write_access(directory, ACCESS, NULL)
    write_access(directory, ACCESS_OF_CI, ZERO)
    (directory / "devices").write_text(DEVICES)
    return directory


@pytest.fixture
def caps(tmp_path):
    """`/dev/nvidia-caps` with both nodes."""
    directory = tmp_path / "driver" / "dev" / "nvidia-caps"
    directory.mkdir(parents=True)
    (directory / f"nvidia-cap{NULL}").symlink_to("/dev/null")
    (directory / f"nvidia-cap{ZERO}").symlink_to("/dev/zero")
    return directory


@pytest.fixture
def nodes_of(tmp_path, proc):
    root = driver_root.Root(HOST, tmp_path / "driver")
    return capabilities.Capabilities(lambda: root, proc).device_nodes


def can_make_nodes(directory):
    probe = directory / "probe"
    try:
        os.mknod(probe, stat.S_IFCHR | 0o444, os.makedev(1, NULL))
    except OSError:
        return False
    probe.unlink()
    return True


@pytest.fixture
def maker(tmp_path):
    """An empty driver root, where this process may make device nodes."""
    directory = tmp_path / "driver" / "dev"
    directory.mkdir(parents=True)
    if not can_make_nodes(directory):
        pytest.skip("making device nodes needs root")
    return directory


def described(minor, mode=None):
    path = f"/dev/nvidia-caps/nvidia-cap{minor}"
    if mode is None:
        names = {NULL: "null", ZERO: "zero"}
        mode = stat.S_IMODE(pathlib.Path(f"/dev/{names[minor]}").stat().st_mode)
    return driver.DeviceNode(path, HOST + path, 1, minor, mode)


def test_an_instance_has_a_node_and_its_compute_instance_another(caps, nodes_of):
    assert nodes_of(2, 7, 0) == (described(NULL), described(ZERO))


def test_the_dev_root_is_asked_for_at_each_call(tmp_path, proc, caps):
    answers = [driver_root.Root("/a", tmp_path / "driver"), driver_root.Root("/", tmp_path)]
    found = capabilities.Capabilities(lambda: answers[0], proc)
    first = found.device_nodes(2, 7, 0)
    (tmp_path / "dev").symlink_to("driver/dev")
    del answers[0]

    hosts = [
        node.host_path.rpartition("/dev/")[0] for node in (*first, *found.device_nodes(2, 7, 0))
    ]

    assert hosts == ["/a", "/a", "", ""]


def test_the_major_number_is_that_of_the_character_device_of_exactly_that_name(
    proc, caps, nodes_of
):
    (proc / "devices").write_text(DEVICES.replace("  1 nvidia-caps\n", ""))

    with pytest.raises(errors.Retryable, match="/proc/devices has no character device nvidia-caps"):
        nodes_of(2, 7, 0)


@pytest.mark.parametrize(("gi", "ci", "missing"), [(8, 0, "gi8/access"), (7, 1, "gi7/ci1/access")])
def test_an_instance_that_is_gone_is_named(caps, nodes_of, gi, ci, missing):
    with pytest.raises(errors.Retryable) as caught:
        nodes_of(2, gi, ci)

    path = f"/proc/driver/nvidia/capabilities/gpu2/mig/{missing}"
    assert str(caught.value).startswith(f"MIG capability {path}: No such file or directory; ")


def test_a_file_without_a_number_is_refused_with_its_content(proc, nodes_of):
    (proc / ACCESS.removeprefix("/proc/")).write_text("Minor: 3\n")

    with pytest.raises(errors.Rejected, match=r"gi7/access: 'Minor: 3\\n' has no line"):
        nodes_of(2, 7, 0)


def test_missing_nodes_are_made_as_nvidia_modprobe_makes_them(proc, maker, nodes_of):
    write_access(proc, ACCESS_OF_CI, ZERO, mode=0o462)
    before = os.umask(0o077)
    try:
        made = nodes_of(2, 7, 0)
    finally:
        os.umask(before)

    assert made == (described(NULL, 0o444), described(ZERO, 0o462))
    facts = [(maker / "nvidia-caps" / f"nvidia-cap{minor}").stat() for minor in (NULL, ZERO)]
    assert [(each.st_mode, each.st_rdev) for each in facts] == [
        (stat.S_IFCHR | 0o444, os.makedev(1, NULL)),
        (stat.S_IFCHR | 0o462, os.makedev(1, ZERO)),
    ]
    assert stat.S_IMODE((maker / "nvidia-caps").stat().st_mode) == 0o755
    assert nodes_of(2, 7, 0) == made


def test_a_file_with_nothing_but_the_number_means_what_it_means_to_nvidia_modprobe(
    proc, maker, nodes_of
):
    for path, minor in ((ACCESS, NULL), (ACCESS_OF_CI, ZERO)):
        (proc / path.removeprefix("/proc/")).write_text(f"DeviceFileMinor: {minor}\n")

    assert nodes_of(2, 7, 0) == (described(NULL, 0o666), described(ZERO, 0o666))


def test_a_node_that_another_process_makes_at_the_same_time_serves(maker, nodes_of, monkeypatch):
    really_make = os.mknod

    def make_twice(*arguments):
        really_make(*arguments)
        really_make(*arguments)

    monkeypatch.setattr(os, "mknod", make_twice)

    assert nodes_of(2, 7, 0) == (described(NULL, 0o444), described(ZERO, 0o444))


def test_a_missing_node_that_may_not_be_made_is_named_with_what_makes_it(proc, caps, nodes_of):
    (caps / f"nvidia-cap{ZERO}").unlink()
    write_access(proc, ACCESS_OF_CI, ZERO, modify=0)

    with pytest.raises(errors.Retryable) as caught:
        nodes_of(2, 7, 0)

    assert str(caught.value).startswith(
        f"no such character device: {HOST}/dev/nvidia-caps/nvidia-cap{ZERO}; "
    )
    assert "DeviceFileModify: 0" in str(caught.value)
    assert str(caught.value).endswith(f"with: nvidia-modprobe -f {ACCESS_OF_CI}")
    assert list(caps.iterdir()) == [caps / f"nvidia-cap{NULL}"]


def test_a_missing_node_that_cannot_be_made_is_named_with_the_cause(tmp_path, nodes_of):
    (tmp_path / "driver" / "dev").mkdir(parents=True)
    (tmp_path / "driver" / "dev" / "nvidia-caps").touch()

    with pytest.raises(errors.Retryable) as caught:
        nodes_of(2, 7, 0)

    assert f"nvidia-cap{NULL}; making it failed: Not a directory. " in str(caught.value)
    assert str(caught.value).endswith(f"with: nvidia-modprobe -f {ACCESS}")


def test_a_file_in_place_of_a_node_is_left_and_named(caps, nodes_of):
    if not can_make_nodes(caps):
        pytest.skip("making device nodes needs root")
    (caps / f"nvidia-cap{NULL}").unlink()
    (caps / f"nvidia-cap{NULL}").write_text("mine")

    with pytest.raises(errors.Retryable, match="something else is in its place"):
        nodes_of(2, 7, 0)

    assert (caps / f"nvidia-cap{NULL}").read_text() == "mine"


def test_a_node_of_another_device_is_refused_with_both(caps, nodes_of):
    (caps / f"nvidia-cap{ZERO}").unlink()
    (caps / f"nvidia-cap{ZERO}").symlink_to("/dev/full")

    with pytest.raises(errors.Rejected) as caught:
        nodes_of(2, 7, 0)

    text = str(caught.value)
    assert f"nvidia-cap{ZERO} is the character device 1:{FULL}, and {ACCESS_OF_CI}" in text
    assert f"belongs to 1:{ZERO}" in text
    assert text.endswith(f"with: nvidia-modprobe -f {ACCESS_OF_CI}")


def test_a_node_of_another_module_is_refused(proc, caps, nodes_of):
    (proc / "devices").write_text(DEVICES.replace("  1 nvidia-caps", "234 nvidia-caps"))

    with pytest.raises(errors.Rejected, match=f"1:{NULL}, and .* belongs to 234:{NULL};"):
        nodes_of(2, 7, 0)
