"""What the probes of the plugin's container find out."""

import contextlib
import subprocess
import sys

import api_cluster
import pytest

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.apps.node import node_directories
from dra_driver.apps.plugin import probe, serving

pytestmark = pytest.mark.sampled(9)


def settings_for(machine, **flags):
    return settings.KubeletPlugin(
        node_name=api_cluster.NODE, kubelet_root=machine.kubelet, cdi_dir=machine.cdi, **flags
    )


def run(machine, *flags):
    command = ("probe", "--node-name", api_cluster.NODE, "--kubelet-root", str(machine.kubelet))
    return subprocess.run(
        [sys.executable, "-m", "dra_driver", *command, *flags],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def service():
    """What answers at the service socket of `answering`: it is starting."""
    return serving.Service(telemetry.Metrics(api_cluster.DRIVER, api_cluster.NODE))


@pytest.fixture
def answering(own_machine, service):
    """Has both sockets answer; `handler` at the service socket, which is told as `endpoint`."""
    config = settings_for(own_machine)
    config.plugin.mkdir(parents=True)
    with contextlib.ExitStack() as stack:

        def answer(handler=service, endpoint=config.service_socket):
            info = dra_grpc.PluginInfo(config.driver_name, str(endpoint))
            for server in (
                dra_grpc.dra_server(config.service_socket, handler),
                dra_grpc.registration_server(config.registration_socket, info, print),
            ):
                server.start()
                stack.callback(server.stop, 0)
            return config

        yield answer


def told(config):
    """Why the readiness probe does not pass; empty if it does."""
    try:
        probe.check(config)
    except errors.Retryable as error:
        return str(error)
    return ""


def test_a_plugin_that_prepares_claims_passes_and_logs_nothing_of_it(plugin, machine):
    plugin.register()
    api_cluster.wait_for(lambda: told(settings_for(machine)) == "", "it is ready")
    before = plugin.log()
    answer = run(machine)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [line for line in plugin.log()[len(before) :] if "operation" in line] == []


def test_a_plugin_that_is_starting_lives_and_is_not_ready(answering):
    config = answering()
    probe.check(config, allow_starting=True)
    with pytest.raises(errors.Retryable, match=r"dra\.sock: the driver is starting"):
        probe.check(config)


def test_a_plugin_that_the_kubelet_does_not_call_is_not_ready(own_plugin, own_machine, own_cluster):
    plugin, config = own_plugin().start(), settings_for(own_machine)
    own_cluster.wait_devices("gpu-0", "gpu-1")
    # It hears of its slices a moment after they are there.
    api_cluster.wait_for(lambda: "not registered " in told(config), f"a reason; {told(config)}")
    assert "--kubelet-root" in told(config)
    probe.check(config, allow_starting=True)
    plugin.register(error="driver name gpu.nvidia.com is taken")
    probe.check(config, allow_starting=True)
    with pytest.raises(errors.Retryable, match=r"kubelet refused .*name .* is taken"):
        probe.check(config)
    plugin.register()
    probe.check(config)


def test_one_that_will_not_become_ready_says_why(answering, service):
    service.failed("no such file: /etc/dra-driver/kubeconfig")
    with pytest.raises(errors.Retryable, match="no such file: /etc/dra-driver/kubeconfig"):
        probe.check(answering())


def test_a_process_that_is_not_there_does_not_pass(own_machine):
    answer = run(own_machine, "--allow-starting")
    assert answer.returncode == 1
    assert f"{own_machine.registry}/gpu.nvidia.com-reg.sock" in answer.stderr
    assert "UNAVAILABLE" in answer.stderr


def test_the_registration_socket_alone_is_not_enough(answering):
    config = answering()
    config.service_socket.unlink()
    with pytest.raises(errors.Retryable, match=r"dra\.sock .*UNAVAILABLE"):
        probe.check(config, allow_starting=True)


def test_a_plugin_whose_registration_directory_is_gone_has_to_be_started_again(answering, service):
    """The directory that is made anew is another one: only a new container has that mounted."""
    service.ready(object())
    config = answering()
    config.registration_socket.unlink()
    config.registry.rmdir()
    for flags in ({"allow_starting": True}, {}):
        with pytest.raises(errors.Retryable, match=f"registration directory {config.registry}"):
            probe.check(config, **flags)


def test_a_plugin_that_waits_for_the_registration_directory_lives(answering, service):
    config = answering()
    config.registration_socket.unlink()
    config.registry.rmdir()
    service.waits_for(node_directories.hindrance_of_sockets(config))
    probe.check(config, allow_starting=True)
    with pytest.raises(errors.Retryable, match=f"registration directory {config.registry}"):
        probe.check(config)


def test_another_instance_s_sockets_do_not_count(answering):
    config = answering(endpoint="/elsewhere/dra.sock")
    with pytest.raises(errors.Retryable, match=r"'/elsewhere/dra\.sock'.* settings of the plugin"):
        probe.check(config, allow_starting=True)


def test_a_driver_that_does_not_answer_for_the_probe_does_not_pass(answering):
    class Other:
        def prepare(self, _refs, _seconds):
            return {}

    with pytest.raises(errors.Retryable, match="another driver answers there"):
        probe.check(answering(Other()), allow_starting=True)


def test_during_a_rolling_update_each_pod_probes_itself(own_plugin, own_machine):
    own_plugin(rolling_update_uid="old").start()
    probe.check(settings_for(own_machine, rolling_update_uid="old"), allow_starting=True)
    with pytest.raises(errors.Retryable, match=r"gpu\.nvidia\.com-new-reg\.sock"):
        probe.check(settings_for(own_machine, rolling_update_uid="new"), allow_starting=True)
