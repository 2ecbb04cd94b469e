"""What users of Tencent's gpu-manager ask for, one by one, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import MIXED, NO_FLEET, UNDIVIDED, WHOLE, Ask, at_least, devices, one, share

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"

ASKS = {
    "half a card and 15 units of memory": Ask({CORE: 50, MEMORY: 15}, one(share("3840Mi", "50"))),
    "the smallest share": Ask({CORE: 1, MEMORY: 1}, one(share("256Mi", "1"))),
    "the largest share": Ask({CORE: 99, MEMORY: 320}, one(share("80Gi", "99"))),
    "a share of cards that nobody knows": Ask(
        {CORE: 20, MEMORY: 40}, one(share("10Gi", "20")), NO_FLEET
    ),
    "a share of cards of two sizes": Ask({CORE: 20, MEMORY: 40}, one(share("10Gi", "20")), MIXED),
    "amounts as texts": Ask({CORE: "20", MEMORY: "40"}, one(share("10Gi", "20"))),
    "one whole card": Ask({CORE: 100}, one(devices(WHOLE, UNDIVIDED))),
    "three whole cards": Ask({CORE: 300}, one(devices(WHOLE, UNDIVIDED, count=3))),
    "one whole card with enough memory": Ask(
        {CORE: 100, MEMORY: 64}, one(devices(WHOLE, UNDIVIDED, at_least("16Gi")))
    ),
    "two whole cards with enough memory together": Ask(
        {CORE: 200, MEMORY: 60}, one(devices(WHOLE, UNDIVIDED, at_least("7680Mi"), count=2))
    ),
    "memory of three cards in whole units": Ask(
        {CORE: 300, MEMORY: 100}, one(devices(WHOLE, UNDIVIDED, at_least("8704Mi"), count=3))
    ),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_was_asked_becomes_a_claim(ask):
    scene.check(ASKS[ask])
