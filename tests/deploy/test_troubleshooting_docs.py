"""docs/troubleshooting.md: each message that it quotes is one that the driver has."""

import ast
import functools
import re

import chart
import pytest
import yaml

ROOT = chart.DEPLOY.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
OF_KUBERNETES = {
    "violates PodSecurity": "PodSecurity admission",
    "insufficient quota to match these scopes": "ResourceQuota admission",
    "exceeded quota: dra-driver-pods": "ResourceQuota admission, with the quota's name",
    'failed calling webhook "configs.gpu.nvidia.com"': "API server, with the webhook's name",
    'no matches for kind "ResourceClaim"': "kubectl",
    "cannot allocate all claims": "kube-scheduler, plugin dynamicresources",
    "no such key: …": "cel-go",
    "Insufficient nvidia.com/gpu": "kube-scheduler, plugin noderesources",
    "DRA driver gpu.nvidia.com is not registered": "kubelet, with the driver's name",
    "old ResourceClaim with same name": "kubelet",
    "unresolvable CDI devices": "CDI library of the container runtime",
    "nvidia-smi: command not found": "a shell",
    "libcuda.so.1: cannot open shared object file": "a loader",
    "cudaErrorMpsRpcFailure": "CUDA",
    "cudaErrorDevicesUnavailable": "CUDA",
}
"""Messages of others, and whose."""
_LEAST = 8


def rows():
    """The first cell of each row, and all of it."""
    for line in PAGE.splitlines():
        cells = re.split(r"\s+\|\s+", line.strip("| "))
        if line.startswith("|") and cells[0] != "message" and not line.startswith("|--"):
            yield cells[0], line


def messages():
    return [(text, cell, line) for cell, line in rows() for text in re.findall(r"`(.+?)`", cell)]


@functools.cache
def texts():
    """All string literals of the package without docstrings, those of f-strings in their parts."""
    found = []
    for path in (ROOT / "dra_driver").rglob("*.py"):
        if "sim" in path.relative_to(ROOT).parts:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        found += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ]
    templates = [path.read_text("utf-8") for path in (chart.PATH / "templates").iterdir()]
    # What a template formats differs.
    return [*found, *(part for text in templates for part in re.split(r"%[dsqv]", text))]


def is_there(fragment):
    return any(fragment in text for text in texts())


OURS = [text for text, *_ in messages() if text not in OF_KUBERNETES]


@pytest.mark.parametrize("text", OURS)
def test_a_message_is_one_of_the_driver_or_its_chart(text):
    fragments = [part.strip(" …") for part in text.split("…")]
    fragments = [part for part in fragments if part]
    assert max(map(len, fragments)) >= _LEAST or text in ("not ready", "Pending")
    assert all(is_there(fragment) for fragment in fragments)


@pytest.mark.parametrize("text", OF_KUBERNETES)
def test_a_message_of_others_is_told_as_that(text):
    lines = [line for found, _, line in messages() if found == text]
    assert lines
    is_seen_in_containers = OF_KUBERNETES[text] in ("a shell", "a loader", "CUDA")
    assert is_seen_in_containers or all("**K**" in line for line in lines)


def test_there_are_more_than_ten_of_the_driver():
    assert len(OURS) > 20


def test_the_remedies_name_values_of_the_chart():
    values = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
    named = set(re.findall(r"`((?:settings|kubeletPlugin|admissionPolicy)\.\w+)[=`]", PAGE))
    assert len(named) > 5
    for name in named:
        top, _, key = name.partition(".")
        assert key in values[top], name


def test_links_lead_to_pages_and_their_sections():
    for target, _, anchor in re.findall(r"\]\(([\w-]+\.md)(#([\w-]+))?\)", PAGE):
        page = (ROOT / "docs" / target).read_text("utf-8")
        if anchor:
            titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


def test_what_the_readme_has_is_here_too():
    [table] = re.findall(
        r"^## Troubleshooting\n.*?\n\n(\|.*?)\n\n", README, re.MULTILINE | re.DOTALL
    )
    quoted = [
        text for row in table.splitlines() for text in re.findall(r"`(.+?)`", row.split(" | ")[0])
    ]
    assert 5 <= len(quoted) <= 8
    for text in quoted:
        assert text in PAGE, text


def test_the_readme_leads_to_the_page():
    assert "](docs/troubleshooting.md)" in README
