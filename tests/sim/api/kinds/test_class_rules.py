"""Every limit of the table for DeviceClasses."""

import api_objects
import pytest
from api_objects import CLASSES, changed

TEN_KIB = 10 * 1024


def selector(expression="true"):
    return {"cel": {"expression": expression}}


def opaque(parameters=None, driver="gpu.nvidia.com", **fields):
    parameters = {"a": 1} if parameters is None else parameters
    return {"opaque": {"driver": driver, "parameters": parameters}, **fields}


def sized(size):
    """An object of so many bytes as JSON."""
    return {"a": "x" * (size - len('{"a":""}'))}


CLASS_ACCEPTED = {
    "nothing": {},
    "32 selectors": {"selectors": [selector()] * 32},
    "32 configs": {"config": [opaque()] * 32},
    "an extended resource": {"extendedResourceName": "nvidia.com/gpu"},
}


@pytest.mark.parametrize("fields", CLASS_ACCEPTED.values(), ids=CLASS_ACCEPTED)
def test_a_class_may_have(shared_api, fields):
    body = changed(api_objects.device_class(**fields), "metadata", {"generateName": "x-"})

    answer = shared_api.send("POST", CLASSES, body)

    assert (answer.status, answer.causes) == (201, [])


CLASS_REFUSED = {
    "33 selectors": (
        {"selectors": [selector()] * 33},
        "spec.selectors: Too many: 33: must have at most 32 items",
    ),
    "a selector without CEL": ({"selectors": [{}]}, "spec.selectors[0].cel: Required value"),
    "an expression above 10 KiB": (
        {"selectors": [selector("x" * (TEN_KIB + 1))]},
        "spec.selectors[0].cel.expression: Too long",
    ),
    "33 configs": ({"config": [opaque()] * 33}, "spec.config: Too many: 33"),
    "parameters above 10 KiB": (
        {"config": [opaque(sized(TEN_KIB + 1))]},
        "spec.config[0].opaque.parameters: Too long",
    ),
    "an extended resource without a domain": (
        {"extendedResourceName": "gpu"},
        'spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name',
    ),
    "an extended resource in a domain of Kubernetes": (
        {"extendedResourceName": "kubernetes.io/gpu"},
        "spec.extendedResourceName: Invalid value",
    ),
    "an extended resource with a name of 64 characters": (
        {"extendedResourceName": f"example.com/{'x' * 64}"},
        "spec.extendedResourceName: Invalid value",
    ),
}


@pytest.mark.parametrize(("fields", "cause"), CLASS_REFUSED.values(), ids=CLASS_REFUSED)
def test_a_class_may_not_have(shared_api, fields, cause):
    answer = shared_api.send("POST", CLASSES, api_objects.device_class("bad", **fields))

    assert answer.status == 422
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_a_class_can_be_changed(api):
    api.create(CLASSES, api_objects.device_class())

    patch = {"spec": {"selectors": [selector()]}}
    patched = api.patch(f"{CLASSES}/gpu.nvidia.com", patch)

    assert patched["spec"]["selectors"] == [selector()]
    assert patched["metadata"]["generation"] == 2


def test_an_expression_of_a_class_that_was_accepted_is_not_checked_again():
    accepted = [True]
    with api_objects.Api(
        expression_check=lambda _expression: None if accepted[0] else "not any more"
    ) as api:
        api.create(CLASSES, api_objects.device_class(selectors=[selector("a")]))
        accepted[0] = False
        path = f"{CLASSES}/gpu.nvidia.com"

        kept = api.patch(path, {"spec": {"config": [opaque()]}})
        answer = api.send(
            "PATCH",
            path,
            {"spec": {"selectors": [selector("b")]}},
            content_type="application/merge-patch+json",
        )

    assert kept["spec"]["config"] == [opaque()]
    assert answer.status == 422
