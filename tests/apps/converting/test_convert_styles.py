"""Manifests in the styles that people write: the lines that change are those that are meant."""

import json

import converting_files
import pytest
import yaml

CLAIM = {"name": "gpu-main"}
ASKS = "{limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 300}}"
CLAIMS = "{claims: [{name: gpu-main}]}"
ENTRIES = "resourceClaims: [{name: gpu-main, resourceClaimTemplateName: T}]"
USED = ["+       claims:", "+       - name: gpu-main"]
GONE = ["-       limits:", "-         nvidia.com/gpu: 1", "-         nvidia.com/gpumem: 3000"]
WANTED = ["+   resourceClaims:", "+   - name: gpu-main", "+     resourceClaimTemplateName: T"]

STYLES = {
    "plain": (converting_files.PLAIN, [*GONE, *USED, *WANTED]),
    "lists further to the right, by four": (
        converting_files.HEAD
        + """\
spec:
    containers:
        - name: main
          resources:
              limits:
                  nvidia.com/gpu: 1
                  nvidia.com/gpumem: 3000
          image: busybox
    restartPolicy: Never
""",
        [
            "-               limits:",
            "-                   nvidia.com/gpu: 1",
            "-                   nvidia.com/gpumem: 3000",
            "+               claims:",
            "+                   - name: gpu-main",
            "+     resourceClaims:",
            "+         - name: gpu-main",
            "+           resourceClaimTemplateName: T",
        ],
    ),
    "comments everywhere": (
        """\
# Team A
apiVersion: v1 # version
kind: Pod
# about its name
metadata: # data
  name: train # it
spec: # what
  # all of them
  containers: # one
  # the first
  - name: main # its name
    # what it takes
    resources: # some
      # up to
      limits: # these
        # a card
        nvidia.com/gpu: 1 # one
        # MiB
        nvidia.com/gpumem: 3000
        cpu: 1 # a core
    # its image
    image: busybox # small
# the end
""",
        [
            "-         nvidia.com/gpu: 1 # one",
            "-         nvidia.com/gpumem: 3000",
            *USED,
            *WANTED,
        ],
    ),
    "quotes": (
        converting_files.HEAD
        + """\
"spec":
  'containers':
  - "name": 'main'
    'resources':
      "limits":
        'nvidia.com/gpu': "1"
        "nvidia.com/gpumem": '3000'
        "memory": '1Gi'
""",
        [
            "-         'nvidia.com/gpu': \"1\"",
            "-         \"nvidia.com/gpumem\": '3000'",
            *USED,
            *WANTED,
        ],
    ),
    "brackets": (
        converting_files.HEAD
        + """\
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 1, nvidia.com/gpu: 1, nvidia.com/gpumem: 300}}}
""",
        [
            f"-   - {{name: main, resources: {ASKS.replace('{n', '{cpu: 1, n')}}}",
            "+   - {name: main, resources: {limits: {cpu: 1}, claims: [{name: gpu-main}]}}",
            *WANTED,
        ],
    ),
    "all in brackets": (
        f"{converting_files.HEAD}spec: {{containers: [{{name: main, resources: {ASKS}}}]}}\n",
        [
            f"- spec: {{containers: [{{name: main, resources: {ASKS}}}]}}",
            f"+ spec: {{containers: [{{name: main, resources: {CLAIMS}}}], {ENTRIES}}}",
        ],
    ),
    "what asks behind the dash": (
        converting_files.HEAD
        + """\
spec:
  containers:
  - resources:
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
    name: main
""",
        [*GONE, *USED, *WANTED],
    ),
    "blocks of text": (
        converting_files.HEAD
        + """\
spec:
  containers:
  - name: main
    resources:
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
    args:
    - |
      # no comment
      nvidia.com/gpu: 1
        resources:
    - >-
      folded
      text

  # behind
""",
        [*GONE, *USED, *WANTED],
    ),
    "all limits and requests": (
        converting_files.HEAD
        + """\
spec:
  containers:
  - name: main
    resources:
      requests:
        nvidia.com/gpu: 1
        cpu: 100m
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
""",
        ["-         nvidia.com/gpu: 1", *GONE, *USED, *WANTED],
    ),
    "annotations that are all gone": (
        """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  annotations:
    nvidia.com/use-gputype: A100
spec:
  containers:
  - name: main
    resources:
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
""",
        ["-   annotations:", "-     nvidia.com/use-gputype: A100", *GONE, *USED, *WANTED],
    ),
    "a claim that is there": (
        converting_files.HEAD
        + """\
spec:
  resourceClaims:
  - name: net   # the network
    resourceClaimName: net
  containers:
  - name: main
    resources:
      claims: [{name: net}]
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
""",
        [
            "+   - name: gpu-main",
            "+     resourceClaimTemplateName: T",
            "-       claims: [{name: net}]",
            "+       claims: [{name: net}, {name: gpu-main}]",
            *GONE,
        ],
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_the_lines_that_change_are_those_that_are_meant(convert, save, style):
    text, wanted = STYLES[style]
    status, out, err = convert("-f", save(text))
    assert status == 0, err
    rest = converting_files.without_templates(out)
    assert rest != out
    assert sorted(converting_files.changes(text, rest)) == sorted(wanted)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("form", ["crlf", "bom", "no end", "markers", "second"])
def test_what_is_around_an_object_stays_as_it_is(convert, save, style, form):
    text, wanted = STYLES[style]
    forms = {
        "crlf": text.replace("\n", "\r\n"),
        "bom": f"\ufeff{text}",
        "no end": text.removesuffix("\n"),
        "markers": f"# a file\n---\n{text}...\n---\n# nothing\n",
        "second": f"apiVersion: v1\nkind: Service\nmetadata: {{ name: a }} # a\n---\n{text}",
    }
    given = forms[form]
    status, out, err = convert("-f", save(given))
    assert status == 0, err
    assert ("\r\n" in out) == (form == "crlf")
    assert form != "crlf" or "\n" not in out.replace("\r\n", "")
    assert out.startswith("\ufeff") == (form == "bom")
    assert out.endswith("\n") == (form != "no end")
    rest = converting_files.without_templates(out)
    found = [each.removesuffix("\r") for each in converting_files.changes(given, rest)]
    assert sorted(found) == sorted(wanted)


def test_templates_come_right_before_the_object_behind_the_heading_of_the_file(convert, save):
    text = f"# Licence\n\n# The pod\n{converting_files.PLAIN}"
    _, out, _ = convert("-f", save(text))
    assert out.startswith(
        "# Licence\n\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate"
    )
    assert "\n---\n# The pod\napiVersion: v1\nkind: Pod\n" in out


def test_templates_come_behind_the_marker_of_a_document_with_comments(convert, save):
    text = f"kind: Other\n--- # two\n{converting_files.PLAIN}"
    _, out, _ = convert("-f", save(text))
    assert out.startswith("kind: Other\n---\napiVersion: resource.k8s.io/v1\n")
    assert "\n--- # two\napiVersion: v1\nkind: Pod" in out


def test_items_of_a_list_get_their_templates_as_items_before_them(convert, save):
    text = """\
apiVersion: v1
kind: List
# what there is
items:
- apiVersion: v1
  kind: Service
  metadata: {name: a}
# the pod
- apiVersion: v1
  kind: Pod
  metadata:
    name: train
  spec:
    containers:
    - name: main
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}
"""
    status, out, _ = convert("-f", save(text))
    assert status == 0
    items = yaml.safe_load(out)["items"]
    assert [item["kind"] for item in items] == ["Service", "ResourceClaimTemplate", "Pod"]
    gone = [line for line in converting_files.changes(text, out) if line.startswith("- ")]
    assert gone == ["-       resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}"]


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
def test_json_stays_json(convert, save, indent):
    pod = yaml.safe_load(converting_files.PLAIN)
    text = json.dumps(pod, indent=indent) + "\n"
    status, out, _ = convert("-f", save(text, "pod.json"))
    assert status == 0
    decoder = json.JSONDecoder()
    template, end = decoder.raw_decode(out)
    assert template["kind"] == "ResourceClaimTemplate"
    changed = json.loads(out[end:])
    assert changed["spec"]["containers"][0]["resources"] == {"claims": [CLAIM]}
    wanted = "".join(f"{json.dumps(body, indent=indent)}\n" for body in (template, changed))
    assert out == wanted


ALIASED = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: one
    resources: &big
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
  - name: two
    resources: *big
"""


def test_what_an_alias_stood_for_is_written_out_and_told(convert, save):
    status, out, err = convert("-f", save(ALIASED))
    assert status == 0
    *_, pod = yaml.safe_load_all(out)
    claims = [each["resources"] for each in pod["spec"]["containers"]]
    assert claims == [{"claims": [{"name": "gpu-one"}]}, {"claims": [{"name": "gpu-two"}]}]
    assert "pod.yaml, line 12: what *big stands for is written out" in err


def test_what_a_merge_took_over_is_written_out_and_told(convert, save):
    text = ALIASED.replace(
        "  - name: one\n    resources: &big", "  - &one\n    name: one\n    resources:"
    )
    text = text.replace("- name: two\n    resources: *big", "- <<: *one\n    name: two")
    status, out, err = convert("-f", save(text))
    assert status == 0
    *_, pod = yaml.safe_load_all(out)
    assert pod["spec"]["containers"] == [
        {"name": "one", "resources": {"claims": [{"name": "gpu-one"}]}},
        {"name": "two", "resources": {"claims": [{"name": "gpu-two"}]}},
    ]
    assert "what << takes over is written out" in err


def test_an_alias_of_what_stays_stays(convert, save):
    text = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  labels: &labels {app: train}
  annotations: *labels
spec:
  containers:
  - name: main
    resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}
"""
    status, out, _ = convert("-f", save(text))
    assert status == 0
    assert "  labels: &labels {app: train}\n  annotations: *labels\n" in out
