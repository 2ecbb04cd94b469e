"""Claims for shares of devices: what is planned, what is in the way, when there is too little."""

import dataclasses
import json

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.preparing import cdi, contention, planning
from dra_driver.model import claims, prepared, quantities, shares, slices

NODE = planning.Node(mig_cards.DRIVER, "node-1")
REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
OTHER = claims.ClaimRef("team-b", "other", claims.ClaimUid("ffff"))
ID_1 = "11111111-2222-3333-4444-555555555555"
ID_2 = "99999999-2222-3333-4444-555555555555"
INVENTORY = {
    name: offer
    for card in mig_cards.dynamic("h100-80gb-hbm3:2")
    for name, offer in card.offers.items()
}
BY_MEMORY = dict.fromkeys(INVENTORY, shares.Shares())
BY_FOUR = dict.fromkeys(INVENTORY, shares.Shares(4))
PART, OVERLAPPING, BESIDE = (
    "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-3g40gb-9-0",
)  # fmt: skip


def result(device, request="gpu", share=None, *, admin=False, **taken):
    consumed = {name: quantities.parse(str(amount)) for name, amount in taken.items()}
    found = slices.DeviceId(mig_cards.DRIVER, "node-1", device)
    return claims.Result(request, found, admin, share, {}, consumed)


def share(device, share_id=ID_1, request="gpu", **taken):
    return result(device, request, share_id, **(taken or {"memory": "10Gi", "cores": 30}))


def plan(*results, ref=REF, divisions=BY_MEMORY):
    body = claims.ResourceClaim(ref, allocation=claims.Allocation(results))
    return planning.plan(ref, body, NODE, INVENTORY, divisions)


def record(*results, ref=OTHER, divisions=BY_MEMORY):
    """What is remembered of another claim that has these."""
    made = plan(*results, ref=ref, divisions=divisions)
    return prepared.Record(
        uid=ref.uid, namespace=ref.namespace, name=ref.name, boot_id="boot",
        phase=prepared.Phase.COMPLETED, devices=made.entries, partitions=made.partitions,
        sharing=made.needs.remembered,
    )  # fmt: skip


def holdings(*wanted, held):
    found = contention.holdings(plan(*wanted), REF.uid, [record(*held)])
    return [(one.wanted, one.device) for one in found]


# What is planned


def test_a_share_is_answered_with_its_id_and_remembered_with_what_it_takes():
    made = plan(share("gpu-0", cores=30, memory="10Gi", decoders=0))
    assert made.entries == (
        prepared.PreparedDevice(
            requests=("gpu",), pool="node-1", device="gpu-0", share_id=ID_1,
            cdi_ids=(f"k8s.gpu.nvidia.com/claim=0a1b-gpu-0-{ID_1}",),
            consumed={"cores": "30", "decoders": "0", "memory": "10Gi"},
        ),
    )  # fmt: skip
    assert [use.keys for use in made.needs.remembered.mps] == [(f"gpu-0-{ID_1}",)]


def test_shares_of_one_partition_are_of_one_instance():
    made = plan(share(PART), share(PART, ID_2, "more"))
    assert len(made.entries) == len({entry.cdi_ids for entry in made.entries}) == 2
    assert [one.device for one in made.partitions] == [PART]
    assert made.offers.keys() == {PART}


def test_a_share_of_a_device_that_is_not_divided_any_more_is_refused():
    with pytest.raises(errors.Rejected, match="'gpu-0', which is not shared any more"):
        plan(share("gpu-0"), divisions={})
    assert plan(share("gpu-0"), result("gpu-1", "other"), divisions=BY_MEMORY).needs.remembered


def test_what_the_kubelet_is_told_of_a_share_does_not_depend_on_the_device_being_there():
    body = claims.ResourceClaim(REF, allocation=claims.Allocation((share("gpu-9"),)))
    (entry,) = planning.allocated_entries(REF, body, NODE)
    assert (entry.device, entry.share_id) == ("gpu-9", ID_1)
    assert entry.consumed == {"cores": "30", "memory": "10Gi"}


# What excludes what


@pytest.mark.parametrize("device", ["gpu-0", PART])
def test_two_shares_of_one_device_are_not_in_each_other_s_way(device):
    assert holdings(share(device), held=[share(device, ID_2)]) == []
    assert holdings(share(device), share(device, ID_2, "b"), held=[share(device, ID_2)]) == []


@pytest.mark.parametrize("device", ["gpu-0", PART])
def test_a_share_and_a_claim_that_has_the_device_for_itself_exclude_each_other(device):
    assert holdings(share(device), held=[result(device)]) == [(device, device)]
    assert holdings(result(device), held=[share(device)]) == [(device, device)]
    assert holdings(share(device), held=[result(device, admin=True)]) == []
    assert holdings(result(device, admin=True), held=[share(device)]) == []


@pytest.mark.parametrize(
    ("wanted", "held"), [(PART, OVERLAPPING), (OVERLAPPING, PART), (PART, "gpu-0"), ("gpu-0", PART)]
)
def test_shares_of_devices_that_overlap_exclude_each_other(wanted, held):
    little = {"memory": "1Gi", "cores": 30}
    held_share = share(held, ID_2, **little)
    assert holdings(share(wanted, **little), held=[held_share]) == [(wanted, held)]


def test_shares_of_devices_side_by_side_do_not():
    assert holdings(share(PART), held=[share(BESIDE, ID_2)]) == []
    assert holdings(share("gpu-0"), held=[share("gpu-1", ID_2)]) == []


# Too little


def over_use(*wanted, others=(), divisions=BY_MEMORY):
    made = plan(*wanted, divisions=divisions)
    held = [record(*results, divisions=divisions) for results in others]
    return [found.problem for found in contention.over_use(made, held, divisions)]


def test_shares_that_fit_together_are_no_problem():
    half = {"memory": "40Gi", "cores": 50}
    assert (
        over_use(share("gpu-0", memory="30Gi", cores=50), others=[[share("gpu-0", **half)]]) == []
    )
    assert over_use(share("gpu-0", cores=100), others=[[share("gpu-1", cores=100)]]) == []
    assert over_use(share("gpu-0", cores=100), others=[[share(PART, cores=100)]]) == []


def test_shares_that_are_too_many_are_told_with_the_numbers():
    others = [[share("gpu-0", memory="40Gi", cores=30)], [share("gpu-0", memory="20Gi", cores=50)]]
    wanted = share("gpu-0", ID_2, memory="30Gi", cores=21)
    assert over_use(wanted, others=others) == [
        f"device 'gpu-0', capacity {name} is what it has, and its claims together have {used}"
        for name, used in (("memory: 81559Mi", "90Gi"), ("cores: 100", "101"))
    ]
    assert over_use(share("gpu-0", memory="1Gi", cores=20), others=others) == []


def test_the_shares_of_one_claim_add_up_too():
    both = share("gpu-0", cores=60), share("gpu-0", ID_2, "b", cores=60)
    assert over_use(*both) == [
        "device 'gpu-0', capacity cores: 100 is what it has, and its claims together have 120"
    ]


def test_numbered_shares_are_counted_by_number():
    others = [[share("gpu-0", shares=2)], [share("gpu-0", shares=1)]]
    assert over_use(share("gpu-0", ID_2, shares=1), others=others, divisions=BY_FOUR) == []
    assert over_use(share("gpu-0", ID_2, shares=2), others=others, divisions=BY_FOUR) == [
        "device 'gpu-0', capacity shares: 4 is what it has, and its claims together have 5"
    ]


def test_what_is_not_a_share_is_not_counted():
    assert over_use(result("gpu-0", cores=101)) == []


def test_a_share_of_who_only_watches_is_not_counted():
    watcher = result("gpu-0", "gpu", ID_2, admin=True, cores=100)
    assert over_use(share("gpu-0", cores=30), others=[[watcher]]) == []
    assert over_use(share("gpu-0", cores=30), watcher) == []
    assert over_use(watcher, others=[[share("gpu-0", cores=30)]]) == []


def test_who_else_has_shares_of_what_is_too_little_is_told():
    made = plan(share("gpu-0", cores=60))
    [found] = contention.over_use(made, [record(share("gpu-0", cores=50))], BY_MEMORY)
    assert found.holdings == (contention.Holding("gpu-0", "gpu-0", OTHER),)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_over_use_is_told_exactly_when_the_sum_is_above_the_whole(cores):
    *others, own = [[share("gpu-0", cores=number)] for number in cores]
    assert bool(over_use(*own, others=others)) is (sum(cores) > 100)


# CDI names


SHARE_IDS = st.uuids().map(str)
DEVICES = st.sampled_from(sorted(INVENTORY))


@given(DEVICES, st.one_of(st.none(), SHARE_IDS))
def test_a_key_is_read_back_as_device_and_share(device, share_id):
    key = cdi.device_key(device, share_id)
    assert cdi.parse_device_key(key) == (device, share_id)
    assert cdi.parse_device_key(key.upper()) == (
        device.upper(), share_id and share_id.upper()
    )  # fmt: skip


@given(st.sets(st.tuples(DEVICES, st.one_of(st.none(), SHARE_IDS)), max_size=8))
def test_different_devices_and_shares_have_different_names(pairs):
    names = {cdi.device_id("d.example.com", "0a1b", cdi.device_key(*pair)) for pair in pairs}
    assert len(names) == len(pairs)


@pytest.mark.parametrize(
    "key", ["gpu-0", PART, f"gpu-0-{ID_1}x", f"gpu-0-{ID_1[:-1]}", ID_1, f"-{ID_1}"]
)
def test_a_key_without_a_whole_share_id_is_a_device(key):
    assert cdi.parse_device_key(key) == (key, None)


def test_each_share_has_an_entry_of_its_own_in_the_spec_of_the_claim():
    keys = [cdi.device_key("gpu-0", one) for one in (ID_1, ID_2)]
    edits = {key: cdi.Edits(env={"WHO": key}) for key in keys}
    text = cdi.spec(mig_cards.DRIVER, "0a1b", cdi.Injection(cdi.Edits(), edits))
    assert cdi.device_keys("0a1b", text) == tuple(keys)
    assert [entry["name"] for entry in json.loads(text)["devices"]] == [
        f"0a1b-gpu-0-{ID_1}", f"0a1b-gpu-0-{ID_2}",
    ]  # fmt: skip


def test_edits_of_a_device_and_of_its_daemon_are_put_together():
    mount, other, hook = cdi.Mount("/a", "/a"), cdi.Mount("/b", "/b"), cdi.Hook("/bin/true", ())
    device = cdi.Edits(env={"A": "1", "B": "1"}, mounts=(mount,))
    daemon = cdi.Edits(env={"B": "2", "C": "2"}, mounts=(other,), hooks=(hook,))
    both = device.and_also(daemon)
    assert both == cdi.Edits(
        env={"A": "1", "B": "2", "C": "2"}, mounts=(mount, other), hooks=(hook,)
    )
    assert device.and_also(cdi.Edits()) == device == cdi.Edits().and_also(device)
    assert dataclasses.asdict(device) == dataclasses.asdict(
        cdi.Edits(env={"A": "1", "B": "1"}, mounts=(mount,))
    )
