"""What cannot be converted: who asked for what, and the rule; and nothing is half converted."""

import converting_scene as scene
import pytest
from converting_scene import EIGHTY, NO_FLEET, container

GPU, MEMORY, PERCENT, CORES, PRIORITY, REPLICA = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    "nvidia.com/gpu.shared",
)
NUMBER, OLD_NUMBER = "volcano.sh/vgpu-number", "volcano.sh/gpu-number"
CORE, UNITS = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
GIB, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
HAMI = {GPU: 1, MEMORY: 10240}

FROM_ONE = "a whole number from 1 to 2147483648 is allowed"
FROM_NONE = "a whole number from 0 to 2147483648 is allowed"
TENCENT = (
    "1 to 99 with tencent.com/vcuda-memory (units of 256 MiB) for a share of a GPU, or n x 100 for"
    " n whole GPUs, is allowed"
)
PARTS = (
    "a part of a card is an amount only where the sizes of cards are known: give the cluster's"
    " slices (`--slices`, or a kubeconfig), or ask for an amount"
)
DAEMON = (
    "a container that has shares reaches their MPS daemon alone: ask for one kind of device in a"
    " container"
)
ONE_DAEMON = (
    "1 is allowed: a container reaches one MPS daemon, and each shared partition has its own; ask"
    " for a larger profile, or in another container"
)
NOT_SHARED = (
    "no card of this cluster is shared by memory: share some (`--shares memory`), or ask for an"
    " amount"
)
LEAVE = "leave the other out"
WHOLE_GPUS = scene.policy(scene.card(80), whole_gpus=True)
EXCLUSIVE = scene.policy(scene.card(80, shared=""))


# What is no amount: the resource and its value, as a problem shows it, with what is allowed.
AMOUNTS = {
    "no GPUs with memory": ({GPU: 0, MEMORY: 1}, GPU, "0", FROM_ONE),
    "fewer GPUs than none": ({GPU: -1, MEMORY: 1}, GPU, "-1", FROM_ONE),
    "half a GPU": ({GPU: "500m", MEMORY: 1}, GPU, "'500m'", FROM_ONE),
    "half a GPU as a number": ({GPU: 0.5, MEMORY: 1}, GPU, "0.5", FROM_ONE),
    "more GPUs than there are of anything": (
        {GPU: 2147483649, MEMORY: 1}, GPU, "2147483649", FROM_ONE,
    ),
    "so many GPUs that nobody counts them": (
        {GPU: 10**40, MEMORY: 1}, GPU, "a number of more than 64 bits", FROM_ONE,
    ),
    "an empty number of GPUs": ({GPU: "", MEMORY: 1}, GPU, "''", FROM_ONE),
    "a word": ({GPU: "one", MEMORY: 1}, GPU, "'one'", FROM_ONE),
    "a list": ({GPU: [1], MEMORY: 1}, GPU, "a list", FROM_ONE),
    "an object": ({GPU: {"a": 1}, MEMORY: 1}, GPU, "an object", FROM_ONE),
    "no memory": ({GPU: 1, MEMORY: 0}, MEMORY, "0", FROM_ONE),
    "negative memory": ({GPU: 1, MEMORY: "-10"}, MEMORY, "'-10'", FROM_ONE),
    "a part of a MiB": ({GPU: 1, MEMORY: "1.5"}, MEMORY, "'1.5'", FROM_ONE),
    "memory with a unit too large": ({GPU: 1, MEMORY: "10Gi"}, MEMORY, "'10Gi'", FROM_ONE),
    "memory with a unit that is none": ({GPU: 1, MEMORY: "10GB"}, MEMORY, "'10GB'", FROM_ONE),
    "negative cores": ({GPU: 1, CORES: -5}, CORES, "-5", FROM_NONE),
    "a part of a percent of cores": ({GPU: 1, CORES: 0.5}, CORES, "0.5", FROM_NONE),
    "more than all memory": (
        {GPU: 1, PERCENT: 101}, PERCENT, "101", "a whole number from 0 to 100 is allowed",
    ),
    "a negative percentage": (
        {GPU: 1, PERCENT: -1}, PERCENT, "-1", "a whole number from 0 to 100 is allowed",
    ),
    "a part of a percent": (
        {GPU: 1, PERCENT: "12.5"}, PERCENT, "'12.5'", "a whole number from 0 to 100 is allowed",
    ),
    "a priority that HAMi does not have": (
        {**HAMI, PRIORITY: 2}, PRIORITY, "2", "a whole number from 0 to 1 is allowed",
    ),
    "a negative priority": (
        {**HAMI, PRIORITY: -1}, PRIORITY, "-1", "a whole number from 0 to 1 is allowed",
    ),
    "no replicas": ({REPLICA: 0}, REPLICA, "0", FROM_ONE),
    "half a replica": ({REPLICA: "0.5"}, REPLICA, "'0.5'", FROM_ONE),
    "no partitions": ({"nvidia.com/mig-1g.10gb": 0}, "nvidia.com/mig-1g.10gb", "0", FROM_ONE),
    "negative partitions": (
        {"nvidia.com/mig-1g.10gb": -1}, "nvidia.com/mig-1g.10gb", "-1", FROM_ONE,
    ),
    "no vGPUs": ({NUMBER: 0}, NUMBER, "0", FROM_ONE),
    "a fraction of a vGPU": ({NUMBER: "0.5"}, NUMBER, "'0.5'", FROM_ONE),
    "no memory of a vGPU": (
        {NUMBER: 1, "volcano.sh/vgpu-memory": 0}, "volcano.sh/vgpu-memory", "0", FROM_ONE,
    ),
    "no memory of the older share": (
        {"volcano.sh/gpu-memory": 0}, "volcano.sh/gpu-memory", "0", FROM_ONE,
    ),
    "no cards of the older number": ({OLD_NUMBER: 0}, OLD_NUMBER, "0", FROM_ONE),
    "no core of Tencent's": ({CORE: 0, UNITS: 1}, CORE, "0", FROM_ONE),
    "no units of Tencent's": ({CORE: 20, UNITS: 0}, UNITS, "0", FROM_ONE),
    "half a unit of Tencent's": ({CORE: 20, UNITS: "0.5"}, UNITS, "'0.5'", FROM_ONE),
    "no GiB": ({GIB: 0}, GIB, "0", FROM_ONE),
    "half a GiB": ({GIB: "0.5"}, GIB, "'0.5'", FROM_ONE),
    "no cards of Aliyun's": ({GIB: 8, COUNT: 0}, COUNT, "0", FROM_ONE),
    "too many cores of Aliyun's": (
        {GIB: 8, "aliyun.com/gpu-core.percentage": 101},
        "aliyun.com/gpu-core.percentage", "101", "a whole number from 1 to 100 is allowed",
    ),
}  # fmt: skip

# What excludes each other, or is not enough.
TOGETHER = {
    "memory and a part of it": (
        {GPU: 1, MEMORY: 1024, PERCENT: 50}, PERCENT, "50",
        "one of nvidia.com/gpumem and nvidia.com/gpumem-percentage is allowed: " + LEAVE,
    ),
    "memory and a part of it, of Volcano": (
        {NUMBER: 1, "volcano.sh/vgpu-memory": 1024, "volcano.sh/vgpu-memory-percentage": 50},
        "volcano.sh/vgpu-memory-percentage", "50",
        "one of volcano.sh/vgpu-memory and volcano.sh/vgpu-memory-percentage is allowed: " + LEAVE,
    ),
    "a priority of nothing": (
        {PRIORITY: 1}, PRIORITY, "1",
        "nvidia.com/gpu is missing beside it: say how many GPUs",
    ),
    "memory of no vGPU": (
        {"volcano.sh/vgpu-memory": 1024}, "volcano.sh/vgpu-memory", "1024",
        "volcano.sh/vgpu-number is missing beside it: say how many GPUs",
    ),
    "the older and the newer sharing": (
        {NUMBER: 1, "volcano.sh/gpu-memory": 1024}, "volcano.sh/gpu-memory", "1024",
        "volcano.sh/vgpu-… and volcano.sh/gpu-… exclude each other: leave these out",
    ),
    "the older share and number": (
        {OLD_NUMBER: 1, "volcano.sh/gpu-memory": 1024}, OLD_NUMBER, "1",
        "one of volcano.sh/gpu-memory and volcano.sh/gpu-number is allowed: leave the other out",
    ),
    "a share of Tencent's without memory": ({CORE: 50}, CORE, "50", TENCENT),
    "one and a half cards of Tencent's": ({CORE: 150, UNITS: 8}, CORE, "150", TENCENT),
    "memory of Tencent's alone": (
        {UNITS: 8}, UNITS, "8",
        f"tencent.com/vcuda-core is missing beside it: {TENCENT} of that",
    ),
    "cards of Aliyun's without memory": (
        {COUNT: 2}, COUNT, "2", "aliyun.com/gpu-mem is missing beside it: say how many GiB",
    ),
    "memory that is not for so many cards": (
        {GIB: 9, COUNT: 2}, GIB, "9",
        "a multiple of aliyun.com/gpu-count, which is 2, is allowed: each GPU has an equal part",
    ),
    "cores of several cards of Aliyun's": (
        {GIB: 8, COUNT: 2, "aliyun.com/gpu-core.percentage": 30},
        "aliyun.com/gpu-core.percentage", "30",
        "it is for one GPU, and aliyun.com/gpu-count is 2: leave one of them out",
    ),
    "a profile that is none": (
        {"nvidia.com/mig-large": 1}, "nvidia.com/mig-large", "1",
        "nvidia.com/mig-<profile> is allowed, for example nvidia.com/mig-1g.10gb",
    ),
    "two shares of partitions": (
        {"nvidia.com/mig-1g.10gb.shared": 2}, "nvidia.com/mig-1g.10gb.shared", "2",
        ONE_DAEMON,
    ),
    "a share and a partition": (
        {**HAMI, "nvidia.com/mig-1g.10gb": 2},
        "nvidia.com/gpu: 1, nvidia.com/gpumem: 10240, nvidia.com/mig-1g.10gb: 2", "3", DAEMON,
    ),
    "a share and a replica": (
        {**HAMI, REPLICA: 1},
        "nvidia.com/gpu: 1, nvidia.com/gpumem: 10240, nvidia.com/gpu.shared: 1", "2", DAEMON,
    ),
    "shares of partitions of two profiles": (
        {"nvidia.com/mig-1g.10gb.shared": 1, "nvidia.com/mig-3g.40gb.shared": 1},
        "nvidia.com/mig-1g.10gb.shared: 1, nvidia.com/mig-3g.40gb.shared: 1", "2", DAEMON,
    ),
    "more devices than a claim may have": (
        {GPU: 33, MEMORY: 1024}, "nvidia.com/gpu: 33, nvidia.com/gpumem: 1024", "33",
        "a claim has at most 32 devices: ask for fewer in one container",
    ),
    "more partitions than a claim may have": (
        {"nvidia.com/mig-1g.10gb": 20, "nvidia.com/mig-2g.20gb": 13},
        "nvidia.com/mig-1g.10gb: 20, nvidia.com/mig-2g.20gb: 13", "33",
        "a claim has at most 32 devices: ask for fewer in one container",
    ),
    "HAMi and Volcano": (
        {**HAMI, NUMBER: 1}, NUMBER, "1",
        "asks of nvidia.com and volcano.sh exclude each other: keep one system's",
    ),
    "partitions and Tencent": (
        {"nvidia.com/mig-1g.10gb": 1, CORE: 100}, CORE, "100",
        "asks of nvidia.com and tencent.com exclude each other: keep one system's",
    ),
    "Volcano and Aliyun": (
        {NUMBER: 1, GIB: 8}, GIB, "8",
        "asks of volcano.sh and aliyun.com exclude each other: keep one system's",
    ),
    "three systems": (
        {**HAMI, NUMBER: 1, GIB: 8}, GIB, "8",
        "asks of nvidia.com and volcano.sh and aliyun.com exclude each other: keep one system's",
    ),
}  # fmt: skip

# What the cards of the cluster do not have.
CARDS = {
    "more memory than any card has": (
        HAMI | {MEMORY: 81921}, EIGHTY, "nvidia.com/gpu: 1, nvidia.com/gpumem: 81921", "'81921Mi'",
        "the largest card that is shared has 80Gi: ask for no more than that",
    ),
    "more memory than the largest of two cards has": (
        HAMI | {MEMORY: 102400}, scene.MIXED,
        "nvidia.com/gpu: 1, nvidia.com/gpumem: 102400", "'100Gi'",
        "the largest card that is shared has 80Gi: ask for no more than that",
    ),
    "more memory and cores": (
        HAMI | {MEMORY: 102400, CORES: 10}, EIGHTY,
        "nvidia.com/gpu: 1, nvidia.com/gpumem: 102400, nvidia.com/gpucores: 10", "'100Gi'",
        "the largest card that is shared has 80Gi: ask for no more than that",
    ),
    "more GiB than any card has": (
        {GIB: 81}, EIGHTY, "aliyun.com/gpu-mem: 81", "'81Gi'",
        "the largest card that is shared has 80Gi: ask for no more than that",
    ),
    "more units than any card has": (
        {CORE: 50, UNITS: 321}, EIGHTY,
        "tencent.com/vcuda-core: 50, tencent.com/vcuda-memory: 321", "'82176Mi'",
        "the largest card that is shared has 80Gi: ask for no more than that",
    ),
    "more memory than any card has, of which none is shared": (
        HAMI | {MEMORY: 81921}, EXCLUSIVE, "nvidia.com/gpu: 1, nvidia.com/gpumem: 81921",
        "'81921Mi'", "the largest card has 80Gi: ask for no more than that",
    ),
    "more units than any whole card has": (
        {CORE: 200, UNITS: 641}, EIGHTY,
        "tencent.com/vcuda-core: 200, tencent.com/vcuda-memory: 641", "'82176Mi'",
        "the largest card has 80Gi: ask for no more than that",
    ),
    "a part of cards that nobody knows": (
        {GPU: 1, PERCENT: 50}, NO_FLEET,
        "nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50", "'50 %'", PARTS,
    ),
    "a part where no card is shared by memory": (
        {GPU: 1, PERCENT: 50}, EXCLUSIVE,
        "nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50", "'50 %'",
        NOT_SHARED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AMOUNTS)
def test_what_is_no_amount_is_refused(case):
    limits, field, value, rule = AMOUNTS[case]
    assert scene.refused(scene.pod(container(limits=limits))) == [scene.problem(field, value, rule)]


@pytest.mark.parametrize("count", [-1, "0.5", "", 2147483649, "one"])
def test_what_is_no_number_of_whole_gpus_is_refused(count):
    [found] = scene.refused(scene.pod(container(limits={GPU: count})), WHOLE_GPUS)
    assert (found.where, found.field, found.rule) == ("container main", GPU, FROM_ONE)


@pytest.mark.parametrize("value", [True, None], ids=["a truth value", "nothing"])
def test_what_is_neither_number_nor_text_is_refused(value):
    [found] = scene.refused(scene.pod(container(limits={GPU: value, MEMORY: 1})))
    assert (found.where, found.field, found.rule) == ("container main", GPU, FROM_ONE)


@pytest.mark.parametrize("case", TOGETHER)
def test_what_does_not_go_together_is_refused(case):
    limits, field, value, rule = TOGETHER[case]
    assert scene.refused(scene.pod(container(limits=limits))) == [scene.problem(field, value, rule)]


@pytest.mark.parametrize("case", CARDS)
def test_what_no_card_has_is_refused(case):
    limits, policy, field, value, rule = CARDS[case]
    assert scene.refused(scene.pod(container(limits=limits)), policy) == [
        scene.problem(field, value, rule)
    ]
