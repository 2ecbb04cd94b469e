"""The kinds of cards that a cluster has, from what drivers publish."""

import gpu_slices

from dra_driver.logic.converting import fleet_slices
from dra_driver.logic.offering import shares as share_offers
from dra_driver.model import shares, slices

GIB = 2**30


def kinds(*bodies):
    read = [slices.parse(body) for body in bodies if body["kind"] == "ResourceSlice"]
    return fleet_slices.together(map(fleet_slices.of_slice, read)).kinds


def shared(body, kind):
    """The same slice with its devices shared."""
    devices = [
        slices.format_device(share_offers.shareable(slices.parse_device(each), kind))
        for each in body["spec"]["devices"]
    ]
    return body | {"spec": body["spec"] | {"devices": devices}}


def test_cards_that_are_alike_are_one_kind_with_the_partitions_that_there_are():
    bodies = [*gpu_slices.on_demand("a", 2), *gpu_slices.on_demand("b", 1)]
    [kind] = kinds(*bodies)
    assert (kind.product, kind.shared) == ("NVIDIA H100 80GB HBM3", "")
    profiles = dict(kind.profiles)
    assert profiles["1g.10gb"] < profiles["3g.40gb"] < kind.memory


def test_a_shared_card_tells_how_it_is_shared_and_has_whole_mib():
    card = gpu_slices.whole("a", 0, model=gpu_slices.T4)
    [body] = [b for b in gpu_slices.published("a", card) if b["kind"] == "ResourceSlice"]
    amounts = shares.Shares(enforcement=shares.Enforcement.MPS)
    numbered = shares.Shares(count=4, enforcement=shares.Enforcement.MPS)
    found = kinds(shared(body, amounts), shared(body, numbered))
    assert sorted(kind.shared for kind in found) == ["count", "memory"]
    assert all(kind.memory % 2**20 == 0 for kind in found)


def test_what_is_no_card_is_passed_over():
    device = {"name": "x", "attributes": {}, "capacity": {}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": [device]}
    assert kinds({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}) == ()
