"""Schemas and columns that a definition may not have are refused with their place, over HTTP."""

import copy

import custom_resources
import pytest
from custom_resources import DEFINITIONS

ROOT = "spec.versions[0].schema.openAPIV3Schema"
SPEC = f"{ROOT}.properties[spec]"
TEXT = {"type": "string"}


def field(**schema):
    return {"type": "object", "properties": {"x": schema}}


def rules(*each, **schema):
    return field(type="integer", **schema) | {"x-kubernetes-validations": list(each)}


X = f"{SPEC}.properties[x]"
SCHEMAS = [
    (field(type="text"), f'{X}.type: Unsupported value: "text"'),
    (field(), f"{X}.type: Required value: must not be empty for specified object fields"),
    (field(type="null"), f"{X}.type: Forbidden: type cannot be set to null, use nullable"),
    (field(type="array"), f"{X}.items: Required value: must be specified"),
    (field(type="array", items={}), f"{X}.items.type: Required value: must not be empty for"),
    (field(type="array", items=[TEXT]), f"{X}.items: Forbidden: items must be a schema object"),
    (field(type="array", items=TEXT, uniqueItems=True), f"{X}.uniqueItems: Forbidden: uniqueItems"),
    (field(**{"$ref": "#/x"}), f"{X}.$ref: Forbidden: $ref is not supported"),
    (field(type="object", patternProperties={}), f"{X}.patternProperties: Forbidden: patternPro"),
    (field(type="string", maxLenght=3), f"{X}.maxLenght: Forbidden: is no field of a schema"),
    (field(type="string", maxLength="3"), f'{X}.maxLength: Invalid value: "3": is of another type'),
    (
        field(type="string", pattern="["),
        f'{X}.pattern: Invalid value: "[": must be a valid regular',
    ),
    (field(type="string", default=3), f"{X}.default in body must be of type string"),
    (
        field(type="object", default={"a": 1}, properties={"b": TEXT}),
        f'{X}.default.a: Invalid value: {{"a":1}}: must not have unknown fields',
    ),
    (
        field(type="object", properties={"a": TEXT}, additionalProperties=TEXT),
        f"{X}.additionalProperties: Forbidden: additionalProperties and properties are mutual",
    ),
    (
        field(type="string", anyOf=[{"type": "string"}]),
        f"{X}.anyOf[0].type: Forbidden: must be empty to be structural",
    ),
    (
        field(type="object", allOf=[{"properties": {"a": {"minLength": 1}}}]),
        f"{X}.properties[a]: Required value: because it is defined in {X}.allOf[0].properties[a]",
    ),
    (
        field(type="object", **{"x-kubernetes-embedded-resource": True}),
        f"{X}.properties: Required value: must not be empty if x-kubernetes-embedded-resource",
    ),
    (
        field(**{"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}),
        f"{X}.x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if",
    ),
    (
        field(type="array", items=field(), **{"x-kubernetes-list-type": "map"}),
        f"{X}.x-kubernetes-list-map-keys: Required value: must not be empty",
    ),
    (
        field(
            type="array",
            items={"type": "object", "properties": {"a": TEXT}},
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
        ),
        f"{X}.items.properties[a].default: Required value: this property is in",
    ),
    (
        field(type="string", **{"x-kubernetes-list-type": "set"}),
        f'{X}.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified',
    ),
]
RULE = f"{SPEC}.x-kubernetes-validations[0]"
RULES = [
    (rules({"rule": 3}), f"{RULE}.rule: Invalid value: 3: must be a string"),
    (
        rules({"rule": "true", "reason": [1]}),
        f"{RULE}.reason: Invalid value: [1]: must be a string",
    ),
    (rules({}), f"{RULE}.rule: Required value: rule is not specified"),
    (rules({"rule": "self.y > 1"}), "line 1, column 6: undefined field 'y': it has x"),
    (rules({"rule": "self.x"}), "compilation failed: line 1, column 1: must evaluate to bool, not"),
    (rules({"rule": "self.x == 'a'"}), "found no matching overload for '_==_' applied to '(int,"),
    (rules({"rule": "wobble(self.x)"}), "undeclared reference to 'wobble'"),
    (rules({"rule": "true", "message": "a\nb"}), f"{RULE}.message: Invalid value"),
    (rules({"rule": "true\n||true"}), f"{RULE}.message: Required value: message must be specified"),
    (rules({"rule": "true", "messageExpression": "1"}), "must evaluate to string, not int"),
    (rules({"rule": "true", "fieldPath": ".z"}), f'{RULE}.fieldPath: Invalid value: ".z": must be'),
    (rules({"rule": "true", "reason": "Why"}), f'{RULE}.reason: Unsupported value: "Why"'),
    (
        rules({"rule": "true", "optionalOldSelf": True}),
        f"{RULE}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used",
    ),
    (
        field(
            type="array",
            items={"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]},
        ),
        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {X}",
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("spec", "cause"), SCHEMAS + RULES, ids=range(len(SCHEMAS + RULES)))
def test_a_schema_that_is_not_structural_is_refused_with_its_place(api, spec, cause):
    answer = api.send("POST", DEFINITIONS, custom_resources.definition(spec))
    assert answer.status == 422
    assert any(cause in found for found in answer.causes), answer.causes
    assert api.names(DEFINITIONS) == []


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"type": "string"}, f'{ROOT}.type: Invalid value: "string": must be object at the root'),
        ({"nullable": True}, f"{ROOT}.nullable: Forbidden: nullable cannot be true at the root"),
        ({"additionalProperties": TEXT}, "must not be used at the root"),
        ({"properties": {"metadata": field()}}, "must not specify anything other than name and"),
        ({"properties": {"kind": {"type": "object"}}}, "properties[kind].type: Invalid value"),
    ],
)
def test_the_root_has_rules_of_its_own(api, change, cause):
    body = custom_resources.definition()
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] |= change
    answer = api.send("POST", DEFINITIONS, body)
    assert any(cause in found for found in answer.causes), answer.causes


@pytest.mark.parametrize("schema", [[], "object", 3, {"openAPIV3Schema": [1]}])
def test_what_is_no_schema_is_refused(api, schema):
    answer = api.send("POST", DEFINITIONS, custom_resources.definition(schema=schema))
    assert answer.status == 422


COLUMN = {"name": "A", "type": "string", "jsonPath": ".spec.a"}
PLACE = "spec.versions[0].additionalPrinterColumns[0]"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"name": ""}, f"{PLACE}.name: Required value"),
        ({"type": "text"}, f'{PLACE}.type: Invalid value: "text": must be one of boolean,date,'),
        ({"jsonPath": ""}, f"{PLACE}.jsonPath: Required value"),
        ({"jsonPath": "spec.a"}, "at character 1: allowed are .FIELD"),
        ({"jsonPath": ".spec[?(@.a>1)]"}, "at character 6: allowed are .FIELD"),
        ({"priority": "high"}, f'{PLACE}.priority: Invalid value: "high": must be a number'),
    ],
)
def test_a_column_that_cannot_be_is_refused(api, change, cause):
    columns = [COLUMN | change]
    body = custom_resources.definition(additionalPrinterColumns=columns)
    answer = api.send("POST", DEFINITIONS, body)
    assert any(cause in found for found in answer.causes), answer.causes


def test_a_definition_stays_as_it_was_when_a_change_is_refused(api):
    made = api.create(DEFINITIONS, custom_resources.definition())
    wrong = copy.deepcopy(made)
    schema = wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["type"] = "text"
    assert api.send("PUT", f"{DEFINITIONS}/orders.shop.example", wrong).status == 422
    assert api.get(f"{DEFINITIONS}/orders.shop.example")["spec"] == made["spec"]
    body = custom_resources.order(size="x")
    assert api.send("POST", custom_resources.ORDERS, body).status == 422


def test_int_or_string_may_say_so_twice_as_generators_do(api):
    both = [{"type": "integer"}, {"type": "string"}]
    body = custom_resources.definition(field(anyOf=both, **{"x-kubernetes-int-or-string": True}))
    api.create(DEFINITIONS, body)
    made = api.create(custom_resources.ORDERS, {"metadata": {"name": "a"}, "spec": {"x": "80%"}})
    assert made["spec"] == {"x": "80%"}
