import pytest

from dra_driver.logic.preparing import config_checks, configs
from dra_driver.model import sharing

GI, MI = 2**30, 2**20
GPU, MIG, VFIO = sharing.DeviceType
LIMIT = "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"
PER_DEVICE = "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"


def card(minor=0, **facts):
    known = {"uuid": f"GPU-{minor}", "compute_capability": (9, 0), "memory": 80 * GI}
    return config_checks.Facts(f"gpu-{minor}", GPU, **(known | facts))


def part(start=0, **facts):
    known = {"compute_capability": (9, 0), "memory": 10 * GI}
    return config_checks.Facts(f"gpu-0-mig-1g10gb-19-{start}", MIG, **(known | facts))


def problems(settings, *group):
    config = sharing.Config(sharing.Kind.of(group[0].type), settings)
    return [str(problem) for problem in config_checks.problems(config, group)]


SLICES = sharing.TimeSlicing()


def test_a_device_as_it_is_suits_every_device():
    assert problems(None, card(compute_capability=(3, 0), time_slices=False)) == []
    assert problems(None, part()) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"compute_capability": (7, 0)},
        {"compute_capability": (6, 0), "time_slices": True},
        {"compute_capability": None},
        {"compute_capability": None, "time_slices": True},
    ],
)
def test_time_slices_are_set_where_they_can_be_or_may_be(facts):
    assert problems(SLICES, card(**facts)) == []


SINCE_VOLTA = "time slices can be set from compute capability 7.0 on"
TURNS = "Remove `sharing`: processes take turns anyway"
NO_SETTING = "its driver cannot set time slices"


@pytest.mark.parametrize(
    ("capability", "time_slices", "told"),
    [
        ((6, 1), None, f" of compute capability 6.1: {SINCE_VOLTA}"),
        ((6, 1), False, f" of compute capability 6.1: {SINCE_VOLTA}"),
        ((9, 0), False, f" of compute capability 9.0: {NO_SETTING}"),
        (None, False, f": {NO_SETTING}"),
    ],
)
def test_time_slices_are_refused_on_a_card_that_has_none(capability, time_slices, told):
    old = card(1, compute_capability=capability, time_slices=time_slices)
    assert problems(SLICES, card(), old) == [
        f"sharing.strategy: TimeSlicing is not possible on gpu-1{told}. {TURNS}"
    ]


def test_time_slices_are_refused_on_a_part_of_a_card():
    (problem,) = problems(SLICES, part(time_slices=True))
    assert problem == (
        "sharing.strategy: TimeSlicing is not possible on gpu-0-mig-1g10gb-19-0 of type mig: time "
        "slices are set on whole GPUs. Remove `sharing`, or use MPS"
    )


def test_mps_needs_compute_capability_3_5():
    assert problems(sharing.Mps(), card(compute_capability=(3, 5))) == []
    assert problems(sharing.Mps(), card(compute_capability=None)) == []
    (problem,) = problems(sharing.Mps(multi_user=True), card(compute_capability=(3, 0)))
    assert problem == (
        "sharing.strategy: MPS is not possible on gpu-0 of compute capability 3.0: it needs 3.5 "
        "or newer. Remove `sharing`, or select another GPU"
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("multiUser", {"multi_user": True}),
        ("defaultActiveThreadPercentage", {"thread_percentage": 50}),
        ("defaultPinnedDeviceMemoryLimit", {"memory_limit": GI}),
        ("defaultPerDevicePinnedMemoryLimit", {"per_device": {"0": GI}}),
    ],
)
def test_what_volta_brought_needs_compute_capability_7_0(name, settings):
    mps = sharing.Mps(**settings)
    assert problems(mps, card(compute_capability=(7, 0))) == []
    assert problems(mps, card(compute_capability=None)) == []
    (problem,) = problems(mps, card(compute_capability=(6, 1)))
    assert problem == (
        f"sharing.mpsConfig.{name}: {name} is not possible on gpu-0 of compute capability 6.1: it "
        f"needs 7.0 or newer. Remove {name}, or select another GPU"
    )


def test_a_limit_is_at_most_the_memory_of_each_device():
    mps = sharing.Mps(memory_limit=80 * GI)
    assert problems(mps, card()) == []
    assert problems(mps, card(memory=None)) == []
    assert problems(mps, card(), card(1, memory=80 * GI - 1)) == [
        f"{LIMIT}: 81920Mi is more than gpu-1 has: write at most 81919Mi"
    ]
    assert problems(mps, part()) == [
        f"{LIMIT}: 81920Mi is more than gpu-0-mig-1g10gb-19-0 has: write at most 10240Mi"
    ]


def test_what_is_promised_is_compared_and_not_what_each_client_gets():
    mps = sharing.Mps(memory_limit=81 * GI, max_clients=48)
    assert len(problems(mps, card())) == 1


def test_a_limit_of_one_device_is_compared_with_that_device():
    group = [card(0, memory=80 * GI), card(1, memory=16 * GI)]
    mps = sharing.Mps(memory_limit=40 * GI, per_device={"1": 16 * GI})
    assert problems(mps, *group) == []
    mps = sharing.Mps(per_device={"0": 80 * GI, "GPU-1": 17 * GI})
    assert problems(mps, *group) == [
        f"{PER_DEVICE}[GPU-1]: 17408Mi is more than gpu-1 has: write at most 16384Mi"
    ]


def test_an_index_counts_the_sorted_uuids_and_not_the_devices():
    group = [card(0, uuid="GPU-b", memory=80 * GI), card(1, uuid="GPU-a", memory=16 * GI)]
    assert problems(sharing.Mps(per_device={"0": 80 * GI}), *group) == [
        f"{PER_DEVICE}[0]: 81920Mi is more than gpu-1 has: write at most 16384Mi"
    ]


@pytest.mark.parametrize("key", ["2", "GPU-2", "MIG-0"])
def test_a_key_that_names_no_device_of_the_group_is_refused(key):
    (problem,) = problems(sharing.Mps(per_device={key: GI}), card(1), card(0))
    assert problem == (
        f"{PER_DEVICE}[{key}]: names none of the devices that the config is for: write an index "
        "from 0 to 1, or GPU-0 or GPU-1"
    )


def test_two_keys_of_one_device_are_refused():
    assert problems(sharing.Mps(per_device={"0": GI, "GPU-0": 2 * GI}), card()) == [
        f"{PER_DEVICE}[GPU-0]: names gpu-0, as [0] does: write one entry for a device"
    ]


def test_devices_that_are_still_to_be_made_have_indices_only():
    group = [part(0, memory=10 * GI), part(4, memory=40 * GI)]
    assert problems(sharing.Mps(per_device={"0": 40 * GI, "1": 10 * GI}), *group) == []
    assert problems(sharing.Mps(per_device={"1": 41 * GI}), *group) == [
        f"{PER_DEVICE}[1]: 41984Mi is more than gpu-0-mig-1g10gb-19-4 has: write at most 40960Mi"
    ]
    assert problems(sharing.Mps(per_device={"MIG-1": GI}), part()) == [
        f"{PER_DEVICE}[MIG-1]: names none of the devices that the config is for: write the index 0"
    ]


def test_while_indices_are_open_limits_are_compared_with_the_largest_device():
    group = [part(0, memory=10 * GI), part(4, memory=40 * GI)]
    mps = sharing.Mps(memory_limit=40 * GI, per_device={"0": 10 * GI})
    assert problems(mps, *group) == []
    assert problems(mps, part(0, memory=10 * GI), part(4, memory=None)) == []
    mps = sharing.Mps(memory_limit=41 * GI, per_device={"0": 10 * GI})
    assert problems(mps, *group) == [
        f"{LIMIT}: 41984Mi is more than gpu-0-mig-1g10gb-19-4 has: write at most 40960Mi"
    ]


def test_a_device_for_a_virtual_machine_is_not_checked():
    assert problems(sharing.Vfio(), config_checks.Facts("gpu-vfio-0", VFIO)) == []


def test_all_that_is_in_the_way_is_told_at_once():
    mps = sharing.Mps(multi_user=True, memory_limit=100 * GI, per_device={"3": GI})
    config = sharing.Config(sharing.Kind.GPU, mps)
    group = [card(0, compute_capability=(6, 0)), card(1)]
    with pytest.raises(configs.InvalidConfig) as caught:
        config_checks.check(config, group, subject="claim a/b, config[0]")
    assert [problem.field for problem in caught.value.problems] == [
        "sharing.mpsConfig.multiUser", LIMIT, PER_DEVICE, f"{PER_DEVICE}[3]", LIMIT, LIMIT,
    ]  # fmt: skip
    assert str(caught.value).startswith("claim a/b, config[0]: sharing.mpsConfig.multiUser: ")


def test_nothing_in_the_way_is_no_error():
    config_checks.check(sharing.Config(sharing.Kind.GPU, sharing.Mps()), [card()], subject="x")


def test_limits_are_by_uuid_and_what_each_client_gets():
    mps = sharing.Mps(memory_limit=10 * GI, per_device={"1": 3 * MI, "GPU-c": GI}, max_clients=2)
    assert config_checks.memory_limits(mps, ["GPU-c", "GPU-a", "GPU-b"]) == {
        "GPU-a": 5 * GI,
        "GPU-b": MI,
        "GPU-c": GI // 2,
    }


def test_devices_without_a_limit_are_left_out():
    assert config_checks.memory_limits(sharing.Mps(), ["GPU-a"]) == {}
    mps = sharing.Mps(per_device={"0": GI})
    assert config_checks.memory_limits(mps, ["GPU-b", "GPU-a"]) == {"GPU-a": GI}


def test_mps_is_refused_on_a_card_that_is_not_for_it_with_the_reason():
    (problem,) = problems(sharing.Mps(), card(no_mps="it is a vGPU"))
    assert problem == (
        "sharing.strategy: MPS is not possible on gpu-0: it is a vGPU. Remove `sharing`, or select "
        "another GPU"
    )
