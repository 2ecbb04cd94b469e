"""What users of KAI's scheduler ask for by annotations, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import MIXED, NO_FLEET, Ask, first, has_just, one, share

FRACTION, MEMORY, CARDS, CONTAINER = (
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "gpu-fraction-container-name",
)
STAYS = {"schedulerName": "kai-scheduler"}


def _ask(annotations, claim, policy=scene.EIGHTY, **more):
    return Ask({}, claim, policy, annotations, **more)


ASKS = {
    "half of a card": _ask({FRACTION: "0.5"}, one(share("40Gi", "50", has_just("80Gi")))),
    "half of a card without a zero": _ask(
        {FRACTION: ".5"}, one(share("40Gi", "50", has_just("80Gi")))
    ),
    "a part that is no whole number of MiB is rounded down": _ask(
        {FRACTION: "0.333"}, one(share("27279Mi", "33", has_just("80Gi")))
    ),
    "a very small part": _ask({FRACTION: "0.001"}, one(share("81Mi", "1", has_just("80Gi")))),
    "half of each of two cards": _ask(
        {FRACTION: "0.5", CARDS: "2"}, one(share("40Gi", "50", has_just("80Gi"), count=2))
    ),
    "half of one of two sizes of card": _ask(
        {FRACTION: "0.5"},
        first(
            mib_24576=share("12Gi", "50", has_just("24Gi")),
            mib_81920=share("40Gi", "50", has_just("80Gi")),
        ),
        MIXED,
    ),
    "MiB": _ask({MEMORY: "2000"}, one(share("2000Mi", "2"))),
    "MiB of each of three cards": _ask(
        {MEMORY: "8192", CARDS: "3"}, one(share("8Gi", "10", count=3))
    ),
    "MiB of cards that nobody knows": _ask(
        {MEMORY: "2048"},
        one(share("2Gi", "10")),
        NO_FLEET,
        warned=["container main: annotation gpu-memory: 2048: cores 10: nothing was said of them"],
    ),
    "a part for a container by its name": _ask(
        {FRACTION: "0.25", CONTAINER: "main"}, one(share("20Gi", "25", has_just("80Gi")))
    ),
    "a part in a pod of its scheduler, which stays": _ask(
        {MEMORY: "8192"}, one(share("8Gi", "10")), spec=STAYS, left=STAYS
    ),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_was_asked_becomes_a_claim(ask):
    scene.check(ASKS[ask])


def _claims(made):
    spec = made.pod["spec"]
    return {
        one["name"]: [claim["name"] for claim in one.get("resources", {}).get("claims", ())]
        for one in [*spec.get("initContainers", ()), *spec["containers"]]
    }


def test_the_first_container_has_it_if_none_is_named():
    first_one, second = scene.container("first"), scene.container("second")
    body = scene.pod(
        first_one,
        second,
        initContainers=[scene.container("before")],
        metadata={"annotations": {FRACTION: "0.5"}},
    )
    made = scene.converted(body)
    assert _claims(made) == {"before": [], "first": ["gpu-first"], "second": []}
    assert made.pod["spec"]["containers"][1] == second


@pytest.mark.parametrize("name", ["second", "before"])
def test_the_container_that_is_named_has_it(name):
    body = scene.pod(
        scene.container("first"),
        scene.container("second"),
        initContainers=[scene.container("before")],
        metadata={"annotations": {FRACTION: "0.5", CONTAINER: name}},
    )
    made = scene.converted(body)
    assert _claims(made) == {"before": [], "first": [], "second": []} | {name: [f"gpu-{name}"]}
    assert scene.specs(made) == {f"gpu-{name}": one(share("40Gi", "50", has_just("80Gi")))}


def test_another_container_may_ask_another_system():
    body = scene.pod(
        scene.container("first"),
        scene.container("second", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20480}),
        metadata={"annotations": {FRACTION: "0.5"}},
    )
    assert scene.specs(scene.converted(body)) == {
        "gpu-first": one(share("40Gi", "50", has_just("80Gi"))),
        "gpu-second": one(share("20Gi", "25")),
    }


@pytest.mark.parametrize("annotations", [{CARDS: "2"}, {CONTAINER: "main"}])
def test_neither_cards_nor_a_container_alone_are_an_ask(annotations):
    body = scene.pod(scene.container(), metadata={"annotations": annotations})
    made = scene.converting.convert(body, scene.EIGHTY)
    assert (made.pod, made.is_converted, made.problems) == (body, False, ())
