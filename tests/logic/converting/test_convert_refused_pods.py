"""What cannot be converted for what else is in the pod: annotations, other asks, wrong shapes."""

import converting_scene as scene
import pytest
from converting_scene import EIGHTY, NO_FLEET, container

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
NUMBER, GIB, COUNT = "volcano.sh/vgpu-number", "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
HAMI = {GPU: 1, MEMORY: 10240}
FROM_ONE = "a whole number from 1 to 2147483648 is allowed"
LIST = (
    "a list with commas of 1 to 64 texts is allowed, each of at most 64 plain characters; leave"
    " the annotation out if any GPU will do"
)
DECIMAL = "a number between 0 and 1 is allowed, for example 0.5"
SAME = "its request has to be the same as its limit: leave the request out"
CUT = scene.policy(scene.card(80, product="A", profiles={"1g.10gb": 9984, "7g.80gb": 81152}))
PARTITIONS = {"annotations": {"nvidia.com/vgpu-mode": "mig"}}

ANNOTATIONS = {
    "a mode that is none": ("nvidia.com/vgpu-mode", "passthrough", HAMI,
        "one of hami-core, mig, mps is allowed"),
    "an empty mode": ("nvidia.com/vgpu-mode", "", HAMI, "one of hami-core, mig, mps is allowed"),
    "a mode of Volcano that is none": ("volcano.sh/vgpu-mode", "MIG", {NUMBER: 1},
        "one of hami-core, mig, mps is allowed"),
    "a truth value that is none": ("nvidia.com/numa-bind", "yes", HAMI, "true or false is allowed"),
    "an empty truth value": ("nvidia.com/numa-bind", "", HAMI, "true or false is allowed"),
    "an empty list of uuids": ("nvidia.com/use-gpuuuid", "", HAMI, LIST),
    "a list of commas": ("nvidia.com/nouse-gpuuuid", " , ,", HAMI, LIST),
    "an empty list of types": ("nvidia.com/use-gputype", " ", HAMI, LIST),
    "more entries than there may be": ("nvidia.com/nouse-gputype", "a," * 64 + "b", HAMI, LIST),
    "an entry that is no plain text": ("nvidia.com/use-gputype", "Ä100", HAMI, LIST),
    "an entry that is too long": ("nvidia.com/use-gputype", "a" * 65, HAMI, LIST),
    "a line break": ("nvidia.com/use-gputype", "a\nb", HAMI, LIST),
    "an empty list of Volcano's": ("volcano.sh/vgpu-use-gpuuuid", ",", {NUMBER: 1}, LIST),
    "a fraction of nothing": ("gpu-fraction", "0", {}, DECIMAL),
    "a fraction that is all": ("gpu-fraction", "1", {}, DECIMAL),
    "a fraction that is all, with digits": ("gpu-fraction", "1.0", {}, DECIMAL),
    "more than all": ("gpu-fraction", "1.5", {}, DECIMAL),
    "a negative fraction": ("gpu-fraction", "-0.5", {}, DECIMAL),
    "a fraction with zeros only": ("gpu-fraction", "0.000", {}, DECIMAL),
    "an empty fraction": ("gpu-fraction", "", {}, DECIMAL),
    "a fraction that is a word": ("gpu-fraction", "half", {}, DECIMAL),
    "a fraction with an exponent": ("gpu-fraction", "5e-1", {}, DECIMAL),
    "KAI's memory of nothing": ("gpu-memory", "0", {}, FROM_ONE),
    "KAI's negative memory": ("gpu-memory", "-1", {}, FROM_ONE),
    "KAI's part of a MiB": ("gpu-memory", "0.5", {}, FROM_ONE),
    "KAI's empty memory": ("gpu-memory", "", {}, FROM_ONE),
}  # fmt: skip


@pytest.mark.parametrize("case", ANNOTATIONS)
def test_an_annotation_that_cannot_be_read_is_refused(case):
    name, value, limits, rule = ANNOTATIONS[case]
    body = scene.pod(container(limits=limits), metadata={"annotations": {name: value}})
    [found] = scene.refused(body)
    assert (found.where, found.field, found.rule) == ("pod", f"annotation {name}", rule)
    # What is long, or not plain, is told in part.
    assert found.value == repr(value) or len(value) > 64 or not value.isascii() or "\n" in value


OF_PODS = {
    "KAI's fraction and memory": (
        {"gpu-fraction": "0.5", "gpu-memory": "1024"}, "annotation gpu-memory", "'1024'",
        "one of gpu-fraction and gpu-memory is allowed: leave the other out",
    ),
    "KAI's parts of no cards": (
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
        "annotation gpu-fraction-num-devices", "'0'", FROM_ONE,
    ),
    "KAI's part for nobody": (
        {"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"},
        "annotation gpu-fraction-container-name", "'other'",
        "one of the pod's containers is allowed: main",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_PODS)
def test_annotations_that_do_not_go_together_are_refused(case):
    annotations, field, value, rule = OF_PODS[case]
    body = scene.pod(container(), metadata={"annotations": annotations})
    assert scene.refused(body) == [scene.problem(field, value, rule, where="pod")]


def test_a_count_of_aliyun_s_that_is_none_is_refused_where_it_is_written():
    for kind in ("label", "annotation"):
        body = scene.pod(container(limits={GIB: 8}), metadata={f"{kind}s": {COUNT: "two"}})
        assert scene.refused(body) == [
            scene.problem(f"{kind} {COUNT}", "'two'", FROM_ONE, where="pod")
        ]


# Partitions by memory


def test_more_memory_than_any_partition_has_is_refused():
    body = scene.pod(container(limits={GPU: 1, MEMORY: 81153}), metadata=PARTITIONS)
    rule = "the largest partition has 81152Mi: ask for no more than that"
    asked = "nvidia.com/gpu: 1, nvidia.com/gpumem: 81153"
    assert scene.refused(body, CUT) == [scene.problem(asked, "'81153Mi'", rule)]


def test_a_part_that_no_partition_has_is_refused():
    little = scene.policy(scene.card(80, product="A", profiles={"1g.10gb": 9984}))
    body = scene.pod(container(limits={GPU: 1, PERCENT: 50}), metadata=PARTITIONS)
    rule = "the largest partition has 9984Mi: ask for no more than that"
    asked = "nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50"
    assert scene.refused(body, little) == [scene.problem(asked, "'40Gi'", rule)]


@pytest.mark.parametrize(
    ("policy", "beginning"),
    [
        (NO_FLEET, "a part of a card is an amount only where the sizes of cards are known"),
        (EIGHTY, "no card of this cluster is cut into partitions: let some be (`--mig dynamic`)"),
    ],
    ids=["no cards known", "no card cut"],
)
@pytest.mark.parametrize("limits", [{GPU: 1, PERCENT: 50}, {GPU: 1}], ids=["half", "all"])
def test_a_part_as_a_partition_needs_cards_that_are_cut(limits, policy, beginning):
    [found] = scene.refused(scene.pod(container(limits=limits), metadata=PARTITIONS), policy)
    assert found.where == "container main"
    assert found.rule.startswith(beginning)


def test_a_list_that_makes_more_of_a_selector_than_is_allowed_is_refused():
    """Each of so many texts is escaped: 64 are allowed, and 10 KiB of an expression."""
    text = ",".join("\\" * 62 + f"{number:02}" for number in range(64))
    body = scene.pod(
        container(limits=HAMI), metadata={"annotations": {"nvidia.com/use-gputype": text}}
    )
    rule = "the selectors for it are longer than 10240 bytes: list fewer"
    asked = "nvidia.com/gpu: 1, nvidia.com/gpumem: 10240"
    assert scene.refused(body) == [scene.problem(asked, "1", rule)]


def test_whole_cards_of_a_list_that_labels_make_partitions_are_refused():
    label = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    body = scene.pod(
        container(limits={GPU: 1}),
        metadata={"annotations": {"nvidia.com/use-gpuuuid": "GPU-a"}},
        nodeSelector=label,
    )
    [found] = scene.refused(body)
    assert (found.where, found.field, found.value) == ("container main", "nvidia.com/gpu: 1", "1")
    assert found.rule.startswith("the labels ask for a partition, and annotations choose whole")


# Systems beside each other


def test_kai_and_hami_in_one_container_are_refused():
    body = scene.pod(container(limits=HAMI), metadata={"annotations": {"gpu-fraction": "0.5"}})
    rule = "asks of KAI and nvidia.com exclude each other: keep one system's"
    assert scene.refused(body) == [scene.problem(GPU, "1", rule)]


def test_kai_and_a_whole_gpu_in_one_container_are_refused():
    body = scene.pod(container(limits={GPU: 1}), metadata={"annotations": {"gpu-fraction": "0.5"}})
    [found] = scene.refused(body)
    assert (found.where, found.field) == ("container main", GPU)


def test_all_that_is_wrong_is_told_with_its_container():
    body = scene.pod(
        container("a", {GPU: 0, MEMORY: -1}),
        container("b", HAMI),
        container("c", {NUMBER: "x"}),
        initContainers=[container("d", {GIB: ""})],
    )
    assert [(found.where, found.field, found.value) for found in scene.refused(body)] == [
        ("container d", GIB, "''"),
        ("container a", GPU, "0"),
        ("container a", MEMORY, "-1"),
        ("container c", NUMBER, "'x'"),
    ]


def test_one_container_that_cannot_be_converted_keeps_the_others_as_they_are():
    body = scene.pod(container("a", HAMI), container("b", {NUMBER: 0}))
    [found] = scene.refused(body)
    assert found.where == "container b"


# What the API server would refuse


def test_a_request_that_is_not_the_limit_is_refused():
    resources = {"limits": HAMI, "requests": {GPU: 1, MEMORY: 5120}}
    expected = scene.problem(MEMORY, "10240", SAME)
    assert scene.refused(scene.pod(container(resources=resources))) == [expected]


def test_a_name_that_is_there_twice_is_refused():
    body = scene.pod(container("a", HAMI), container("a", HAMI))
    [found] = scene.refused(body)
    assert (found.where, found.field, found.value) == ("container a", "name", "'a'")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 64, None, 7, ["a"]])
def test_a_name_that_is_none_is_refused(name):
    [found] = scene.refused(scene.pod({**container(limits=HAMI), "name": name}))
    assert found.field == "name"
    assert found.rule.startswith("at most 63 letters a-z, digits and `-` are allowed")


WRONG = {
    "claims": ({"resources": {"limits": HAMI, "claims": {}}}, "resources.claims"),
    "variables": ({"env": "A=1"}, "env"),
    "requests": ({"resources": {"limits": HAMI, "requests": [1]}}, "resources.requests"),
    "limits": ({"resources": {"requests": HAMI, "limits": "1"}}, "resources.limits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_has_the_wrong_type_where_something_is_added_is_refused(case):
    fields, field = WRONG[case]
    [found] = scene.refused(scene.pod({**container(limits=HAMI), **fields}))
    assert (found.where, found.field) == ("container main", field)


def test_claims_of_a_pod_that_are_no_list_are_refused():
    [found] = scene.refused(scene.pod(container(limits=HAMI), resourceClaims={"a": 1}))
    assert (found.where, found.field, found.rule) == ("pod", "resourceClaims", "a list is allowed")


# How much is told


def test_a_message_names_all_that_is_to_be_known():
    [found] = scene.refused(scene.pod(container(limits={GPU: 1, MEMORY: "-1"})))
    assert str(found) == (
        "container main: nvidia.com/gpumem: '-1': a whole number from 1 to 2147483648 is allowed"
    )


def test_long_values_are_told_in_part():
    limits = {GPU: "9" * 100_000, MEMORY: "x" * 100_000}
    for found in scene.refused(scene.pod(container(limits=limits))):
        assert len(str(found).encode()) < 1000


def test_of_very_many_problems_some_are_told():
    body = scene.pod(*(container(f"c{n}", {GPU: 0, MEMORY: 0}) for n in range(1000)))
    assert 1 <= len(scene.refused(body)) <= 50


def test_more_containers_than_any_pod_has_are_refused():
    assert scene.converted(scene.pod(*(container(f"c{n}", HAMI) for n in range(512)))).templates
    body = scene.pod(*(container(f"c{n}", HAMI) for n in range(513)))
    [found] = scene.refused(body)
    assert (found.where, found.field) == ("pod", "containers")
