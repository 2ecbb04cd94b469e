"""Objects of somebody's own kind are held to the schema of its definition, over HTTP."""

import copy

import custom_resources
import pytest
from custom_resources import DEFINITIONS, ORDERS, order


@pytest.fixture
def shop(api):
    api.create(DEFINITIONS, custom_resources.definition())
    return api


def merged(api, path, patch):
    return api.send("PATCH", path, patch, content_type="application/merge-patch+json")


def test_defaults_are_set_when_an_object_is_made(shop):
    body = shop.create(ORDERS, order(lines=[{"name": "x"}], box={"depth": 1}))
    assert body["spec"] == {
        "size": 3,
        "colour": "red",
        "lines": [{"name": "x", "count": 1}],
        "box": {"depth": 1, "x-ray": False},
    }


def test_and_when_it_is_changed(shop):
    shop.create(ORDERS, order())
    body = shop.patch(f"{ORDERS}/a", {"spec": {"colour": None, "lines": [{"name": "x"}]}})
    assert body["spec"]["colour"] == "red"
    assert body["spec"]["lines"] == [{"name": "x", "count": 1}]


def test_unknown_fields_go_with_a_warning(shop):
    body = order(sise=4, free={"any": {"thing": 1}}, lines=[{"name": "x", "cont": 3}])
    answer = shop.send("POST", ORDERS, body | {"other": 1})
    assert answer.status == 201
    assert "sise" not in answer.body["spec"]
    assert "other" not in answer.body
    assert answer.body["spec"]["free"] == {"any": {"thing": 1}}
    told = answer.headers.getlist("warning")
    assert [text.split('"')[2].rstrip("\\") for text in told] == [
        "other", "spec.lines[0].cont", "spec.sise",
    ]  # fmt: skip


def test_strict_validation_refuses_them(shop):
    answer = shop.send("POST", ORDERS, order(sise=4), fieldValidation="Strict")
    assert answer.status == 400
    assert 'strict decoding error: unknown field "spec.sise"' in answer.body["message"]


def test_null_goes_where_nothing_may_be_null(shop):
    body = shop.create(ORDERS, order(gift=None, note=None, colour=None))
    assert body["spec"] == {"size": 3, "note": None, "colour": "red"}


VALID = {
    "a number without a fraction is whole": {"size": 4.0},
    "a whole number is a number": {"price": 2},
    "a half": {"price": 0.5},
    "a port by name": {"port": "http"},
    "a port by number": {"port": 80},
    "a moment": {"due": "2026-11-30T10:00:00Z"},
    "a template": {"template": {"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}}},
    "a map": {"labels": {"a": "b"}},
    "the largest": {"size": 10, "colour": "green"},
}


@pytest.mark.parametrize("name", VALID)
def test_what_the_schema_allows_is_taken(shop, name):
    body = shop.create(ORDERS, order(**VALID[name]))
    for key, value in VALID[name].items():
        assert body["spec"][key] == value


def mistyped(field, found, wanted):
    """The cause for a value of another type."""
    told = f'{field} in body must be of type {wanted}: "{found}"'
    return f'{field}: Invalid value: "{found}": {told}'


def unmet(field, value, rule):
    return f"{field}: Invalid value: {value}: {field} in body should {rule}"


WRONG = [
    ({"size": "big"}, mistyped("spec.size", "string", "integer")),
    ({"size": 2.5}, mistyped("spec.size", "number", "integer")),
    ({"size": True}, mistyped("spec.size", "boolean", "integer")),
    ({"size": 0}, unmet("spec.size", 0, "be greater than or equal to 1")),
    ({"size": 11, "colour": "green"}, unmet("spec.size", 11, "be less than or equal to 10")),
    ({"size": 2**40, "colour": "green"}, "must be of type integer with format int32 in spec.size"),
    ({"size": None}, "spec.size: Required value"),
    (
        {"colour": "blue"},
        'spec.colour: Unsupported value: "blue": supported values: "red", "green"',
    ),
    ({"colour": 1}, 'spec.colour: Unsupported value: 1: supported values: "red", "green"'),
    ({"code": "AB1234"}, "spec.code: Too long: may not be more than 5 bytes"),
    ({"code": "AB"}, unmet("spec.code", '"AB"', "be at least 3 chars long")),
    ({"code": "abc"}, unmet("spec.code", '"abc"', "match '^[A-Z]{2}[0-9]*$'")),
    ({"price": 0}, unmet("spec.price", 0, "be greater than 0")),
    ({"price": 0.7}, unmet("spec.price", 0.7, "be a multiple of 0.5")),
    ({"due": "tomorrow"}, mistyped("spec.due", "tomorrow", "date-time")),
    ({"due": "2026-13-40T99:00:00Z"}, "spec.due in body must be of type date-time"),
    ({"port": 1.5}, mistyped("spec.port", "number", "integer,string")),
    ({"tags": []}, unmet("spec.tags", 0, "have at least 1 items")),
    ({"tags": ["a", "b", "c", "d"]}, "spec.tags: Too many: 4: must have at most 3 items"),
    ({"tags": ["a", "b", "a"]}, 'spec.tags[2]: Duplicate value: "a"'),
    ({"tags": ["a", 1]}, mistyped("spec.tags[1]", "integer", "string")),
    ({"tags": [None]}, mistyped("spec.tags[0]", "null", "string")),
    ({"lines": [{"name": "a"}] * 2}, 'spec.lines[1]: Duplicate value: {"name":"a"}'),
    ({"lines": [{"count": 2}]}, "spec.lines[0].name: Required value"),
    ({"labels": dict.fromkeys("abc", "x")}, "spec.labels: Too many: 3: must have at most 2 items"),
    ({"labels": {"a": 1}}, mistyped("spec.labels.a", "integer", "string")),
    ({"template": {"kind": "Pod"}}, "spec.template.apiVersion: Required value"),
    ({"box": {}}, '"spec.box" must validate one and only one schema (oneOf). Found none valid'),
    ({"box": {"depth": 1, "width": 1}}, "(oneOf). Found 2 valid alternatives"),
    ({"gift": True, "price": 1}, '<nil>: Invalid value: "": "spec" must not validate the schema'),
    ({"size": 10}, "spec: Invalid value: large ones are green"),
    (
        {"size": 1, "box": {"depth": 1, "x-ray": True}},
        "spec.box: Forbidden: a box of 1 is too small for that",
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("spec", "cause"), WRONG, ids=[str(spec)[:40] for spec, _ in WRONG])
def test_what_it_does_not_allow_is_refused_in_the_words_of_kubernetes(shop, spec, cause):
    answer = shop.send("POST", ORDERS, order(**spec))
    assert answer.status == 422
    assert any(cause in found for found in answer.causes), answer.causes
    assert shop.names(ORDERS) == []


def test_rules_wait_until_what_they_read_is_right(shop):
    answer = shop.send("POST", ORDERS, order(size=10, lines=[{}]))
    assert answer.causes[-1].startswith(
        "<nil>: Invalid value: null: some validation rules were not checked"
    )


def test_a_rule_compares_an_item_of_a_map_with_what_it_was(shop):
    shop.create(ORDERS, order(lines=[{"name": "x", "count": 2}, {"name": "y", "count": 5}]))
    lines = [{"name": "y", "count": 4}, {"name": "x", "count": 3}, {"name": "new", "count": 0}]
    answer = merged(shop, f"{ORDERS}/a", {"spec": {"lines": lines}})
    assert answer.causes == ["spec.lines[0]: Invalid value: a line only grows"]
    lines[0]["count"] = 5
    assert shop.patch(f"{ORDERS}/a", {"spec": {"lines": lines}})["spec"]["lines"] == lines


def test_what_was_wrong_before_stays_where_nothing_changes(api):
    loose = custom_resources.definition(
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    )
    api.create(DEFINITIONS, loose)
    api.create(ORDERS, {"metadata": {"name": "a"}, "spec": {"a": "long enough", "b": "x"}})
    strict = copy.deepcopy(loose)
    inner = strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    inner["properties"]["a"]["maxLength"] = 3
    current = api.get(f"{DEFINITIONS}/orders.shop.example")
    api.put(f"{DEFINITIONS}/orders.shop.example", current | {"spec": strict["spec"]})
    assert api.patch(f"{ORDERS}/a", {"spec": {"b": "y"}})["spec"]["b"] == "y"
    answer = merged(api, f"{ORDERS}/a", {"spec": {"a": "still long"}})
    assert answer.causes == ["spec.a: Too long: may not be more than 3 bytes"]


def test_the_status_is_written_alone_and_the_generation_counts_the_rest(shop):
    shop.create(ORDERS, order() | {"status": {"conditions": []}})
    assert "status" not in shop.get(f"{ORDERS}/a")
    changed = {"spec": {"size": 5}, "status": {"conditions": [{"type": "Ready"}], "x": 1}}
    told = shop.patch(f"{ORDERS}/a/status", changed)
    assert (told["spec"]["size"], told["metadata"]["generation"]) == (3, 1)
    assert told["status"] == {"conditions": [{"type": "Ready"}]}
    again = shop.patch(f"{ORDERS}/a", {"spec": {"size": 5}, "status": {"conditions": []}})
    assert (again["status"], again["metadata"]["generation"]) == (told["status"], 2)


def test_a_wrong_status_is_refused(shop):
    shop.create(ORDERS, order())
    answer = merged(shop, f"{ORDERS}/a/status", {"status": {"conditions": "none"}})
    assert answer.status == 422
    assert "must be of type array" in answer.causes[0]


def test_without_a_subresource_the_status_is_a_field_like_others(api):
    api.create(DEFINITIONS, custom_resources.definition(subresources={}))
    body = api.create(ORDERS, order() | {"status": {"conditions": []}})
    assert body["status"] == {"conditions": []}
    assert merged(api, f"{ORDERS}/a/status", {"status": {}}).status == 404
    changed = api.patch(f"{ORDERS}/a", {"status": {"conditions": [{"type": "Ready"}]}})
    assert changed["metadata"]["generation"] == 2


def test_each_version_has_a_schema_of_its_own(api):
    body = custom_resources.definition()
    older = copy.deepcopy(body["spec"]["versions"][0]) | {"name": "v1beta1", "storage": False}
    spec = older["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"]["maximum"] = 3
    older["additionalPrinterColumns"] = []
    body["spec"]["versions"].append(older)
    api.create(DEFINITIONS, body)
    beta = ORDERS.replace("/v1/", "/v1beta1/")
    assert api.send("POST", beta, order(size=5)).status == 422
    assert api.create(ORDERS, order(size=5))["spec"]["size"] == 5
    assert api.get(f"{beta}/a")["apiVersion"] == "shop.example/v1beta1"


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_columns_are_those_of_the_definition(shop):
    shop.create(ORDERS, order(gift=True))
    ready = {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}
    shop.patch(f"{ORDERS}/a/status", {"status": ready})
    shop.create(ORDERS, order("b"))
    table = shop.send("GET", ORDERS, headers={"accept": TABLE}).body
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0), ("Size", "integer", 0), ("Ready", "string", 0),
        ("Gift", "boolean", 1), ("Age", "date", 0),
    ]  # fmt: skip
    cells = [row["cells"][:4] for row in table["rows"]]
    assert cells == [["a", 3, "True", True], ["b", 3, None, None]]


def test_openapi_has_the_schema(shop):
    document = shop.get("/openapi/v3/apis/shop.example/v1")
    (schema,) = document["components"]["schemas"].values()
    spec = schema["properties"]["spec"]["properties"]
    assert spec["colour"]["enum"] == ["red", "green"]
    assert schema["properties"]["metadata"]["type"] == "object"
