"""A node that is not as the plugin needs it: it stays alive, tells what it waits for, and goes on.

The plugin is a process of its own; what is told is what the probes of its container get.
"""

import pathlib
import subprocess
import sys
import threading

import api_cluster
import doctor_scene
import plugin_process
import pytest

from dra_driver import errors, settings
from dra_driver.apps.node import host
from dra_driver.apps.plugin import kubelet_plugin, probe
from dra_driver.model import devices
from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_errors, gpu_faults

pytestmark = pytest.mark.sampled(13)

CODES = gpu_errors.CODES
GROUP = "/apis/resource.k8s.io"
NO_NODE = (
    "ValidatingAdmissionPolicy 'dra-driver-kubelet-plugin-slices' with binding "
    "'dra-driver-kubelet-plugin-slices' denied request: the token names no node; the kubelet "
    "plugin must use the token of its own pod"
)


@pytest.fixture
def config(own_machine):
    """Settings of the probes."""
    return settings.KubeletPlugin(node_name=api_cluster.NODE, kubelet_root=own_machine.kubelet)


@pytest.fixture
def probed(config):
    """What the readiness probe gets: a reason, or nothing."""

    def ask():
        try:
            probe.check(config)
        except errors.Retryable as error:
            return str(error)
        return ""

    return ask


@pytest.fixture
def waits(probed, config):
    """Fails unless the plugin comes to wait for what has all these words, and says so once.

    The startup and the liveness probe pass.
    """

    def check(plugin, event, *words):
        def told():
            lines = plugin.log(event)
            return [line["reason"] for line in lines if all(w in line["reason"] for w in words)]

        [reason] = api_cluster.wait_for(told, f"{event} {words}: {plugin.log_text()}")
        api_cluster.wait_for(lambda: reason in probed(), f"probe: {reason}; it says {probed()}")
        probe.check(config, allow_starting=True)
        assert told() == [reason]
        assert plugin.is_running()

    return check


@pytest.fixture
def recovers(probed, own_cluster):
    """Fails unless the plugin becomes ready by itself, and prepares a claim."""

    def check(plugin):
        # Between the last look and the next one there is neither a reason nor a socket.
        api_cluster.wait_for(plugin.registration_socket.exists, plugin.log_text())
        plugin.register()
        api_cluster.wait_for(lambda: probed() == "", f"ready; {plugin.log_text()}")
        own_cluster.wait_devices("gpu-0", "gpu-1")
        ref = own_cluster.claim("gpu-0")
        assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
        assert plugin.stop() == 0

    return check


# Directories


def test_the_kubelet_s_directory(own_plugin, own_machine, waits, recovers):
    own_machine.registry.rmdir()
    plugin = own_plugin().spawn()
    waits(plugin, "waiting", f"registration directory {own_machine.registry}", "--kubelet-root")
    assert not own_machine.registry.exists()
    own_machine.registry.mkdir()
    recovers(plugin)


def test_the_plugin_s_directory(own_plugin, own_machine, waits, recovers):
    above = own_machine.plugin.parent
    above.touch()
    plugin = own_plugin().spawn()
    waits(plugin, "waiting", "plugin directory", f"{above}: not a directory", "--plugin-dir")
    above.unlink()
    recovers(plugin)


def test_the_directory_of_records(own_plugin, own_machine, waits, recovers):
    state = own_machine.root / "state"
    state.touch()
    plugin = own_plugin(state_dir=state).start()
    waits(plugin, "waiting", f"state directory {state}", "not a directory", "--state-dir")
    state.unlink()
    recovers(plugin)


def test_the_directory_of_cdi_specs(own_plugin, own_machine, own_cluster, waits, recovers):
    own_machine.cdi.touch()
    plugin = own_plugin().start()
    waits(plugin, "waiting", f"CDI directory {own_machine.cdi}", "not a directory", "--cdi-dir")
    assert "CDI directory" in plugin.kubelet.refusal(own_cluster.claim("gpu-0"), timeout=4)
    own_machine.cdi.unlink()
    recovers(plugin)


def test_something_else_on_the_disk(own_plugin, own_machine, waits, recovers):
    """As when it is full."""
    own_machine.plugin.mkdir(parents=True)
    own_machine.records.touch()
    plugin = own_plugin().start()
    waits(plugin, "waiting", str(own_machine.records), "File exists", "It is tried again")
    own_machine.records.unlink()
    recovers(plugin)


@pytest.mark.parametrize("name", ["registry", "plugin", "cdi"])
def test_a_directory_that_takes_no_files(own_plugin, own_machine, waits, recovers, name):
    """As on a file system that is mounted read-only."""
    path = getattr(own_machine, name)
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rmdir()
    path.symlink_to("/proc")
    plugin = own_plugin().spawn()
    waits(plugin, "waiting", f"no file can be put there: {path}", "mount it writable")
    path.unlink()
    path.mkdir(exist_ok=True)  # The plugin makes its own one.
    recovers(plugin)


def test_a_name_that_no_socket_can_get_is_an_error_and_leaves_nothing(own_plugin, own_machine):
    """Nothing of it would be seen by waiting: what is in the way is not a directory's state."""
    name = f"{own_machine.registry.name}/gpu.nvidia.com-reg.sock"
    (own_machine.registry.parent / name).mkdir()
    plugin = own_plugin().spawn()
    assert plugin.wait_exit() == 1
    assert f"Is a directory: '{own_machine.registry}" in plugin.log_text()
    assert "Traceback" not in plugin.log_text()
    assert not plugin.service_socket.exists()


def test_a_plugin_that_waits_for_directories_can_be_stopped(own_plugin, own_machine):
    own_machine.registry.rmdir()
    waiting = own_plugin().spawn()
    waiting.wait_log("waiting")
    assert waiting.stop() == 0
    own_machine.registry.mkdir()
    own_machine.cdi.touch()
    waiting = own_plugin().start()
    waiting.wait_log("waiting", count=2)
    assert waiting.stop() == 0


# The NVIDIA driver


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "install the NVIDIA driver"),
        ("NVML_ERROR_DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("NVML_ERROR_OPERATING_SYSTEM", "/dev/nvidia*"),
    ],
)
def test_a_driver_that_does_not_answer(own_plugin, own_machine, waits, recovers, name, remedy):
    gpu_faults.inject(own_machine.simulation, error=CODES[name], function="nvmlInitWithFlags")
    plugin = own_plugin().start()
    waits(plugin, "not ready", "no GPU can be seen", remedy)
    own_machine.heal_gpus()
    recovers(plugin)


def test_a_driver_that_is_unloaded_later(own_plugin, own_machine, own_cluster, waits, recovers):
    plugin = own_plugin().start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    gpu_faults.inject(
        own_machine.simulation,
        error=CODES["NVML_ERROR_DRIVER_NOT_LOADED"],
        function="nvmlInitWithFlags",
    )
    waits(plugin, "not ready", "no GPU can be seen", "modprobe nvidia")
    own_machine.heal_gpus()
    recovers(plugin)


def test_a_driver_root_without_a_driver(own_plugin, own_machine, waits):
    """What is loaded here is the real library, which is not there."""
    empty = own_machine.root / "empty"
    plugin = own_plugin(gpus=None, driver_root="/run/nvidia/driver", driver_root_seen=empty).start()
    waits(plugin, "not ready", "no libnvidia-ml.so.1", "--driver-root", "--library-dirs")
    [line] = plugin.log("not ready")
    has_nodes = pathlib.Path("/dev/nvidiactl").exists()
    assert ("/dev/nvidiactl (make it with: nvidia-modprobe" in line["reason"]) is not has_nodes


@pytest.fixture
def started(own_machine, own_cluster):
    """The plugin in this process, with simulated GPUs behind a driver that is installed."""
    node = doctor_scene.Node(own_machine, own_cluster.kubeconfig)
    node.install()
    config = node.real(mig_mode="off")
    stop = threading.Event()
    threads = []

    def start():
        plugin = kubelet_plugin.KubeletPlugin(
            config, lambda: node.served(config, "t4:1"), user_agent="dra-driver/test"
        )
        threads.append(plugin_process.in_background(lambda: plugin.run(stop)))
        return node.host

    yield start
    stop.set()
    for thread in threads:
        thread.join(api_cluster.DEADLINE)
        assert not thread.is_alive()


@pytest.fixture
def ready(own_machine, started, probed):
    """The root of its node; it waits for nothing."""
    host_root = started()
    socket = own_machine.registry / "gpu.nvidia.com-reg.sock"
    api_cluster.wait_for(socket.exists, "the registration socket")
    plugin_process.register(socket)
    api_cluster.wait_for(lambda: probed() == "", f"ready: {probed()}")
    return host_root


def test_device_nodes_that_are_missing(ready, probed):
    dev = ready / "dev"
    for name in ("nvidia0", "nvidia-uvm"):
        (dev / name).unlink()
    reason = probed()
    assert "no such character device: /dev/nvidia-uvm (make it with: nvidia-modprobe" in reason
    assert "/dev/nvidia0 (make it with: nvidia-modprobe -c 0)" in reason
    for name in ("nvidia0", "nvidia-uvm"):
        (dev / name).symlink_to("/dev/null")
    assert probed() == ""


def test_libraries_that_were_replaced_before_the_module_was(ready, probed):
    """As after an update of packages, until the reboot: no container could be given the driver."""
    old = ready / doctor_scene.LIBRARIES / f"libcuda.so.{doctor_scene.VERSION}"
    new = old.rename(old.with_name("libcuda.so.590.1"))
    reason = probed()
    assert f"no libcuda.so.{doctor_scene.VERSION} in " in reason
    assert "there is that of 590.1: kernel module and libraries are of different versions" in reason
    new.rename(old)
    assert probed() == ""


def test_a_real_node_is_looked_at_for_device_nodes(own_machine, own_cluster):
    node = doctor_scene.Node(own_machine, own_cluster.kubeconfig)
    node.install()
    found = host.hardware(node.real())
    gpus = [nvml_gpu(minor) for minor in (0, 1, 7)]
    assert found.missing(gpus[:2]) is None
    assert "/dev/nvidia7 (make it with: nvidia-modprobe -c 7)" in found.missing(gpus)


def nvml_gpu(minor):
    address = devices.PciAddress("0000:01:00.0")
    uuid = devices.GpuUuid(f"GPU-{minor}")
    version = doctor_scene.VERSION
    return devices.Gpu(minor, minor, uuid, "A GPU", address, driver_version=version)


# The API server


def test_an_api_server_that_is_away_and_then_has_no_such_node(
    own_plugin, own_cluster, waits, recovers
):
    own_cluster.stop()
    plugin = own_plugin().start()
    waits(plugin, "not ready", "API server", "no answer", "kubectl get --raw /readyz")
    own_cluster.start()
    waits(plugin, "not ready", "Node object get nodes node-1", "--node-name")
    own_cluster.create_node()
    recovers(plugin)


@pytest.mark.parametrize(
    ("hit", "fault", "words"),
    [
        (
            lambda call: call.path == GROUP,
            options.Fault(status=404, reason="NotFound", message="no such group"),
            ("offers no version", "--runtime-config=resource.k8s.io/v1beta1=true"),
        ),
        (
            lambda call: (call.resource, call.verb) == ("resourceslices", "create"),
            options.Fault(status=422, reason="Invalid", message=NO_NODE),
            ("writing slices", "the token names no node", "Remedy: use the token of the plugin's"),
        ),
        (
            lambda call: (
                (call.resource, call.verb, call.dry_run) == ("resourceslices", "create", False)
            ),
            options.Fault(status=422, reason="Invalid", message="spec.devices[0]: too long"),
            ("ResourceSlices are not published", "spec.devices[0]: too long"),
        ),
        (
            lambda call: (call.resource, call.verb) == ("nodes", "get"),
            options.Fault(status=403, reason="Forbidden", message="may not get"),
            ("Node object", "may not get", "apply the chart's roles anew"),
        ),
    ],
    ids=["the API is off", "the token names no node", "a slice is refused", "a role lacks a right"],
)
def test_an_api_server_that_refuses(own_plugin, own_cluster, waits, recovers, hit, fault, words):
    with own_cluster.faults.where(lambda call: fault if hit(call) else None):
        plugin = own_plugin().start()
        waits(plugin, "not ready", *words)
    recovers(plugin)


def test_an_api_server_that_goes_away_later_leaves_the_pod_ready(own_plugin, own_cluster, probed):
    """Or all pods of the DaemonSet would change with it."""
    plugin = own_plugin().start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    plugin.register()
    api_cluster.wait_for(lambda: probed() == "", "ready")
    own_cluster.stop()
    own_cluster.start()
    plugin.wait_log("ResourceSlices not published")
    assert probed() == ""


# The probes' own command


def test_the_command_of_the_probes_tells_what_is_waited_for(own_plugin, own_machine):
    own_machine.registry.rmdir()
    plugin = own_plugin().spawn()
    plugin.wait_log("waiting")
    command = (sys.executable, "-m", "dra_driver", "probe", "--node-name", api_cluster.NODE)
    flags = ("--kubelet-root", str(own_machine.kubelet))
    ready = subprocess.run(
        [*command, *flags], check=False, capture_output=True, text=True, timeout=60
    )
    assert ready.returncode == 1
    assert f"registration directory {own_machine.registry}: it is absent" in ready.stderr
    alive = subprocess.run([*command, *flags, "--allow-starting"], check=False, timeout=60)
    assert alive.returncode == 0
