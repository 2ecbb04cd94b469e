"""Writes deploy/manifests from the Helm chart, with its default values: `make manifests`."""  # noqa: INP001

import pathlib
import sys

import helm_python

ROOT = pathlib.Path(__file__).parent
CHART = ROOT / "helm" / "dra-driver"
MANIFESTS = ROOT / "manifests"
NAMESPACE = "dra-driver"
_HEADER = "# Rendered from deploy/helm/dra-driver with its default values; see docs/install.md.\n"
_NAMESPACE = f"""{_HEADER}apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    # The kubelet plugin is privileged.
    pod-security.kubernetes.io/enforce: privileged
"""


def rendered() -> dict[str, str]:
    """The text of each manifest, by file name."""
    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render({}, name="dra-driver", namespace=NAMESPACE)
    files = {
        pathlib.PurePath(path).name: f"{_HEADER}{text.strip()}\n"
        for path, text in texts.items()
        if path.endswith(".yaml") and text.strip()
    }
    # `kubectl apply -f FOLDER` goes by name: the namespace has to be first.
    return {"0-namespace.yaml": _NAMESPACE, **files}


def main() -> int:
    """Write the files, and remove those that are no longer rendered."""
    MANIFESTS.mkdir(exist_ok=True)
    files = rendered()
    for path in MANIFESTS.glob("*.yaml"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (MANIFESTS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
