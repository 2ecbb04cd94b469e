import pytest

from dra_driver.model import taints

TAINT = taints.Taint("ill", "yes", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "ill", "operator": "Exists"}, True),
        ({"key": "well", "operator": "Exists"}, False),
        ({"key": "ill", "value": "yes"}, True),
        ({"key": "ill", "operator": "Equal", "value": "yes", "effect": "NoExecute"}, True),
        ({"key": "ill", "value": "no"}, False),
        ({"value": "yes"}, False),
        ({"key": "ill", "operator": "Like", "value": "yes"}, False),
    ],
)
def test_a_toleration_covers_a_taint_as_core_v1_says(toleration, covered):
    assert taints.parse_toleration(toleration).covers(TAINT) is covered


@pytest.mark.parametrize(
    ("effect", "blocks"),
    [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False), ("None", False)],
)
def test_only_two_effects_keep_pods_away(effect, blocks):
    assert taints.parse_taint({"key": "k", "effect": effect}).blocks is blocks


def test_a_taint_is_written_as_kubectl_writes_it():
    assert str(TAINT) == "ill=yes:NoExecute"
    assert str(taints.parse_taint({"key": "k", "effect": "NoSchedule"})) == "k:NoSchedule"
