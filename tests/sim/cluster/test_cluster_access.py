"""Other users of the machine, and pages in a browser on it, have no part in a cluster."""

import json
import os
import pathlib
import stat
import tempfile
import threading

import pytest
import urllib3

from dra_driver import cli, errors
from dra_driver.adapters.console import terminal
from dra_driver.sim.cluster import cluster, runtime
from dra_driver.sim.demo import demo


@pytest.fixture(scope="module")
def running():
    # Whatever the shell of a user allows others by default.
    before = os.umask(0)
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        made = cluster.Cluster(
            (cluster.NodeSpec("one", "h100-80gb-hbm3:1"),),
            pathlib.Path(name),
            runtime_for=lambda cdi_dir, _: runtime.PretendedRuntime(cdi_dir),
        )
        try:
            made.start()
            assert made.wait_ready(threading.Event())
            yield made
        finally:
            made.stop()
            os.umask(before)


def config(running):
    return json.loads(running.kubeconfig.read_text())


def test_what_is_asked_without_the_token_is_refused(running):
    found = config(running)["clusters"][0]["cluster"]
    http = urllib3.PoolManager(ca_certs=found["certificate-authority"], retries=False, timeout=60)
    token = config(running)["users"][0]["user"]["token"]
    for path in ("/", "/healthz", "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceslices"):
        assert http.request("GET", found["server"] + path).status == 401
        known = {"Authorization": f"Bearer {token}"}
        assert http.request("GET", found["server"] + path, headers=known).status in (200, 404)
        # A page that has pointed its own name to this address, and knows the token from somewhere.
        foreign = known | {"Host": "page.example"}
        assert http.request("GET", found["server"] + path, headers=foreign).status == 403
    http.clear()


def test_nobody_else_reads_the_token_or_what_nodes_have(running):
    assert stat.S_IMODE(running.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE((running.kubeconfig.parent / "one").stat().st_mode) == 0o700


def test_commands_that_look_have_access_by_the_kubeconfig(running, capsys, tmp_path):
    pod = tmp_path / "pod.yaml"
    pod.write_text("""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: some}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
""")
    for arguments in (["status"], ["explain", "-f", str(pod)]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*arguments, "--kubeconfig", str(running.kubeconfig)])
        assert ended.value.code == 0
    assert "1 x NVIDIA H100" in capsys.readouterr().out


def test_the_directory_of_a_demo_is_its_users_own(monkeypatch):
    modes = []

    def make(_specs, directory, **_options):
        modes.append(stat.S_IMODE(directory.stat().st_mode))
        raise errors.Fatal("enough")

    monkeypatch.setattr(cluster, "Cluster", make)
    before = os.umask(0)
    try:
        with pytest.raises(errors.Fatal, match="enough"):
            demo.run(demo.Options(), threading.Event(), terminal.Terminal())
    finally:
        os.umask(before)
    assert modes == [0o700]
