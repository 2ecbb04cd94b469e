"""The models and the schemas that are made from them."""

import pathlib
import runpy

import config_cases
import jsonschema
import pytest

from dra_driver import errors
from dra_driver.model import configs, sharing

CRDS = pathlib.Path(__file__).parents[2] / "crds"
SCHEMAS = {kind: configs.schema(kind) for kind in sharing.Kind}


def refusals(parameters):
    schema = SCHEMAS[sharing.Kind(parameters["kind"])]
    return list(jsonschema.Draft202012Validator(schema).iter_errors(parameters))


def test_the_files_are_what_is_generated():
    texts = runpy.run_path(str(CRDS / "generate.py"))["texts"]()
    schemas = {name: text for name, text in texts.items() if name.endswith(".json")}
    assert {path.name: path.read_text() for path in CRDS.glob("*.json")} == schemas
    assert set(schemas) == {
        "gpuconfig.schema.json",
        "migdeviceconfig.schema.json",
        "vfiodeviceconfig.schema.json",
    }


@pytest.mark.parametrize("kind", sharing.Kind)
def test_a_schema_is_one(kind):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])


@pytest.mark.parametrize("kind", sharing.Kind)
def test_every_field_of_a_schema_says_what_is_allowed(kind):
    holders = [SCHEMAS[kind], *SCHEMAS[kind].get("$defs", {}).values()]
    for holder in holders:
        assert holder["additionalProperties"] is False
        for name, field in holder["properties"].items():
            assert field["description"], name
            assert field.get("deprecated", False) is (name in configs.ALIASES)


@pytest.mark.parametrize("case", config_cases.LEGAL)
def test_a_schema_accepts_what_is_legal(case):
    parameters, config = config_cases.LEGAL[case]
    assert refusals(parameters) == []
    assert not isinstance(configs.read(config.kind, parameters, 10), configs.Refused)


@pytest.mark.parametrize("case", config_cases.ILLEGAL)
def test_a_schema_refuses_what_is_illegal_as_far_as_it_can_say_it(case):
    illegal = config_cases.ILLEGAL[case]
    assert bool(refusals(illegal.parameters)) is illegal.by_schema


@pytest.mark.parametrize("older", configs.ALIASES)
def test_an_older_name_stands_beside_the_newer_one(older):
    holders = SCHEMAS[sharing.Kind.GPU]["$defs"].values()
    (holder,) = [holder for holder in holders if older in holder["properties"]]
    newer = holder["properties"][configs.ALIASES[older]]
    assert holder["properties"][older] == newer | {
        "deprecated": True,
        "description": f"{newer['description']} (older name of {configs.ALIASES[older]})",
    }


def test_memory_is_rounded_down_to_whole_mebibytes():
    assert configs.mebibytes("1.5Mi") == 2**20
    assert configs.mebibytes(2**21 - 1) == 2**20
    assert configs.mebibytes("1e7") == 9 * 2**20
    assert configs.mebibytes(2.5e6) == 2 * 2**20


@pytest.mark.parametrize("value", ["0.9Mi", "-5Gi", 0, "500m"])
def test_memory_below_a_mebibyte_is_no_limit(value):
    with pytest.raises(errors.Rejected, match="write at least 1Mi"):
        configs.mebibytes(value)


@pytest.mark.parametrize("value", [None, True, "much", "", [], float("nan"), float("inf")])
def test_what_is_no_quantity_is_no_limit(value):
    with pytest.raises(errors.Rejected, match="write a quantity of memory, for example 10Gi"):
        configs.mebibytes(value)
