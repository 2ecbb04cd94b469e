"""What annotations of HAMi and Volcano make of an ask."""

import converting_scene as scene
import pytest
from converting_scene import (
    APART,
    MIG,
    NO_FLEET,
    ONE_NUMA_NODE,
    UNDIVIDED,
    WHOLE,
    A,
    Ask,
    at_least,
    devices,
    first,
    of_profile,
    one,
    share,
    with_constraints,
)

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
NUMBER, VOLCANO_MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
HAMI = {GPU: 1, MEMORY: 10240, CORES: 30}
VOLCANO = {NUMBER: 1, VOLCANO_MEMORY: 10240, "volcano.sh/vgpu-cores": 30}
H100 = scene.card(
    80,
    product="NVIDIA H100 80GB HBM3",
    profiles={"1g.10gb": 9984, "3g.40gb": 40448, "7g.80gb": 81152},
)
A30 = scene.card(24, product="NVIDIA A30", profiles={"1g.6gb": 6144, "4g.24gb": 24320})
ON_DEMAND = scene.policy(H100)
QUOTED = '"it\'s \\"a\\\\b\\""'


def _of(uuids, *, attribute="uuid"):
    return f"'{attribute}' in {A} && {A}.{attribute} in [{uuids}]"


def _not_of(uuids):
    return f"'uuid' in {A} && !({A}.uuid in [{uuids}])"


def _name(*texts):
    return " || ".join(f"{A}.productName.lowerAscii().contains('{text}')" for text in texts)


def _named(*texts):
    return f"'productName' in {A} && ({_name(*texts)})"


def _not_named(*texts):
    return f"'productName' in {A} && !({_name(*texts)})"


SELECTORS = {
    "one uuid": ({"nvidia.com/use-gpuuuid": "GPU-a"}, [_of("'GPU-a'")]),
    "one of two uuids": ({"nvidia.com/use-gpuuuid": "GPU-a,GPU-b"}, [_of("'GPU-a', 'GPU-b'")]),
    "blanks and empty entries": (
        {"nvidia.com/use-gpuuuid": " GPU-a , ,GPU-b,"},
        [_of("'GPU-a', 'GPU-b'")],
    ),
    "a uuid twice": ({"nvidia.com/use-gpuuuid": "GPU-a,GPU-a"}, [_of("'GPU-a'")]),
    "none of two uuids": (
        {"nvidia.com/nouse-gpuuuid": "GPU-a,GPU-b"},
        [_not_of("'GPU-a', 'GPU-b'")],
    ),
    "a type, whatever its case": ({"nvidia.com/use-gputype": "A100"}, [_named("a100")]),
    "one of two types": (
        {"nvidia.com/use-gputype": "NVIDIA A100, h100"},
        [_named("nvidia a100", "h100")],
    ),
    "none of two types": (
        {"nvidia.com/nouse-gputype": "V100,Tesla T4"},
        [_not_named("v100", "tesla t4")],
    ),
    "all lists at once": (
        {
            "nvidia.com/nouse-gputype": "V100",
            "nvidia.com/use-gputype": "H100",
            "nvidia.com/nouse-gpuuuid": "GPU-c",
            "nvidia.com/use-gpuuuid": "GPU-a",
        },
        [_of("'GPU-a'"), _not_of("'GPU-c'"), _named("h100"), _not_named("v100")],
    ),
    "64 uuids": (
        {"nvidia.com/use-gpuuuid": ",".join(f"GPU-{n}" for n in range(64))},
        [_of(", ".join(f"'GPU-{n}'" for n in range(64)))],
    ),
    "text that means something in CEL": (
        {"nvidia.com/use-gputype": 'it\'s "a\\b"'},
        [f"'productName' in {A} && ({A}.productName.lowerAscii().contains({QUOTED}))"],
    ),
}
SAME = {
    "the mode of HAMi's library": {"nvidia.com/vgpu-mode": "hami-core"},
    "the mode of MPS": {"nvidia.com/vgpu-mode": "mps"},
    "no NUMA node": {"nvidia.com/numa-bind": "false"},
    "one NUMA node for one card": {"nvidia.com/numa-bind": "true"},
    "policies of the scheduler": {
        "hami.io/node-scheduler-policy": "binpack",
        "hami.io/gpu-scheduler-policy": "topology-aware",
        "hami.io/device-scoring-weights": "slot=1,core=1,memory=1",
    },
}
PARTITIONS = {
    "a partition with the memory": Ask(
        {GPU: 1, MEMORY: 8000}, one(devices(MIG, at_least("8000Mi"))), NO_FLEET
    ),
    "partitions, which may be of one card": Ask(
        {GPU: 3, MEMORY: 8000}, one(devices(MIG, at_least("8000Mi"), count=3)), NO_FLEET
    ),
    "a partition has the cores of its profile": Ask(
        {GPU: 1, MEMORY: 8000, CORES: 30},
        one(devices(MIG, at_least("8000Mi"))),
        NO_FLEET,
        warned=["container main: nvidia.com/gpucores: 30: nothing: a partition has the multi"],
    ),
    "a partition has no priority": Ask(
        {GPU: 1, MEMORY: 8000, "nvidia.com/priority": 1},
        one(devices(MIG, at_least("8000Mi"))),
        NO_FLEET,
        warned=[
            "container main: nvidia.com/priority: 1: nothing: who has a partition has it alone"
        ],
    ),
    "the largest memory that a partition has": Ask(
        {GPU: 1, MEMORY: 81152}, one(devices(MIG, at_least("81152Mi"))), ON_DEMAND
    ),
    "a partition with a part of the card": Ask(
        {GPU: 1, PERCENT: 45},
        one(
            devices(MIG, at_least("36Gi"), _of("'NVIDIA H100 80GB HBM3'", attribute="productName"))
        ),
        ON_DEMAND,
    ),
    "a partition with all of the card": Ask(
        {GPU: 1, PERCENT: 100},
        one(
            devices(
                MIG, at_least("81152Mi"), _of("'NVIDIA H100 80GB HBM3'", attribute="productName")
            )
        ),
        ON_DEMAND,
    ),
    "a partition of which no memory is said is all of the card": Ask(
        {GPU: 1},
        one(
            devices(
                MIG, at_least("81152Mi"), _of("'NVIDIA H100 80GB HBM3'", attribute="productName")
            )
        ),
        ON_DEMAND,
    ),
    "a partition of one of two kinds of card": Ask(
        {GPU: 1, PERCENT: 50},
        first(
            mib_24576=devices(MIG, at_least("12Gi"), _of("'NVIDIA A30'", attribute="productName")),
            mib_81920=devices(
                MIG, at_least("40Gi"), _of("'NVIDIA H100 80GB HBM3'", attribute="productName")
            ),
        ),
        scene.policy(H100, A30),
    ),
}


@pytest.mark.parametrize("case", SELECTORS)
def test_a_list_becomes_a_selector_of_shares(case):
    annotations, selectors = SELECTORS[case]
    ask = Ask(HAMI, one(share("10Gi", "30", *selectors)), annotations=annotations)
    scene.check(ask)


@pytest.mark.parametrize("case", ["one uuid", "none of two types", "all lists at once"])
def test_a_list_becomes_a_selector_of_whole_cards(case):
    annotations, selectors = SELECTORS[case]
    scene.check(Ask({GPU: 1}, one(devices(WHOLE, UNDIVIDED, *selectors)), annotations=annotations))


@pytest.mark.parametrize("case", SAME)
def test_what_changes_no_device_is_taken_away(case):
    scene.check(Ask(HAMI, one(share("10Gi", "30")), annotations=SAME[case]))


@pytest.mark.parametrize("case", PARTITIONS)
def test_the_mode_of_partitions_asks_for_the_smallest_that_fits(case):
    ask = PARTITIONS[case]
    annotations = {"nvidia.com/vgpu-mode": "mig"}
    scene.check(Ask(ask.limits, ask.claim, ask.policy, annotations, warned=ask.warned))


def test_lists_of_cards_hold_for_partitions_by_the_card_that_they_are_of():
    annotations = {
        "nvidia.com/vgpu-mode": "mig",
        "nvidia.com/use-gpuuuid": "GPU-a",
        "nvidia.com/use-gputype": "H100",
    }
    wanted = [at_least("8000Mi"), _of("'GPU-a'", attribute="parentUUID"), _named("h100")]
    scene.check(Ask({GPU: 1, MEMORY: 8000}, one(devices(MIG, *wanted)), annotations=annotations))


@pytest.mark.parametrize("written", ["true", "1", "t", "TRUE", " true "])
def test_one_numa_node_is_a_constraint_of_several_cards(written):
    claim = with_constraints(one(share("10Gi", "30", count=2)), APART, ONE_NUMA_NODE)
    scene.check(Ask({**HAMI, GPU: 2}, claim, annotations={"nvidia.com/numa-bind": written}))


def test_one_numa_node_is_a_constraint_of_several_partitions():
    claim = with_constraints(one(devices(MIG, at_least("8000Mi"), count=2)), ONE_NUMA_NODE)
    annotations = {"nvidia.com/numa-bind": "true", "nvidia.com/vgpu-mode": "mig"}
    scene.check(Ask({GPU: 2, MEMORY: 8000}, claim, annotations=annotations))


def test_lists_of_cards_hold_for_whole_cards_and_for_partitions_beside_them():
    annotations = {"nvidia.com/use-gpuuuid": "GPU-a", "nvidia.com/numa-bind": "true"}
    limits = {GPU: 1, "nvidia.com/mig-1g.10gb": 2}
    partition = devices(MIG, of_profile("1g.10gb"), _of("'GPU-a'", attribute="parentUUID"), count=2)
    requests = [
        {"name": "gpu", "exactly": devices(WHOLE, UNDIVIDED, _of("'GPU-a'"))},
        {"name": "gpu-2", "exactly": partition},
    ]
    constraint = {"requests": ["gpu-2"], "matchAttribute": "gpu.nvidia.com/numaNode"}
    claim = {"devices": {"requests": requests, "constraints": [constraint]}}
    scene.check(Ask(limits, claim, annotations=annotations))


VOLCANOS = {
    "one of two uuids": Ask(
        VOLCANO,
        one(share("10Gi", "30", _of("'GPU-a', 'GPU-b'"))),
        annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-a,GPU-b"},
    ),
    "none of the uuids": Ask(
        VOLCANO,
        one(share("10Gi", "30", _not_of("'GPU-c'"))),
        annotations={"volcano.sh/vgpu-nouse-gpuuuid": "GPU-c"},
    ),
    "types, by HAMi's annotations": Ask(
        VOLCANO,
        one(share("10Gi", "30", _named("a100"), _not_named("pcie"))),
        annotations={"nvidia.com/use-gputype": "A100", "nvidia.com/nouse-gputype": "PCIe"},
    ),
    "the mode of partitions": Ask(
        {NUMBER: 2, VOLCANO_MEMORY: 10000},
        one(devices(MIG, at_least("10000Mi"), count=2)),
        annotations={"volcano.sh/vgpu-mode": "mig"},
    ),
    "the mode of HAMi's library": Ask(
        VOLCANO, one(share("10Gi", "30")), annotations={"volcano.sh/vgpu-mode": "hami-core"}
    ),
    "a policy for its group": Ask(
        VOLCANO,
        one(share("10Gi", "30")),
        annotations={"volcano.sh/vgpu-podgroup-policy": "spread"},
    ),
}


@pytest.mark.parametrize("case", VOLCANOS)
def test_annotations_of_volcano_are_read(case):
    scene.check(VOLCANOS[case])


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        (HAMI, {"volcano.sh/vgpu-mode": "mig"}),
        (VOLCANO, {"nvidia.com/vgpu-mode": "mig"}),
        (VOLCANO, {"nvidia.com/use-gpuuuid": "GPU-a"}),
    ],
    ids=["Volcano's mode for HAMi", "HAMi's mode for Volcano", "HAMi's uuids for Volcano"],
)
def test_annotations_of_another_system_stay_with_a_warning(limits, annotations):
    made = scene.converted(
        scene.pod(scene.container(limits=limits), metadata={"annotations": annotations})
    )
    assert scene.specs(made) == {"gpu-main": one(share("10Gi", "30"))}
    assert made.pod["metadata"]["annotations"] == annotations
    [name] = annotations
    scene.begins(scene.told(made.warnings), [f"pod: annotation {name}: stays: it is of another"])


@pytest.mark.parametrize(
    "name", ["nvidia.com/vgpu-mod", "hami.io/other", "volcano.sh/vgpu-other", "tencent.com/other"]
)
def test_an_annotation_that_nobody_knows_stays_with_a_warning(name):
    body = scene.pod(scene.container(limits=HAMI), metadata={"annotations": {name: "x"}})
    made = scene.converted(body)
    assert made.pod["metadata"]["annotations"] == {name: "x"}
    scene.begins(scene.told(made.warnings), [f"pod: annotation {name}: stays: no annotation of"])


def test_annotations_alone_are_no_ask():
    annotations = {"nvidia.com/use-gputype": "A100", "hami.io/gpu-scheduler-policy": "spread"}
    body = scene.pod(scene.container(limits={"cpu": 1}), metadata={"annotations": annotations})
    made = scene.converting.convert(body, scene.EIGHTY)
    assert (made.pod, made.templates, made.is_converted) == (body, (), False)


def test_a_line_says_what_became_of_each_annotation():
    annotations = {
        "nvidia.com/use-gputype": "A100",
        "hami.io/gpu-scheduler-policy": "spread",
        "nvidia.com/vgpu-mode": "hami-core",
    }
    body = scene.pod(scene.container(limits=HAMI), metadata={"annotations": annotations})
    lines = scene.told(scene.converted(body).lines)
    assert (
        "pod: annotation hami.io/gpu-scheduler-policy: spread: "
        "nothing: set by the operator: packing"
    ) in lines
    assert (
        "pod: annotation nvidia.com/use-gputype: A100: "
        "a selector: productName has one of these texts in it"
    ) in lines
    assert "pod: annotation nvidia.com/vgpu-mode: hami-core: the class of the devices" in lines


def test_the_metadata_goes_with_the_last_annotation():
    body = {
        "metadata": {"annotations": {"nvidia.com/vgpu-mode": "mps"}},
        "spec": {"containers": [scene.container(limits=HAMI)]},
    }
    assert "metadata" not in scene.converted(body).pod


def test_a_line_says_which_priority_becomes_which_variable():
    made = scene.converted(scene.pod(scene.container(limits={**HAMI, "nvidia.com/priority": 1})))
    told = [(line.where, line.asked, line.becomes) for line in made.lines]
    becomes = "environment CUDA_MPS_CLIENT_PRIORITY=1"
    assert ("container main", "nvidia.com/priority: 1", becomes) in told
