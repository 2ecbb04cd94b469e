"""One daemon for several cards: limits by card hold for clients in whatever order they see them.

A number in a limit is that of a card in the client's own order: so nothing is given by number.
"""

import json

import pytest
import sharing_claims
import sharing_node
import structlog

from dra_driver.logic.preparing import cdi, mps_edits

pytestmark = pytest.mark.sampled(11)

GPU, OTHER_GPU = sharing_claims.GPU, sharing_claims.OTHER_GPU
CARDS = [f"gpu-{number}" for number in range(4)]
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.fixture
def host(new_host):
    """Four cards, whose UUIDs are in another order than the cards."""
    host = new_host("h100-80gb-hbm3:4")
    uuids = [host.uuid(number) for number in range(4)]
    assert uuids != sorted(uuids)
    return host


def by_card(host, *gib):
    """A config with a limit for each of the first cards; None is none."""
    limits = {host.uuid(n): f"{one}Gi" for n, one in enumerate(gib) if one is not None}
    return sharing_claims.mps_gpu(defaultPerDevicePinnedMemoryLimit=limits)


def seen_as(host, *numbers):
    """What a program sets to see these cards, in this order."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(host.uuid(number) for number in numbers)}


def test_a_daemon_has_its_cards_in_pci_order(host, users):
    ref = users.give(*reversed(CARDS), configs=[sharing_claims.mps_gpu()])
    host.prepare(ref)
    assert host.described(ref).devices == tuple(host.uuid(number) for number in range(4))


def test_limits_by_card_hold_in_whatever_order_a_program_sees_its_cards(host, users):
    ref = users.give(*CARDS, configs=[by_card(host, 2, 4, 8, 6)])
    host.prepare(ref)
    for key in CARDS:
        assert host.gets_each(ref, key) == [2, 4, 8, 6]
        assert host.gets_each(ref, key, **seen_as(host, 3, 1, 0, 2)) == [6, 4, 2, 8]


def test_where_limits_differ_a_program_that_hides_a_card_has_none_and_that_is_told(
    host, users, log
):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, 2, 4)])
    host.prepare(ref)
    assert host.gets_each(ref, GPU, **seen_as(host, 1)) == [None]
    [line] = [one for one in log if one["event"].startswith("memory limits of the cards differ")]
    assert line["devices"] == [GPU, OTHER_GPU]
    assert "a program that hides one of the cards has no memory limit at all" in line["event"]


@pytest.mark.parametrize(
    "limits",
    [
        {"defaultPinnedDeviceMemoryLimit": "4Gi"},
        {"defaultPerDevicePinnedMemoryLimit": {"0": "4Gi", "1": "4Gi"}},
    ],
    ids=["one for all", "the same for each"],
)
def test_where_limits_are_alike_they_hold_for_a_program_that_hides_a_card_too(
    host, users, log, limits
):
    ref = users.give(GPU, OTHER_GPU, configs=[sharing_claims.mps_gpu(**limits)])
    host.prepare(ref)
    for order in ({}, seen_as(host, 1, 0), seen_as(host, 0), seen_as(host, 1)):
        assert set(host.gets_each(ref, GPU, **order)) == {4}
    assert MEMORY not in host.edits(ref, GPU)[0]
    assert [one for one in log if "limits of the cards" in one["event"]] == []
    assert recalled(host, ref) == host.record(ref).sharing


def test_a_program_with_limits_of_its_own_gets_the_largest_on_each_card_that_it_names(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, 2, 4)])
    host.prepare(ref)
    assert host.limits(ref) == (None, 4)
    for own in ("0=60G,1=60G", f"{host.uuid(0)}=60G,{host.uuid(1)}=60G", ""):
        for order in ({}, seen_as(host, 1, 0)):
            got = host.gets_each(ref, GPU, **{MEMORY: own}, **order)
            assert set(got) == {4}
        # One that names what it does not see has no limit, for all that the driver can do.
        for order in (seen_as(host, 0), seen_as(host, 1)):
            got = host.gets_each(ref, GPU, **{MEMORY: own}, **order)
            assert set(got) == {None if own else 4}
    assert host.gets_each(ref, GPU, **{MEMORY: f"{host.uuid(1)}=1G"}) == [4, 1]


def test_with_a_card_that_has_no_limit_none_of_them_has_a_hard_one(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, None, 4)])
    host.prepare(ref)
    assert host.limits(ref) == (None, None)
    assert host.gets_each(ref, GPU) == [None, 4]
    assert host.gets_each(ref, GPU, **seen_as(host, 1, 0)) == [4, None]
    assert host.edits(ref, GPU)[0][MEMORY] == f"{host.uuid(1)}=4096M"


def test_one_limit_for_all_cards_is_the_same_for_each_and_hard(host, users):
    config = sharing_claims.mps_gpu(defaultPinnedDeviceMemoryLimit="4Gi", maxClients=2)
    ref = users.give(GPU, OTHER_GPU, configs=[config])
    host.prepare(ref)
    assert host.limits(ref) == (None, 2)
    assert host.gets_each(ref, OTHER_GPU) == [2, 2]
    assert host.gets_each(ref, OTHER_GPU, **{MEMORY: "0=9G,1=9G"}) == [2, 2]


def test_the_largest_of_the_limits_is_recalled_from_the_spec(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, 2, 4)])
    host.prepare(ref)
    assert recalled(host, ref) == host.record(ref).sharing
    [use] = recalled(host, ref).mps
    assert use.memory_bytes == 4 * sharing_node.GIB


@pytest.mark.parametrize(
    ("text", "gib"), [("0=2048M,1=4096M", 4), ("0=4096M,1=4096M", 4), ("1=4096M", None)]
)
def test_limits_by_number_of_an_earlier_driver_are_understood(host, users, text, gib):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, 2, 4)])
    host.prepare(ref)
    path = host.cdi / host.cdi_name(ref)
    new = f"{MEMORY}={host.uuid(0)}=2048M,{host.uuid(1)}=4096M"
    assert new in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(new, f"{MEMORY}={text}"))
    [use] = recalled(host, ref).mps
    assert use.memory_bytes == (gib and gib * sharing_node.GIB)


def test_a_daemon_of_an_earlier_driver_runs_on_when_its_claim_is_prepared_again(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[by_card(host, 2, 4)])
    host.prepare(ref)
    before = host.daemon(ref)
    as_an_earlier_driver_wrote(host, ref)
    client = host.connect(ref, GPU)

    host.prepare(ref)

    assert host.daemon(ref) == before
    assert client.is_usable()
    assert host.limits(ref) == (None, 4)
    client.close()


def as_an_earlier_driver_wrote(host, ref):
    """Cards by UUID, a limit for each, and in the record only a limit for all, which is none."""
    path = host.domain(ref).description
    document = json.loads(path.read_text(encoding="utf-8"))
    daemon = document["daemon"]
    daemon["device"] = ",".join(reversed(daemon["device"].split(",")))
    daemon["limits"] |= {"memory_bytes": None, "memory_by_device": [4 * 2**30, 2 * 2**30]}
    path.write_text(json.dumps(document), encoding="utf-8")
    record = host.root / "claims" / f"{ref.uid}.json"
    known = json.loads(record.read_text(encoding="utf-8"))
    text = json.dumps(known).replace(f'"memory_bytes": {4 * 2**30}', '"memory_bytes": null')
    assert text != json.dumps(known)
    record.write_text(text, encoding="utf-8")


def recalled(host, ref):
    text = (host.cdi / host.cdi_name(ref)).read_text(encoding="utf-8")
    gpus = {f"gpu-{number}": host.uuid(number) for number in range(4)}
    return mps_edits.recalled(host.record(ref).devices, cdi.edits(ref.uid, text), gpus)
