"""`convert` on the manifests of demo/old, whichever way they are written and given."""

import io
import json
import pathlib
import sys

import pytest
import yaml

DEMO = pathlib.Path(__file__).parents[3] / "demo" / "old"
FILES = {path.stem: path.read_text("utf-8") for path in sorted(DEMO.glob("*.yaml"))}
SLICES = ("--slices", DEMO / "cards" / "hopper.yaml")


def test_the_manifests_are_there():
    assert len(FILES) == 8


@pytest.fixture(params=FILES)
def text(request):
    return FILES[request.param]


def test_what_was_made_of_them_has_nothing_more_to_convert(convert, save, text):
    status, out, err = convert("-f", save(text), *SLICES)
    assert status == 0, err
    assert out != text
    assert convert("-f", save(out), *SLICES, "--check")[0] == 0
    assert convert("-f", save(out), *SLICES)[1] == out


def test_without_slices_they_are_converted_wholly_or_not_at_all(convert, save, text):
    status, out, err = convert("-f", save(text))
    assert (status == 1) == (not out) == ("nothing was converted" in err)


def test_lines_that_end_otherwise_go_on_doing_so(convert, save, text):
    wanted = convert("-f", save(text), *SLICES)[1]
    out = convert("-f", save(text.replace("\n", "\r\n")), *SLICES)[1]
    assert out == wanted.replace("\n", "\r\n")


def test_written_to_files_they_are_what_is_printed(convert, save, text):
    path = save(text)
    wanted = convert("-f", path, *SLICES)[1]
    assert convert("-f", path, *SLICES, "--write")[0] == 0
    assert path.read_text("utf-8") == wanted


def test_from_the_standard_input_they_are_the_same(convert, save, text, monkeypatch):
    wanted = convert("-f", save(text), *SLICES)[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert convert("-f", "-", *SLICES)[1] == wanted


def test_as_json_they_become_the_same_objects(convert, save, text):
    wanted = list(yaml.safe_load_all(convert("-f", save(text), *SLICES)[1]))
    given = "\n".join(json.dumps(body, indent=2) for body in yaml.safe_load_all(text))
    _, out, _ = convert("-f", save(given, "all.json"), *SLICES)
    decoder, found = json.JSONDecoder(), []
    while out.strip():
        body, end = decoder.raw_decode(out.lstrip())
        out = out.lstrip()[end:]
        found.append(body)
    assert found == wanted


def test_as_items_of_a_list_they_become_the_same_objects(convert, save, text):
    wanted = list(yaml.safe_load_all(convert("-f", save(text), *SLICES)[1]))
    given = {"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(text))}
    _, out, _ = convert("-f", save(yaml.safe_dump(given, sort_keys=False)), *SLICES)
    assert yaml.safe_load(out)["items"] == wanted


def test_a_file_for_each_object_gives_the_same_objects(convert, save, text):
    wanted = list(yaml.safe_load_all(convert("-f", save(text), *SLICES)[1]))
    for number, body in enumerate(yaml.safe_load_all(text)):
        folder = save(yaml.safe_dump(body, sort_keys=False), f"in/{number:02}.yaml").parent
    _, out, _ = convert("-f", folder, *SLICES)
    assert list(yaml.safe_load_all(out)) == wanted
