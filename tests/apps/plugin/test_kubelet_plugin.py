"""Start, registration and stop of the process."""

import contextlib
import fcntl
import os
import socket
import stat
import threading

import api_cluster
import grpc
import plugin_process
import pytest

from dra_driver import errors, settings
from dra_driver.adapters.kubelet import dra_grpc, dra_protocol
from dra_driver.apps.plugin import kubelet_plugin
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(11)


def test_get_info_tells_the_kubelet_what_it_needs(plugin, machine):
    with plugin.registration() as registration:
        assert registration.get_info(api_cluster.DEADLINE) == dra_grpc.PluginInfo(
            name="gpu.nvidia.com",
            endpoint=str(machine.kubelet / "plugins/gpu.nvidia.com/dra.sock"),
            versions=(
                "v1.DRAPlugin",
                "v1beta1.DRAPlugin",
                "v1.DRAResourceHealth",
                "v1alpha1.DRAResourceHealth",
            ),
            type="DRAPlugin",
        )


def test_what_the_kubelet_makes_of_the_registration_is_in_the_log(plugin):
    with plugin.registration() as registration:
        registration.notify(registered=True)
        registration.notify(registered=False, error="unknown version")
    plugin.wait_log("registered with the kubelet")
    plugin.wait_log("the kubelet refused the registration", reason="unknown version")


def test_nobody_else_may_talk_to_the_sockets(plugin):
    for path in (plugin.service_socket, plugin.registration_socket):
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_call_without_claims_does_no_harm(kubelet):
    assert kubelet.ask_prepare() == {}
    kubelet.unprepare()


def opened_by_1_36(_advertised):
    """It asks every plugin, whatever that advertises."""
    return "v1alpha1.DRAResourceHealth"


def opened_by_1_37(advertised):
    """It asks for what is advertised, v1 first."""
    known = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
    return next(service for service in known if service in advertised)


@pytest.mark.parametrize("opened", [opened_by_1_36, opened_by_1_37])
def test_the_kubelet_hears_of_a_gpu_that_falls_off_the_bus_and_comes_back(
    own_plugin, own_machine, opened
):
    plugin = own_plugin().start()
    with plugin.registration() as registration:
        service = opened(registration.get_info(api_cluster.DEADLINE).versions)
    with grpc.insecure_channel(f"unix:{plugin.service_socket}") as channel:
        watch = channel.unary_stream(
            f"/{service}/NodeWatchResources",
            response_deserializer=dra_protocol.health.NodeWatchResourcesResponse.FromString,
        )
        stream = watch(b"", timeout=api_cluster.DEADLINE)

        def wait(**expected):
            for message in stream:
                if {one.device.device_name: one.health for one in message.devices} == expected:
                    return {one.device.device_name: one.message for one in message.devices}
            raise AssertionError("the stream has ended")

        wait(**{"gpu-0": 1, "gpu-1": 1})
        own_machine.lose_gpus("gpu-1")
        told = wait(**{"gpu-0": 1, "gpu-1": 2})["gpu-1"]
        assert "the GPU is lost" in told or "its GPU is not there any more" in told
        own_machine.heal_gpus()
        wait(**{"gpu-0": 1, "gpu-1": 1})

        # A stream does not hold the end up.
        assert plugin.stop() == 0
        # On a slow machine what was said is said again before.
        assert all(one.health == 1 for message in stream for one in message.devices)


@pytest.fixture
def failing(own_plugin):
    """Starts a plugin that cannot work; what it says of that."""

    def start(**flags):
        plugin = own_plugin(**flags).spawn()
        assert plugin.wait_exit() == 1, plugin.log_text()
        assert plugin.complaints() == []
        return f"\n{plugin.log_text()}".partition("\ndra-driver: ")[2].strip()

    return start


@pytest.mark.parametrize("setting", ["plugin_dir", "registry_dir"])
def test_a_socket_path_that_is_too_long_is_an_error_that_names_the_setting(
    failing, own_machine, setting
):
    long = own_machine.root / ("x" * 100)
    long.mkdir()
    said = failing(**{setting: long})
    assert "at most 106 are possible for a unix socket that is bound under a hidden name" in said
    assert said.endswith(f"Choose a shorter --{setting.replace('_', '-')}")
    assert list(long.iterdir()) == []


def test_a_kubeconfig_that_is_not_there_is_an_error_that_names_it(failing, own_machine):
    missing = own_machine.root / "nowhere"
    said = failing(kubeconfig=missing)
    assert said.startswith(f"kubeconfig {missing}: ")
    assert "Pass --kubeconfig FILE" in said


@pytest.mark.parametrize("text", ["", "[]", "a: [", "clusters: 1", "\x00"])
def test_a_kubeconfig_that_is_none_is_an_error_that_names_it(failing, own_machine, text):
    path = own_machine.root / "kubeconfig"
    path.write_text(text)
    assert failing(kubeconfig=path).startswith(f"kubeconfig {path}: ")


def test_a_boot_id_that_is_not_there_is_an_error_that_names_the_setting(failing, own_machine):
    own_machine.boot_id.unlink()
    said = failing()
    assert str(own_machine.boot_id) in said
    assert "--boot-id-file" in said


def test_gpus_that_cannot_be_simulated_are_an_error_that_names_them(failing):
    assert failing(gpus="h200:1").startswith("GPU model 'h200' is not known; known are: ")


def test_a_metrics_address_that_is_taken_is_an_error_that_names_the_setting(failing):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = failing(metrics_address=address)
    assert said.startswith(f"--metrics-address {address}: cannot listen at 127.0.0.1 port ")
    assert said.endswith("Choose another address, or end who has it")


def test_a_stop_answers_what_is_in_progress_and_leaves_slices_and_claims(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    ref = own_cluster.claim("gpu-0")
    slices = own_cluster.wait_devices("gpu-0", "gpu-1")
    answers = []
    with own_cluster.faults.where(
        lambda call: options.Fault(status=503) if call.name == ref.name else None
    ):
        calling = plugin_process.in_background(lambda: answers.append(plugin.kubelet.prepare(ref)))
        plugin.wait_log("claim not read; trying again", claim_uid=ref.uid)
        os.kill(plugin.pid, 15)
        plugin.wait_log("stopping")
        api_cluster.wait_for(lambda: not plugin.registration_socket.exists(), "no registration")
    calling.join(api_cluster.DEADLINE)
    assert answers == [[plugin_process.device(ref, "gpu-0")]]
    assert plugin.wait_exit() == 0
    assert own_cluster.slices() == slices
    assert not plugin.service_socket.exists()
    assert own_machine.record(ref) is not None
    assert own_machine.spec(ref) is not None
    kept = ["claims", "dra-device-metadata", "gpus", "health", "locks", "names"]
    assert sorted(path.name for path in own_machine.plugin.iterdir()) == kept


def test_a_second_instance_that_takes_the_sockets_over_keeps_them(own_plugin, own_cluster):
    first, second = own_plugin().start(), own_plugin().start()
    assert first.stop() == 0
    ref = own_cluster.claim("gpu-0")
    assert second.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    with second.registration() as registration:
        assert registration.get_info(api_cluster.DEADLINE).name == "gpu.nvidia.com"


@contextlib.contextmanager
def slow_gpus(machine):
    """Inside the block nobody can find out what simulated GPUs there are."""
    path = machine.simulation / ".gpus.json.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_calls_that_come_before_the_driver_is_ready_wait_and_then_work(
    own_plugin, own_cluster, own_machine
):
    ref = own_cluster.claim("gpu-0")
    with slow_gpus(own_machine):
        plugin = own_plugin().start()
        with plugin.registration() as registration:
            registration.get_info(api_cluster.DEADLINE)
        assert plugin.kubelet.refusal(ref, timeout=4) == "the driver is starting"
        answers = []
        calling = plugin_process.in_background(lambda: answers.append(plugin.kubelet.prepare(ref)))
    calling.join(api_cluster.DEADLINE)
    assert answers == [[plugin_process.device(ref, "gpu-0")]]


def test_a_call_that_waits_for_a_start_that_fails_is_told_why(own_plugin, own_machine):
    messages = dra_protocol.dra["v1.DRAPlugin"]
    request = messages.NodePrepareResourcesRequest()
    request.claims.add(namespace="default", name="claim", uid="uid-1")
    missing = own_machine.root / "nowhere"
    with contextlib.ExitStack() as stack:
        with slow_gpus(own_machine):
            plugin = own_plugin(kubeconfig=missing).start()
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{plugin.service_socket}"))
            prepare = channel.unary_unary(
                f"/{dra_protocol.DRA_PACKAGES['v1.DRAPlugin']}.DRAPlugin/NodePrepareResources",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=messages.NodePrepareResourcesResponse.FromString,
            )
            calling = prepare.future(request, timeout=45)
            # The answer to what comes later on the same connection tells that it has come.
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                channel.unary_unary("/none/None")(b"", timeout=api_cluster.DEADLINE)
        answer = calling.result(api_cluster.DEADLINE).claims["uid-1"]
    assert answer.error.startswith(f"kubeconfig {missing}: ")
    assert plugin.wait_exit() == 1


@pytest.fixture
def plugin_here(own_machine, own_cluster):
    """A plugin in this process whose GPUs are an error; it is not started."""
    config = settings.KubeletPlugin(
        node_name=api_cluster.NODE,
        kubeconfig=own_cluster.kubeconfig,
        kubelet_root=own_machine.kubelet,
        cdi_dir=own_machine.cdi,
    )

    def broken():
        raise errors.Fatal("there is no such GPU")

    return kubelet_plugin.KubeletPlugin(config, broken, user_agent="dra-driver/test")


def test_why_a_start_failed_is_what_calls_are_told_until_the_end(plugin_here):
    with pytest.raises(errors.Fatal, match="there is no such GPU"):
        plugin_here.run(threading.Event())
    assert plugin_here._service.hindrance() == "there is no such GPU"


def test_a_plugin_that_is_stopping_opens_no_registration_socket_any_more(plugin_here, own_machine):
    """As a thread would that has just found that it may take over from an older instance."""
    plugin_here._stop()
    with pytest.raises(errors.Fatal, match="the driver is stopping"):
        plugin_here._register(threading.Event())
    assert list(own_machine.registry.iterdir()) == []


def test_settings_come_from_a_file_and_from_the_environment(own_machine, own_cluster, own_plugin):
    file = own_machine.root / "settings.yaml"
    file.write_text("driverName: ignored.example.com\nrescanSeconds: 5\n")
    plugin = own_plugin(config=file).start(DRA_DRIVER_DRIVER_NAME="gpu.nvidia.com")
    own_cluster.wait_devices("gpu-0", "gpu-1")
    assert plugin.stop() == 0
