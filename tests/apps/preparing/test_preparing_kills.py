"""The driver is killed before each single step of its work, started again and asked again."""

import functools

import effort
import plugin_victim
import pytest

pytestmark = pytest.mark.deep


def test_a_prepare_killed_before_any_step_gives_the_same_when_asked_again(
    victim, checks, own_cluster
):
    kubelet = victim.start(1)
    for number in effort.steps(2):
        ref = own_cluster.claim("gpu-0")
        if not victim.dies_in(functools.partial(kubelet.prepare, ref)):
            break
        checks.is_written_ahead(ref)
        kubelet = victim.start(number)
        checks.is_cleared_up(ref)
        checks.works(kubelet, ref, "gpu-0")
    assert victim.steps(ref) == [*plugin_victim.PREPARE, "answer"]
    checks.works(kubelet, ref, "gpu-0")


def test_an_unprepare_killed_before_any_step_leaves_a_claim_that_works(
    victim, checks, own_cluster, own_machine
):
    kubelet = victim.start(1)
    for number in effort.steps(2):
        ref = own_cluster.claim("gpu-0")
        kubelet.prepare(ref)
        if not victim.dies_in(functools.partial(kubelet.unprepare, ref)):
            break
        checks.is_written_ahead(ref)
        kubelet = victim.start(number)
        checks.is_cleared_up(ref)
        left = own_machine.contents()
        kubelet.unprepare(ref)
        checks.is_free()
        # The kubelet may as well ask for the claim again, for another pod.
        own_machine.restore(left)
        checks.works(kubelet, ref, "gpu-0")
    assert victim.steps(ref) == [*plugin_victim.UNDO, "answer"]
    checks.is_free()


@pytest.mark.exhaustive
def test_a_claim_given_other_devices_ends_with_those_alone_wherever_its_prepare_is_killed(
    victim, checks, own_cluster
):
    undo = plugin_victim.UNDO
    kubelet = victim.start(1)
    # What follows the undoing is a prepare like any other.
    for number in range(2, len(undo) + 3):
        ref = own_cluster.claim("gpu-0")
        kubelet.prepare(ref)
        own_cluster.reallocate(ref, "gpu-1")
        assert victim.dies_in(functools.partial(kubelet.prepare, ref))
        checks.is_written_ahead(ref)
        kubelet = victim.start(number)
        checks.is_cleared_up(ref)
        checks.works(kubelet, ref, "gpu-1")
    assert victim.steps(ref) == [*undo, plugin_victim.PREPARE[0]]
