"""docs/explain.md: every mistake is run through explain, every remedy and recipe fits."""

import dataclasses
import json
import pathlib
import re

import pytest
import yaml

from dra_driver import cli

DOCS = pathlib.Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass
class Mistake:
    title: str
    wrong: list[tuple[str, list[str]]]
    right: tuple[str, str]


def blocks(text):
    return [(found["info"].split(), found["text"].strip()) for found in BLOCK.finditer(text)]


def parse(section):
    title, wrong, right = section.partition("\n")[0], [], None
    for info, text in blocks(section):
        match info:
            case ["cel", "wrong"]:
                wrong.append((text, []))
            case ["text"]:
                wrong[-1][1].extend(text.splitlines())
            case ["cel", "right", *device_class]:
                right = (text, *device_class)
    return Mistake(title, wrong, right)


PAGE = (DOCS / "explain.md").read_text()
MISTAKES_TEXT, RECIPES_TEXT = PAGE.split("## Ten mistakes")[1].split("## Recipes")
MISTAKES = [parse(section) for section in MISTAKES_TEXT.split("\n### ")[1:]]
RECIPES = [
    (text, *info[2:]) for info, text in blocks(RECIPES_TEXT) if info[:2] == ["cel", "recipe"]
]
MANIFESTS = [text for info, text in blocks(RECIPES_TEXT) if info == ["yaml"]]


@pytest.fixture
def explain(capsys, tmp_path):
    def run(manifest):
        """Exit status and explanation."""
        path = tmp_path / "claim.yaml"
        path.write_text(manifest)
        arguments = ["explain", "--slices", str(DOCS / "explain-fleet.yaml"), "-f", str(path)]
        with pytest.raises(SystemExit) as ended:
            cli.main([*arguments, "--output", "json"])
        return ended.value.code, json.loads(capsys.readouterr().out)["explanations"][0]

    return run


def claim(expression, device_class="gpu.nvidia.com"):
    wanted = {"deviceClassName": device_class, "selectors": [{"cel": {"expression": expression}}]}
    return yaml.safe_dump({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}},
    })  # fmt: skip


def texts(value):
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)


def test_there_are_ten_mistakes_and_recipes():
    assert [mistake.title.split(".")[0] for mistake in MISTAKES] == [str(n) for n in range(1, 11)]
    assert len(RECIPES) == 5
    assert len(MANIFESTS) == 2


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_told_as_the_page_says(explain, mistake):
    assert mistake.wrong
    for expression, told in mistake.wrong:
        status, explanation = explain(claim(expression))
        assert status == 2
        said = list(texts(explanation))
        assert told
        for line in told:
            assert any(line in text for text in said), (line, said)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_remedy_fits(explain, mistake):
    assert explain(claim(*mistake.right))[0] == 0


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[0][:40])
def test_a_recipe_fits_some_nodes_and_not_all(explain, recipe):
    status, explanation = explain(claim(*recipe))
    assert status == 0
    assert 0 < len(explanation["options"]) < 4


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_fits(explain, manifest):
    assert explain(manifest)[0] == 0
