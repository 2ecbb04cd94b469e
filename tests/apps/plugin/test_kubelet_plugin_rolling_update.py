"""Two instances on one node, as while the DaemonSet is updated with surge."""

import functools
import socket

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kube import kube

pytestmark = pytest.mark.sampled(9)

OLD = "0b1ff5a4-6f7e-4d6c-9d5e-1a2b3c4d5e6f"
NEW = "f3a7c1d2-1111-4222-8333-944455556666"
WRITTEN = "ResourceSlices written"


@pytest.fixture(scope="module")
def old(new_plugin, cluster):
    plugin = new_plugin(rolling_update_uid=OLD).start()
    cluster.wait_devices("gpu-0", "gpu-1")
    plugin.wait_log(WRITTEN)
    return plugin


@pytest.fixture(scope="module")
def new(old, new_plugin):
    return wait_newest(new_plugin(rolling_update_uid=NEW).start())


@pytest.fixture
def own_old(own_plugin, own_cluster):
    plugin = own_plugin(rolling_update_uid=OLD).start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    plugin.wait_log(WRITTEN)
    return plugin


@pytest.fixture
def own_new(own_old, own_plugin):
    return wait_newest(own_plugin(rolling_update_uid=NEW).start())


def wait_newest(plugin):
    """The plugin, once it publishes in place of the older one."""
    plugin.wait_log("publishing")
    # The line follows what makes it the newest, and the sockets come before.
    plugin.wait_log("sockets open")
    return plugin


def wipe(cluster):
    before = {item["metadata"]["uid"] for item in cluster.slices()}
    cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
    api_cluster.wait_for(
        lambda: {item["metadata"]["uid"] for item in cluster.slices()} - before, "new slices"
    )
    cluster.wait_devices("gpu-0", "gpu-1")


def test_both_are_there_each_with_sockets_of_its_own(old, new, machine):
    for plugin, uid in ((old, OLD), (new, NEW)):
        with plugin.registration() as registration:
            info = registration.get_info(api_cluster.DEADLINE)
        assert info.name == "gpu.nvidia.com"
        assert info.endpoint == str(machine.plugin / f"dra-{uid}.sock")


def test_sockets_of_instances_that_were_killed_are_cleared_away(own_plugin, own_machine):
    own_machine.plugin.mkdir(parents=True)
    dead = [
        own_machine.registry / f"gpu.nvidia.com-{OLD}-reg.sock",
        own_machine.plugin / f"dra-{OLD}.sock",
    ]
    others = [own_machine.registry / f"other.example.com-{OLD}-reg.sock"]
    for path in (*dead, *others):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    new = own_plugin(rolling_update_uid=NEW).start()
    assert [path.exists() for path in dead] == [False, False]
    assert [path.exists() for path in others] == [True]
    with new.registration() as registration:
        registration.get_info(api_cluster.DEADLINE)


def test_the_sockets_of_a_live_instance_stay(own_old, own_new):
    with own_old.registration() as registration:
        registration.get_info(api_cluster.DEADLINE)
    assert own_old.service_socket.exists()


def test_the_newest_publishes(own_old, own_new, own_cluster):
    wipe(own_cluster)
    # The line follows the write, so the slices can be there before it.
    own_new.wait_log(WRITTEN)
    assert [len(plugin.log(WRITTEN)) for plugin in (own_old, own_new)] == [1, 1]


def test_an_update_leaves_the_slices_as_they_are_and_the_new_sockets_where_they_are(
    own_old, own_plugin, own_cluster
):
    before = own_cluster.slices()
    new = wait_newest(own_plugin(rolling_update_uid=NEW).start())
    assert own_old.stop() == 0
    assert not own_old.service_socket.exists()
    assert not own_old.registration_socket.exists()
    ref = own_cluster.claim("gpu-0")
    assert new.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    with new.registration() as registration:
        registration.get_info(api_cluster.DEADLINE)
    assert own_cluster.slices() == before
    wipe(own_cluster)
    assert own_cluster.slice_writes() == ["create", "create"]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_without_the_newest_the_old_one_answers_and_publishes(own_old, own_new, own_cluster, end):
    ref = own_cluster.claim("gpu-0")
    answer = own_new.kubelet.prepare(ref)
    getattr(own_new, end)()
    assert own_old.kubelet.prepare(ref) == answer
    wipe(own_cluster)
    assert len(own_old.wait_log(WRITTEN, count=2)) == 2
    own_old.kubelet.unprepare(ref)


def test_what_one_has_prepared_the_other_knows_and_unprepares(old, new, cluster, machine):
    for first, second in ((old, new), (new, old)):
        ref, rival = cluster.claim("gpu-0"), cluster.claim("gpu-0")
        answer = first.kubelet.prepare(ref)
        assert second.kubelet.prepare(ref) == answer
        assert str(ref) in second.kubelet.refusal(rival)
        second.kubelet.unprepare(ref)
        assert machine.files() == []
        assert first.kubelet.prepare(rival) == [plugin_process.device(rival, "gpu-0")]
        first.kubelet.unprepare(rival)


def test_calls_to_both_at_once_do_not_get_in_each_others_way(old, new, cluster, machine):
    for _ in range(5):
        ref = cluster.claim("gpu-0", "gpu-1")
        expected = plugin_process.devices(ref, "gpu-0", "gpu-1")
        calls = [functools.partial(plugin.kubelet.prepare, ref) for plugin in (old, new)]
        assert plugin_process.at_once(*calls * 4) == [expected] * 8
        # Its record, its spec, and its description with the mount of that.
        assert len(machine.files()) == 4
        calls = [functools.partial(plugin.kubelet.unprepare, ref) for plugin in (old, new)]
        plugin_process.at_once(*calls * 4)
        assert machine.files() == []


def test_of_two_claims_for_one_device_one_gets_it_whichever_instance_is_asked(old, new, cluster):
    for _ in range(5):
        refs = [cluster.claim("gpu-0") for _ in range(2)]
        answers = plugin_process.at_once(
            functools.partial(old.kubelet.ask_prepare, refs[0]),
            functools.partial(new.kubelet.ask_prepare, refs[1]),
        )
        errors = [answer.error for each in answers for answer in each.values()]
        assert sorted(map(bool, errors)) == [False, True]
        new.kubelet.unprepare(*refs)


def test_a_held_gpu_that_is_gone_stays_listed_when_the_other_instance_has_prepared_it(
    old, new, cluster, machine
):
    ref = cluster.claim("gpu-1")
    old.kubelet.prepare(ref)
    machine.lose_gpus("gpu-1")
    api_cluster.wait_for(
        lambda: cluster.slices()[0]["spec"]["devices"][-1].get("taints"), "a taint"
    )
    assert len(cluster.wait_devices("gpu-0", "gpu-1")) == 1
    cluster.delete_claims()
    new.kubelet.unprepare(ref)
    cluster.wait_devices("gpu-0")
    machine.heal_gpus()
    cluster.wait_devices("gpu-0", "gpu-1")
