"""The parameter kinds of the chart: their definitions, and who may do what with them."""

import chart
import pytest
import rbac_rules

from dra_driver.logic.parameters import definitions
from dra_driver.model import parameters

KIND = "CustomResourceDefinition"


def installed(values=None, **options):
    return [body for body in chart.objects(values, **options) if body["kind"] == KIND]


def test_the_definitions_are_those_of_the_driver_and_stay_when_it_goes():
    assert installed() == [*definitions.all_kinds()]
    for body in installed():
        assert body["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_they_can_be_left_out_with_the_rights_that_they_need():
    values = {"crds": {"install": False}}
    assert installed(values) == []
    names = {body["metadata"]["name"] for body in chart.objects(values)}
    assert not [name for name in names if "-parameters-" in name]


def test_a_controller_that_keeps_no_templates_has_no_right_to_them():
    def groups(values):
        bodies = chart.part(chart.objects(values), "controller")
        return {right.group for right in rbac_rules.granted(bodies)}

    assert parameters.GROUP in groups({})
    off = {"controller": {"parameters": False}}
    assert parameters.GROUP not in groups(off)
    rights = rbac_rules.granted(chart.part(chart.objects(off), "controller"))
    assert "resourceclaimtemplates" not in {right.resource for right in rights}


@pytest.mark.parametrize("role", ["edit", "view"])
def test_whoever_may_edit_or_view_a_namespace_may_its_parameters(role):
    body = chart.the(chart.objects(), "ClusterRole", f"-parameters-{role}")
    assert body["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    [rule] = body["rules"]
    assert rule["resources"] == [kind.plural for kind in parameters.Kind]
    assert ("create" in rule["verbs"]) is (role == "edit")
