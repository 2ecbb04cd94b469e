"""What claims need so that processes share their devices, by configs and by shares."""

import dataclasses

import config_cases
import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.preparing import sharing_plan
from dra_driver.model import claims, devices, prepared, quantities, shares, slices

MI, GI = 2**20, 2**30
REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
ID_1 = "11111111-2222-3333-4444-555555555555"
ID_2 = "99999999-2222-3333-4444-555555555555"
OFFERS = {
    name: offer
    for card in mig_cards.dynamic("h100-80gb-hbm3:2")
    for name, offer in card.offers.items()
}
PART, PART_UP = "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-3g40gb-9-0"
UUID = {name: OFFERS[name].gpu.uuid for name in ("gpu-0", "gpu-1")}
BY_MEMORY = dict.fromkeys(OFFERS, shares.Shares())
BY_FOUR = dict.fromkeys(OFFERS, shares.Shares(4))
UNWATCHED = dict.fromkeys(OFFERS, shares.Shares(None, shares.Enforcement.NONE))


def has(device, request="gpu", share=None, *, admin=False, **taken):
    """A device that the claim has, or with `share` a share of it with what it takes."""
    consumed = {name: quantities.parse(str(amount)) for name, amount in taken.items()}
    found = slices.DeviceId(mig_cards.DRIVER, "node-1", device)
    result = claims.Result(request, found, admin, share, {}, consumed)
    return sharing_plan.Claimed(result, OFFERS[device])


def part(device, share=ID_1, **fields):
    return has(device, share=share, **{"memory": "10Gi", "cores": "30"} | fields)


def config(parameters, *requests, source=claims.FROM_CLAIM):
    return claims.OpaqueConfig(mig_cards.DRIVER, parameters, requests, source)


def needs(*claimed, configs=(), divisions=None, ref=REF):
    allocation = claims.Allocation(tuple(one.result for one in claimed), tuple(configs))
    body = claims.ResourceClaim(ref, allocation=allocation)
    return sharing_plan.needs(ref, body, mig_cards.DRIVER, claimed, divisions or {})


def uses(*claimed, **given):
    return needs(*claimed, **given).remembered.mps


def use(*claimed, **given):
    (found,) = uses(*claimed, **given)
    return found


def refusal(*claimed, **given):
    with pytest.raises(errors.Rejected) as caught:
        needs(*claimed, **given)
    return str(caught.value)


MPS = config(config_cases.mps())
MIG_MPS = config(config_cases.mig({"strategy": "MPS"}))
LONG = config(config_cases.slices(interval="Long"))


def mps(**fields):
    return config(config_cases.mps(**fields))


# Without shares


def test_a_claim_without_configs_needs_nothing():
    assert needs(has("gpu-0"), has(PART)) == sharing_plan.NO_NEEDS
    assert needs() == sharing_plan.NO_NEEDS
    assert not needs(has("gpu-0"), configs=[config(config_cases.gpu())]).remembered


def test_a_time_slice_is_set_on_each_gpu_of_the_config_and_on_no_other():
    slicing = config(config_cases.slices(interval="Medium"), "a")
    found = needs(has("gpu-0", "a"), has("gpu-1", "b"), has(PART, "c"), configs=[slicing])
    assert found.remembered == prepared.Sharing(
        time_slices=(prepared.TimeSlice(device="gpu-0", gpu=UUID["gpu-0"], number=2),)
    )
    assert found.mps == {}


def test_the_devices_of_one_mps_config_have_one_daemon():
    found = needs(has("gpu-1"), has("gpu-0"), configs=[mps(defaultActiveThreadPercentage=40)])
    (one,) = found.remembered.mps
    assert one == prepared.MpsUse(
        domain=one.domain, keys=("gpu-1", "gpu-0"), devices=("gpu-0", "gpu-1"), percent=40,
        memory_bytes=None, exclusive=True, gpus=(UUID["gpu-0"], UUID["gpu-1"]),
    )  # fmt: skip
    assert list(one.gpus) != sorted(one.gpus), "in PCI order, which is not that of the UUIDs here"
    assert found.mps.keys() == {one.domain}
    assert found.mps[one.domain].thread_percentage == 40


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"defaultPinnedDeviceMemoryLimit": "4Gi"}, 4),
        ({"defaultPerDevicePinnedMemoryLimit": {"0": "2Gi", "1": "6Gi"}}, 6),
        ({"defaultPerDevicePinnedMemoryLimit": {"0": "2Gi", "1": "6Gi"}, "maxClients": 2}, 3),
        (
            {
                "defaultPinnedDeviceMemoryLimit": "8Gi",
                "defaultPerDevicePinnedMemoryLimit": {"1": "2Gi"},
            },
            8,
        ),
        ({"defaultPerDevicePinnedMemoryLimit": {"1": "2Gi"}}, None),
    ],
    ids=["one for all", "one for each", "several clients", "one lowered", "one without"],
)
def test_of_the_limits_of_several_cards_the_largest_is_what_the_daemon_holds(limits, most):
    found = use(has("gpu-0"), has("gpu-1"), configs=[mps(**limits)])
    assert found.memory_bytes == (most and most * 2**30)


def test_a_device_that_serves_two_requests_is_set_up_once():
    twice = has("gpu-0", "a"), has("gpu-1", "a"), has("gpu-0", "b")
    limits = {"1": "4Gi"}
    found = use(*twice, configs=[mps(defaultPerDevicePinnedMemoryLimit=limits)])
    assert found.keys == ("gpu-0", "gpu-1")
    assert [one.device for one in needs(*twice, configs=[LONG]).remembered.time_slices] == [
        "gpu-0", "gpu-1",
    ]  # fmt: skip


def test_each_mps_config_has_a_daemon_of_its_own():
    first, second = mps(maxClients=2), mps(maxClients=3)
    configs = [
        dataclasses.replace(first, requests=("a",)), dataclasses.replace(second, requests=("b",))
    ]  # fmt: skip
    found = needs(has("gpu-0", "a"), has("gpu-1", "b"), configs=configs)
    assert [one.keys for one in found.remembered.mps] == [("gpu-0",), ("gpu-1",)]
    domains = [one.domain for one in found.remembered.mps]
    assert [found.mps[domain].max_clients for domain in domains] == [2, 3]


def test_what_a_claim_says_goes_before_its_class_and_is_taken_whole():
    of_class = dataclasses.replace(
        mps(defaultActiveThreadPercentage=40, defaultPinnedDeviceMemoryLimit="8Gi"),
        source=claims.FROM_CLASS,
    )
    assert use(has("gpu-0"), configs=[of_class]).percent == 40
    assert use(has("gpu-0"), configs=[MPS, of_class]).percent is None
    assert use(has("gpu-0"), configs=[of_class, MPS]).memory_bytes is None
    assert needs(has("gpu-0"), configs=[config(config_cases.gpu()), of_class]) == (
        sharing_plan.NO_NEEDS
    )
    assert needs(has("gpu-0"), configs=[of_class, LONG]).remembered.time_slices[0].number == 3


def test_a_memory_limit_is_shared_out_among_the_clients():
    three = mps(defaultPinnedDeviceMemoryLimit="10Gi", maxClients=3)
    assert use(has("gpu-0"), configs=[three]).memory_bytes == 3413 * MI


def test_only_whole_gpus_are_made_exclusive():
    assert use(has("gpu-0"), configs=[MPS]).exclusive
    part_use = use(has(PART), configs=[MIG_MPS])
    assert (part_use.exclusive, part_use.gpus) == (False, ())
    shared = use(part("gpu-0"), configs=[MPS], divisions=BY_MEMORY)
    assert (shared.exclusive, shared.gpus) == (False, (UUID["gpu-0"],))
    assert not use(part("gpu-0"), configs=[MPS], divisions=UNWATCHED).exclusive


def test_two_partitions_have_no_daemon_together():
    with pytest.raises(errors.Rejected, match="CUDA uses one partition a process"):
        use(has(PART), has(PART_UP), configs=[MIG_MPS])


def test_admin_access_needs_nothing():
    looking = has("gpu-0", admin=True), has("gpu-1", share=ID_1, admin=True)
    for one in (MPS, LONG, config(config_cases.mig(), "gpu")):
        assert needs(*looking, configs=[one], divisions=BY_MEMORY) == sharing_plan.NO_NEEDS
    both = use(*looking, has("gpu-0", "use"), configs=[MPS])
    assert both.keys == ("gpu-0",)


# Domains


def domain(ref=REF, device="gpu-0", **fields):
    return use(has(device), configs=[mps(**fields)], ref=ref).domain


def test_a_domain_is_named_by_claim_or_namespace_and_by_devices():
    other = dataclasses.replace(REF, uid=claims.ClaimUid("ffff"), name="other")
    abroad = dataclasses.replace(REF, namespace="team-b")
    space = {"domain": "Namespace"}
    assert domain() == domain() == sharing_plan.domain_id("0a1b", "gpu-0")
    assert domain(other, **space) == domain(**space)
    assert len({domain(), domain(other), domain(**space), domain(abroad, **space)}) == 4
    assert domain(device="gpu-1") != domain()


def test_a_domain_keeps_its_name_from_one_version_to_the_next():
    # Daemons and records of the version before are found by it.
    assert sharing_plan.domain_id("0a1b", "gpu-0") == "d4d4e35fe76db2c1"


@given(st.lists(st.lists(st.text("ab-", min_size=1), min_size=1, max_size=3), max_size=6))
def test_domains_of_different_parts_have_different_names(many):
    names = {tuple(parts): sharing_plan.domain_id(*parts) for parts in many}
    assert len(set(names.values())) == len(names)
    assert all(len(name) == 16 and set(name) <= set("0123456789abcdef") for name in names.values())


# Shares


def test_a_share_is_held_to_what_it_takes_by_the_daemon_of_its_namespace():
    found = needs(part("gpu-0"), divisions=BY_MEMORY)
    assert found.remembered.mps == (
        prepared.MpsUse(
            domain=sharing_plan.domain_id("namespace team-a", "gpu-0"), keys=(f"gpu-0-{ID_1}",),
            devices=("gpu-0",), percent=30, memory_bytes=10 * GI, exclusive=False, gpus=(),
        ),
    )  # fmt: skip
    assert found.mps == {}


def test_a_numbered_share_is_held_to_its_part_of_a_gpu_or_of_a_partition():
    whole = use(has("gpu-0", share=ID_1, memory=0, shares=2), divisions=BY_FOUR)
    memory = OFFERS["gpu-0"].gpu.memory_bytes
    assert (whole.percent, whole.memory_bytes) == (50, memory // 2 // MI * MI)
    cut = use(has(PART, share=ID_1, memory=0, shares=1), divisions=BY_FOUR)
    assert (cut.percent, cut.memory_bytes) == (25, OFFERS[PART].profile.memory_mib * MI // 4)


def test_shares_of_different_claims_in_a_namespace_have_one_daemon_and_others_another():
    other = dataclasses.replace(REF, uid=claims.ClaimUid("ffff"))
    abroad = dataclasses.replace(REF, namespace="team-b")
    mine, same, away = (
        use(part("gpu-0"), divisions=BY_MEMORY, ref=ref).domain for ref in (REF, other, abroad)
    )
    assert mine == same != away


def test_two_shares_of_one_device_in_a_claim_are_two_users_of_one_daemon():
    both = [part("gpu-0"), part("gpu-0", ID_2, memory="20Gi", cores="50")]
    for configs in ([], [mps(domain="Namespace")], [MPS]):
        first, second = uses(*both, divisions=BY_MEMORY, configs=configs)
        assert (first.keys, second.keys) == ((f"gpu-0-{ID_1}",), (f"gpu-0-{ID_2}",))
        assert (first.percent, first.memory_bytes) == (30, 10 * GI)
        assert (second.percent, second.memory_bytes) == (50, 20 * GI)
        assert first.domain == second.domain


def test_a_config_without_sharing_does_not_let_a_share_out_of_its_limits():
    plain = use(part("gpu-0"), divisions=BY_MEMORY, configs=[config(config_cases.gpu())])
    assert plain == use(part("gpu-0"), divisions=BY_MEMORY)


@pytest.mark.parametrize(
    ("fields", "percent", "memory"),
    [
        ({}, 30, 10 * GI),
        ({"defaultActiveThreadPercentage": 20}, 20, 10 * GI),
        ({"defaultActiveThreadPercentage": 60}, 30, 10 * GI),
        ({"defaultPinnedDeviceMemoryLimit": "4Gi"}, 30, 4 * GI),
        ({"defaultPinnedDeviceMemoryLimit": "40Gi"}, 30, 10 * GI),
        ({"maxClients": 2}, 30, 5 * GI),
        ({"maxClients": 4, "defaultPinnedDeviceMemoryLimit": "12Gi"}, 30, 2560 * MI),
        ({"maxClients": 4, "defaultPinnedDeviceMemoryLimit": "8Gi"}, 30, 2 * GI),
    ],
)
def test_a_config_may_narrow_the_limits_of_a_share_and_never_widens_them(fields, percent, memory):
    found = use(part("gpu-0"), divisions=BY_MEMORY, configs=[mps(**fields)])
    assert (found.percent, found.memory_bytes) == (percent, memory)


def test_a_share_too_small_for_its_clients_is_refused():
    small = part("gpu-0", memory="3Mi")
    assert use(small, divisions=BY_MEMORY, configs=[mps(maxClients=3)]).memory_bytes == MI
    text = refusal(small, divisions=BY_MEMORY, configs=[mps(maxClients=4)])
    assert text == (
        "claim team-a/train (0a1b): a share of gpu-0 with 3Mi of memory is too small for "
        "maxClients 4: each process needs at least 1Mi. Ask for more memory, or write a smaller "
        "maxClients"
    )


def test_a_share_that_nobody_watches_has_the_limits_of_its_config_alone():
    assert needs(part("gpu-0"), divisions=UNWATCHED) == sharing_plan.NO_NEEDS
    limited = mps(defaultPinnedDeviceMemoryLimit="4Gi")
    found = use(part("gpu-0"), divisions=UNWATCHED, configs=[limited])
    assert (found.percent, found.memory_bytes) == (None, 4 * GI)


def test_a_device_that_is_not_divided_for_this_claim_needs_nothing_of_the_kind():
    assert needs(has("gpu-0"), divisions=BY_MEMORY) == sharing_plan.NO_NEEDS


def test_time_slices_on_a_share_that_mps_holds_are_refused():
    text = refusal(part("gpu-0"), divisions=BY_MEMORY, configs=[LONG])
    assert text == (
        "claim team-a/train (0a1b), GpuConfig, FromClaim, config[0]: TimeSlicing cannot be applied "
        "to a share of gpu-0, whose limits MPS holds. Remove `sharing`"
    )
    unwatched = needs(part("gpu-0"), divisions=UNWATCHED, configs=[LONG]).remembered
    assert unwatched.time_slices == (
        prepared.TimeSlice(device="gpu-0", gpu=UUID["gpu-0"], number=3),
    )


# What is refused


def test_a_config_that_cannot_work_on_the_device_is_refused_with_claim_and_config():
    too_much = mps(defaultPinnedDeviceMemoryLimit="100Gi")
    assert refusal(has("gpu-0"), configs=[config({}, source="x")]).startswith(
        "claim team-a/train (0a1b): config at status.allocation.devices.config[0] is invalid: "
    )
    text = refusal(has("gpu-0"), configs=[MPS, too_much])
    assert text.startswith("claim team-a/train (0a1b), GpuConfig, FromClaim, config[1]: ")
    assert "102400Mi is more than gpu-0 has" in text
    of_part = config(config_cases.mig({"strategy": "MPS", "mpsConfig": {
        "defaultPinnedDeviceMemoryLimit": "50Gi"}}))  # fmt: skip
    assert f"51200Mi is more than {PART} has" in refusal(has(PART), configs=[of_part])


# What a daemon allows


def users(*pairs):
    return [
        prepared.MpsUse(domain="d", keys=(), devices=(), percent=percent, memory_bytes=memory)
        for percent, memory in pairs
    ]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], (None, None)),
        ([(30, 10)], (30, 10)),
        ([(30, 20), (50, 10)], (50, 20)),
        ([(30, 20), (None, 10)], (None, 20)),
        ([(None, 20), (50, None), (1, 1)], (None, None)),
    ],
)
def test_a_daemon_allows_what_its_greediest_user_may_take(pairs, expected):
    assert sharing_plan.cap(users(*pairs)) == expected
    assert sharing_plan.cap(iter(users(*reversed(pairs)))) == expected


def test_a_config_is_refused_for_what_its_card_cannot_do(monkeypatch):
    def cannot(**facts):
        offer = OFFERS["gpu-0"]
        gpu = dataclasses.replace(offer.gpu, **facts)
        monkeypatch.setitem(OFFERS, "gpu-0", dataclasses.replace(offer, gpu=gpu))

    cannot(time_slices=False)
    with pytest.raises(errors.Rejected, match="its driver cannot set time slices"):
        needs(has("gpu-0"), configs=[LONG])
    cannot(time_slices=True, virtualization=devices.Virtualization.VGPU)
    with pytest.raises(errors.Rejected, match="MPS is not possible on gpu-0: it is a vGPU"):
        needs(has("gpu-0"), configs=[MPS])
