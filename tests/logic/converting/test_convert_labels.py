"""Labels of nodes that a pod asks for, together with GPUs: selectors of every request."""

import converting_scene as scene
import pytest
from converting_scene import (
    IS_GPU,
    MIG,
    SHARED,
    UNDIVIDED,
    WHOLE,
    A,
    Ask,
    C,
    container,
    devices,
    first,
    has_just,
    of_profile,
    one,
    share,
)

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PRODUCT, FAMILY = "nvidia.com/gpu.product", "nvidia.com/gpu.family"
HAMI = {GPU: 1, MEMORY: 10240, CORES: 30}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
H100 = f"'productName' in {A} && {A}.productName.replace(' ', '-') == 'NVIDIA-H100-80GB-HBM3'"
HOPPER = f"'architecture' in {A} && {A}.architecture == 'Hopper'"
MIB = f"{C}.memory.compareTo(quantity"
OF_15360 = f"'memory' in {C} && {MIB}('15360Mi')) >= 0 && {MIB}('15361Mi')) < 0"
NINE = f"'cudaComputeCapability' in {A} && {A}.cudaComputeCapability.major() == 9"
DRIVERS = f"'driverVersion' in {A} && {A}.driverVersion.major() > 549"


def affinity(*requirements, other=None):
    """Required terms of one kind: `(key, operator, values…)`."""
    expressions = [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, *values in requirements
    ]
    term = {"matchExpressions": expressions}
    return {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}},
        **(other or {}),
    }


def _spec(**labels):
    return {"nodeSelector": labels}


LABELS = {
    "a product": (_spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3"}), {}, [H100]),
    "a product that is shared": (
        _spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3-SHARED"}), {}, [H100],
    ),
    "a family": (_spec(**{FAMILY: "hopper"}), {}, [HOPPER]),
    "memory": (_spec(**{"nvidia.com/gpu.memory": "15360"}), {}, [OF_15360]),
    "a capability": (_spec(**{"nvidia.com/gpu.compute.major": "9"}), {}, [NINE]),
    "several, beside a label of the node": (
        _spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3", "disk": "ssd", FAMILY: "hopper"}),
        _spec(disk="ssd"),
        [HOPPER, H100],
    ),
    "that there are GPUs": (_spec(**{"nvidia.com/gpu.present": "true"}), {}, []),
    "a driver, by affinity": (
        affinity(("nvidia.com/cuda.driver.major", "Gt", "549")), {}, [DRIVERS],
    ),
    "a product, by affinity beside a zone": (
        affinity((PRODUCT, "In", "NVIDIA-H100-80GB-HBM3"), ("zone", "In", "a")),
        affinity(("zone", "In", "a")),
        [H100],
    ),
    "by affinity and by node selector": (
        affinity((PRODUCT, "In", "NVIDIA-H100-80GB-HBM3"), other=_spec(**{FAMILY: "hopper"})),
        {},
        [HOPPER, H100],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_a_label_becomes_a_selector_of_a_share(case):
    spec, left, selectors = LABELS[case]
    scene.check(Ask(HAMI, one(share("10Gi", "30", *selectors)), spec=spec, left=left))


@pytest.mark.parametrize("case", LABELS)
def test_a_label_becomes_a_selector_of_whole_cards(case):
    spec, left, selectors = LABELS[case]
    claim = one(devices(WHOLE, *selectors, count=2))
    scene.check(Ask({GPU: 2}, claim, scene.policy(whole_gpus=True), spec=spec, left=left))


SYSTEMS = {
    "Volcano": Ask(
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 20480},
        one(share("20Gi", "25", H100)),
    ),
    "Tencent": Ask(
        {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4},
        one(share("1Gi", "20", H100)),
    ),
    "Tencent, whole": Ask({"tencent.com/vcuda-core": 100}, one(devices(WHOLE, UNDIVIDED, H100))),
    "Aliyun": Ask({"aliyun.com/gpu-mem": 8}, one(share("8Gi", "10", H100))),
    "KAI": Ask(
        {},
        one(share("40Gi", "50", has_just("80Gi"), H100)),
        annotations={"gpu-fraction": "0.5"},
    ),
    "the device plugin's partitions": Ask(
        {"nvidia.com/mig-1g.10gb": 2}, one(devices(MIG, of_profile("1g.10gb"), H100, count=2))
    ),
    "the device plugin's shares": Ask(
        {"nvidia.com/gpu.shared": 1},
        one(devices(SHARED, IS_GPU, has_just("80Gi"), H100, memory="8Gi", cores="10")),
    ),
}


@pytest.mark.parametrize("case", SYSTEMS)
def test_labels_hold_for_asks_of_every_system(case):
    ask = SYSTEMS[case]
    spec = _spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3"})
    scene.check(Ask(ask.limits, ask.claim, annotations=ask.annotations, spec=spec))


def test_a_label_is_a_selector_of_every_alternative():
    claim = first(
        mib_24576=share("12Gi", "50", has_just("24Gi"), HOPPER),
        mib_81920=share("12Gi", "15", has_just("80Gi"), HOPPER),
    )
    spec = _spec(**{FAMILY: "hopper"})
    scene.check(Ask({GPU: 1, MEMORY: 12288}, claim, scene.MIXED, spec=spec))


def test_a_label_is_a_selector_of_every_request_of_every_container():
    body = scene.pod(
        container("a", {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-3g.40gb": 1}),
        container("b", HAMI),
        **_spec(**{FAMILY: "hopper"}),
    )
    found = scene.specs(scene.converted(body))
    assert found["gpu-b"] == one(share("10Gi", "30", HOPPER))
    assert [request["exactly"] for request in found["gpu-a"]["devices"]["requests"]] == [
        devices(MIG, of_profile("1g.10gb"), HOPPER),
        devices(MIG, of_profile("3g.40gb"), HOPPER),
    ]


def test_with_the_strategy_single_a_gpu_is_a_partition_of_the_labels_profile():
    spec = _spec(**{PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"})
    expected = (
        f"'profile' in {A} && 'productName' in {A} && "
        f"{A}.productName.replace(' ', '-') == 'NVIDIA-A100-SXM4-40GB' && {A}.profile == '1g.5gb'"
    )
    claim = one(devices(MIG, expected, count=2))
    scene.check(Ask({GPU: 2}, claim, scene.policy(whole_gpus=True), spec=spec))


def test_a_label_of_partitions_holds_for_what_is_asked_for_as_a_partition():
    spec = _spec(**{PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"})
    body = scene.pod(container(limits={"nvidia.com/mig-1g.5gb": 1}), **spec)
    [claim] = scene.specs(scene.converted(body)).values()
    [request] = claim["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == MIG
    selectors = [each["cel"]["expression"] for each in request["exactly"]["selectors"]]
    assert selectors[0] == of_profile("1g.5gb")
    assert "== 'NVIDIA-A100-SXM4-40GB'" in selectors[1]


def test_a_label_of_a_partition_is_no_label_of_a_share():
    spec = _spec(**{PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"})
    body = scene.pod(container(limits=HAMI), **spec)
    made = scene.converting.convert(body, scene.EIGHTY)
    assert (made.pod, made.templates) == (body, ())
    [problem] = made.problems
    assert problem.where == "container main"
    assert problem.rule.startswith("the labels ask for a partition, and this is for a share of a ")


def test_labels_stay_where_a_container_keeps_its_gpu():
    spec = _spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3", "disk": "ssd"})
    body = scene.pod(container("a", HAMI), container("b", {GPU: 1}), **spec)
    made = scene.converted(body)
    # Of the share's card they hold, too.
    assert scene.specs(made) == {"gpu-a": one(share("10Gi", "30", H100))}
    assert made.pod["spec"]["nodeSelector"] == spec["nodeSelector"]
    assert made.pod["spec"]["containers"][1] == container("b", {GPU: 1})
    beginning = f"pod: nodeSelector {PRODUCT}=NVIDIA-H100-80GB-HBM3: stays a condition for nodes"
    scene.begins(scene.told(made.warnings), [beginning])


def test_labels_stay_where_a_container_keeps_its_gpu_beside_a_partition():
    spec = _spec(**{PRODUCT: "NVIDIA-H100-80GB-HBM3"})
    body = scene.pod(container(limits={GPU: 1, "nvidia.com/mig-1g.10gb": 1}), **spec)
    made = scene.converted(body)
    assert made.pod["spec"]["nodeSelector"] == spec["nodeSelector"]
    assert made.pod["spec"]["containers"][0]["resources"]["limits"] == {GPU: 1}


def test_labels_of_a_pod_that_is_not_converted_are_told():
    body = scene.pod(container(limits={GPU: 1}), **_spec(**{PRODUCT: "Tesla-T4"}))
    made = scene.converting.convert(body, scene.EIGHTY)
    assert (made.pod, made.is_converted) == (body, False)
    beginning = f"pod: nodeSelector {PRODUCT}=Tesla-T4: stays a condition for nodes"
    scene.begins(scene.told(made.warnings), [beginning])


def test_labels_of_a_pod_without_gpus_are_nobody_s():
    body = scene.pod(container(limits={"cpu": 1}), **_spec(**{PRODUCT: "Tesla-T4"}))
    made = scene.converting.convert(body, scene.EIGHTY)
    assert (made.pod, made.is_converted, made.warnings) == (body, False, ())


@pytest.mark.parametrize(
    "label",
    [("nvidia.com/gpu.count", "4"), ("nvidia.com/gpu.machine", "DGX"), ("example.com/a", "b")],
    ids=["how many", "a machine", "a label of others"],
)
def test_a_label_that_no_device_has_stays(label):
    made = scene.converted(scene.pod(container(limits=HAMI), nodeSelector=dict([label])))
    assert scene.specs(made) == {"gpu-main": one(share("10Gi", "30"))}
    assert made.pod["spec"]["nodeSelector"] == dict([label])
    assert bool(made.warnings) is label[0].startswith("nvidia.com/")


def test_a_label_whose_value_cannot_be_refuses_nothing_and_stays():
    body = scene.pod(container(limits=HAMI), **_spec(**{"nvidia.com/gpu.memory": "many"}))
    made = scene.converted(body)
    assert made.pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.memory": "many"}
    scene.begins(scene.told(made.warnings), ["pod: nodeSelector nvidia.com/gpu.memory=many: stays"])


def test_lists_of_annotations_come_before_labels():
    annotations = {"nvidia.com/use-gpuuuid": "GPU-a"}
    uuid = f"'uuid' in {A} && {A}.uuid in ['GPU-a']"
    spec = _spec(**{FAMILY: "hopper"})
    claim = one(share("10Gi", "30", uuid, HOPPER))
    scene.check(Ask(HAMI, claim, annotations=annotations, spec=spec))


def test_a_line_says_what_became_of_a_label():
    body = scene.pod(container(limits=HAMI), **_spec(**{FAMILY: "hopper"}))
    lines = scene.told(scene.converted(body).lines)
    assert f"pod: nodeSelector nvidia.com/gpu.family=hopper: selector {HOPPER}" in lines
