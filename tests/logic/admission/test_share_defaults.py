"""What a share takes without asking for it."""

import explain_scene as scene
import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission, advice
from dra_driver.logic.explaining import explaining
from dra_driver.logic.offering import shares
from dra_driver.model import quantities, slices
from dra_driver.model import shares as share_model

SHARED = ("shared.gpu.nvidia.com", "shared-mps.gpu.nvidia.com")


def warned(device_class, version="v1", resource="resourceclaims", **amounts):
    request = reviews.request("gpu", device_class, capacity={"requests": amounts})
    body = reviews.made(resource, version, requests=[request])
    decision = admission.decide(reviews.review(resource, version, body), reviews.DRIVER)
    assert all(len(text) <= advice.LONGEST for text in decision.warnings)
    return list(decision.warnings)


@pytest.mark.parametrize("device_class", SHARED)
@pytest.mark.parametrize(("version", "inner"), [("v1", ".exactly"), ("v1beta1", "")])
def test_memory_alone_takes_all_cores(device_class, version, inner):
    path = f"spec.devices.requests[0]{inner}.capacity.requests"
    told = (
        f"{path}: memory without cores takes all cores of a device that is shared by memory, and "
        "leaves nobody a share: add, for example, cores: 25"
    )
    assert warned(device_class, version, memory="10Gi") == [told]
    assert warned(device_class, version, **{"gpu.nvidia.com/memory": "10Gi"})[1:] == [told]


@pytest.mark.parametrize("device_class", SHARED)
def test_cores_alone_take_all_memory(device_class):
    (told,) = warned(device_class, cores="25")
    assert "cores without memory takes all memory of a device" in told
    assert told.endswith("add, for example, memory: 10Gi")


@pytest.mark.parametrize(
    ("device_class", "amounts"),
    [
        (SHARED[0], {"memory": "10Gi", "cores": "25"}),
        (SHARED[0], {"shares": "2"}),
        (SHARED[0], {}),
        ("gpu.nvidia.com", {"memory": "10Gi"}),
        ("exclusive.gpu.nvidia.com", {"memory": "10Gi"}),
        ("team-a", {"memory": "10Gi"}),
    ],
)
def test_requests_that_name_both_or_are_of_other_classes_are_nothing_to_warn_of(
    device_class, amounts
):
    assert warned(device_class, **amounts) == []


def test_templates_and_alternatives_are_told():
    inner = {"name": "a", "deviceClassName": SHARED[0], "capacity": {"requests": {"memory": "1Gi"}}}
    body = reviews.made(
        "resourceclaimtemplates", requests=[reviews.request("gpu", firstAvailable=[inner])]
    )
    decision = admission.decide(reviews.review("resourceclaimtemplates", body=body), reviews.DRIVER)
    (told,) = decision.warnings
    assert told.startswith(
        "spec.spec.devices.requests[0].firstAvailable[0].capacity.requests: memory without cores"
    )
    assert len(told) <= advice.LONGEST


# As explain has it


def card(kind):
    """A card that is shared like this, as it is published."""
    device = slices.Device("gpu-0", {}, {"memory": quantities.parse("80Gi")})
    shared = shares.shareable(device, kind) if kind is not None else device
    body = scene.gpu("gpu-0") | slices.format_device(shared)
    return scene.pool("a", body)


BY_MEMORY = share_model.Shares()
BY_COUNT = share_model.Shares(count=4)


def noted(kind, *others, allocated=False, **amounts):
    asked = scene.request(capacity={"requests": amounts}) if amounts else scene.request()
    about = scene.explain("claim/mine", card(kind), scene.claim("mine", asked), *others)
    assert about.verdict == explaining.FITS
    return [text for text in about.notes if text.startswith("request ")]


def whole(names, lines):
    return [
        (
            f'request "gpu" takes all {names} of a shared device, as it asks for no amount: nobody '
            "gets a share beside it. To leave some, add under capacity.requests, for example, "
            f"{lines}"
        )
    ]


@pytest.mark.parametrize(
    ("amounts", "names", "lines"),
    [
        ({"memory": "10Gi"}, "cores", "cores: 25"),
        ({"gpu.example.com/memory": "10Gi"}, "cores", "cores: 25"),
        ({"cores": "25"}, "memory", "memory: 10Gi"),
        ({}, "cores and all memory", "cores: 25, memory: 10Gi"),
    ],
)
def test_explain_tells_what_a_request_takes_all_of_and_the_line_to_add(amounts, names, lines):
    assert noted(BY_MEMORY, **amounts) == whole(names, lines)


@pytest.mark.parametrize(
    ("kind", "amounts"),
    [
        (BY_MEMORY, {"memory": "10Gi", "cores": "25"}),
        (BY_MEMORY, {"memory": "80Gi", "cores": "100"}),
        (BY_COUNT, {"memory": "10Gi"}),
        (BY_COUNT, {}),
        (None, {"memory": "10Gi"}),
        (None, {}),
    ],
)
def test_where_nothing_is_taken_unasked_or_nothing_is_shared_explain_says_nothing(kind, amounts):
    assert noted(kind, **amounts) == []


def test_a_name_with_the_driver_s_domain_counts_as_named():
    (told,) = warned(SHARED[0], **{"memory": "10Gi", "gpu.nvidia.com/cores": "25"})
    assert "takes all" not in told
