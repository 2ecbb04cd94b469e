"""CustomResourceDefinitions of the parameter kinds: what API servers take, and what they refuse."""

import json
import pathlib
import re
import runpy

import jsonschema
import parameter_cases
import pytest
import yaml

from dra_driver.logic.parameters import definitions
from dra_driver.model import parameters

ROOT = pathlib.Path(__file__).parents[3]
DEFINITIONS = {kind: definitions.definition(kind) for kind in parameters.Kind}
KINDS = pytest.mark.parametrize("kind", parameters.Kind)


def schema(kind):
    [version] = DEFINITIONS[kind]["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def nodes(node, path="", at_most=1):
    """Each schema in a schema, with its path, and how often a value of it can be there."""
    yield path, node, at_most
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}", at_most)
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]", at_most * node["maxItems"])
    if "additionalProperties" in node:
        yield from nodes(
            node["additionalProperties"], f"{path}{{}}", at_most * node["maxProperties"]
        )


def test_the_files_are_what_is_generated():
    made = runpy.run_path(str(ROOT / "crds" / "generate.py"))
    files = {name: text for name, text in made["texts"]().items() if name.endswith(".yaml")}
    assert {path.name: path.read_text("utf-8") for path in (ROOT / "crds").glob("*.yaml")} == files
    in_chart = ROOT / "deploy" / "helm" / "dra-driver" / "files" / "crds.yaml"
    assert in_chart.read_text("utf-8") == made["in_chart"]()
    assert [*yaml.safe_load_all(made["in_chart"]())] == [*DEFINITIONS.values()]


@KINDS
def test_the_names_are_those_of_the_kind_and_nobody_else_has_its_short_one(kind):
    body = DEFINITIONS[kind]
    names = body["spec"]["names"]
    assert body["metadata"]["name"] == f"{names['plural']}.gpu.resource.nvidia.com"
    assert names["plural"] == kind.value.lower()
    short = [each["spec"]["names"]["shortNames"][0] for each in DEFINITIONS.values()]
    assert len({*short}) == len(short)


@KINDS
def test_a_schema_is_structural_and_all_in_it_is_limited(kind):
    """Rules: Kubernetes, CustomResourceDefinitions, "Specifying a structural schema"."""
    for path, node, _ in nodes(schema(kind)):
        loose = {"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"} & {*node}
        assert "type" in node or loose, path
        assert {"$ref", "anyOf", "oneOf", "title", "const"}.isdisjoint(node), path
        if path.startswith((".spec", ".status")):
            if node.get("type") == "array":
                assert "maxItems" in node, path
            if node.get("type") == "string":
                assert {"maxLength", "enum", "format"} & {*node}, path
        if "pattern" in node:
            re.compile(node["pattern"])


@KINDS
def test_rules_name_fields_that_are_there_and_cost_no_more_than_is_allowed(kind):
    """An API server refuses a rule that may cost more than ten million, and a hundred in all.

    A `has` costs one, a round of a macro and a list some more.
    """
    total = 0
    for path, node, at_most in nodes(schema(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            named = {*re.findall(r"self\.(\w+)", rule["rule"])}
            assert named <= {*node["properties"]}, path
            # What has no type cannot be read by a rule.
            assert all("type" in node["properties"][name] for name in named), path
            cost = at_most * (10 + 5 * len(named))
            assert cost < 10_000_000, path
            total += cost
    assert 0 < total < 100_000_000


@KINDS
def test_a_definition_fits_into_the_annotation_of_kubectl_apply(kind):
    assert len(json.dumps(DEFINITIONS[kind])) < 262_144 // 2


@KINDS
def test_columns_show_what_the_status_has(kind):
    [version] = DEFINITIONS[kind]["spec"]["versions"]
    assert [each["name"] for each in version["additionalPrinterColumns"]] == [
        "Ready", "Matching", "Reason", "Age",
    ]  # fmt: skip
    assert version["subresources"] == {"status": {}}


# As far as types and limits go


def plain(node):
    """For a validator that does not know Kubernetes: a quantity is a number or a text."""
    body = {
        name: plain(value) if isinstance(value, dict) and name == "items" else value
        for name, value in node.items()
    }
    if node.get("x-kubernetes-int-or-string"):
        body["type"] = ["integer", "string"]
    if "properties" in node:
        body["properties"] = {name: plain(each) for name, each in node["properties"].items()}
    if isinstance(node.get("additionalProperties"), dict):
        body["additionalProperties"] = plain(node["additionalProperties"])
    return body


def refused_by_schema(kind, spec):
    validator = jsonschema.Draft7Validator(plain(schema(kind)["properties"]["spec"]))
    return [*validator.iter_errors(spec)]


def refused_by_rule(kind, spec):
    """Rules that say that one field of several is there; others are tried in an API server."""
    return any(_breaks(schema(kind)["properties"]["spec"], spec))


def _breaks(node, value):
    if not isinstance(value, dict):
        return
    for rule in node.get("x-kubernetes-validations", ()):
        named = re.findall(r"has\(self\.(\w+)\)", rule["rule"])
        given = [name for name in named if name in value]
        if "exists_one" in rule["rule"]:
            yield len(given) != 1
        elif rule["rule"].startswith("!(has"):
            yield len(given) == len(named)
        else:
            strategy = re.search(r"== '(\w+)'", rule["rule"])[1]
            yield named[0] in value and value.get("strategy") != strategy
    for name, inner in node.get("properties", {}).items():
        for each in value[name] if isinstance(value.get(name), list) else [value.get(name)]:
            yield from _breaks(inner.get("items", inner), each)


@pytest.mark.parametrize("case", parameter_cases.LEGAL)
def test_what_is_legal_is_taken(case):
    kind, spec = parameter_cases.LEGAL[case]
    assert refused_by_schema(kind, spec) == []
    assert not refused_by_rule(kind, spec)


@pytest.mark.parametrize("case", parameter_cases.ILLEGAL | parameter_cases.SHARING)
def test_what_is_illegal_is_refused_by_the_api_server_as_far_as_it_can_say_it(case):
    illegal = (parameter_cases.ILLEGAL | parameter_cases.SHARING)[case]
    found = "controller" if illegal.by == "pruning" else "schema"
    if not refused_by_schema(illegal.kind, illegal.spec):
        found = "rule" if refused_by_rule(illegal.kind, illegal.spec) else illegal.by
        assert found == illegal.by
        return
    assert found == illegal.by
