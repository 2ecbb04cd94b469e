"""`convert --kubeconfig`: which cards there are is read from a cluster, and nothing is written."""

import contextlib

import control_plane
import converting_files
import pytest
import yaml

from dra_driver.adapters.kube import kube

HALF = converting_files.PLAIN.replace("gpumem: 3000", "gpumem-percentage: 50")
SHARED = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "attributes": {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}},
    "capacity": {
        "memory": {"value": "80Gi", "requestPolicy": {
            "default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}},
        "cores": {"value": "100", "requestPolicy": {
            "default": "100", "validRange": {"min": "1", "step": "1"}}},
    },
}  # fmt: skip


@pytest.fixture
def plane(tmp_path):
    running = control_plane.ControlPlane(tmp_path)
    with contextlib.closing(running):
        yield running


def test_percentages_are_of_the_cards_of_the_cluster(plane, convert, save, tmp_path):
    plane.add_node("a")
    plane.add_slice("a", SHARED, driver="gpu.nvidia.com")
    status, out, err = convert("-f", save(HALF), "--kubeconfig", tmp_path / "kubeconfig")
    assert status == 0, err
    template, _ = yaml.safe_load_all(out)
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"]["memory"] == "40Gi"
    assert plane.client.list(kube.TEMPLATES)[0] == []


def test_a_cluster_without_cards_of_the_driver_has_none(plane, convert, save, tmp_path):
    plane.add_node("a")
    plane.add_slice("a", SHARED)
    status, out, err = convert("-f", save(HALF), "--kubeconfig", tmp_path / "kubeconfig")
    assert (status, out) == (1, "")
    assert "nvidia.com/gpumem-percentage: 50" in err


def test_a_cluster_that_cannot_be_reached_ends_with_1(convert, save, tmp_path):
    status, out, err = convert("-f", save(HALF), "--kubeconfig", tmp_path / "absent")
    assert (status, out) == (1, "")
    assert "absent" in err


def test_slices_are_read_from_files(convert, save):
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [SHARED],
        },
    }
    slices = save(yaml.safe_dump(body), "slices.yaml")
    status, out, err = convert("-f", save(HALF), "--slices", slices)
    assert status == 0, err
    assert "memory: 40Gi" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Node\napiVersion: v1\nmetadata: {name: a}\n", "no ResourceSlice is there"),
        (
            "kind: ResourceSlice\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}\nspec: []\n",
            "ResourceSlice a is no valid object; missing or of a wrong type",
        ),
        ("a: [", "cannot be read: line 2"),
    ],
)
def test_what_are_no_slices_is_told(convert, save, text, told):
    slices = save(text, "slices.yaml")
    status, out, err = convert("-f", save(HALF), "--slices", slices)
    assert (status, out) == (1, "")
    assert told in err
