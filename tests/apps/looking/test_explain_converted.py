"""`dra-driver explain` of pods that ask as older systems had it, on saved files."""

import json

import pytest
from explain_scene import gpu, node, pool

from dra_driver.logic.offering import classes

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def fleet(write):
    card = gpu("gpu-0", memory="80Gi", type="mig", profile="1g.10gb", uuid="MIG-0")
    saved = [pool("a", card, driver=DRIVER), node("a"), *classes.device_classes(DRIVER)]
    return "--slices", write("fleet.yaml", *saved, as_list=True)


@pytest.fixture
def asking(write):
    def save(**limits):
        container = {"name": "cuda", "image": "none", "resources": {"limits": limits}}
        meta, spec = {"name": "old"}, {"containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        return write("old.yaml", body)

    return save


def test_what_conversion_would_make_of_it_is_shown(explain, fleet, asking):
    status, out, _ = explain("-f", asking(**{"nvidia.com/mig-1g.10gb": 1}), *fleet)
    assert status == 2
    first, second = out.split("pod default/old, converted: ")
    assert first.startswith("pod default/old: does not fit\n")
    assert "It asks as older systems had it; converted, it would ask with claims\n" in first
    assert "container cuda: nvidia.com/mig-1g.10gb: 1  →  claim gpu-cuda: " in first
    assert "To convert it\n  `dra-driver convert -f FILE`" in first
    assert second.startswith("fits\n")


def test_what_cannot_be_converted_is_shown(explain, fleet, asking):
    status, out, _ = explain("-f", asking(**{"nvidia.com/mig-1g.10gb": -1}), *fleet)
    assert status == 2
    assert "It asks as older systems had it, and cannot be converted\n  container cuda: " in out
    assert "To convert it" not in out


def test_programs_get_both_explanations(explain, fleet, asking):
    path = asking(**{"nvidia.com/mig-1g.10gb": 1})
    _, out, _ = explain("-f", path, *fleet, "--output", "json")
    (told,) = json.loads(out)["explanations"]
    assert told["conversion"]["then"]["verdict"] == "fits"
    assert told["conversion"]["problems"] == []
