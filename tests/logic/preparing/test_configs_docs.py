"""docs/configs.md: examples are legal, mistakes are told as it says, no field is missing."""

import pathlib
import re

import pytest
import yaml

from dra_driver import errors
from dra_driver.logic.preparing import config_checks, config_choice, configs
from dra_driver.model import claims, sharing, slices
from dra_driver.model import configs as wire

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "configs.md").read_text()
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(found["info"], found["text"].strip()) for found in BLOCK.finditer(PAGE)]
GPU, MIG, _ = sharing.DeviceType


def texts(info):
    return [text for found, text in BLOCKS if found == info]


def decode(text):
    return configs.decode(yaml.safe_load(text), path="docs")


@pytest.mark.parametrize("text", texts("yaml parameters"))
def test_an_example_is_legal(text):
    assert decode(text).settings is not None


def test_the_first_example_gives_each_process_what_the_page_says():
    (manifest,) = texts("yaml")
    (entry,) = yaml.safe_load(manifest)["spec"]["devices"]["config"]
    settings = configs.decode(entry["opaque"]["parameters"], path="docs").settings
    assert settings == sharing.Mps(thread_percentage=50, memory_limit=20 * 2**30, max_clients=2)
    assert config_checks.memory_limits(settings, ["GPU-0"]) == {"GPU-0": 10 * 2**30}


def test_a_mistake_is_told_as_the_page_says():
    wrong, told = texts("yaml wrong"), texts("text")
    assert len(wrong) == len(told) == 4
    for text, lines in zip(wrong, told, strict=True):
        with pytest.raises(configs.InvalidConfig) as caught:
            decode(text)
        assert [str(problem) for problem in caught.value.problems] == lines.splitlines()


def test_a_kind_that_does_not_fit_is_told_as_the_page_says():
    entry = config_choice.Entry(sharing.Config(sharing.Kind.GPU), "FromClaim", 0, ("part",))
    result = claims.Result("part", slices.DeviceId("d", "p", "gpu-0-mig-1g10gb-19-0"))
    with pytest.raises(errors.Rejected) as caught:
        config_choice.for_result([entry], result, MIG)
    assert texts("text choice") == [str(caught.value)]


def test_what_shows_with_the_devices_is_told_as_the_page_says():
    def card(minor, capability):
        return config_checks.Facts(f"gpu-{minor}", GPU, f"GPU-{minor}", capability, 80 * 2**30)

    h100, p100, k10 = card(0, (9, 0)), card(1, (6, 1)), card(2, (3, 0))
    mps = sharing.Mps(memory_limit=100 * 2**30, per_device={"3": 2**30})
    told = [
        str(problem)
        for settings, device in (
            (sharing.TimeSlicing(), p100),
            (sharing.Mps(), k10),
            (sharing.Mps(multi_user=True), p100),
            (sharing.Mps(memory_limit=mps.memory_limit), h100),
            (sharing.Mps(per_device=mps.per_device), h100),
        )
        for problem in config_checks.problems(sharing.Config(sharing.Kind.GPU, settings), [device])
    ]
    assert texts("text devices") == ["\n".join(told)]


def test_every_field_and_value_is_on_the_page():
    for kind in sharing.Kind:
        schema = wire.schema(kind)
        for holder in schema.get("$defs", {}).values():
            for name, field in holder["properties"].items():
                assert re.search(rf"`([a-zA-Z]+\.)?{name}`", PAGE), name
                for value in field.get("anyOf", [{}])[0].get("enum", []):
                    assert f"`{value}`" in PAGE, value
