"""What HAMi's users ask for, one by one, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import EIGHTY, MIXED, NO_FLEET, UNDIVIDED, Ask, first, has_just, one, share

GPU, MEMORY, PERCENT, CORES, PRIORITY = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
)
ALL_OF_A_CARD = one(scene.devices(scene.WHOLE, UNDIVIDED))
NINE_SIZES = scene.policy(*(scene.card(gib) for gib in (8, 16, 24, 32, 40, 48, 80, 96, 141)))
ONLY_WHOLE = scene.policy(scene.card(80, shared=""))
ALSO_WHOLE = scene.policy(scene.card(24, shared=""), scene.card(80))

AMOUNTS = {
    "memory and cores of one card": Ask(
        {GPU: 1, MEMORY: 10240, CORES: 30}, one(share("10Gi", "30"))
    ),
    "memory and cores of each of two cards": Ask(
        {GPU: 2, MEMORY: 10240, CORES: 30}, one(share("10Gi", "30", count=2))
    ),
    "eight cards": Ask({GPU: 8, MEMORY: 1024, CORES: 5}, one(share("1Gi", "5", count=8))),
    "cores follow memory, rounded down": Ask({GPU: 1, MEMORY: 8000}, one(share("8000Mi", "9"))),
    "a quarter of the memory is a quarter of the cores": Ask(
        {GPU: 1, MEMORY: 20480}, one(share("20Gi", "25"))
    ),
    "as few cores as there are for very little memory": Ask(
        {GPU: 1, MEMORY: 1}, one(share("1Mi", "1"))
    ),
    "all memory is all cores": Ask({GPU: 1, MEMORY: 81920}, one(share("80Gi", "100"))),
    "no cores are as many as the memory": Ask(
        {GPU: 1, MEMORY: 20480, CORES: 0}, one(share("20Gi", "25"))
    ),
    "all cores keep others away": Ask(
        {GPU: 1, MEMORY: 10240, CORES: 100}, one(share("10Gi", "100"))
    ),
    "more cores than there are": Ask(
        {GPU: 1, MEMORY: 10240, CORES: 250},
        one(share("10Gi", "100")),
        warned=["container main: nvidia.com/gpucores: 250: 100: that is all of a GPU"],
    ),
    "cores without memory are beside all memory": Ask(
        {GPU: 1, CORES: 30},
        one(share("", "30")),
        warned=[
            "container main: nvidia.com/gpucores: 30: all memory of a GPU, since nvidia.com/gpumem"
        ],
    ),
    "cores without a count are of one card": Ask(
        {CORES: 100},
        one(share("", "100")),
        warned=["container main: nvidia.com/gpucores: 100: all memory of a GPU"],
    ),
    "memory without a count is of one card": Ask({MEMORY: 4096}, one(share("4Gi", "5"))),
    "no cores and no memory are a whole card": Ask({GPU: 1, CORES: 0}, ALL_OF_A_CARD),
    "numbers as texts": Ask(
        {GPU: "2", MEMORY: "2048", CORES: "10"}, one(share("2Gi", "10", count=2))
    ),
    "numbers with a suffix": Ask({GPU: "1", MEMORY: "10k"}, one(share("10000Mi", "12"))),
    "numbers with an exponent": Ask({GPU: "1e0", MEMORY: "4e3"}, one(share("4000Mi", "4"))),
    "numbers with a binary suffix": Ask({GPU: 1, MEMORY: "4Ki", CORES: 1}, one(share("4Gi", "1"))),
    "memory of one of two sizes of card": Ask(
        {GPU: 1, MEMORY: 12288},
        first(
            mib_24576=share("12Gi", "50", has_just("24Gi")),
            mib_81920=share("12Gi", "15", has_just("80Gi")),
        ),
        MIXED,
    ),
    "memory that only one size of card has": Ask(
        {GPU: 1, MEMORY: 30720}, one(share("30Gi", "37")), MIXED
    ),
    "memory that is all of the smaller card": Ask(
        {GPU: 2, MEMORY: 24576},
        first(
            mib_24576=share("24Gi", "100", has_just("24Gi"), count=2),
            mib_81920=share("24Gi", "30", has_just("80Gi"), count=2),
        ),
        MIXED,
    ),
    "memory and cores of any size of card": Ask(
        {GPU: 1, MEMORY: 12288, CORES: 40}, one(share("12Gi", "40")), MIXED
    ),
    "memory where some cards are not shared": Ask(
        {GPU: 1, MEMORY: 12288}, one(share("12Gi", "15")), ALSO_WHOLE
    ),
    "memory of more sizes than a claim has room for": Ask(
        {GPU: 1, MEMORY: 8192},
        first(
            mib_8192=share("8Gi", "100", has_just("8Gi")),
            mib_16384=share("8Gi", "50", has_just("16Gi")),
            mib_24576=share("8Gi", "33", has_just("24Gi")),
            mib_32768=share("8Gi", "25", has_just("32Gi")),
            mib_40960=share("8Gi", "20", has_just("40Gi")),
            mib_49152=share("8Gi", "16", has_just("48Gi")),
            mib_81920=share("8Gi", "10", has_just("80Gi")),
            mib_98304=share("8Gi", "8", has_just("96Gi")),
        ),
        NINE_SIZES,
        warned=["container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 8192: cards of 141Gi are"],
    ),
    "memory of cards that nobody knows": Ask(
        {GPU: 1, MEMORY: 8000},
        one(share("8000Mi", "10")),
        NO_FLEET,
        warned=[
            "container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 8000: cores 10: nothing was"
        ],
    ),
    "memory where no card is shared by amounts": Ask(
        {GPU: 1, MEMORY: 8000},
        one(share("8000Mi", "10")),
        ONLY_WHOLE,
        warned=[
            "container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 8000: cores 10: nothing was"
        ],
    ),
    "memory and cores of cards that nobody knows": Ask(
        {GPU: 3, MEMORY: 200_000, CORES: 20}, one(share("200000Mi", "20", count=3)), NO_FLEET
    ),
}

PERCENTAGES = {
    "half of a card": Ask({GPU: 1, PERCENT: 50}, one(share("40Gi", "50", has_just("80Gi")))),
    "half of each of two cards": Ask(
        {GPU: 2, PERCENT: 50}, one(share("40Gi", "50", has_just("80Gi"), count=2))
    ),
    "a part that is no whole number of MiB is rounded down": Ask(
        {GPU: 1, PERCENT: 33}, one(share("27033Mi", "33", has_just("80Gi")))
    ),
    "the smallest part": Ask({GPU: 1, PERCENT: 1}, one(share("819Mi", "1", has_just("80Gi")))),
    "all of a card": Ask({GPU: 1, PERCENT: 100}, one(share("80Gi", "100", has_just("80Gi")))),
    "a part without a count": Ask({PERCENT: 25}, one(share("20Gi", "25", has_just("80Gi")))),
    "a part with cores": Ask(
        {GPU: 1, PERCENT: 50, CORES: 20}, one(share("40Gi", "20", has_just("80Gi")))
    ),
    "a part with no cores": Ask(
        {GPU: 1, PERCENT: 50, CORES: 0}, one(share("40Gi", "50", has_just("80Gi")))
    ),
    "no part is nothing said": Ask(
        {GPU: 1, PERCENT: 0},
        ALL_OF_A_CARD,
        warned=["container main: nvidia.com/gpumem-percentage: 0: nothing: as if it was not there"],
    ),
    "no part beside an amount": Ask(
        {GPU: 1, PERCENT: 0, MEMORY: 20480},
        one(share("20Gi", "25")),
        warned=["container main: nvidia.com/gpumem-percentage: 0: nothing: as if it was not there"],
    ),
    "half of one of two sizes of card": Ask(
        {GPU: 1, PERCENT: 50},
        first(
            mib_24576=share("12Gi", "50", has_just("24Gi")),
            mib_81920=share("40Gi", "50", has_just("80Gi")),
        ),
        MIXED,
    ),
    "a third of several cards of one of two sizes": Ask(
        {GPU: 3, PERCENT: 33, CORES: 10},
        first(
            mib_24576=share("8110Mi", "10", has_just("24Gi"), count=3),
            mib_81920=share("27033Mi", "10", has_just("80Gi"), count=3),
        ),
        MIXED,
    ),
    "a part where some cards are not shared": Ask(
        {GPU: 1, PERCENT: 10}, one(share("8Gi", "10", has_just("80Gi"))), ALSO_WHOLE
    ),
    "a part of more sizes than a claim has room for": Ask(
        {GPU: 1, PERCENT: 50},
        first(
            mib_8192=share("4Gi", "50", has_just("8Gi")),
            mib_16384=share("8Gi", "50", has_just("16Gi")),
            mib_24576=share("12Gi", "50", has_just("24Gi")),
            mib_32768=share("16Gi", "50", has_just("32Gi")),
            mib_40960=share("20Gi", "50", has_just("40Gi")),
            mib_49152=share("24Gi", "50", has_just("48Gi")),
            mib_81920=share("40Gi", "50", has_just("80Gi")),
            mib_98304=share("48Gi", "50", has_just("96Gi")),
        ),
        NINE_SIZES,
        warned=[
            "container main: nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50: cards of 141Gi"
        ],
    ),
}


def _priority(value: str) -> dict[str, object]:
    return {"env": [{"name": "CUDA_MPS_CLIENT_PRIORITY", "value": value}]}


OTHERS = {
    "high priority": Ask(
        {GPU: 1, MEMORY: 10240, PRIORITY: 0}, one(share("10Gi", "12")), added=_priority("0")
    ),
    "low priority": Ask(
        {GPU: 1, MEMORY: 10240, PRIORITY: "1"}, one(share("10Gi", "12")), added=_priority("1")
    ),
    "priority on a whole card": Ask({GPU: 1, PRIORITY: 1}, ALL_OF_A_CARD, added=_priority("1")),
    "a class of the cluster's own": Ask(
        {GPU: 1, MEMORY: 10240, CORES: 30},
        one(scene.devices("shared.example.com", scene.IS_GPU, memory="10Gi", cores="30")),
        scene.policy(scene.card(80), share_class="shared.example.com"),
    ),
    "a number of GPUs of HAMi's scheduler": Ask(
        {GPU: 1}, ALL_OF_A_CARD, spec={"schedulerName": "hami-scheduler"}
    ),
    "two GPUs of HAMi's scheduler": Ask(
        {GPU: 2},
        one(scene.devices(scene.WHOLE, UNDIVIDED, count=2)),
        spec={"schedulerName": "hami-scheduler"},
    ),
    "a share of HAMi's scheduler": Ask(
        {GPU: 1, MEMORY: 10240}, one(share("10Gi", "12")), spec={"schedulerName": "hami-scheduler"}
    ),
    "a share of a scheduler that knows claims": Ask(
        {GPU: 1, MEMORY: 10240},
        one(share("10Gi", "12")),
        spec={"schedulerName": "volcano"},
        left={"schedulerName": "volcano"},
    ),
}


@pytest.mark.parametrize("ask", AMOUNTS)
def test_an_amount_becomes_a_share(ask):
    scene.check(AMOUNTS[ask])


@pytest.mark.parametrize("ask", PERCENTAGES)
def test_a_percentage_becomes_an_amount_for_each_size_of_card(ask):
    scene.check(PERCENTAGES[ask])


@pytest.mark.parametrize("ask", OTHERS)
def test_what_is_said_beside_is_kept(ask):
    scene.check(OTHERS[ask])


@pytest.mark.parametrize("policy", [EIGHTY, NO_FLEET], ids=["known cards", "no cards known"])
def test_cores_that_were_asked_for_are_never_changed(policy):
    made = scene.converted(
        scene.pod(scene.container(limits={GPU: 1, MEMORY: 10240, CORES: 77})), policy
    )
    [claim] = scene.specs(made).values()
    assert claim == one(share("10Gi", "77"))
