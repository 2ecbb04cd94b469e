"""NVML calls that fail while a claim's MIG instances are made or unmade."""

import mig_node
import pytest

from dra_driver import errors
from dra_driver.model import prepared
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(4)

FIRST, SECOND, OTHER_CARD = mig_node.FIRST, mig_node.SECOND, mig_node.OTHER_CARD

UNKNOWN, NO_PERMISSION, IN_USE, NO_ROOM, LOST = 999, 4, 19, 23, 15

MAKING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
)
"""What making an instance on a GPU without MIG mode calls, and reading it calls not."""
UNMAKING = ("nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy")


@pytest.mark.parametrize("function", MAKING[:2] + MAKING[4:5])
@pytest.mark.parametrize("error", [IN_USE, UNKNOWN, NO_ROOM])
def test_what_may_work_in_a_moment_is_tried_again_inside_the_call(
    node, api, faults, function, error
):
    faults(error=error, function=function, times=2)
    ref = api.make(FIRST)
    node.prepare(ref)
    assert node.instances() == [(19, 6, 1)]
    assert node.record(ref).phase is prepared.Phase.COMPLETED
    node.unprepare(ref)
    assert node.is_clean()


@pytest.mark.parametrize("function", MAKING[:2] + MAKING[4:5])
def test_what_will_not_work_is_undone_at_once_and_says_why(node, api, faults, function):
    faults(error=NO_PERMISSION, function=function)
    with pytest.raises(errors.Rejected, match="run the plugin as root and privileged"):
        node.prepare(api.make(SECOND))
    assert node.is_clean()


def test_a_profile_of_compute_instances_that_nvml_does_not_tell_for_a_moment_is_asked_for_again(
    node, api, faults
):
    faults(error=UNKNOWN, function="nvmlGpuInstanceGetComputeInstanceProfileInfo", times=1)
    node.prepare(api.make(FIRST))
    assert node.instances() == [(19, 6, 1)]


@pytest.mark.parametrize("function", MAKING[:2] + MAKING[4:5])
@pytest.mark.parametrize("error", [IN_USE, UNKNOWN, NO_ROOM])
def test_what_does_not_work_in_time_is_undone(node, api, faults, function, error):
    faults(error=error, function=function)
    with pytest.raises(errors.Retryable, match=node.uuid()):
        node.prepare(api.make(FIRST), seconds=0.1)
    assert node.is_clean()


@pytest.mark.parametrize("devices", [(FIRST, SECOND), (FIRST, OTHER_CARD)])
@pytest.mark.parametrize("number", range(2))
def test_of_two_partitions_none_is_left_if_one_fails(node, api, failing_call, devices, number):
    calls = failing_call(node.nvml, "create_compute", errors.Rejected("no"), number)
    with pytest.raises(errors.Rejected, match="no"):
        node.prepare(api.make(*devices))
    assert len(calls) == number + 1
    assert node.is_clean()


def test_what_is_undone_is_undone_in_reverse(node, api, failing_call, monkeypatch):
    order = []
    for name in ("create", "create_compute", "destroy", "destroy_compute", "set_mode"):
        noting(monkeypatch, node.nvml, name, order)
    failing_call(node.nvml, "create_compute", errors.Rejected("no"), 1)
    with pytest.raises(errors.Rejected, match="no"):
        node.prepare(api.make(FIRST, SECOND))
    assert order == [
        ("set_mode", True),
        ("create", 6),
        ("create_compute", 0),
        ("create", 0),
        ("destroy", 1),
        ("destroy_compute", 0),
        ("destroy", 0),
        ("set_mode", False),
    ]


def test_an_instance_beside_that_of_another_claim_is_undone_and_the_other_stays(node, api, faults):
    ref = api.make(FIRST)
    node.prepare(ref)
    before = node.mig_uuids()
    faults(error=NO_PERMISSION, function="nvmlGpuInstanceCreateComputeInstance")
    with pytest.raises(errors.Rejected):
        node.prepare(api.make(SECOND))
    assert (node.mig_uuids(), node.instances()) == (before, [(19, 6, 1)])
    assert node.card().mig_enabled
    gpu_faults.clear(node.simulation)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_gpu_that_a_process_uses_is_told_of_with_who_it_is(node, api):
    node.occupy(4711, command="trainer")
    with pytest.raises(errors.Retryable, match=r"4711.*trainer|trainer.*4711"):
        node.prepare(api.make(FIRST), seconds=0.1)
    assert node.is_clean()


@pytest.mark.parametrize("function", [MAKING[1], MAKING[4]])
def test_an_instance_that_a_process_keeps_from_being_made_is_told_of_with_who_it_is(
    node, api, faults, function
):
    node.set_mig_mode(on=True)
    node.occupy(4711, command="trainer")
    faults(error=IN_USE, function=function)
    with pytest.raises(errors.Retryable, match=r"is used by trainer \(pid 4711\)"):
        node.prepare(api.make(FIRST), seconds=0.1)
    assert (node.instances(), node.files()) == ([], [])


def test_a_gpu_that_is_let_go_during_the_call_is_used(node, api, monkeypatch):
    node.occupy(4711)
    users = node.nvml.users

    def ending(gpu):
        found = users(gpu)
        node.end(4711)
        return found

    monkeypatch.setattr(node.nvml, "users", ending, raising=False)
    ref = api.make(FIRST)
    node.prepare(ref)
    assert node.instances() == [(19, 6, 1)]


def test_an_instance_that_a_process_uses_stays_until_that_has_ended(node, api):
    ref, other = api.make(FIRST), api.make(SECOND)
    node.prepare(ref)
    node.prepare(other)
    node.use(815, command="trainer")
    node.occupy(816, command="bystander")
    with pytest.raises(errors.Retryable) as caught:
        node.unprepare(ref, seconds=0.1)
    assert "815" in str(caught.value)
    assert "trainer" in str(caught.value)
    assert "816" not in str(caught.value)
    assert node.record(ref) is not None
    node.end(815)
    node.unprepare(ref)
    assert node.instances() == [(19, 0, 1)]
    node.end(816)
    node.unprepare(other)
    assert node.is_clean()


def test_an_instance_that_is_let_go_during_the_call_is_destroyed(node, api, monkeypatch):
    ref = api.make(FIRST)
    node.prepare(ref)
    node.use(815)
    users = node.nvml.users

    def ending(gpu):
        found = users(gpu)
        node.end(815)
        return found

    monkeypatch.setattr(node.nvml, "users", ending, raising=False)
    node.unprepare(ref)
    assert node.is_clean()


@pytest.mark.parametrize("function", UNMAKING)
@pytest.mark.parametrize("error", [IN_USE, UNKNOWN, NO_PERMISSION])
def test_an_unprepare_that_fails_half_way_is_finished_by_the_next(
    node, api, faults, function, error
):
    ref = api.make(FIRST)
    node.prepare(ref)
    faults(error=error, function=function)
    with pytest.raises(errors.DriverError):
        node.unprepare(ref, seconds=0.1)
    assert node.record(ref) is not None
    assert len(node.instances()) == 1
    gpu_faults.clear(node.simulation)
    node.unprepare(ref)
    assert node.is_clean()


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements"],
)
def test_an_instance_that_nvml_does_not_tell_of_for_a_moment_is_not_taken_for_gone(
    node, api, faults, function
):
    ref = api.make(FIRST)
    node.prepare(ref)
    faults(error=UNKNOWN, function=function, times=1)
    node.unprepare(ref)
    assert node.is_clean()


@pytest.mark.parametrize("function", UNMAKING)
def test_an_unprepare_that_fails_half_way_can_be_followed_by_a_prepare(node, api, faults, function):
    ref = api.make(FIRST)
    node.prepare(ref)
    faults(error=UNKNOWN, function=function)
    with pytest.raises(errors.Retryable):
        node.unprepare(ref, seconds=0.1)
    gpu_faults.clear(node.simulation)
    node.prepare(ref)
    assert node.instances() == [(19, 6, 1)]
    assert {one.uuid for one in node.record(ref).partitions} == node.mig_uuids()
    node.unprepare(ref)
    assert node.is_clean()


def test_what_cannot_be_undone_after_a_failure_is_undone_by_the_unprepare(node, api, faults):
    ref = api.make(FIRST)
    faults(error=NO_PERMISSION, function="nvmlGpuInstanceCreateComputeInstance")
    faults(error=UNKNOWN, function="nvmlGpuInstanceDestroy")
    with pytest.raises(errors.Rejected, match="creating the compute instance"):
        node.prepare(ref)
    assert node.record(ref).phase is prepared.Phase.STARTED
    assert node.instances() == [(19, 6, 0)]
    gpu_faults.clear(node.simulation)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_gpu_that_is_lost_while_an_instance_is_made_leaves_no_record(node, api, faults):
    ref = api.make(FIRST)
    faults(error=LOST, uuid=node.uuid())
    with pytest.raises(errors.Rejected, match="GPU is lost"):
        node.prepare(ref)
    assert node.record(ref) is None


def noting(monkeypatch, target, name, order):
    original = getattr(target, name)

    def call(gpu, *arguments):
        made = original(gpu, *arguments)
        first = arguments[0]
        order.append((name, getattr(getattr(first, "placement", None), "start", first)))
        return made

    monkeypatch.setattr(target, name, call, raising=False)
