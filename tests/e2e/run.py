"""Run the end-to-end cases on the cluster of a kubeconfig; see docs/e2e.md.

python tests/e2e/run.py --dry-run
python tests/e2e/run.py --image registry.example.com/dra-driver:0.1.0 -- -k faults
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import e2e_installing
import e2e_site
import pytest

from dra_driver import errors
from dra_driver.adapters.kube import kube

FOLDER = pathlib.Path(__file__).parent
_DEFAULTS = e2e_site.Options(pathlib.Path())


def main(arguments: list[str]) -> int:
    """The exit status: that of pytest, or 2 where nothing was done."""
    given = _parser().parse_args(arguments)
    try:
        site = e2e_site.Site(_options(given))
    except errors.DriverError as error:
        return _refuse(f"{given.kubeconfig}: {error}")
    try:
        if not site.nodes:
            return _refuse(
                f"no node has the label {given.label}, and the driver is put on no other: "
                f"kubectl label node NAME {given.label}=true"
            )
        foreign = e2e_installing.foreign(site)
        _show(site, foreign)
        if given.dry_run:
            return 0
        if foreign and not given.yes and not _agreed():
            return _refuse("nothing was done; --yes says that all of this may be taken away")
    finally:
        site.close()
    return _run(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Lines)
    kubeconfig = os.environ.get("KUBECONFIG") or str(pathlib.Path.home() / ".kube" / "config")
    parser.add_argument("--kubeconfig", default=kubeconfig, help="default: %(default)s")
    parser.add_argument(
        "--label", default=_DEFAULTS.label, help="of the nodes with simulated GPUs: %(default)s"
    )
    parser.add_argument(
        "--namespace", default=_DEFAULTS.namespace, help="that the driver gets: %(default)s"
    )
    parser.add_argument("--image", default=_DEFAULTS.image, help="of the driver: %(default)s")
    parser.add_argument(
        "--pod-image", default=_DEFAULTS.pod_image, help="with a shell, of pods: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=_DEFAULTS.seconds,
        help="that anything may take: %(default)s",
    )  # fmt: skip
    parser.add_argument("--report", default="build/e2e", help="folder of junit.xml: %(default)s")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask about what is there already")
    parser.add_argument("pytest", nargs="*", help="after --: arguments of pytest")
    return parser


class _Lines(argparse.RawDescriptionHelpFormatter):
    """The description as it is written."""


def _options(given: argparse.Namespace) -> e2e_site.Options:
    return e2e_site.Options(
        pathlib.Path(given.kubeconfig),
        label=given.label,
        namespace=given.namespace,
        image=given.image,
        pod_image=given.pod_image,
        seconds=given.seconds,
    )


def _show(site: e2e_site.Site, foreign: list[str]) -> None:
    options = site.options
    _say(f"Cluster      {site.version}, {options.kubeconfig}")
    _say(f"Nodes        {', '.join(site.nodes)}: {e2e_installing.GPUS}, simulated, on each")
    _say(f"Driver       {options.image}, in namespace {options.namespace}")
    _say(f"Pods         {options.pod_image}, in namespaces e2e-*, and those of the demos")
    _say("Then         all of it is taken away again")
    if foreign:
        _say("\nThere already, and changed or taken away:")
        for line in foreign:
            _say(f"  {line}")
    _say("")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _refuse(text: str) -> int:
    sys.stderr.write(f"run.py: {text}\n")
    return 2


def _run(given: argparse.Namespace) -> int:
    report = pathlib.Path(given.report)
    report.mkdir(parents=True, exist_ok=True)
    os.environ["E2E_KUBECONFIG"] = str(pathlib.Path(given.kubeconfig).absolute())
    for name in ("label", "namespace", "image", "pod_image", "seconds"):
        os.environ[f"E2E_{name.upper()}"] = str(getattr(given, name))
    return int(
        pytest.main(
            [
                str(FOLDER),
                # One after the other: they share one installation.
                *("-q", "-p", "no:xdist", "-m", "cluster"),
                f"--junitxml={report / 'junit.xml'}",
                *given.pytest,
            ]
        )
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except kube.ApiError as problem:
        sys.exit(_refuse(str(problem)))
