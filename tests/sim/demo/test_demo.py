"""`dra-driver demo` as a whole; the manifests that come with it are tested in tests/demo."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading

import pytest
import waited_for
from demo_manifests import NODES, TEMPLATE, pod
from polling import until

from dra_driver import errors
from dra_driver.sim.cluster import cluster, podman
from dra_driver.sim.demo import demo, observing

pytestmark = pytest.mark.sampled(13)

T4 = "GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
PROGRAM = [sys.executable, "-m", "dra_driver", "demo"]

# It is bound, and its claim never comes.
STUCK = """
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  nodeName: small
  containers: [{name: main, image: none}]
  resourceClaims: [{name: gpu, resourceClaimName: absent}]
"""


# The options and the manifests


def test_two_nodes_of_one_name_are_refused(play):
    with pytest.raises(errors.Rejected) as refused:
        play(TEMPLATE, nodes=(*NODES, *NODES))
    assert str(refused.value) == "--node: small is there twice; give each its own name"


def test_a_file_that_is_not_there_is_refused_before_anything_starts(play, temporary):
    with pytest.raises(errors.Fatal, match=r"absent\.yaml: no such file or folder"):
        play("", files=(pathlib.Path("absent.yaml"),))
    assert list(temporary.iterdir()) == []


def test_an_expectation_that_no_pod_can_meet_is_refused(play):
    with pytest.raises(errors.Rejected, match="'Pending'; write one of: Running; Unsch"):
        play(TEMPLATE + pod("a", "Pending"))


def test_a_kind_that_is_not_known_is_refused_and_everything_stopped(play, temporary, capsys):
    with pytest.raises(
        errors.Fatal, match=r'Shop a: no matches for kind "Shop" in version "a\.b/v1"'
    ):
        play(pod("p") + "---\n{apiVersion: a.b/v1, kind: Shop, metadata: {name: a}}")
    assert list(temporary.iterdir()) == []
    assert capsys.readouterr().err.splitlines()[-1] == "Stopping the cluster"


def test_an_object_that_the_server_refuses_is_told(play):
    with pytest.raises(errors.DriverError, match=r'claims\[0\].name: Not found: "gpu"'):
        play(pod("a").replace("resourceClaims", "ignored"))


# What comes of it


def test_pods_that_run_are_shown_with_what_they_got(play):
    status, out, err = play(TEMPLATE + pod("a") + pod("b"))
    assert status == 0
    assert err.splitlines() == [
        "Starting a cluster with the nodes small (t4:2)",
        "Nodes are ready: 2 devices published",
        "Manifests applied: 3 objects",
        "Waiting for pods, 60 s at most",
        "Stopping the cluster",
    ]
    lines = out.splitlines()
    block = lines[: lines.index("")]
    assert block[0] == "default/a: Running on small"
    assert re.fullmatch("  claim a-gpu-[a-z0-9]{5}", block[1])
    found = re.fullmatch(f"    (gpu-[01])  Tesla T4  ({T4})", block[2])
    assert found, block
    device, uuid = found[1], found[2]
    assert block[3:] == [
        "  container main sees",
        f"    GPU 0: Tesla T4 (UUID: {uuid})",
        f"    SIMULATED_GPU_{device[-1]}=Tesla T4|{uuid}",
    ]
    assert lines[lines.index("Pods") :] == [
        "Pods",
        "POD         PHASE     NODE    DEVICES",
        "--------------------------------------",
        "default/a   Running   small   Tesla T4",
        "default/b   Running   small   Tesla T4",
        "",
        "2 of 2 pods are as expected.",
    ]
    assert "\x1b" not in out + err


def test_a_pod_that_cannot_run_is_told_of_with_the_reason_and_ends_with_1(play, monkeypatch):
    monkeypatch.setattr(demo, "STEADY_SECONDS", 0.3)
    status, out, _ = play(TEMPLATE + pod("a") + pod("b") + pod("c"))
    assert status == 1
    lines = out.splitlines()
    [last] = [line for line in lines if line.endswith("is Unschedulable, expected is Running.")]
    name = last.removeprefix("default/")[0]
    reason = next(line for line in lines if line.startswith(f"default/{name}   0/1 nodes"))
    assert 'cannot allocate request "gpu" of claim' in reason
    assert "2 devices: 2 in use" in reason
    assert lines[-1] == "2 of 3 pods are as expected."


def test_a_pod_that_runs_against_expectation_ends_with_1(play):
    status, out, _ = play(TEMPLATE + pod("a", "Unschedulable"))
    assert status == 1
    assert out.splitlines()[-2:] == [
        "default/a is Running, expected is Unschedulable.",
        "0 of 1 pods are as expected.",
    ]


def test_a_pod_that_cannot_start_is_told_of_with_the_last_warning(play, monkeypatch):
    look, stop = observing.Observer.look, threading.Event()

    def until_it_is_warned_of(self):
        result = look(self)
        if any(each.reason for each in result.pods):
            stop.set()
        return result

    monkeypatch.setattr(observing.Observer, "look", until_it_is_warned_of)
    status, out, _ = play(STUCK, stop, output="json")
    assert status == 1
    assert json.loads(out)["pods"] == [
        {
            "namespace": "default",
            "name": "stuck",
            "phase": "Pending",
            "wasUnschedulable": False,
            "node": "small",
            "reason": "GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/absent: "
            '404 NotFound: resourceclaims.resource.k8s.io "absent" not found',
            "convertedFrom": [],
            "claims": [{"name": "absent", "devices": []}],
            "containers": [],
        }
    ]


def test_a_plugin_that_ends_at_its_start_is_told_of(play, temporary):
    with pytest.raises(errors.Fatal, match="plugin of node bad ended with status 1"):
        play(TEMPLATE + pod("a"), nodes=(cluster.NodeSpec("bad", "gtx:1"),))
    assert list(temporary.iterdir()) == []


def test_without_root_podman_is_refused_with_what_to_do(play, monkeypatch):
    monkeypatch.setattr(podman.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(podman, "_which", lambda tool: None if tool == "runc" else tool)
    with pytest.raises(errors.Fatal) as refused:
        play(TEMPLATE + pod("a"), runtime="podman")
    assert str(refused.value).startswith("--runtime podman needs root, and podman, runc")
    assert "missing: runc. On Debian: apt-get install podman runc" in str(refused.value)


# Steps, and pods that end


def test_a_step_comes_when_the_pods_before_have_run_and_a_pod_that_waits_gets_what_ends(
    play, monkeypatch
):
    waited_for.end_once_waited_for(monkeypatch)
    waits = pod("second", "Unschedulable, then Running", step="2")
    status, out, err = play(
        TEMPLATE + waits + pod("first", sleep="8"), nodes=(cluster.NodeSpec("small", "t4:1"),)
    )
    assert status == 0
    assert [line for line in err.splitlines() if line.startswith("Manifests")] == [
        "Manifests applied, step 1 of 2: 2 objects",
        "Manifests applied, step 2 of 2: 1 objects",
    ]
    rows = [line.split("   ") for line in out.splitlines() if line.startswith("default/")][-2:]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        ["default/first", "Succeeded", "small", "Tesla T4"],
        ["default/second", "Running (was Unschedulable)", "small", "Tesla T4"],
    ]


def test_a_step_does_not_come_when_the_pods_before_cannot_run(play, monkeypatch):
    monkeypatch.setattr(demo, "STEADY_SECONDS", 0.3)
    text = TEMPLATE + pod("a") + pod("b") + pod("c") + pod("late", step="2")
    status, out, err = play(text, output="json")
    assert status == 1
    assert [each["name"] for each in json.loads(out)["pods"]] == ["a", "b", "c"]
    assert "step 2 of 2" not in err


def test_a_pod_that_never_waits_is_told_of_at_once(play):
    status, out, _ = play(TEMPLATE + pod("a", "Unschedulable, then Running"))
    assert status == 1
    assert out.splitlines()[-2:] == [
        "default/a is Running, expected is Unschedulable, then Running.",
        "0 of 1 pods are as expected.",
    ]


# Ctrl-C


def test_when_it_is_stopped_before_there_are_pods_nothing_is_shown(play):
    stop = threading.Event()
    stop.set()
    status, out, err = play(TEMPLATE + pod("a"), stop)
    assert (status, out) == (demo.INTERRUPTED, "")
    assert err.splitlines()[-1] == "Stopping the cluster"


class Command:
    """The command in a process of its own, with its own directory for temporary files."""

    def __init__(self, directory, *arguments):
        self.directory = directory
        self._process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        )
        self.children = set()
        self.err = []

    def read_until(self, text):
        """The line of standard error with that text."""
        for line in self._process.stderr:
            self.err.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} is not in {self.err}")

    def see_children(self, count):
        """Wait until it has so many processes, and remember them."""
        tasks = f"/proc/{self._process.pid}/task"

        def children_of(thread):
            with contextlib.suppress(OSError):  # The thread has ended.
                return [int(pid) for pid in (thread / "children").read_text().split()]
            return []

        def found():
            return {pid for thread in pathlib.Path(tasks).iterdir() for pid in children_of(thread)}

        self.children = until(
            lambda: pids if len(pids := found()) >= count else None, what=f"{count} children"
        )

    def end_by(self, number):
        """Send a signal; the exit status, and that nothing is left."""
        self._process.send_signal(number)
        out, err = self._process.communicate(timeout=90)
        self.err.append(err)
        assert "Traceback" not in "".join(self.err)
        assert list(self.directory.iterdir()) == []
        assert [pid for pid in self.children if pathlib.Path(f"/proc/{pid}").exists()] == []
        return self._process.returncode, out


@pytest.fixture
def command(tmp_path, temporary):
    made = []

    def command(text, *arguments):
        path = tmp_path / "manifest.yaml"
        path.write_text(text)
        made.append(Command(temporary, "-f", path, "--node", "small=t4:2", *arguments))
        return made[-1]

    yield command
    for each in made:
        each._process.kill()
        each._process.communicate()


def test_a_kept_cluster_serves_kubectl_until_ctrl_c_and_then_everything_is_gone(command):
    running = command(TEMPLATE + pod("a"), "--keep", "--output", "json")
    kubeconfig = running.read_until("export KUBECONFIG=").strip().partition("=")[2]
    assert running.read_until("kubectl") == "  kubectl get pods -A\n"
    assert running.read_until("Ctrl-C") == "Ctrl-C ends it and cleans up.\n"
    running.see_children(1)
    kubectl = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
    listed = subprocess.run(
        [kubectl, "get", "pods", "-A", "--no-headers"],
        env={"KUBECONFIG": kubeconfig, "HOME": str(running.directory), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    shutil.rmtree(running.directory / ".kube", ignore_errors=True)
    assert listed.stdout.split()[:4] == ["default", "a", "1/1", "Running"]
    status, out = running.end_by(signal.SIGINT)
    assert status == 0
    assert json.loads(out)["pods"][0]["phase"] == "Running"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_during_the_start_leaves_nothing(command, number):
    # The plugin waits for the file, so that the start does not end before the signal comes.
    running = command(TEMPLATE + pod("a"), "--plugin-setting", "boot-id-file=/nowhere")
    running.read_until("Starting a cluster")
    running.see_children(1)
    status, out = running.end_by(number)
    assert (status, out) == (130, "")


def test_ctrl_c_while_pods_are_waited_for_shows_how_it_is(command):
    running = command(STUCK)
    running.read_until("Waiting for pods")
    running.see_children(1)
    status, out = running.end_by(signal.SIGINT)
    assert status == 1
    assert out.splitlines()[-1] == "0 of 1 pods are as expected."
