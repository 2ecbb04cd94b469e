"""What users of Alibaba Cloud's gpushare ask for, one by one, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import MIXED, NO_FLEET, Ask, first, has_just, one, share

MEMORY, COUNT, CORES = (
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-count",
    "aliyun.com/gpu-core.percentage",
)

ASKS = {
    "GiB of one card": Ask({MEMORY: 8}, one(share("8Gi", "10"))),
    "one GiB": Ask({MEMORY: 1}, one(share("1Gi", "1"))),
    "all GiB of a card": Ask({MEMORY: "80"}, one(share("80Gi", "100"))),
    "GiB and cores of one card": Ask({MEMORY: 8, CORES: 30}, one(share("8Gi", "30"))),
    "GiB of cards of two sizes": Ask(
        {MEMORY: 12},
        first(
            mib_24576=share("12Gi", "50", has_just("24Gi")),
            mib_81920=share("12Gi", "15", has_just("80Gi")),
        ),
        MIXED,
    ),
    "GiB of cards that nobody knows": Ask(
        {MEMORY: 12},
        one(share("12Gi", "10")),
        NO_FLEET,
        warned=["container main: aliyun.com/gpu-mem: 12: cores 10: nothing was said of them"],
    ),
    "equal parts of two cards, by a label": Ask(
        {MEMORY: 16}, one(share("8Gi", "10", count=2)), labels={COUNT: "2"}
    ),
    "equal parts of two cards, by an annotation": Ask(
        {MEMORY: 16}, one(share("8Gi", "10", count=2)), annotations={COUNT: "2"}
    ),
    "equal parts of two cards, by a resource": Ask(
        {MEMORY: 16, COUNT: 2}, one(share("8Gi", "10", count=2))
    ),
    "all of one card, by a label": Ask({MEMORY: 16}, one(share("16Gi", "20")), labels={COUNT: "1"}),
    "cores of one card, by a label": Ask(
        {MEMORY: 16, CORES: 100}, one(share("16Gi", "100")), labels={COUNT: "1"}
    ),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_was_asked_becomes_a_claim(ask):
    scene.check(ASKS[ask])
