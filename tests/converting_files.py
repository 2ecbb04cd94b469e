"""Manifests that ask for a share as HAMi has it, written in the ways that people write YAML."""

import difflib
import re

PLAIN = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
  - name: main
    image: busybox
    resources:
      limits:
        nvidia.com/gpu: 1
        nvidia.com/gpumem: 3000
"""

HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: train}\n"


def changes(before, after):
    """Lines that went (`- `) and came (`+ `), in order, without the templates that came first."""
    found = [
        line
        for line in difflib.ndiff(before.splitlines(), after.splitlines())
        if line[:2] in ("- ", "+ ")
    ]
    return [re.sub("converted-[0-9a-f]{12}", "T", line) for line in found]


def without_templates(text):
    """The text without the documents of templates that stand in it."""
    pattern = (
        r"apiVersion: resource.k8s.io/v1\r?\nkind: ResourceClaimTemplate\r?\n(?:(?!---).*\r?\n)*"
        r"---\r?\n"
    )
    return re.sub(pattern, "", text)
