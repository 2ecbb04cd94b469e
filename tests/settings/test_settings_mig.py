"""Settings of MIG: modes, rules for some of the GPUs, packing."""

import argparse
import json

import pytest

from dra_driver import errors, settings
from dra_driver.model import mig

Plugin = settings.KubeletPlugin
NODE = {"NODE_NAME": "node-1"}
HOPPER = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"
RULES = (
    settings.GpuRule(selector=HOPPER, mig_mode=mig.Mode.STATIC),
    settings.GpuRule(selector="true", mig_mode=mig.Mode.OFF),
)
WRITTEN = [{"selector": HOPPER, "migMode": "static"}, {"selector": "true", "migMode": "off"}]


def resolve(*, file=None, environment=NODE, **flags):
    return settings.resolve(Plugin, file=file, environment=environment, flags=flags)


def refusal(**sources):
    with pytest.raises(errors.Fatal) as caught:
        resolve(**sources)
    return str(caught.value)


@pytest.mark.parametrize("mode", mig.Mode)
def test_a_mode_is_a_word(mode):
    assert resolve(mig_mode=str(mode)).mig_mode is mode


@pytest.mark.parametrize(
    "sources",
    [
        {"file": {"gpus": WRITTEN}},
        {"gpus": json.dumps(WRITTEN)},
        {"environment": NODE | {"DRA_DRIVER_GPUS": json.dumps(WRITTEN)}},
        {"file": {"gpus": json.dumps(WRITTEN)}},
    ],
    ids=["file", "flag", "variable", "JSON in the file"],
)
def test_rules_come_as_a_list_from_the_file_and_as_json_from_elsewhere(sources):
    assert resolve(**sources).gpus == RULES


def test_rules_of_a_flag_take_the_place_of_those_in_the_file():
    assert resolve(file={"gpus": WRITTEN}, gpus=json.dumps(WRITTEN[1:])).gpus == RULES[1:]


@pytest.mark.parametrize("empty", ["", "[]"])
def test_an_empty_text_is_no_rules(empty):
    assert resolve(file={"gpus": WRITTEN}, gpus=empty).gpus == ()


@pytest.mark.parametrize(
    ("given", "source", "problem"),
    [
        ({"gpus": "[{"}, "flag --gpus: '[{': ", "not JSON: "),
        ({"gpus": "true == true"}, "flag --gpus: ", "not JSON: "),
        ({"gpus": "{}"}, "flag --gpus: {}: ", "Input should be a valid tuple"),
        (
            {"environment": NODE | {"DRA_DRIVER_GPUS": "x"}},
            "environment variable DRA_DRIVER_GPUS: 'x': ", "not JSON: ",
        ),
        (
            {"file": {"gpus": [WRITTEN[0], {"selector": "true", "migMode": "on"}]}},
            "gpus in the settings file, at [1].migMode: 'on': ", "'dynamic', 'static' or 'off'",
        ),
        (
            {"file": {"gpus": [{"selector": "", "migMode": "off"}]}},
            "gpus in the settings file, at [0].selector: '': ", "at least 1 character",
        ),
        (
            {"file": {"gpus": [{"migMode": "off"}]}},
            "gpus in the settings file, at [0].selector: {'migMode': 'off'}: ", "required",
        ),
        (
            {"file": {"gpus": [{"selector": "true", "migMode": "off", "mode": 1}]}},
            "gpus in the settings file, at [0].mode: 1: ", "key is unknown; known are selector",
        ),
        ({"mig_mode": "on"}, "flag --mig-mode: 'on': ", "'dynamic', 'static' or 'off'"),
        ({"packing": "tight"}, "flag --packing: 'tight': ", "'pack', 'spread' or 'adaptive'"),
        ({"repacking_seconds": "-1"}, "flag --repacking-seconds: '-1': ", "greater than or equal"),
        ({"adopt_foreign_mig": "maybe"}, "flag --adopt-foreign-mig: 'maybe': ", "valid boolean"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_told_with_its_source(given, source, problem):
    text = refusal(**given)
    assert text.startswith(source)
    assert problem in text


@pytest.mark.parametrize(
    ("words", "adopts"),
    [
        ([], False),
        (["--adopt-foreign-mig"], True),
        (["--adopt-foreign-mig=true"], True),
        (["--adopt-foreign-mig", "false"], False),
        (["--adopt-foreign-mig", "--mig-mode", "static"], True),
    ],
)
def test_a_switch_alone_is_a_switch_that_is_on(words, adopts):
    parser = argparse.ArgumentParser(prog="x", allow_abbrev=False)
    settings.add_flags(parser, Plugin)
    flags = vars(parser.parse_args(words))
    del flags["config"]
    assert resolve(**flags).adopt_foreign_mig is adopts


def test_a_switch_of_the_file_can_be_put_off_again():
    file = {"adoptForeignMig": True}
    assert resolve(file=file).adopt_foreign_mig is True
    assert resolve(file=file, adopt_foreign_mig="false").adopt_foreign_mig is False
    assert resolve(environment=NODE | {"DRA_DRIVER_ADOPT_FOREIGN_MIG": "1"}).adopt_foreign_mig


def test_an_order_may_change_at_once():
    assert resolve(repacking_seconds="0").repacking_seconds == 0
