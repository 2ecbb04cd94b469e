"""How many devices match parameters, and why not more."""

import pytest

from dra_driver.logic.parameters import claims, matching
from dra_driver.model import parameters, quantities, slices

DRIVER = "gpu.nvidia.com"
GPU, MIG, MIG_DEVICE, VFIO = parameters.Kind
SMALL = {"memory": {"value": "20G", "operator": "LessThan"}}


def gpu(name, product, gib, **more):
    attributes = {"type": "gpu", "productName": product, **more}
    return slices.Device(name, attributes, {"memory": quantities.of_bytes(gib * 2**30)})


T4, A100 = ("NVIDIA T4", 16), ("NVIDIA A100", 40)


def of_node(node, *cards, generation=1, driver=DRIVER, name="s"):
    devices = tuple(gpu(f"gpu-{n}", *card) for n, card in enumerate(cards))
    return slices.ResourceSlice(name, driver, node, generation, 1, node, devices)


def found(spec, *items, kind=GPU):
    made = claims.of(kind, spec, DRIVER)
    asked = matching.ask(made)
    count = matching.Count([asked], DRIVER)
    for item in items:
        count.add(item)
    return made, count.result()[asked]


def test_devices_of_all_nodes_count():
    made, matches = found(
        {"selector": {"productName": "*t4*"}}, of_node("a", T4, A100), of_node("b", T4, T4)
    )
    assert (matches.devices, matches.of, matches.most) == (3, 4, 2)
    assert matching.reason(made, matches) is None


def test_a_node_counts_with_all_its_slices_of_the_newest_generation():
    _, matches = found(
        {"count": 2},
        of_node("a", T4, T4, T4, generation=1),
        of_node("a", T4, generation=2),
        of_node("a", T4, generation=2),
        of_node("a", A100, A100, generation=1),
    )
    assert (matches.devices, matches.of, matches.most) == (2, 2, 2)


def test_other_drivers_and_other_classes_do_not_count():
    _, matches = found({}, of_node("a", T4, driver="x.example.com"))
    assert matches == matching.Matches()
    made, matches = found({"profile": "1g.10gb"}, of_node("a", A100), kind=MIG)
    assert matches.of == 0
    assert matching.reason(made, matches) == (
        "no device of class mig.nvidia.com is published: look for it with kubectl get "
        "resourceslices, and with dra-driver doctor on a node"
    )


NONE = "of 2 devices of class gpu.nvidia.com none has"
THERE = "(there are NVIDIA A100, NVIDIA T4)"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"selector": {"andExpression": [{"productName": "h100"}, SMALL]}},
            f"{NONE} productName h100 {THERE}; *h100* is found anywhere in it",
        ),
        (
            {"selector": {"productName": "*h100*"}},
            f"{NONE} productName *h100* {THERE}",
        ),
        (
            {"selector": {"andExpression": [{"productName": "*a100*"}, SMALL]}},
            f"{NONE} all of it: 1 have productName *a100*; 1 have memory LessThan 20G",
        ),
        (
            {"selector": {"orExpression": [{"index": 7}, {"index": 8}]}},
            f"{NONE} one of 2",
        ),
        (
            {"selector": {"memory": {"value": "16G", "operator": "LessThanOrEqualTo"}}},
            f"{NONE} memory LessThanOrEqualTo 16G (there are 16Gi, 40Gi)",
        ),
        (
            {"count": 3},
            "2 devices match, but no more than 2 on one node, and 3 are asked for",
        ),
    ],
)
def test_why_not_is_told_by_condition(spec, told):
    made, matches = found(spec, of_node("a", T4, A100))
    assert matching.reason(made, matches) == told


def test_a_card_whose_shares_are_counted_is_told_of():
    device = slices.Device(
        "gpu-0",
        {"type": "gpu", "enforcement": "None"},
        {"shares": quantities.parse("4"), "memory": quantities.parse("16Gi")},
    )
    item = slices.ResourceSlice("s", DRIVER, "a", 1, 1, "a", (device,))
    made, matches = found({}, item)
    assert matching.reason(made, matches) == (
        "of 1 devices of class gpu.nvidia.com none has a device that is not shared by count"
    )


def test_a_device_that_an_expression_has_no_answer_for_does_not_match():
    odd = slices.Device("gpu-0", {"type": "gpu", "productName": 7}, {})
    _, matches = found(
        {"selector": {"productName": "*t4*"}},
        slices.ResourceSlice("s", DRIVER, "a", 1, 1, "a", (odd,)),
    )
    assert (matches.devices, matches.of) == (0, 1)


def test_equal_asks_are_one():
    asks = {matching.ask(claims.of(GPU, {"count": n}, DRIVER)) for n in (1, 2, 3)}
    assert len(asks) == 1


def test_a_message_shows_a_few_of_what_there_is():
    cards = [(f"Card {number}", 16) for number in range(9)]
    made, matches = found({"selector": {"brand": "x"}}, *[of_node(c[0], c) for c in cards])
    assert matching.reason(made, matches) == (
        "of 9 devices of class gpu.nvidia.com none has brand x; *x* is found anywhere in it"
    )
    made, matches = found({"selector": {"productName": "*x*"}}, *[of_node(c[0], c) for c in cards])
    assert matching.reason(made, matches).endswith(
        "(there are Card 0, Card 1, Card 2, Card 3, Card 4, …)"
    )
