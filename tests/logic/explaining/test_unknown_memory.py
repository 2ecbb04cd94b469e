"""GPUs that publish no memory, and those who ask for memory."""

import explain_scene
import pytest

DRIVER = "gpu.nvidia.com"
MEMORY = f"device.capacity['{DRIVER}'].memory"


def gpus(*names, node="a", kind="gpu", **fields):
    listed = [explain_scene.gpu(name, type=kind, **fields) for name in names]
    return explain_scene.pool(node, *listed) | {
        "spec": explain_scene.pool(node, *listed)["spec"] | {"driver": DRIVER}
    }


def reasons(*bodies):
    return explain_scene.explain("claim/mine", *bodies).reasons


def asked(*selectors, of_class="gpu", **fields):
    request = explain_scene.request(*selectors, of_class=of_class, **fields)
    return explain_scene.claim("mine", request)


ANY = explain_scene.device_class(f"device.driver == '{DRIVER}'")
SHARED = explain_scene.device_class("'enforcement' in device.attributes", name=f"shared.{DRIVER}")
TOLD = (
    'request "gpu": gpu.nvidia.com/a/gpu-0: no memory is published, since NVML does not tell how '
    "much there is: "
    "not shared, and not for those who ask for memory (dra-driver doctor on the node; select by "
    "productName)"
)
BY_CAPACITY = {"capacity": {"requests": {"memory": "10Gi"}}}
QUALIFIED = {"capacity": {"requests": {f"{DRIVER}/memory": "10Gi"}}}
SELECTOR = f"'memory' in device.capacity['{DRIVER}'] && {MEMORY}.compareTo(quantity('1Gi')) > 0"


@pytest.mark.parametrize(
    "claim",
    [asked(**BY_CAPACITY), asked(**QUALIFIED), asked(SELECTOR)],
    ids=["capacity", "qualified", "selector"],
)
def test_who_asks_for_memory_is_told_which_gpus_are_lost_for_that(claim):
    assert reasons(ANY, gpus("gpu-0"), claim) == (TOLD,)


def test_who_asks_for_a_share_is_told():
    assert TOLD in reasons(SHARED, gpus("gpu-0"), asked(of_class=f"shared.{DRIVER}"))


def test_of_many_gpus_some_are_named():
    [told] = reasons(ANY, gpus(*(f"gpu-{number}" for number in range(5))), asked(**BY_CAPACITY))
    assert ", gpu.nvidia.com/a/gpu-2 and 2 more: no memory is published" in told


@pytest.mark.parametrize(
    "seen",
    [gpus("gpu-0", memory="8Gi"), gpus("part", kind="mig"), explain_scene.pool("a")],
    ids=["with memory", "no GPU", "none"],
)
def test_of_devices_that_tell_their_memory_or_need_not_nothing_is_said(seen):
    assert [each for each in reasons(ANY, seen, asked(**BY_CAPACITY)) if "memory is" in each] == []


def test_who_does_not_ask_for_memory_is_told_nothing():
    assert reasons(ANY, gpus("gpu-0"), asked("device.driver == 'other'")) == ()


@pytest.mark.parametrize(
    ("claim", "of"),
    [
        (asked(capacity={"requests": {"other.example/memory": "10Gi"}}), "other.example/memory"),
        (asked("'memory' in device.attributes['gpu.nvidia.com']"), "attributes"),
    ],
    ids=["another driver's memory", "an attribute"],
)
def test_what_unknown_memory_does_not_explain_is_told_beside_it(claim, of):
    assert [of in each for each in reasons(ANY, gpus("gpu-0"), claim)] == [True, False]
