"""The end-to-end cases as a user runs them: by `run.py`, on the cluster of a kubeconfig."""

import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

import e2e_installing
import e2e_machine
import e2e_site
import pytest

from dra_driver.adapters.kube import kube

RUN = pathlib.Path(__file__).parents[1] / "e2e" / "run.py"


@pytest.fixture(scope="module")
def machine():
    made = e2e_machine.Machine()
    yield made
    made.close()


@pytest.fixture
def site(machine):
    made = e2e_site.Site(e2e_site.Options(machine.kubeconfig, seconds=60))
    yield made
    made.close()


def run(machine, *arguments, stdin=""):
    return subprocess.run(
        [sys.executable, str(RUN), f"--kubeconfig={machine.kubeconfig}", *arguments],
        input=stdin, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def everything(site):
    """The names of all objects of the cluster that an installation could have made."""
    options = site.options
    rendered = e2e_installing.rendered(options, e2e_installing.SETTINGS, {})
    return [body["metadata"]["name"] for body in rendered if site.is_there(body)]


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(machine, site):
    done = run(machine, "--dry-run", "--image=localhost/mine:7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"Cluster      {site.version}, {machine.kubeconfig}",
        "Nodes        gpu-node-1, gpu-node-2: h100-80gb-hbm3:2,t4:2, simulated, on each",
        "Driver       localhost/mine:7, in namespace dra-driver-e2e",
        "Pods         busybox:stable, in namespaces e2e-*, and those of the demos",
        "Then         all of it is taken away again",
        "",
    ]
    assert everything(site) == []


def test_without_a_node_that_has_the_label_nothing_is_done(machine, site):
    done = run(machine, "--label=e2e.dra-driver/none")
    assert done.returncode == 2
    assert "kubectl label node NAME e2e.dra-driver/none=true" in done.stderr
    assert everything(site) == []


def test_what_is_there_of_others_is_not_touched_without_being_asked(machine, site):
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {},
    }
    before = site.client.create(kube.CLASSES, body)
    try:
        done = run(machine)
        assert done.returncode == 2
        assert "  DeviceClass gpu.nvidia.com\n" in done.stdout
        assert "nothing was done; --yes says" in done.stderr
        assert site.client.get(kube.CLASSES, "gpu.nvidia.com") == before
    finally:
        site.delete([body])


def test_cases_are_run_reported_and_cleared_up(machine, site, tmp_path):
    chosen = "gpu_and_gives or by_force or (uses and all)"
    done = run(machine, f"--report={tmp_path}", "--seconds=60", "--", "-k", chosen)
    assert done.returncode == 0, done.stdout
    row = next(line for line in done.stdout.splitlines() if "gives_it_back" in line)
    assert row.startswith("passed ")
    assert row.endswith(
        "e2e/dra: simple pod; bats basic: 1 pod 1 GPU; bats robustness: claim lifecycle"
    )
    assert f"Kubernetes:           {site.version}" in done.stdout
    assert "Longest start:" in done.stdout
    # Nobody else has written it.
    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]  # noqa: S314
    facts = {one.get("name"): one.get("value") for one in suite.find("properties")}
    assert facts["Kubernetes"] == site.version
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert everything(site) == []
    assert site.slices() == []
