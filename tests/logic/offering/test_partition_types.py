"""Why slices name no `partitionTypeAttribute` (Kubernetes 1.37, gate DRAPartitionableDevicesType).

It is for the summary of a ResourcePoolStatusRequest, which has a number for each value of that
attribute, and takes an equal price for granted: counter sets, counters and amounts. The price of a
partition here has the memory slices of its place, and the counter set of its card.
"""

import collections

import mig_cards

from dra_driver.logic.offering import publishing

MOST_TYPES = 32
"""A pool that has more is answered with an error (kubernetes/kubernetes 1.37,
`pkg/controller/resourcepoolstatusrequest`, maxStatusListItems)."""


def prices(contents, attribute):
    """What devices with counters cost, by the value of an attribute, as that controller sees it."""
    found = collections.defaultdict(set)
    for device in (one for content in contents for one in content.devices):
        consumed = device.extra.get("consumesCounters")
        if consumed and attribute in device.attributes:
            found[device.attributes[attribute]].add(
                frozenset(
                    (entry["counterSet"], name, amount["value"])
                    for entry in consumed
                    for name, amount in entry["counters"].items()
                )
            )
    return found


def test_partitions_of_one_profile_cost_different_counters():
    contents = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:1"))
    assert {profile: len(costs) for profile, costs in prices(contents, "profile").items()} == {
        "1g.10gb": 7,
        "1g.10gb+me": 7,
        "1g.20gb": 4,
        "2g.20gb": 3,
        "3g.40gb": 2,
        "4g.40gb": 1,
        "7g.80gb": 1,
    }


def test_by_what_they_cost_a_node_of_two_cards_has_more_types_than_may_be_told():
    contents = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2"))
    different = set.union(*prices(contents, "profile").values())
    assert len(different) == 50 > MOST_TYPES


def test_no_slice_names_an_attribute_that_it_would_be_held_to():
    contents = publishing.contents(mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2")))
    assert [name for spec in contents for name in spec if name == "partitionTypeAttribute"] == []


def test_names_have_one_slash_at_most():
    contents = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:1"))
    names = {
        name
        for content in contents
        for device in content.devices
        for name in (*device.attributes, *device.capacity)
    }
    assert {name.count("/") for name in names} == {0, 1}
