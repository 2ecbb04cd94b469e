"""Calls at the same time: for one claim, for many, for one device."""

import concurrent.futures
import contextlib
import functools

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.system import locks, patience
from dra_driver.model import prepared
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(7)

FILES = 4
"""Of a claim: its record, its spec, what describes its devices, and the mount of that."""
GPUS = 8


@pytest.fixture(scope="module")
def plugin(new_plugin):
    return new_plugin(gpus=f"h100-80gb-hbm3:{GPUS}").start()


@pytest.fixture
def background():
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        yield pool


def test_many_calls_for_one_claim_give_one_answer(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0", "gpu-1")
    expected = plugin_process.devices(ref, "gpu-0", "gpu-1")
    answers = plugin_process.at_once(*[functools.partial(kubelet.prepare, ref)] * 24)
    assert answers == [expected] * 24
    assert len(machine.files()) == FILES
    plugin_process.at_once(*[functools.partial(kubelet.unprepare, ref)] * 24)
    assert machine.files() == []


def test_many_claims_at_once_get_each_its_own(kubelet, cluster, machine):
    for _ in range(3):
        refs = [cluster.claim(f"gpu-{number}") for number in range(GPUS)]
        answers = plugin_process.at_once(*(functools.partial(kubelet.prepare, ref) for ref in refs))
        assert answers == [
            [plugin_process.device(ref, f"gpu-{number}")] for number, ref in enumerate(refs)
        ]
        assert len(machine.files()) == FILES * GPUS
        plugin_process.at_once(*(functools.partial(kubelet.unprepare, ref) for ref in refs))
        assert machine.files() == []


def test_of_many_claims_for_one_device_one_gets_it_and_the_others_hear_who(kubelet, cluster):
    refs = {ref.uid: ref for ref in (cluster.claim("gpu-3") for _ in range(12))}
    answers = plugin_process.at_once(
        *(functools.partial(kubelet.ask_prepare, ref) for ref in refs.values())
    )
    errors = {uid: answer.error for each in answers for uid, answer in each.items()}
    winners = [uid for uid, error in errors.items() if not error]
    assert len(winners) == 1
    named = [str(refs[winners[0]]) in error for uid, error in errors.items() if uid not in winners]
    assert named == [True] * 11


def test_claims_with_the_same_devices_in_another_order_do_not_block_each_other(kubelet, cluster):
    names = [f"gpu-{number}" for number in range(GPUS)]
    refs = [cluster.claim(*names), cluster.claim(*reversed(names))]

    def cycle(ref):
        for _ in range(10):
            kubelet.ask_prepare(ref)
            kubelet.unprepare(ref)

    plugin_process.at_once(*(functools.partial(cycle, ref) for ref in refs))


def test_prepare_and_unprepare_of_one_claim_at_once_end_whole_or_clean(kubelet, cluster, machine):
    ref = cluster.claim("gpu-5")
    expected = [plugin_process.device(ref, "gpu-5")]
    for _ in range(5):
        both = (
            functools.partial(kubelet.ask_prepare, ref),
            functools.partial(kubelet.unprepare, ref),
        )
        answers = plugin_process.at_once(*both * 8)[::2]
        told = {answer[ref.uid].error for answer in answers}
        assert told <= {"", "the claim is unprepared: nobody waits for its devices any more"}
        record = machine.record(ref)
        assert record is None or record.phase is prepared.Phase.COMPLETED
        assert len(machine.files()) == (0 if record is None else FILES)
        assert kubelet.prepare(ref) == expected
        kubelet.unprepare(ref)
        assert machine.files() == []


def test_a_claim_that_waits_for_its_device_does_not_hold_up_another_gpu(
    kubelet, cluster, plugin, background
):
    holder, slow, quick = cluster.claim("gpu-0"), cluster.claim("gpu-0"), cluster.claim("gpu-1")
    kubelet.prepare(holder)
    cluster.delete_claim(holder)
    waiting = background.submit(kubelet.prepare, slow)
    plugin.wait_log("waiting", component="preparer", claim_uid=slow.uid)
    assert kubelet.prepare(quick) == [plugin_process.device(quick, "gpu-1")]
    kubelet.unprepare(quick)
    assert not waiting.done()
    kubelet.unprepare(holder)
    assert waiting.result(api_cluster.DEADLINE) == [plugin_process.device(slow, "gpu-0")]


def test_a_claim_that_waits_for_the_api_server_does_not_hold_up_another_gpu(
    kubelet, cluster, plugin, background
):
    slow, quick = cluster.claim("gpu-0"), cluster.claim("gpu-1")

    def rule(call):
        return options.Fault(status=503) if call.name == slow.name else None

    with cluster.faults.where(rule):
        waiting = background.submit(kubelet.prepare, slow)
        plugin.wait_log("claim not read; trying again", claim_uid=slow.uid)
        assert kubelet.prepare(quick) == [plugin_process.device(quick, "gpu-1")]
        kubelet.unprepare(quick)
        assert not waiting.done()
    assert waiting.result(api_cluster.DEADLINE) == [plugin_process.device(slow, "gpu-0")]


def test_a_claim_that_is_being_worked_on_is_told_by_its_name(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0")
    with (
        contextlib.closing(locks.Locks(machine.plugin / "locks")) as other,
        other.hold([f"claim {ref.uid}"], patience.Patience(1)),
    ):
        told = f"claim default/{ref.name} ({ref.uid}) is in use by another instance of the driver"
        assert told in kubelet.refusal(ref, timeout=4)
        assert told in kubelet.ask_unprepare(ref, timeout=4)[ref.uid].error


def test_calls_that_wait_leave_room_for_the_unprepare_that_they_wait_for(
    kubelet, cluster, plugin, background
):
    holder = cluster.claim("gpu-0")
    kubelet.prepare(holder)
    cluster.delete_claim(holder)
    refs = [cluster.claim("gpu-0") for _ in range(20)]
    waiting = [background.submit(kubelet.ask_prepare, ref) for ref in refs]
    for ref in refs:
        plugin.wait_log("waiting", component="preparer", claim_uid=ref.uid)
    kubelet.unprepare(holder)
    answers = [future.result(api_cluster.DEADLINE) for future in waiting]
    assert sum(not answer.error for each in answers for answer in each.values()) == 1
