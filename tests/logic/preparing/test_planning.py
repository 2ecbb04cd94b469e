import dataclasses

import pytest

from dra_driver import errors
from dra_driver.logic.preparing import contention, planning
from dra_driver.model import claims, device_metadata, devices, prepared, shares, slices

NODE = planning.Node("gpu.nvidia.com", "node-1")
UID = claims.ClaimUid("0a1b")
REF = claims.ClaimRef("team-a", "train", UID)
SHARE_1 = "11111111-2222-3333-4444-555555555555"
SHARE_2 = "99999999-2222-3333-4444-555555555555"


def gpu(minor):
    uuid, address = devices.GpuUuid(f"GPU-{minor}"), devices.PciAddress(f"0000:0{minor}:00.0")
    return devices.Gpu(minor, minor, uuid, "T4", address)


INVENTORY = {f"gpu-{minor}": devices.Offer(gpu(minor)) for minor in range(3)}


def result(request, device, *, driver="gpu.nvidia.com", pool="node-1", **facts):
    return claims.Result(request, slices.DeviceId(driver, pool, device), **facts)


def claim(*results, configs=(), uid=UID):
    return claims.ResourceClaim(
        dataclasses.replace(REF, uid=uid), allocation=claims.Allocation(results, configs)
    )


def entry(requests, device, share_id=None, **facts):
    key = f"{device}-{share_id}" if share_id else device
    return prepared.PreparedDevice(
        requests=requests, pool="node-1", device=device,
        cdi_ids=(f"k8s.gpu.nvidia.com/claim=0a1b-{key}",), share_id=share_id, **facts,
    )  # fmt: skip


def described(*names):
    """What containers read of, in requests without alternatives."""
    return device_metadata.Content(
        requests={name: device_metadata.Described(name=name) for name in names}
    )


def plan(body):
    return planning.plan(REF, body, NODE, INVENTORY)


def refusal(body):
    with pytest.raises(errors.Rejected) as caught:
        plan(body)
    with pytest.raises(errors.Rejected) as again:
        planning.own_allocation(REF, body, NODE)
    assert str(again.value) == str(caught.value)
    return str(caught.value)


def test_an_allocated_device_becomes_an_answer_and_its_gpu():
    made = plan(claim(result("gpu", "gpu-1")))
    assert made == planning.Plan(
        (entry(("gpu",), "gpu-1"),), {"gpu-1": INVENTORY["gpu-1"]}, described=described("gpu")
    )
    assert made.partitions == ()


def test_a_claim_with_another_uid_is_refused():
    assert refusal(claim(result("gpu", "gpu-1"), uid=claims.ClaimUid("ffff"))) == (
        "claim team-a/train has UID ffff, not 0a1b: it was deleted and made again. "
        "The pod has to be made again too"
    )


def test_a_claim_that_is_not_allocated_is_refused():
    assert refusal(claims.ResourceClaim(REF)) == (
        "claim team-a/train (0a1b) is not allocated: was its pod bound to this node by hand "
        "(nodeName)? Let the scheduler place it"
    )


def test_a_device_of_another_pool_is_refused():
    assert refusal(claim(result("gpu", "gpu-1", pool="node-2"))) == (
        "claim team-a/train (0a1b), request 'gpu': device gpu.nvidia.com/node-2/gpu-1 is of pool "
        "'node-2', this node prepares devices of pool 'node-1' only"
    )


def test_results_of_other_drivers_are_theirs():
    body = claim(
        result("nic", "eth0", driver="nic.example.com", pool="elsewhere"),
        result("gpu", "gpu-0"),
    )
    assert plan(body).entries == (entry(("gpu",), "gpu-0"),)
    only_foreign = claim(result("nic", "eth0", driver="nic.example.com"))
    assert plan(only_foreign) == planning.Plan((), {})


def test_two_results_on_one_device_are_one_answer_for_both_requests():
    body = claim(
        result("train", "gpu-0"), result("other", "gpu-2"), result("check", "gpu-0"),
        result("train", "gpu-0"),
    )  # fmt: skip
    assert plan(body) == planning.Plan(
        (entry(("train", "check"), "gpu-0"), entry(("other",), "gpu-2")),
        {"gpu-0": INVENTORY["gpu-0"], "gpu-2": INVENTORY["gpu-2"]},
        described=described("train", "other", "check"),
    )


def test_shares_of_one_device_are_answers_of_their_own():
    body = claim(
        result("a", "gpu-0", share_id=SHARE_1),
        result("b", "gpu-0", share_id=SHARE_2),
        result("c", "gpu-0", share_id=SHARE_1),
    )
    divided = {"gpu-0": shares.Shares(2)}
    assert planning.plan(REF, body, NODE, INVENTORY, divided).entries == (
        entry(("a", "c"), "gpu-0", share_id=SHARE_1),
        entry(("b",), "gpu-0", share_id=SHARE_2),
    )


def test_admin_access_is_passed_on_and_lost_where_a_plain_request_has_the_device_too():
    body = claim(
        result("watch", "gpu-0", admin_access=True),
        result("watch", "gpu-1", admin_access=True),
        result("use", "gpu-1"),
    )
    assert plan(body).entries == (
        entry(("watch",), "gpu-0", admin_access=True),
        entry(("watch", "use"), "gpu-1", admin_access=False),
    )


def test_an_alternative_is_answered_under_its_base_request_name():
    body = claim(result("gpu/large", "gpu-0"), result("gpu/large", "gpu-1"))
    assert plan(body).entries == (entry(("gpu",), "gpu-0"), entry(("gpu",), "gpu-1"))


def test_a_device_that_is_not_there_may_be_about_to_appear():
    with pytest.raises(planning.UnknownDevice) as caught:
        plan(claim(result("gpu", "gpu-7"), result("gpu", "gpu-0")))
    assert isinstance(caught.value, errors.Retryable)
    assert str(caught.value) == (
        "claim team-a/train (0a1b): device 'gpu-7' does not exist on this node; "
        "it has gpu-0, gpu-1, gpu-2. "
        "Has the GPU fallen off the bus (dmesg | grep -i xid), or was its MIG mode changed?"
    )
    with pytest.raises(planning.UnknownDevice, match="it has no devices"):
        planning.plan(REF, claim(result("gpu", "gpu-0")), NODE, {})


def test_what_the_kubelet_is_told_does_not_depend_on_the_device_being_there():
    body = claim(result("gpu", "gpu-7"))
    assert planning.allocated_entries(REF, body, NODE) == (entry(("gpu",), "gpu-7"),)


PLAIN = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
NOWHERE = PLAIN | {"kind": "MigDeviceConfig"}
INVALID = "is invalid: "


def config(parameters, *, driver="gpu.nvidia.com", requests=(), source=claims.FROM_CLAIM):
    return claims.OpaqueConfig(driver, parameters, requests, source)


def refused(*configs):
    with pytest.raises(errors.Rejected) as caught:
        plan(claim(result("gpu/large", "gpu-0"), configs=configs))
    return str(caught.value)


@pytest.mark.parametrize("requests", [(), ("gpu",), ("gpu/large",), ("other", "gpu"), ("nic",)])
@pytest.mark.parametrize("source", [claims.FROM_CLASS, claims.FROM_CLAIM])
@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        (PLAIN | {"sharing": {"strategy": "Exclusive"}}, "sharing.strategy: "),
        (PLAIN | {"surprise": 1}, 'strict decoding error: unknown field "surprise": '),
        (PLAIN | {"apiVersion": "resource.nvidia.com/v2"}, "apiVersion: "),
        ({"kind": "GpuConfig"}, "apiVersion: missing: "),
        ({"any": "thing"}, "apiVersion: missing: "),
    ],
)
def test_a_config_that_says_what_nobody_knows_is_refused(requests, source, parameters, field):
    text = refused(config(parameters, requests=requests, source=source))
    assert text.startswith("claim team-a/train (0a1b): ")
    assert " at status.allocation.devices.config[0].opaque.parameters is invalid: " in text
    assert text.partition(INVALID)[2].startswith(field)


def test_each_invalid_config_of_a_claim_is_told():
    foreign = config({}, driver="nic.example.com")
    text = refused(config({}, source=claims.FROM_CLASS), foreign, config(PLAIN), config({}))
    assert text.startswith("claim team-a/train (0a1b): 2 configs are invalid: ")
    assert [f"config[{number}]" in text for number in range(4)] == [True, False, False, True]


@pytest.mark.parametrize("requests", [("gpu",), ("gpu/large",), ("other", "gpu")])
@pytest.mark.parametrize("source", [claims.FROM_CLASS, claims.FROM_CLAIM])
def test_a_config_for_a_request_whose_device_is_of_another_kind_is_refused(requests, source):
    assert refused(config(NOWHERE, requests=requests, source=source)) == (
        f"claim team-a/train (0a1b): request 'gpu/large', config[0] ({source}): MigDeviceConfig "
        "cannot be applied to device gpu-0 of type gpu: write a GpuConfig, or take the request "
        "out of the config's `requests`"
    )


@pytest.mark.parametrize(
    "harmless",
    [
        config(PLAIN),
        config(PLAIN | {"sharing": {}}),
        config(NOWHERE),
        config({"any": "thing"}, driver="nic.example.com"),
        config(NOWHERE, requests=("nic",)),
        config(NOWHERE, requests=("gpu/small",)),
        config(NOWHERE, requests=("g",)),
    ],
)
def test_a_config_that_asks_for_nothing_more_or_is_for_others_is_fine(harmless):
    body = claim(
        result("gpu/large", "gpu-0"), result("nic", "eth0", driver="nic.example.com"),
        configs=(harmless,),
    )  # fmt: skip
    made = plan(body)
    assert made.entries == (entry(("gpu",), "gpu-0"),)
    assert not made.needs.remembered


@pytest.mark.parametrize("requests", [(), ("gpu",), ("gpu/large",)])
@pytest.mark.parametrize("source", [claims.FROM_CLASS, claims.FROM_CLAIM])
def test_a_config_that_can_be_honoured_is_part_of_the_plan(requests, source):
    slicing = PLAIN | {"sharing": {"strategy": "TimeSlicing"}}
    body = claim(
        result("gpu/large", "gpu-0"),
        configs=(config(slicing, requests=requests, source=source),),
    )
    assert plan(body).needs.remembered == prepared.Sharing(
        time_slices=(prepared.TimeSlice(device="gpu-0", gpu="GPU-0", number=0),)
    )


@pytest.mark.parametrize("uid", ["0a1b2c3d-0000-4000-8000-000000000000", "a", "A-1", "x" * 63])
def test_a_uid_of_letters_digits_and_dashes_is_fit_for_a_file_name(uid):
    planning.check_uid(uid)


@pytest.mark.parametrize(
    "uid", ["", "../etc", "a/b", "a.b", "-a", "a-", "a\n", "a b", "x" * 64, "a\x00", "ä"]
)
def test_a_uid_that_is_not_fit_for_a_file_name_is_refused(uid):
    with pytest.raises(errors.Rejected) as caught:
        planning.check_uid(uid)
    assert str(caught.value) == (
        f"claim UID {uid!r}: allowed are 1 to 63 letters, digits and '-', "
        "as the API server makes them"
    )


def record(uid, *entries):
    return prepared.Record(
        uid=uid, namespace="team-b", name="other", phase=prepared.Phase.COMPLETED, boot_id="b",
        devices=entries,
    )  # fmt: skip


OTHER = claims.ClaimRef("team-b", "other", claims.ClaimUid("ffff"))
HOLDING = contention.Holding("gpu-0", "gpu-0", OTHER)


def holdings(wanted, *records):
    """What is in the way of a claim with these entries."""
    offers = {entry.device: INVENTORY[entry.device] for entry in wanted}
    return contention.holdings(planning.Plan(wanted, offers), "0a1b", records)


def test_a_device_that_another_claim_holds_is_told_with_its_holder():
    entries = (entry(("gpu",), "gpu-0"), entry(("gpu",), "gpu-1"))
    known = [record("ffff", entry(("x",), "gpu-0")), record("eeee", entry(("x",), "gpu-2"))]
    assert holdings(entries, *known) == (HOLDING,)


def test_the_claims_own_record_holds_nothing_against_it():
    entries = (entry(("gpu",), "gpu-0"),)
    assert holdings(entries, record("0a1b", *entries)) == ()


def test_admin_access_neither_holds_nor_minds():
    plain, admin = entry(("gpu",), "gpu-0"), entry(("gpu",), "gpu-0", admin_access=True)
    assert holdings((admin,), record("ffff", plain)) == ()
    assert holdings((plain,), record("ffff", admin)) == ()


def test_a_holder_that_is_allocated_to_the_device_holds_it_in_earnest():
    holder = claims.ResourceClaim(
        OTHER, allocation=claims.Allocation((result("a", "gpu-2"), result("b", "gpu-0")))
    )
    assert contention.is_held_in_earnest(HOLDING, holder, NODE)


@pytest.mark.parametrize(
    "holder",
    [
        None,
        claims.ResourceClaim(OTHER),
        claims.ResourceClaim(OTHER, allocation=claims.Allocation((result("a", "gpu-1"),))),
        claims.ResourceClaim(
            OTHER, allocation=claims.Allocation((result("a", "gpu-0", pool="node-2"),))
        ),
        claims.ResourceClaim(
            OTHER, allocation=claims.Allocation((result("a", "gpu-0", driver="x.example.com"),))
        ),
        claims.ResourceClaim(
            dataclasses.replace(OTHER, uid=claims.ClaimUid("new")),
            allocation=claims.Allocation((result("a", "gpu-0"),)),
        ),
    ],
)
def test_a_holder_that_the_api_does_not_know_with_the_device_is_on_its_way_out(holder):
    assert not contention.is_held_in_earnest(HOLDING, holder, NODE)
