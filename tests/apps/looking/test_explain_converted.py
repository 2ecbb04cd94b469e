"""`dra-driver explain` of pods that ask as older systems had it, on saved files."""

import json
import pathlib

import pytest
from explain_scene import gpu, node, pool

from dra_driver.logic.offering import classes

DRIVER = "gpu.nvidia.com"
OLD = pathlib.Path(__file__).parents[3] / "demo" / "old"
CARDS = OLD / "cards" / "hopper.yaml"


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


FITTING = {
    "1-device-plugin": {
        # The cards that are known are not cut.
        "deployment old-device-plugin/inference": "does not fit",
        "pod old-device-plugin/notebook": "fits",
    },
    "2-hami": {"pod old-hami/two-cards": "fits", "deployment old-hami/half": "fits"},
    "3-volcano": {
        "job old-volcano/train (leader)": "fits",
        "job old-volcano/train (worker)": "fits",
        "pod old-volcano/isolated": "does not fit",
    },
    "4-tencent": {"pod old-tencent/part": "fits", "pod old-tencent/whole": "fits"},
    "5-aliyun": {"statefulset old-aliyun/binpack": "fits"},
    "6-kai": {"pod old-kai/half": "fits", "pod old-kai/by-memory": "fits"},
}


@pytest.mark.parametrize("manifest", FITTING)
def test_each_older_system_is_told_what_it_would_be(explain, manifest):
    _, out, _ = explain("-f", OLD / f"{manifest}.yaml", "--slices", CARDS, "--output", "json")
    told = json.loads(out)["explanations"]
    made = {each["target"]: each["conversion"] for each in told}
    assert {name: each["then"]["verdict"] for name, each in made.items()} == FITTING[manifest]
    for each in made.values():
        assert each["problems"] == []
        assert any("claim gpu-" in line for line in each["lines"])


def test_claims_of_the_first_api_are_referred_to_the_command(explain):
    status, _, err = explain("-f", OLD / "7-dra-v1alpha2.yaml", "--slices", CARDS)
    assert status == 1
    assert "apiVersion resource.k8s.io/v1alpha2 cannot be explained" in err
    assert err.endswith("`dra-driver convert -f FILE` writes the manifest anew\n")
