"""An update with surge: the new instance takes over when it does no worse than the old one."""

import threading

import api_cluster
import plugin_process
import pytest

from dra_driver import errors, settings
from dra_driver.adapters.system import instances
from dra_driver.apps.plugin import kubelet_plugin, probe, succession
from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_errors, gpu_faults

pytestmark = pytest.mark.sampled(13)

OLD = "0b1ff5a4-6f7e-4d6c-9d5e-1a2b3c4d5e6f"
NEW = "f3a7c1d2-1111-4222-8333-944455556666"
WRITTEN = "ResourceSlices written"


@pytest.fixture
def old(own_plugin, own_cluster, probed):
    plugin = own_plugin(rolling_update_uid=OLD).start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    plugin.register()
    # It hears of its slices a moment after they are there.
    api_cluster.wait_for(lambda: probed(OLD) == ("", ""), "ready")
    return plugin


@pytest.fixture
def new_one(own_plugin):
    """The instance of the update, which is started and waited for no further."""

    def start(**flags):
        plugin = own_plugin(rolling_update_uid=NEW, **flags).spawn()
        api_cluster.wait_for(plugin.service_socket.exists, plugin.log_text())
        return plugin

    return start


@pytest.fixture
def probed(own_machine):
    """What the probes get of the instance of a pod: (readiness, liveness), empty if they pass."""

    def ask(uid):
        config = settings.KubeletPlugin(
            node_name=api_cluster.NODE, kubelet_root=own_machine.kubelet, rolling_update_uid=uid
        )
        told = []
        for allow_starting in (False, True):
            try:
                probe.check(config, allow_starting=allow_starting)
                told.append("")
            except errors.Retryable as error:
                told.append(str(error))
        return tuple(told)

    return ask


def takes_over(plugin):
    api_cluster.wait_for(plugin.registration_socket.exists, plugin.log_text())
    plugin.register()


def test_a_new_instance_that_can_work_takes_over_and_is_ready(old, new_one, probed, own_cluster):
    new = new_one()
    takes_over(new)
    api_cluster.wait_for(lambda: probed(NEW) == ("", ""), "ready")
    assert probed(OLD) == ("", "")
    assert new.log("waiting", level="warning") == []


def test_one_that_lacks_what_the_old_one_has_leaves_the_node_to_it_until_then(
    old, new_one, probed, own_machine, own_cluster
):
    broken = own_machine.root / "broken"
    broken.write_text("a file where the directory of CDI specs has to be")
    new = new_one(cdi_dir=broken / "cdi")
    api_cluster.wait_for(
        lambda: probed(NEW)[0].partition(succession.DEFERS)[2].startswith("CDI directory"),
        f"a reason; {probed(NEW)}",
    )
    assert probed(NEW)[1] == ""
    assert not new.registration_socket.exists()
    assert probed(OLD) == ("", "")
    before = own_cluster.slices()
    own_machine.lose_gpus("gpu-1")
    own_cluster.wait_devices("gpu-0")
    own_machine.heal_gpus()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    assert new.log(WRITTEN) == [] != old.log(WRITTEN)
    api_cluster.wait_for(
        lambda: own_cluster.slices()[0]["spec"]["devices"] == before[0]["spec"]["devices"],
        "what was offered before",
    )
    broken.unlink()
    takes_over(new)
    api_cluster.wait_for(lambda: probed(NEW) == ("", ""), "ready")


def test_one_that_sees_no_gpu_takes_none_out_of_the_slices_that_the_old_one_offers(
    old, new_one, own_cluster, probed
):
    new = new_one(simulate_gpus=None, driver_root="/nowhere", driver_root_seen="/nowhere")
    api_cluster.wait_for(lambda: "no GPU can be seen" in probed(NEW)[0], f"a reason: {probed(NEW)}")
    assert succession.DEFERS in probed(NEW)[0]
    assert not new.registration_socket.exists()
    own_cluster.wait_devices("gpu-0", "gpu-1")


def test_one_that_may_not_write_slices_does_not_take_over(old, new_one, own_cluster, probed):
    with own_cluster.faults.where(
        lambda call: (
            options.Fault(status=403, reason="Forbidden", message="slices are not yours")
            if call.verb == "create" and call.resource == "resourceslices"
            else None
        )
    ):
        new = new_one()
        api_cluster.wait_for(
            lambda: [
                line
                for line in new.log("waiting", level="warning")
                if "slices are not yours" in line["reason"]
            ],
            new.log_text(),
        )
        assert not new.registration_socket.exists()
    takes_over(new)
    api_cluster.wait_for(lambda: probed(NEW) == ("", ""), "ready")


def test_one_that_is_to_share_devices_takes_over_though_the_api_server_takes_no_shares(
    own_machine, new_one, probed
):
    cluster = api_cluster.Cluster(disabled_gates=frozenset({"DRAConsumableCapacity"}))
    flags = {"cluster": cluster, "shares": "memory", "gpus": "h100-80gb-hbm3:1"}
    started = []
    try:
        for uid in (OLD, NEW):
            started.append(plugin_process.Plugin(own_machine, rolling_update_uid=uid, **flags))
            started[-1].start()
            takes_over(started[-1])
            api_cluster.wait_for(lambda uid=uid: probed(uid) == ("", ""), f"ready: {probed(uid)}")
        [device] = cluster.wait_devices("gpu-0")[0]["spec"]["devices"]
        assert "allowMultipleAllocations" not in device
        ref = cluster.claim("gpu-0")
        assert started[-1].kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
        started[-1].kubelet.unprepare(ref)
    finally:
        for plugin in started:
            plugin.kill()
        cluster.close()


def test_one_that_is_no_worse_than_the_old_one_takes_over_and_lets_the_update_go_on(
    old, new_one, own_machine, probed
):
    code = gpu_errors.CODES["NVML_ERROR_DRIVER_NOT_LOADED"]
    gpu_faults.inject(own_machine.simulation, error=code, function="nvmlInitWithFlags")
    api_cluster.wait_for(lambda: "no GPU can be seen" in probed(OLD)[0], "the old one suffers")
    new = new_one()
    takes_over(new)
    # As far as the update is concerned it is ready: the old pod goes.
    api_cluster.wait_for(lambda: probed(NEW) == ("", ""), f"ready: {probed(NEW)}")
    old.stop()
    api_cluster.wait_for(lambda: "no GPU can be seen" in probed(NEW)[0], "what is wrong")
    own_machine.heal_gpus()
    api_cluster.wait_for(lambda: probed(NEW) == ("", ""), "ready")


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_one_that_waits_takes_over_when_the_old_one_ends(old, new_one, own_machine, probed, end):
    broken = own_machine.root / "broken"
    broken.touch()
    new = new_one(cdi_dir=broken / "cdi")
    # First it waits for what it loads itself.
    api_cluster.wait_for(lambda: "CDI directory" in probed(NEW)[0], f"a reason; {probed(NEW)}")
    getattr(old, end)()
    takes_over(new)
    assert "CDI directory" in probed(NEW)[0]
    assert succession.DEFERS not in probed(NEW)[0]
    assert probed(NEW)[1] == ""


def test_one_that_makes_itself_known_does_not_take_itself_for_an_older_one(own_machine):
    config = settings.KubeletPlugin(
        node_name=api_cluster.NODE, kubelet_root=own_machine.kubelet, rolling_update_uid=NEW
    )
    config.state.mkdir(parents=True)
    plugin = kubelet_plugin.KubeletPlugin(config, lambda: None, user_agent="test")
    known, go_on, answers = threading.Event(), threading.Event(), []

    class Agent:
        serves = False

        def serve(self):
            self.instance = instances.Instances(config.state)
            known.set()
            assert go_on.wait(api_cluster.DEADLINE)
            self.serves = True

        def has_others(self):
            return self.instance.has_others()

    plugin._serves, agent = True, Agent()
    served = plugin_process.in_background(lambda: plugin._employ(agent))
    assert known.wait(api_cluster.DEADLINE)
    asked = plugin_process.in_background(lambda: answers.append(plugin._has_older()))
    # If nothing keeps it from an answer, it gives one now.
    asked.join(0.2)
    go_on.set()
    for thread in (served, asked):
        thread.join(api_cluster.DEADLINE)
    agent.instance.close()
    assert answers == [False]


def test_one_that_is_stopped_while_it_waits_ends_at_once(old, new_one, own_machine):
    broken = own_machine.root / "broken"
    broken.touch()
    new = new_one(cdi_dir=broken / "cdi")
    new.wait_log("waiting")
    assert new.stop() == 0
    assert not new.service_socket.exists()
    assert old.is_running()
