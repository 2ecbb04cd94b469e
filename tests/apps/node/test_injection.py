"""What containers need of the host's driver: device nodes of this moment, files of a while ago."""

import hook_programs
import pytest
import structlog

from dra_driver import errors
from dra_driver.adapters.driver import capabilities, driver_root
from dra_driver.apps.node import injection
from dra_driver.model import devices, driver, mig

VERSION = "580.159.04"


class Root:
    """See `driver_root.DriverRoot`; counts how often the files were looked for."""

    def __init__(self):
        self.asked = []
        self.hook = None

    def files(self, version):
        self.asked.append(version)
        library = driver.Library(
            "/usr/lib64/libcuda.so.1", "/host/usr/lib64/libcuda.so.1", "libcuda.so.1", ()
        )
        return driver.DriverFiles(version, (library,), (), (), (), self.hook)

    def device_nodes(self, minors):
        names = [f"nvidia{minor}" for minor in sorted(set(minors))]
        return tuple(
            driver.DeviceNode(f"/dev/{name}", f"/host/dev/{name}", 195, number, 0o666)
            for number, name in enumerate([*names, "nvidiactl"])
        )


@pytest.fixture
def root():
    return Root()


@pytest.fixture
def node(tmp_path):
    """procfs of two instances on GPU 1; links to two of the kernel's devices are their nodes."""
    caps = tmp_path / "dev" / "nvidia-caps"
    caps.mkdir(parents=True)
    (tmp_path / "devices").write_text("Character devices:\n  1 nvidia-caps\n")
    for number, name in ((3, "null"), (5, "zero"), (7, "full"), (8, "random")):
        (caps / f"nvidia-cap{number}").symlink_to(f"/dev/{name}")
    for path, number in (("gi3", 3), ("gi3/ci0", 5), ("gi9", 7), ("gi9/ci2", 8)):
        access = tmp_path / "driver/nvidia/capabilities/gpu1/mig" / path / "access"
        access.parent.mkdir(parents=True, exist_ok=True)
        access.write_text(f"DeviceFileMinor: {number}\n")
    return tmp_path


@pytest.fixture
def host(root, node):
    dev = driver_root.Root("/host", node)
    return injection.HostDriver(
        root, capabilities.Capabilities(lambda: dev, node), lambda path: node / path[1:]
    )


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def gpu(minor, version=VERSION):
    return devices.Gpu(
        index=minor,
        minor=minor,
        uuid=devices.GpuUuid(f"GPU-{minor}"),
        product_name="A GPU",
        pci_address=devices.PciAddress("0000:01:00.0"),
        driver_version=version,
    )


def whole(minor, version=VERSION):
    return devices.Grant(gpu(minor, version))


def instance(minor, gi, ci):
    spot = mig.Spot(19, mig.Placement(gi, 1))
    uuid = None if ci is None else mig.MigUuid(f"MIG-{gi}")
    return devices.Grant(gpu(minor), mig.Instance(gi, spot, ci, uuid), "1g.10gb")


def paths(made):
    return {name: [n.path for n in edits.device_nodes] for name, edits in made.devices.items()}


def test_each_gpu_brings_its_node_and_all_bring_the_others(host):
    made = host.injection({"gpu-0": whole(0), "gpu-3": whole(3)})
    assert paths(made) == {
        "gpu-0": ["/dev/nvidia0"],
        "gpu-3": ["/dev/nvidia3"],
    }
    assert [node.path for node in made.common.device_nodes] == ["/dev/nvidiactl"]
    assert [mount.host_path for mount in made.common.mounts] == ["/host/usr/lib64/libcuda.so.1"]


def test_an_instance_brings_the_node_of_its_gpu_and_two_of_its_own(host):
    grants = {"a": instance(1, gi=3, ci=0), "b": instance(1, gi=9, ci=2), "gpu-0": whole(0)}

    made = host.injection(grants)

    caps = "/dev/nvidia-caps/nvidia-cap"
    assert paths(made) == {
        "a": ["/dev/nvidia1", f"{caps}3", f"{caps}5"],
        "b": ["/dev/nvidia1", f"{caps}7", f"{caps}8"],
        "gpu-0": ["/dev/nvidia0"],
    }
    assert [node.path for node in made.common.device_nodes] == ["/dev/nvidiactl"]
    assert [node.host_path for node in made.devices["a"].device_nodes[1:]] == [
        f"/host{caps}3",
        f"/host{caps}5",
    ]


def test_an_instance_that_is_gone_may_be_made_again(host):
    with pytest.raises(errors.Retryable, match="gpu1/mig/gi4/access"):
        host.injection({"a": instance(1, gi=4, ci=0)})


def test_an_instance_without_a_compute_instance_that_spans_it_is_refused(host):
    with pytest.raises(errors.Rejected, match="device 'a': GPU instance 3 of GPU-1 has not one"):
        host.injection({"a": instance(1, gi=3, ci=None)})


def test_files_are_looked_for_once_in_a_while_and_after_an_update_of_the_driver(
    host, root, monkeypatch
):
    for version in (VERSION, VERSION, "590.1.2", "590.1.2"):
        host.injection({"gpu-0": whole(0, version)})
    assert root.asked == [VERSION, "590.1.2"]
    monkeypatch.setattr(injection, "KEEP_SECONDS", -1.0)
    host.injection({"gpu-0": whole(0, "590.1.2")})
    assert root.asked == [VERSION, "590.1.2", "590.1.2"]


def test_a_driver_that_does_not_tell_its_version_may_do_so_later(host):
    with pytest.raises(errors.Retryable, match="nvidia-smi"):
        host.injection({"gpu-0": whole(0, None)})


def commands(edits):
    return [hook.args[1] for hook in edits.common.hooks]


def test_a_hook_that_has_all_commands_is_used_in_full(host, root, node, log):
    root.hook = "/opt/hook"
    hook_programs.put(node / "opt/hook")

    assert commands(host.injection({"gpu-1": whole(1)})) == [*driver.HOOK_COMMANDS]
    assert log == []


def test_an_older_hook_is_given_only_commands_that_it_has(host, root, node, log):
    """One that it does not know would keep each container from starting."""
    root.hook = "/opt/hook"
    hook_programs.put(node / "opt/hook", hook_programs.V1_16)

    edits = host.injection({"gpu-1": whole(1)})

    assert commands(edits) == ["create-symlinks", "update-ldcache"]
    assert "LD_LIBRARY_PATH" not in edits.common.env
    [line] = log
    assert line["event"] == "nvidia-cdi-hook is not used in full"
    assert line["reason"] == (
        "/opt/hook is old: containers are made without enable-cuda-compat (toolkit 1.17.5), "
        "disable-device-node-modification (toolkit 1.18). Remedy: install "
        "nvidia-container-toolkit-base 1.18 or newer, or set --cdi-hook"
    )


def test_a_hook_without_what_is_needed_is_left_alone(host, root, node, log):
    root.hook = "/opt/hook"
    hook_programs.put(node / "opt/hook", ["chmod", "create-symlinks"])

    edits = host.injection({"gpu-1": whole(1)}).common

    assert edits.hooks == ()
    assert edits.env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert {mount.container_path for mount in edits.mounts} == {
        "/usr/local/nvidia/lib64/libcuda.so.1"
    }
    [line] = log
    assert line["reason"].startswith(
        "/opt/hook is old: it has no update-ldcache, and is not used; containers find "
    )


def test_a_hook_that_cannot_be_asked_is_given_what_each_release_has(host, root, log):
    root.hook = "/opt/hook"

    assert commands(host.injection({"gpu-1": whole(1)})) == ["create-symlinks", "update-ldcache"]
    assert "could not be asked for its commands" in log[0]["reason"]


def test_what_a_hook_lacks_is_told_once_until_that_changes(host, root, node, log, monkeypatch):
    monkeypatch.setattr(injection, "KEEP_SECONDS", 0.0)
    root.hook = "/opt/hook"
    for release in (*2 * [hook_programs.V1_16], hook_programs.V1_18, hook_programs.V1_16):
        hook_programs.put(node / "opt/hook", release)
        host.injection({"gpu-1": whole(1)})
        host.injection({"gpu-1": whole(1)})

    assert len(log) == 2
