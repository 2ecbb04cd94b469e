"""`dra-driver convert` as a whole: which files, what is told, and how it ends."""

import io
import json
import os
import sys

import converting_files
import pytest
import yaml

PLAIN = converting_files.PLAIN
WHOLE = PLAIN.replace("        nvidia.com/gpumem: 3000\n", "")
BAD = PLAIN.replace("3000", "-1")
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"


def test_what_was_made_is_converted_no_further(convert, save):
    _, out, _ = convert("-f", save(PLAIN))
    path = save(out)
    assert convert("-f", path)[:2] == (0, out)
    assert convert("-f", path, "--check")[0] == 0


@pytest.mark.parametrize(
    ("text", "status"), [(SERVICE, 0), (WHOLE, 0), ("", 0), (PLAIN, 2), (BAD, 1), ("a: [", 1)]
)
def test_check_tells_by_the_exit_status_and_prints_no_manifests(convert, save, text, status):
    path = save(text)
    found, out, err = convert("-f", path, "--check")
    assert (found, out) == (status, "")
    assert (f"{path}: there is something to convert\n" in err) == (status == 2)
    assert path.read_text() == text


def test_whole_gpus_are_converted_when_it_is_asked_for(convert, save):
    path = save(WHOLE)
    assert convert("-f", path)[1] == WHOLE
    _, out, _ = convert("-f", path, "--whole-gpus")
    template, pod = yaml.safe_load_all(out)
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    assert pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu-main"}]}


def test_shares_are_of_the_class_that_is_named(convert, save):
    _, out, _ = convert("-f", save(PLAIN), "--share-class", "shares.example.com")
    assert "deviceClassName: shares.example.com" in out


def test_templates_say_who_made_them_and_have_the_namespace_of_the_object(convert, save):
    text = PLAIN.replace("name: train", "name: train\n  namespace: team-a")
    template, pod = yaml.safe_load_all(convert("-f", save(text))[1])
    assert template["metadata"] == {
        "name": pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"],
        "namespace": "team-a",
        "labels": {"dra-driver.dev/converted": "command"},
    }


def test_equal_asks_have_one_template_in_each_namespace(convert, save):
    other = PLAIN.replace("name: train", "name: other")
    far = PLAIN.replace("name: train", "name: far\n  namespace: b")
    out = convert("-f", save(f"{PLAIN}---\n{other}---\n{far}"))[1]
    kinds = [(body["kind"], body["metadata"].get("namespace")) for body in yaml.safe_load_all(out)]
    assert kinds == [
        ("ResourceClaimTemplate", None), ("Pod", None), ("Pod", None),
        ("ResourceClaimTemplate", "b"), ("Pod", "b"),
    ]  # fmt: skip


def test_a_template_that_is_in_the_files_is_not_written_again(convert, save):
    template, _ = convert("-f", save(PLAIN))[1].split("---\n")
    out = convert("-f", save(template, "a.yaml"), "-f", save(PLAIN, "b.yaml"))[1]
    assert out.count("kind: ResourceClaimTemplate") == 1


def test_a_folder_is_gone_through_by_name_and_links_are_not_followed(convert, save, tmp_path):
    save(PLAIN, "in/b.yaml")
    save(SERVICE, "in/a/deep/c.yml")
    save(json.dumps(yaml.safe_load(SERVICE)), "in/z.json")
    save("not: [read", "in/notes.txt")
    outside = save("broken: [", "out/x.yaml")
    (tmp_path / "in/link.yaml").symlink_to(outside)
    (tmp_path / "in/folder").symlink_to(outside.parent)
    status, out, _ = convert("-f", tmp_path / "in")
    assert status == 0
    kinds = [body["kind"] for body in yaml.safe_load_all(out)]
    assert kinds == ["Service", "ResourceClaimTemplate", "Pod", "Service"]


def test_a_file_that_is_named_twice_is_read_once(convert, save, tmp_path):
    path = save(PLAIN)
    assert convert("-f", path, "-f", tmp_path, "-f", path)[1] == convert("-f", path)[1]


def test_a_folder_without_manifests_is_told(convert, tmp_path):
    status, out, err = convert("-f", tmp_path)
    assert (status, out) == (1, "")
    assert f"{tmp_path}: the folder has no .yaml, .yml, .json file" in err


def test_a_name_that_is_empty_is_not_the_folder_that_one_is_in(convert, save, monkeypatch):
    monkeypatch.chdir(save(PLAIN).parent)
    status, out, err = convert("-f", "")
    assert (status, out) == (1, "")
    assert "-f: an empty name" in err


def test_a_folder_that_cannot_be_read_is_not_passed_over(convert, save, monkeypatch):
    folder = save(PLAIN).parent
    (folder / "closed").mkdir()
    real = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    status, out, err = convert("-f", folder)
    assert (status, out) == (1, "")
    assert f"{folder}/closed: the folder cannot be read: Permission denied" in err


def test_files_make_one_stream_with_a_marker_between_them(convert, save):
    plain, bare = save(SERVICE, "a.yaml"), save(SERVICE.removesuffix("\n"), "b.yaml")
    marked = save(f"---\n{SERVICE}", "c.yaml")
    directed = save(f"# a\n%YAML 1.1\n---\n{SERVICE}", "d.yaml")
    names = [part for each in (bare, plain, marked, directed) for part in ("-f", each)]
    _, out, _ = convert(*names)
    between = f"---\n{SERVICE}"
    assert out == f"{SERVICE}{between}{between}...\n# a\n%YAML 1.1\n{between}"
    assert len(list(yaml.safe_load_all(out))) == 4


def test_a_file_that_is_not_there_is_told(convert, tmp_path):
    status, _, err = convert("-f", tmp_path / "none.yaml")
    assert status == 1
    assert "none.yaml: it cannot be read: No such file or directory" in err


def test_manifests_are_read_from_the_standard_input(convert, save, monkeypatch):
    wanted = convert("-f", save(PLAIN))[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN.encode())))
    assert convert("-f", "-")[:2] == (0, wanted)


def test_with_a_problem_in_one_file_all_are_told_and_nothing_is_printed(convert, save):
    save(PLAIN, "in/a.yaml")
    bad = save(BAD, "in/b.yaml")
    worse = save("{{ x }}: {", "in/c.yaml")
    status, out, err = convert("-f", bad.parent)
    assert (status, out) == (1, "")
    assert f"dra-driver: {bad}: Pod train: container main: nvidia.com/gpumem: " in err
    assert f"dra-driver: {worse}: " in err
    assert err.endswith("dra-driver: nothing was converted\n")


def test_explain_shows_what_becomes_of_what_as_a_table(convert, save):
    status, out, err = convert("-f", save(f"{SERVICE}---\n{PLAIN}"), "--explain")
    assert (status, err) == (0, "")
    head, row, *_ = (
        line for line in out.splitlines() if "container" in line or "Pod train" in line
    )
    assert head.split() == ["object", "container", "asked", "becomes"]
    assert row.startswith("Pod train   main        nvidia.com/gpu: 1, ")
    assert "\nWarnings\n" in out
    assert "claim gpu-main" in out
    assert "kind: Pod" not in out
    assert "\x1b" not in out


def test_explain_shows_what_is_refused_and_ends_with_1(convert, save):
    status, out, err = convert("-f", save(BAD), "--explain")
    assert (status, err) == (1, "")
    assert "Refused\n" in out
    assert "Nothing is converted.\n" in out


def test_explain_is_json_for_a_program(convert, save):
    status, out, _ = convert("-f", save(PLAIN), "--explain", "--output", "json")
    assert status == 0
    body = json.loads(out)
    assert sorted(body) == ["lines", "notes", "problems", "warnings"]
    [line] = body["lines"]
    assert (line["object"], line["where"]) == ("Pod train", "container main")
    assert "claim gpu-main" in line["becomes"]


def test_explain_with_check_ends_as_check_does(convert, save):
    assert convert("-f", save(PLAIN), "--explain", "--check")[0] == 2


def test_steering_characters_of_a_manifest_do_not_reach_the_terminal(convert, save):
    text = PLAIN.replace("name: train", 'name: "tr\\e[31main"')
    _, out, _ = convert("-f", save(text), "--explain")
    assert "\x1b" not in out
    assert "\\u001b" in out


WORKER = """\
apiVersion: example.com/v1
kind: Training
metadata: {name: t}
spec:
  worker:
    template:
      spec:
        containers:
        - name: main
          resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}
"""


def test_a_pod_template_elsewhere_is_told_and_converted_when_it_is_named(convert, save):
    path = save(WORKER)
    status, out, err = convert("-f", path)
    assert (status, out) == (0, WORKER)
    assert "give --template-path spec.worker.template if it is one" in err
    _, out, err = convert("-f", path, "--template-path", "spec.worker.template")
    assert "claims: [{name: gpu-main}]" in out
    assert "--template-path" not in err


MISUSE = {
    "--output is of --explain": ("--output", "json"),
    "--write changes files": ("-f", "-", "--write"),
    "not allowed with argument": ("--write", "--check"),
    "'0': write a number from 1 to 100": ("--replicas", "0"),
    "'a..b': write keys with dots": ("--template-path", "a..b"),
    "the following arguments are required": None,
}


@pytest.mark.parametrize("message", MISUSE)
def test_misuse_is_told_and_ends_with_2(convert, save, message):
    arguments = MISUSE[message]
    given = () if arguments is None else ("-f", save(PLAIN), *arguments)
    status, out, err = convert(*given)
    assert (status, out) == (2, "")
    assert message in err
