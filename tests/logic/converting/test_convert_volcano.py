"""What Volcano's users ask for, one by one, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import (
    EIGHTY,
    MIXED,
    NO_FLEET,
    UNDIVIDED,
    WHOLE,
    Ask,
    devices,
    first,
    has_just,
    one,
    share,
)

NUMBER, MEMORY, PERCENT, CORES = (
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-cores",
)
OLD_MEMORY, OLD_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
STAYS = {"schedulerName": "volcano"}

ASKS = {
    "memory and cores of one card": Ask(
        {NUMBER: 1, MEMORY: 3000, CORES: 50}, one(share("3000Mi", "50"))
    ),
    "memory and cores of each of two cards": Ask(
        {NUMBER: 2, MEMORY: 1024, CORES: 50}, one(share("1Gi", "50", count=2))
    ),
    "cores follow memory": Ask({NUMBER: 1, MEMORY: 20480}, one(share("20Gi", "25"))),
    "no cores are as many as the memory": Ask(
        {NUMBER: 1, MEMORY: 20480, CORES: 0}, one(share("20Gi", "25"))
    ),
    "all cores keep others away": Ask(
        {NUMBER: 1, MEMORY: 1024, CORES: 100}, one(share("1Gi", "100"))
    ),
    "a number alone is a whole card": Ask({NUMBER: 1}, one(devices(WHOLE, UNDIVIDED))),
    "a number alone is whole cards": Ask({NUMBER: 2}, one(devices(WHOLE, UNDIVIDED, count=2))),
    "cores without memory are beside all memory": Ask(
        {NUMBER: 1, CORES: 20},
        one(share("", "20")),
        warned=[
            (
                "container main: volcano.sh/vgpu-cores: 20: "
                "all memory of a GPU, since volcano.sh/vgpu-memory is not there"
            )
        ],
    ),
    "more cores than there are": Ask(
        {NUMBER: 1, MEMORY: 1024, CORES: 101},
        one(share("1Gi", "100")),
        warned=["container main: volcano.sh/vgpu-cores: 101: 100: that is all of a GPU"],
    ),
    "a part of a card": Ask({NUMBER: 1, PERCENT: 50}, one(share("40Gi", "50", has_just("80Gi")))),
    "a part of a card, and cores": Ask(
        {NUMBER: 1, PERCENT: 50, CORES: 60}, one(share("40Gi", "60", has_just("80Gi")))
    ),
    "a part of one of two sizes of card": Ask(
        {NUMBER: 2, PERCENT: 25},
        first(
            mib_24576=share("6Gi", "25", has_just("24Gi"), count=2),
            mib_81920=share("20Gi", "25", has_just("80Gi"), count=2),
        ),
        MIXED,
    ),
    "memory of cards that nobody knows": Ask(
        {NUMBER: 1, MEMORY: 1024},
        one(share("1Gi", "10")),
        NO_FLEET,
        warned=[
            "container main: volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 1024: cores 10"
        ],
    ),
    "of a pod of its scheduler, which stays": Ask(
        {NUMBER: 1, MEMORY: 1024, CORES: 5}, one(share("1Gi", "5")), spec=STAYS, left=STAYS
    ),
    "the older share of a card": Ask({OLD_MEMORY: 8192}, one(share("8Gi", "10"))),
    "the older number of cards": Ask({OLD_NUMBER: 1}, one(devices(WHOLE, UNDIVIDED))),
    "the older number of several cards": Ask(
        {OLD_NUMBER: 4}, one(devices(WHOLE, UNDIVIDED, count=4))
    ),
    "the older share of cards of two sizes": Ask(
        {OLD_MEMORY: 6144},
        first(
            mib_24576=share("6Gi", "25", has_just("24Gi")),
            mib_81920=share("6Gi", "7", has_just("80Gi")),
        ),
        MIXED,
    ),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_was_asked_becomes_a_claim(ask):
    scene.check(ASKS[ask])


def test_annotations_of_the_newer_sharing_are_not_those_of_the_older():
    body = scene.pod(
        scene.container(limits={OLD_MEMORY: 8192}),
        metadata={"annotations": {"volcano.sh/vgpu-mode": "mig"}},
    )
    made = scene.converted(body, EIGHTY)
    assert scene.specs(made) == {"gpu-main": one(share("8Gi", "10"))}
    scene.begins(scene.told(made.warnings), ["pod: annotation volcano.sh/vgpu-mode: stays: "])
