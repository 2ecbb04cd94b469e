"""Two instances on one node, as while the DaemonSet is updated with surge."""

import functools

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters import kube

OLD = "0b1ff5a4-6f7e-4d6c-9d5e-1a2b3c4d5e6f"
NEW = "f3a7c1d2-1111-4222-8333-944455556666"
WRITTEN = "ResourceSlices written"


@pytest.fixture
def old(own_plugin, own_cluster):
    plugin = own_plugin(rolling_update_uid=OLD).start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    return plugin


@pytest.fixture
def new(old, own_plugin):
    plugin = own_plugin(rolling_update_uid=NEW).start()
    plugin.wait_log("publishing")
    return plugin


def wipe(cluster):
    before = {item["metadata"]["uid"] for item in cluster.slices()}
    cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
    api_cluster.wait_for(
        lambda: {item["metadata"]["uid"] for item in cluster.slices()} - before, "new slices"
    )
    cluster.wait_devices("gpu-0", "gpu-1")


def test_both_are_there_each_with_sockets_of_its_own(old, new, own_machine):
    for plugin, uid in ((old, OLD), (new, NEW)):
        with plugin.registration() as registration:
            info = registration.get_info()
        assert info.name == "gpu.nvidia.com"
        assert info.endpoint == str(own_machine.plugin / f"dra-{uid}.sock")


def test_the_slices_are_the_same_before_and_after_the_update(old, new, own_cluster):
    before = own_cluster.slices()
    with_both = own_cluster.slices()
    assert old.stop() == 0
    assert own_cluster.slices() == with_both == before
    assert own_cluster.slice_writes() == ["create"]
    assert new.log(WRITTEN) == []


def test_the_newest_publishes(old, new, own_cluster):
    wipe(own_cluster)
    assert (len(old.log(WRITTEN)), len(new.log(WRITTEN))) == (1, 1)
    assert own_cluster.slice_writes() == ["create", "create"]


def test_the_one_that_stops_takes_only_its_own_sockets_away(old, new, own_cluster):
    assert old.stop() == 0
    assert not old.service_socket.exists()
    assert not old.registration_socket.exists()
    ref = own_cluster.claim("gpu-0")
    assert new.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    with new.registration() as registration:
        registration.get_info()
    wipe(own_cluster)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_without_the_newest_the_old_one_answers_and_publishes(old, new, own_cluster, end):
    ref = own_cluster.claim("gpu-0")
    answer = new.kubelet.prepare(ref)
    getattr(new, end)()
    assert old.kubelet.prepare(ref) == answer
    wipe(own_cluster)
    assert len(old.log(WRITTEN)) == 2
    old.kubelet.unprepare(ref)


def test_what_one_has_prepared_the_other_knows_and_unprepares(old, new, own_cluster, own_machine):
    for first, second in ((old, new), (new, old)):
        ref, rival = own_cluster.claim("gpu-0"), own_cluster.claim("gpu-0")
        answer = first.kubelet.prepare(ref)
        assert second.kubelet.prepare(ref) == answer
        assert str(ref) in second.kubelet.refusal(rival)
        second.kubelet.unprepare(ref)
        assert own_machine.files() == []
        assert first.kubelet.prepare(rival) == [plugin_process.device(rival, "gpu-0")]
        first.kubelet.unprepare(rival)


def test_calls_to_both_at_once_do_not_get_in_each_others_way(old, new, own_cluster, own_machine):
    for _ in range(5):
        ref = own_cluster.claim("gpu-0", "gpu-1")
        expected = [plugin_process.device(ref, name) for name in ("gpu-0", "gpu-1")]
        calls = [functools.partial(plugin.kubelet.prepare, ref) for plugin in (old, new)]
        assert plugin_process.at_once(*calls * 4) == [expected] * 8
        assert len(own_machine.files()) == 2
        calls = [functools.partial(plugin.kubelet.unprepare, ref) for plugin in (old, new)]
        plugin_process.at_once(*calls * 4)
        assert own_machine.files() == []


def test_of_two_claims_for_one_device_one_gets_it_whichever_instance_is_asked(
    old, new, own_cluster
):
    for _ in range(5):
        refs = [own_cluster.claim("gpu-0") for _ in range(2)]
        answers = plugin_process.at_once(
            functools.partial(old.kubelet.ask_prepare, refs[0]),
            functools.partial(new.kubelet.ask_prepare, refs[1]),
        )
        errors = [answer.error for each in answers for answer in each.values()]
        assert sorted(map(bool, errors)) == [False, True]
        new.kubelet.unprepare(*refs)


def test_a_held_gpu_that_is_gone_stays_listed_when_the_other_instance_has_prepared_it(
    old, new, own_cluster, own_machine
):
    ref = own_cluster.claim("gpu-1")
    old.kubelet.prepare(ref)
    own_machine.lose_gpus("gpu-1")
    api_cluster.wait_for(
        lambda: own_cluster.slices()[0]["spec"]["devices"][-1].get("taints"), "a taint"
    )
    assert len(own_cluster.wait_devices("gpu-0", "gpu-1")) == 1
    new.kubelet.unprepare(ref)
    own_cluster.wait_devices("gpu-0")
