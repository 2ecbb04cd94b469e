"""MIG instances that somebody else made, appears with, or takes away."""

import mig_node
import pytest

from dra_driver import errors

FIRST, SECOND, LARGE = mig_node.FIRST, mig_node.SECOND, mig_node.LARGE


def offered(node):
    return node.gpus.look().offered.keys()


def test_an_instance_of_others_takes_its_place_out_of_what_is_offered_until_it_is_gone(node):
    assert {"gpu-0", FIRST, SECOND, LARGE} <= offered(node)
    foreign = node.foreign("1g.10gb", 6)
    assert {"gpu-0", FIRST, LARGE} & offered(node) == set()
    assert {SECOND, "gpu-1"} <= offered(node)
    [card] = [card for card in node.gpus.snapshot.cards if card.name == "gpu-0"]
    assert "0 at 6:1" in card.note
    node.destroy(foreign.id)
    assert {FIRST, SECOND, LARGE} <= offered(node)


@pytest.mark.parametrize("compute", [True, False])
@pytest.mark.parametrize("device", [FIRST, LARGE])
def test_a_claim_whose_place_somebody_else_has_taken_is_refused_and_theirs_stays(
    node, api, device, compute
):
    # It is there after the last look, and before the claim is prepared.
    node.foreign("1g.10gb", 6, compute=compute)
    before = node.hardware()
    with pytest.raises(errors.Retryable, match=r"GPU instances?.* 0 (is )?at 6:1"):
        node.prepare(api.make(device), seconds=0.1)
    assert (node.hardware(), node.files()) == (before, [])


@pytest.mark.parametrize("device", [FIRST, LARGE, "gpu-0"])
def test_a_claim_whose_place_has_been_known_to_be_taken_is_told_by_whom(node, api, device):
    node.foreign("1g.10gb", 6)
    node.gpus.look()
    with pytest.raises(errors.Retryable) as caught:
        node.prepare(api.make(device), seconds=0.1)
    assert str(caught.value) == (
        f"claim default/claim-1 (uid-1): device {device!r} does not exist on this node. gpu-0: GPU "
        "instances that this driver did not make take part of it: 0 at 6:1. They are left alone; "
        "destroy them, or give the card the MIG mode static, or let the driver have them "
        "(--adopt-foreign-mig)"
    )


def test_a_claim_waits_for_a_place_that_somebody_else_gives_back(node, api, failing_call):
    foreign = node.foreign("1g.10gb", 6)
    state = node.nvml.state
    node.nvml.state = lambda gpu: (state(gpu), node.card().gpu_instances and node.destroy(0))[0]
    node.prepare(api.make(FIRST))
    assert node.instances() == [(19, 6, 1)]
    assert node.mig_uuids() != {foreign.compute_instances[0].uuid}


def test_an_instance_that_somebody_makes_at_the_very_moment_is_left_alone(node, api, monkeypatch):
    create = node.nvml.create

    def late(gpu, spot):
        if not node.card().gpu_instances:
            node.foreign("1g.10gb", 6)
        return create(gpu, spot)

    monkeypatch.setattr(node.nvml, "create", late, raising=False)
    with pytest.raises(errors.Retryable):
        node.prepare(api.make(FIRST), seconds=0.1)
    assert node.instances() == [(19, 6, 1)]
    assert node.files() == [] or node.books.get(node.uuid()).spots == set()


def test_an_instance_that_somebody_made_in_place_of_ours_is_left_alone(node, api):
    ref = api.make(FIRST)
    node.prepare(ref)
    node.destroy(0)
    theirs = node.foreign("1g.10gb", 6)
    node.unprepare(ref)
    assert node.card().gpu_instances == [theirs]


def test_an_instance_that_somebody_made_in_place_of_ours_is_not_taken_by_who_asks_again(node, api):
    ref = api.make(SECOND, FIRST)
    node.prepare(ref)
    node.destroy(next(one.id for one in node.card().gpu_instances if one.start == 6))
    theirs = node.foreign("1g.10gb", 6)
    with pytest.raises(errors.Retryable, match=r"at 6:1 of .* did not make it"):
        node.prepare(ref, seconds=0.1)
    node.unprepare(ref)
    assert node.card().gpu_instances == [theirs]
    node.destroy(theirs.id)
    node.prepare(ref)
    node.unprepare(ref)
    assert node.files() == []


def test_a_whole_gpu_in_the_mig_mode_of_others_is_refused(node, api):
    ref = api.make("gpu-0")
    node.foreign("1g.10gb", 6)
    node.gpus.look()
    with pytest.raises(errors.Retryable, match="device 'gpu-0' does not exist on this node"):
        node.prepare(ref, seconds=0.1)
    assert node.instances() == [(19, 6, 1)]
    assert node.files() == []


def test_a_whole_gpu_that_somebody_cut_since_the_last_look_is_refused(node, api):
    ref = api.make("gpu-0")
    node.foreign("1g.10gb", 6)
    with pytest.raises(errors.Retryable, match="is in MIG mode with GPU instances 0 at 6:1"):
        node.prepare(ref, seconds=0.1)
    assert node.instances() == [(19, 6, 1)]
    assert node.files() == []


def test_nothing_foreign_is_removed_unless_it_is_adopted(new_node):
    node = new_node()
    node.foreign("1g.10gb", 6)
    node.gpus.look()
    before = node.hardware()
    node.clean()
    assert node.hardware() == before
    adopting = new_node(adopt=True)
    adopting.clean()
    assert adopting.is_clean()
    assert "gpu-0" in adopting.gpus.snapshot.offered


def test_an_adopted_instance_at_the_place_of_a_claim_stays_for_that(new_node, api):
    node = new_node(adopt=True)
    node.foreign("1g.10gb", 6)
    node.foreign("1g.10gb", 0)
    node.gpus.look()
    ref = api.make(FIRST)
    node.clean()
    assert node.instances() == [(19, 6, 1)]
    node.prepare(ref)
    node.unprepare(ref)
    assert node.is_clean()


def test_an_adopted_instance_that_a_process_uses_stays_until_that_has_ended(new_node):
    node = new_node(adopt=True)
    node.foreign("1g.10gb", 6)
    node.use(4711)
    node.foreign("1g.10gb", 0)
    node.gpus.look()
    node.clean()
    assert node.instances() == [(19, 6, 1)]
    # Whoever got it, or the whole GPU, could not be prepared.
    assert {"gpu-0", FIRST, LARGE} & offered(node) == set()
    assert {SECOND, "gpu-1"} <= offered(node)
    node.end(4711)
    node.clean()
    assert node.is_clean()
    assert {"gpu-0", FIRST, LARGE} <= offered(node)


@pytest.mark.parametrize("number", [1, 3])
def test_an_adopted_instance_that_is_cut_into_parts_goes_with_all_of_them(new_node, number):
    node = new_node(adopt=True)
    cut(node, node.foreign("3g.40gb", 4, compute=False), number)
    assert node.instances() == [(9, 4, number)]
    node.gpus.look()
    node.clean()
    assert node.is_clean()


@pytest.mark.parametrize("mode", ["static", "off"])
def test_instances_on_gpus_that_are_not_dynamic_are_never_adopted(new_node, mode):
    node = new_node(adopt=True, mode=mode)
    node.foreign("1g.10gb", 6)
    node.gpus.look()
    before = node.hardware()
    node.clean()
    assert (node.hardware(), node.files()) == (before, [])


def test_static_instances_are_offered_prepared_and_left_alone(new_node, api):
    node = new_node(mode="static")
    first = node.foreign("1g.10gb", 6)
    assert offered(node) == {FIRST, "gpu-1"}
    ref = api.make(FIRST)
    node.prepare(ref)
    [partition] = node.record(ref).partitions
    assert (partition.made, partition.uuid) == (False, first.compute_instances[0].uuid)
    assert node.variables(ref)[0].endswith(partition.uuid)
    node.unprepare(ref)
    assert (node.card().gpu_instances, node.card().mig_enabled) == ([first], True)
    assert node.files() == []


def test_static_instances_that_come_and_go_are_seen(new_node, api):
    node = new_node(mode="static")
    node.foreign("1g.10gb", 6)
    second = node.foreign("3g.40gb", 0)
    large = LARGE.replace("9-4", "9-0")
    assert offered(node) == {FIRST, large, "gpu-1"}
    node.destroy(second.id)
    assert offered(node) == {FIRST, "gpu-1"}
    with pytest.raises(errors.Retryable, match="does not exist on this node"):
        node.prepare(api.make(large), seconds=0.1)


def test_a_static_instance_that_was_made_anew_is_used_with_its_new_uuid(new_node, api):
    node = new_node(mode="static")
    first = node.foreign("1g.10gb", 6)
    node.gpus.look()
    ref = api.make(FIRST)
    node.prepare(ref)
    node.destroy(first.id)
    second = node.foreign("1g.10gb", 6)
    node.prepare(ref)
    assert node.record(ref).partitions[0].uuid == second.compute_instances[0].uuid
    node.unprepare(ref)
    assert node.card().gpu_instances == [second]


def test_an_instance_without_a_compute_instance_is_not_offered_as_static(new_node):
    node = new_node(mode="static")
    node.foreign("1g.10gb", 6, compute=False)
    assert offered(node) == {"gpu-1"}


def test_a_gpu_whose_mig_mode_waits_for_a_reset_offers_nothing(new_node):
    node = new_node("a100-40gb-sxm4:2")
    library_mode(node)
    assert (node.card().mig_enabled, node.card().mig_pending) == (False, True)
    assert offered(node) == {"gpu-1"}


def library_mode(node):
    """As `nvidia-smi -mig 1` does."""
    with node.nvml._nvml.session() as library:
        library.nvmlDeviceSetMigMode(library.nvmlDeviceGetHandleByUUID(node.uuid()), 1)


def cut(node, instance, number):
    """As `nvidia-smi mig -cci 0,0,0` does: compute instances of one slice each."""
    with node.nvml._nvml.session() as library:
        handle = library.nvmlDeviceGetHandleByUUID(node.uuid())
        parent = library.nvmlDeviceGetGpuInstanceById(handle, instance.id)
        for _ in range(number):
            library.nvmlGpuInstanceCreateComputeInstance(parent, 0)
