"""`kubectl` with a kind of somebody's own: columns, refusals, explanations."""

import custom_resources
import pytest
import yaml
from kubectl_program import Kubectl

ORDER = "apiVersion: shop.example/v1\nkind: Order\nmetadata: {name: a}\nspec: {size: 3}\n"


@pytest.fixture
def kubectl(api, tmp_path):
    made = Kubectl(api, tmp_path)
    made("apply -f -", yaml.safe_dump(custom_resources.definition()))
    return made


def test_its_columns_are_shown(kubectl):
    kubectl("apply -f -", ORDER + "  # no gift\n")
    heads, cells = (line.split() for line in kubectl("get or").splitlines())
    assert heads == ["NAME", "SIZE", "READY", "AGE"]
    assert cells[:2] == ["a", "3"]
    assert kubectl("get orders -o wide").splitlines()[0].split() == [
        "NAME", "SIZE", "READY", "GIFT", "AGE",
    ]  # fmt: skip


def test_a_mistake_is_told_with_its_field(kubectl):
    told = kubectl.run("apply -f -", ORDER.replace("3", "30")).stderr
    assert 'The Order "a" is invalid: ' in told
    assert "spec.size in body should be less than or equal to 10" in told
    told = kubectl.run("apply -f -", ORDER.replace("3", "10")).stderr
    assert "spec: Invalid value: large ones are green" in told
    told = kubectl.run("apply -f -", ORDER.replace("size", "sise")).stderr
    assert 'unknown field "spec.sise"' in told


def test_fields_are_explained(kubectl):
    assert "colour\t<string>" in kubectl("explain orders.spec")


def test_what_was_applied_is_applied_again_and_changed(kubectl):
    kubectl("apply -f -", ORDER)
    assert "unchanged" in kubectl("apply -f -", ORDER)
    assert "configured" in kubectl("apply -f -", ORDER.replace("3", "4"))
    kubectl("apply --server-side --force-conflicts -f -", ORDER.replace("3", "5"))
    assert kubectl("get order a -o jsonpath={.spec.size}") == "5"
