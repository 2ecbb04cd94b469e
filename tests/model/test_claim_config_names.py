"""Configs of an allocation name the requests that they name in the claim, in every release."""

import pytest

from dra_driver import errors
from dra_driver.logic.preparing import config_choice
from dra_driver.model import claims, sharing

DRIVER = "gpu.nvidia.com"


def parameters(kind="GpuConfig"):
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind}


def asked(*requests, kind="GpuConfig"):
    named = {"requests": list(requests)} if requests else {}
    return {**named, "opaque": {"driver": DRIVER, "parameters": parameters(kind)}}


def granted(*requests, source="FromClaim", kind="GpuConfig"):
    return {"source": source, **asked(*requests, kind=kind)}


def body(configs, allocated, results=("gpu",)):
    return {
        "metadata": {"namespace": "default", "name": "c", "uid": "u"},
        "spec": {"devices": {"config": configs, "requests": [{"name": "flat"}]}},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": name, "driver": DRIVER, "pool": "p", "device": f"d{n}"}
                        for n, name in enumerate(results)
                    ],
                    "config": allocated,
                }
            }
        },
    }


def names(configs, allocated, *results):
    found = claims.parse_outcome(body(configs, allocated, *[results] if results else []))
    return [config.requests for config in found.allocation.configs]


@pytest.mark.parametrize(
    ("configs", "allocated", "expected"),
    [
        # As 1.37 writes it, as 1.36 does, and twice as 1.36.2 does.
        ([asked("gpu")], [granted()], [("gpu",)]),
        ([asked("gpu")], [granted("gpu")], [("gpu",)]),
        ([asked("gpu")], [granted("gpu")] * 2, [("gpu",)] * 2),
        # None is named in the claim.
        ([asked()], [granted()], [()]),
        # Another one, or that of a class.
        ([asked("gpu", kind="MigDeviceConfig")], [granted()], [()]),
        ([asked("gpu")], [granted(source="FromClass")], [()]),
        # Each stands for one, in their order.
        ([asked("gpu"), asked()], [granted(), granted()], [("gpu",), ()]),
        ([asked("gpu"), asked()], [granted("gpu"), granted()], [("gpu",), ()]),
        ([asked(), asked("gpu")], [granted(), granted()], [(), ("gpu",)]),
    ],
)
def test_names_that_the_scheduler_left_out_are_those_of_the_claim(configs, allocated, expected):
    assert names(configs, allocated) == expected


def test_names_of_an_alternative_that_was_not_chosen_are_not_meant():
    configs = [asked("gpu/large"), asked("gpu/small")]
    assert names(configs, [granted()], "gpu/small") == [("gpu/small",)]
    assert names(configs, [granted()], "gpu/small", "other") == [()]


def test_a_config_of_the_wrong_kind_is_refused_as_where_its_names_are_kept():
    wrong = {"kind": "MigDeviceConfig"}
    for allocated in ([granted("gpu", **wrong)], [granted(**wrong)]):
        claim = claims.parse_outcome(body([asked("gpu", **wrong)], allocated))
        entries = config_choice.entries(claim.allocation.configs, DRIVER)
        with pytest.raises(errors.Rejected, match="MigDeviceConfig cannot be applied"):
            config_choice.for_result(entries, claim.allocation.results[0], sharing.DeviceType.GPU)
