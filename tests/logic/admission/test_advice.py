import dataclasses

import config_cases
import mig_profiles
import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission, advice
from dra_driver.logic.offering import attributes, shares
from dra_driver.model import devices, mig, sharing
from dra_driver.model import shares as share_model

A = 'device.attributes["gpu.nvidia.com"]'
C = 'device.capacity["gpu.nvidia.com"]'
GPU, MIG, _ = sharing.DeviceType


def warned(resource="resourceclaims", version="v1", **fields):
    body = reviews.made(resource, version, **fields)
    decision = admission.decide(reviews.review(resource, version, body), reviews.DRIVER)
    assert decision.allowed
    assert all(len(text) <= 256 for text in decision.warnings)
    return list(decision.warnings)


def asking(expression, device_class="gpu.nvidia.com", version="v1"):
    """What is said of a request with a selector, without where."""
    request = reviews.request("gpu", device_class, selectors=reviews.selector(expression))
    found = warned(version=version, requests=[request])
    inner = "" if version == "v1beta1" else ".exactly"
    path = f"spec.devices.requests[0]{inner}.selectors[0].cel.expression: "
    assert all(text.startswith(path) for text in found)
    return [text.removeprefix(path) for text in found]


# Tolerations

KINDS = ("shared", "shared-mps", "exclusive")
TOLERATION = (
    "without an effect it lets pods start on a device with a taint, and a taint NoExecute ends "
    "them again: add one with `effect: NoExecute`"
)


def tolerating(*tolerations, device_class="gpu.nvidia.com", configs=(), version="v1"):
    request = reviews.request("gpu", device_class, tolerations=list(tolerations))
    return warned(version=version, requests=[request], configs=list(configs))


@pytest.mark.parametrize(
    ("version", "inner"), [("v1", ".exactly"), ("v1beta2", ".exactly"), ("v1beta1", "")]
)
@pytest.mark.parametrize("toleration", [{"operator": "Exists"}, {"key": "a", "effect": ""}])
def test_a_toleration_without_an_effect_does_not_keep_pods_running(version, inner, toleration):
    assert tolerating(toleration, version=version) == [
        f"spec.devices.requests[0]{inner}.tolerations[0]: {TOLERATION}"
    ]


@pytest.mark.parametrize("name", ["mig.nvidia.com", *(f"{kind}.gpu.nvidia.com" for kind in KINDS)])
def test_it_is_told_of_every_class_of_the_chart(name):
    assert len(tolerating({"operator": "Exists"}, device_class=name)) == 1
    assert tolerating({"operator": "Exists"}, device_class=f"{name}.example") == []


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_a_toleration_with_an_effect_does_what_it_says(effect):
    assert tolerating({"operator": "Exists", "effect": effect}) == []


@pytest.mark.parametrize(
    "other",
    [
        {"operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "key": "a", "effect": "NoExecute"},
        {"operator": "Equal", "key": "a", "value": "1", "effect": "NoExecute"},
        {"key": "a", "value": "1", "effect": "NoExecute"},
    ],
)
def test_a_toleration_beside_one_for_no_execute_is_well_thought_of(other):
    assert tolerating({"key": "a", "value": "1"}, other) == []


@pytest.mark.parametrize(
    "other",
    [
        {"operator": "Exists", "key": "b", "effect": "NoExecute"},
        {"key": "a", "value": "2", "effect": "NoExecute"},
        {"key": "a", "value": "1", "effect": "NoSchedule"},
    ],
)
def test_a_toleration_beside_one_for_something_else_is_not(other):
    assert len(tolerating({"key": "a", "value": "1"}, other)) == 1


def test_tolerations_of_other_drivers_requests_are_not_looked_at():
    assert tolerating({"operator": "Exists"}, device_class="nic.example") == []
    entries = [reviews.config(config_cases.gpu(), "gpu")]
    assert tolerating({"operator": "Exists"}, device_class="ours", configs=entries) != []


def test_tolerations_of_alternatives_are_looked_at():
    inner = {"deviceClassName": "mig.nvidia.com", "tolerations": [{"operator": "Exists"}]}
    request = reviews.request("one", firstAvailable=[inner | {"name": "a"}])
    assert warned("resourceclaimtemplates", requests=[request]) == [
        f"spec.spec.devices.requests[0].firstAvailable[0].tolerations[0]: {TOLERATION}"
    ]


# Memory

MEMORY = (
    "TimeSlicing guarantees no memory: each process can take all of the device: use MPS with "
    "defaultPinnedDeviceMemoryLimit, or a MIG device"
)


def remembering(parameters, *requests, name="memory"):
    request = reviews.request("gpu", capacity={"requests": {name: "10Gi"}})
    return warned(requests=[request], configs=[reviews.config(parameters, *requests)])


@pytest.mark.parametrize("requests", [(), ("gpu",)])
@pytest.mark.parametrize("name", ["memory", "gpu.nvidia.com/memory"])
def test_time_slices_guarantee_no_memory(requests, name):
    path = f"spec.devices.requests[0].exactly.capacity.requests[{name}]"
    assert remembering(config_cases.slices(), *requests, name=name)[0] == f"{path}: {MEMORY}"


def test_other_capacity_and_other_configs_are_nothing_to_warn_of():
    assert remembering(config_cases.slices(), name="cores") == []
    assert remembering(config_cases.mps()) == []
    assert remembering(config_cases.gpu()) == []


def test_only_the_config_in_force_counts():
    request = reviews.request("gpu", capacity={"requests": {"memory": "1Gi"}})
    entries = [reviews.config(config_cases.slices()), reviews.config(config_cases.mps())]
    assert warned(requests=[request], configs=entries) == []
    assert len(warned(requests=[request], configs=entries[::-1])) == 1


# Configs that do nothing


def test_a_config_for_a_type_that_no_request_has_does_nothing():
    (text,) = warned(configs=[reviews.config(config_cases.mig())])
    assert text == (
        "spec.devices.config[0]: MigDeviceConfig has no effect: devices of class gpu.nvidia.com "
        "are of type gpu: write a GpuConfig"
    )


def test_a_config_of_a_class_for_another_type_does_nothing():
    entries = [reviews.config(config_cases.gpu())]
    assert warned("deviceclasses", configs=entries, name="gpu.nvidia.com") == []
    assert warned("deviceclasses", configs=entries, name="team-a") == []
    (text,) = warned("deviceclasses", configs=entries, name="mig.nvidia.com")
    assert text == (
        "spec.config[0]: GpuConfig has no effect: devices of class mig.nvidia.com are of type "
        "mig: write a MigDeviceConfig"
    )


def test_where_a_class_is_not_known_nothing_is_said():
    requests = [reviews.request("a"), reviews.request("b", "team-a")]
    assert warned(requests=requests, configs=[reviews.config(config_cases.mig())]) == []


# Limits that differ


def test_of_limits_that_differ_among_cards_it_is_said_what_they_are_worth():
    limits = {"0": "2Gi", "1": "6Gi"}
    parameters = config_cases.mps(defaultPerDevicePinnedMemoryLimit=limits)
    (text,) = warned(configs=[reviews.config(parameters)])
    assert text == (
        "spec.devices.config[0]: defaultPerDevicePinnedMemoryLimit: the limits differ; the "
        "daemon's is 6Gi. A program that hides one of the GPUs has none at all. Give all the same, "
        "or write a request and a config for each"
    )


@pytest.mark.parametrize("limits", [{"0": "2Gi"}, {"0": "2Gi", "1": "2Gi"}])
def test_of_one_limit_nothing_is_said(limits):
    parameters = config_cases.mps(defaultPerDevicePinnedMemoryLimit=limits)
    assert warned(configs=[reviews.config(parameters)]) == []


# Selectors


def test_an_attribute_that_a_machine_may_lack_should_be_asked_for_first():
    assert asking(f"{A}.numaNode == 1") == [
        (
            "one device of type gpu without numaNode keeps the pod pending: write "
            f'"numaNode" in {A} && {A}.numaNode == 1'
        )
    ]


def test_the_guarded_expression_is_good():
    assert asking(f'"numaNode" in {A} && {A}.numaNode == 1') == []


@pytest.mark.parametrize(
    "expression",
    [
        f"has({A}.numaNode) && {A}.numaNode == 1",
        f"has({A}.numaNode) ? {A}.numaNode == 1 : true",
        f"{A}.?numaNode.orValue(0) == 1",
        f"{A}.productName.matches('H100') && {A}.index == 0 && {A}.migCapable",
        f"{A}.cudaComputeCapability.isGreaterThan(semver('8.0.0'))",
        f'{C}.memory.isGreaterThan(quantity("10Gi"))',
        f'{A}.type == "mig" && {A}.profile == "1g.10gb"',
        'device.attributes["other.example"].numaNode == 1 && device.driver != "gpu.nvidia.com"',
        f"{A}.numaNode ==",
        "",
    ],
)
def test_what_is_guarded_always_there_or_not_ours_is_nothing_to_warn_of(expression):
    assert asking(expression) == []


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_what_a_type_of_device_never_has_is_told(version):
    assert asking(f'{A}.profile == "1g.10gb"', version=version) == [
        (
            "devices of class gpu.nvidia.com never have profile, which keeps the pod pending: ask "
            "for class mig.nvidia.com"
        )
    ]
    assert asking(f"{A}.index == 0", "mig.nvidia.com", version) == [
        (
            "devices of class mig.nvidia.com never have index, which keeps the pod pending: ask "
            "for class gpu.nvidia.com"
        )
    ]
    assert asking(f'"profile" in {A} && {A}.profile == "1g.10gb"', version=version) == []
    assert asking(f'{A}.uuid == "MIG-0"', "mig.nvidia.com", version)
    assert asking(f'{C}.cores.isGreaterThan(quantity("1"))', version=version)


def test_a_long_expression_is_not_repeated():
    expression = f'{A}.productName == "{"x" * 100}" && {A}.numaNode == 1'
    assert asking(expression) == [
        (
            "one device of type gpu without numaNode keeps the pod pending: write "
            f'"numaNode" in {A} && before it is read'
        )
    ]


def test_names_of_kubernetes_have_their_domain():
    root = 'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:3a"'
    (text,) = asking(f'{root} && device.driver == "gpu.nvidia.com"')
    assert text.endswith(
        'write "pcieRoot" in device.attributes["resource.kubernetes.io"] && before it is read'
    )


def test_of_a_class_that_is_not_known_only_what_no_type_is_sure_to_have_is_told():
    assert asking(f'{A}.profile == "1g.10gb"', "team-a") == []
    assert asking(f"{A}.index == 0", "team-a") == []
    (text,) = asking(f"{A}.numaNode == 0", "team-a")
    assert text.startswith("one device of type gpu or mig without numaNode")


def test_a_class_sees_all_devices_that_its_expression_does_not_turn_away():
    def of(expression):
        return warned("deviceclasses", selectors=reviews.selector(expression))

    assert of(f'device.driver == "gpu.nvidia.com" && {A}.type == "mig" && {A}.profile == "x"') == []
    (text,) = of(f'device.driver == "gpu.nvidia.com" && {A}.profile == "x"')
    assert text.startswith("spec.selectors[0].cel.expression: one device of type gpu without ")
    of_others = 'device.driver == "nic.example" && device.attributes["nic.example"].numaNode == 0'
    assert of(of_others) == []
    mixed = (
        f'(device.driver == "nic.example" || device.driver == "gpu.nvidia.com") && {A}.index > 0'
    )
    assert len(of(mixed)) == 1


# What devices have, as they are published


def card(**facts):
    known = devices.Gpu(
        index=0,
        minor=0,
        uuid=devices.GpuUuid("GPU-0"),
        product_name="NVIDIA H100 80GB HBM3",
        pci_address=devices.PciAddress("0000:3b:00.0"),
        brand="Nvidia",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_bytes=80 * 2**30,
        driver_version="580.65.06",
        cuda_driver_version=(12, 9),
        mig_capable=True,
    )
    return dataclasses.replace(known, **facts)


ALL_FACTS = {
    "addressing_mode": "HMM",
    "numa_node": 0,
    "pcie_root": "pci0000:3a",
    "module_id": 1,
    "fabric": ((1, 8), (2, 4), (4, 2), (8, 1)),
}


def of_advice(device_type):
    always = {*advice.ALWAYS[device_type], *advice.COMMON}
    return always, always | set(advice.OPTIONAL)


def test_a_whole_gpu_has_what_the_advice_takes_for_granted():
    always, possible = of_advice(GPU)
    assert set(attributes.device(card()).attributes) == always
    shared = shares.shareable(attributes.device(card(**ALL_FACTS)), share_model.Shares())
    assert set(shared.attributes) == possible | set(advice.FABRIC)
    assert set(advice.CAPACITY[GPU]) == set(attributes.device(card()).capacity)
    assert set(shared.capacity) <= {*advice.CAPACITY[GPU], *advice.OPTIONAL_CAPACITY}


def test_a_partition_has_what_the_advice_takes_for_granted():
    always, possible = of_advice(MIG)
    profile = mig_profiles.profile("1g.10gb", 19, placements=[(0, 1)])
    spot = mig.Spot(profile.id, profile.placements[0])
    made = attributes.partition(devices.Offer(card(), profile, spot))
    assert set(made.attributes) == always
    assert set(made.capacity) == set(advice.CAPACITY[MIG])
    assert possible - always == set(advice.OPTIONAL)


def test_an_expression_that_takes_long_to_read_is_passed_over():
    reads = f"{A}.numaNode == 1"
    long = f'{A}.productName != "{"x" * 1000}" && {reads}'
    loops = f"[1, 2].all(a, [1, 2].all(b, a + b > 0)) && {reads}"
    assert asking(long) == []
    assert asking(loops) == []
    assert len(asking(f"[1, 2].all(a, a > 0) && {reads}")) == 1


def test_of_many_expressions_the_first_are_read():
    expressions = [f'{A}.productName != "{"x" * 800}" && {A}.numaNode == {n}' for n in range(32)]
    selectors = [one for text in expressions for one in reviews.selector(text)]
    found = warned(requests=[reviews.request("gpu", selectors=selectors)])
    assert 0 < len(found) == advice.MOST_READ // len(expressions[-1])


def test_partitions_of_the_fabric_are_known_of_gpus_and_of_no_mig_partition():
    reads = f"{A}.partition4 == 2"
    assert asking(f'"partition4" in {A} && {reads}') == []
    [found] = warned(
        requests=[
            reviews.request("gpu", "mig.nvidia.com", selectors=reviews.selector(reads)),
        ]
    )
    assert "devices of class mig.nvidia.com never have partition4" in found
