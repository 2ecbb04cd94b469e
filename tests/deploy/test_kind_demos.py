"""demo/kind/run.sh: what it says of pods, and its run against a real API, scheduler and driver."""

import concurrent.futures
import copy
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tempfile
import threading

import kind_programs
import polling
import pytest
import yaml

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, runtime
from dra_driver.sim.gpus import gpus

pytestmark = pytest.mark.sampled(24)

DEMO = kind_programs.FOLDER.parent
FOLDERS = ("mig", "quickstart", "sharing")
"""Those of demo/health are of no use without the faults that people put in by hand."""
MANIFESTS = sorted(path for folder in FOLDERS for path in (DEMO / folder).glob("*.yaml"))
ROW = re.compile(r"^\| \[(\S+\.yaml)\].*?`--node \w+=(\S+?)(?: (--\S.*?))?`", re.MULTILINE)
END_SECONDS = "1"
"""Marks the containers that would end by themselves."""
RUNNING, UNSCHEDULABLE, REFUSED = "Running", "Unschedulable", "Refused"
BUSYBOX = shutil.which("busybox")


@pytest.fixture
def scene(tmp_path):
    made = kind_programs.Scene(tmp_path)
    made.works("create")
    made.calls()
    return made


def table(text):
    """The rows of the table, by pod; the first cell is the mark of what is wrong."""
    lines = text[text.index("  POD ") :].splitlines()[1:]
    rows = [re.split(r"\s{2,}", line[2:]) for line in lines[: lines.index("")]]
    return {row[0]: row[1:] for row in rows}


def marked(text):
    return re.findall(r"^! (\S+)", text, re.MULTILINE)


def settings():
    """Workers, GPUs, shares and MIG mode of each manifest, by `folder/name`."""
    with tempfile.TemporaryDirectory() as name:
        listed = kind_programs.Scene(pathlib.Path(name), []).works("run", "--list")
    rows = [line.split() for line in listed.splitlines()]
    return {row[4].removeprefix("demo/"): row[:4] for row in rows}


def test_each_manifest_is_run():
    assert sorted(settings()) == sorted(str(path.relative_to(DEMO)) for path in MANIFESTS)


@pytest.mark.parametrize("folder", ["mig", "sharing"])
def test_each_manifest_has_the_gpus_and_settings_that_its_readme_says(folder):
    text = (DEMO / folder / "README.md").read_text("utf-8").replace("| `hopper", "| `--node hopper")
    rows = ROW.findall(text)
    assert len(rows) == 6
    for name, node, flags in rows:
        shares = "memory" if "shares=memory" in flags else "off"
        mode = "off" if "mig-mode=off" in flags else "dynamic"
        assert settings()[f"{folder}/{name}"] == ["one", node, shares, mode]


class Whole:
    """A run of all demos: what it printed, its calls, and each manifest as it was applied."""

    def __init__(self, directory):
        scene = kind_programs.Scene(directory)
        copies = directory / "copies"
        copies.mkdir()
        scene.works("create")
        keep = f'case "$*" in *" apply -f "*/demos/*) cat "$7" >>{copies}/"${{7##*/}}" ;; esac'
        scene.stand_in("kubectl", keep)
        self.shown = scene.works("run")
        self.calls = scene.calls()
        self.applied = {
            path.name: [body for body in yaml.safe_load_all(path.read_text("utf-8")) if body]
            for path in copies.iterdir()
        }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Whole(tmp_path_factory.mktemp("whole"))


def test_all_demos_are_as_expected_with_five_installations(whole):
    shown, calls = whole.shown, whole.calls
    pods = [
        body
        for path in MANIFESTS
        for body in yaml.safe_load_all(path.read_text("utf-8"))
        if body["kind"] == "Pod"
    ]
    assert f"\n{len(pods)} of {len(pods)} pods are as expected.\n" in shown
    assert len(table(shown)) == len(pods)
    assert not marked(shown)
    assert sum(call.startswith("helm") for call in calls) == 5


def test_a_second_run_cleans_up_after_one_that_was_interrupted(scene):
    (scene.memory / "pods-two-pods").write_text('{"left-over": ""}', encoding="utf-8")
    shown = scene.works("run", str(DEMO / "quickstart/1-two-pods.yaml"))
    assert sorted(table(shown)) == ["two-pods/pod-1", "two-pods/pod-2"]


def test_a_later_step_is_applied_after_the_pods_before_it_have_run(scene):
    scene.works("run", str(DEMO / "mig/6-waiting.yaml"))
    calls = [call for call in scene.calls() if "-n waiting" in call or "6-waiting" in call]
    kinds = [re.search(r"apply|get pods|delete|logs", call) for call in calls]
    order = [kind[0] for kind in kinds if kind]
    assert order[:5] == ["apply", "get pods", "apply", "get pods", "get pods"]
    assert order[-1] == "delete"


def test_a_pod_that_sees_no_gpu_is_not_as_expected(scene):
    (scene.memory / "logs").write_text('"No devices found."', encoding="utf-8")
    finished = scene.run("run", str(DEMO / "quickstart/5-count.yaml"))
    assert finished.returncode == 1
    assert marked(finished.stdout) == ["count/pod"]
    assert table(finished.stdout)["count/pod"][-1] == "no GPU in its log"


@pytest.mark.parametrize(
    ("manifest", "line", "became"),
    [
        ("quickstart/7-impossible", "impossible|pod|Unschedulable|Running|w|", "Running"),
        ("sharing/6-refused", "refused|pod|Refused|Pending|w|", "Pending"),
        ("mig/6-waiting", "waiting|pod|Unschedulable, then Running|Running|w|", "Running"),
        ("quickstart/5-count", "count|pod||Pending||Unschedulable", "Unschedulable"),
        ("quickstart/5-count", "count|pod||Failed|w|", "Failed"),
        ("quickstart/5-count", "count|pod|Happy|Running|w|", "what nobody can expect: Happy"),
    ],
)
def test_a_pod_that_becomes_something_else_fails_the_run(scene, manifest, line, became):
    scene.stand_in("kubectl", f'case "$*" in *" get pods "*) echo "{line}"; exit ;; esac')
    path = str(DEMO / f"{manifest}.yaml")
    finished = scene.run("run", path, WAIT_SECONDS="1", LOOK_SECONDS="1")
    pod = f"{line.partition('|')[0]}/pod"
    assert finished.returncode == 1
    assert marked(finished.stdout) == [pod]
    assert table(finished.stdout)[pod][1] == became


def test_other_manifests_are_refused(scene):
    other = str(DEMO.parent / "deploy/rbac.yaml")
    assert "only manifests of demo/quickstart, demo/mig" in scene.refused("run", other)
    assert "no such file" in scene.refused("run", "nowhere.yaml")
    good = str(DEMO / "quickstart/1-two-pods.yaml")
    for names in ((good, "nowhere.yaml"), ("nowhere.yaml", good), (good, other)):
        scene.refused("run", *names)
    assert scene.calls() == []


def test_with_real_gpus_manifests_have_to_be_named(scene):
    assert "name the manifests" in scene.refused("run", GPUS="real")


def test_gpus_that_are_not_published_are_told_with_numbers(scene):
    scene.stand_in("kubectl", 'case "$*" in *" resourceslices "*) exit ;; esac')
    told = scene.refused("run", WAIT_SECONDS="1", LOOK_SECONDS="1")
    assert "0 whole GPUs are published after 1 s, and not 16" in told


def test_all_objects_of_the_manifests_are_applied_with_an_image_that_the_nodes_have(whole):
    assert len(whole.applied) == len(MANIFESTS)
    for path in MANIFESTS:
        wanted = list(yaml.safe_load_all(path.read_text("utf-8")))
        made = copy.deepcopy(whole.applied[f"{path.parent.name}-{path.name}"])
        for body in made:
            for container in body["spec"]["containers"] if body["kind"] == "Pod" else ():
                assert container["image"] == "localhost/dra-driver-demo:busybox"
                container["image"] = "nvidia/cuda:13.0.1-base-ubuntu24.04"
        text = json.dumps(made).replace("sleep 20", "sleep 4")
        assert {json.dumps(body) for body in json.loads(text)} == set(map(json.dumps, wanted))


@pytest.mark.skipif(BUSYBOX is None, reason="busybox is not installed")
def test_the_commands_of_all_pods_run_in_a_shell_of_busybox(tmp_path, whole):
    shutil.copy(gpus.NVIDIA_SMI, tmp_path / "nvidia-smi")
    commands = {
        tuple(container["command"])
        for bodies in whole.applied.values()
        for body in bodies
        if body["kind"] == "Pod"
        for container in body["spec"]["containers"]
    }
    assert len(commands) == 3
    variables = {"PATH": str(tmp_path), "SIMULATED_GPU_0": "Tesla T4|GPU-0f"}
    for shell, *rest in commands:
        command = [BUSYBOX, shell, *rest]
        with subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout.readline() == "GPU 0: Tesla T4 (UUID: GPU-0f)\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.kill()


def test_what_a_pod_sees_is_what_the_stand_in_prints(scene):
    variables = {
        "SIMULATED_GPU_1": "Tesla T4|GPU-0f",
        "SIMULATED_MIG_0_3": "NVIDIA H100|GPU-0a|1g.10gb|MIG-01",
        "SIMULATED_MIG_0_5": "NVIDIA H100|GPU-0a|2g.20gb|MIG-02",
    }
    printed = subprocess.check_output(["sh", gpus.NVIDIA_SMI, "-L"], env=variables, text=True)
    (scene.memory / "logs").write_text(json.dumps(printed), encoding="utf-8")
    shown = scene.works("run", str(DEMO / "quickstart/5-count.yaml"))
    seen = "1g.10gb of NVIDIA H100, 2g.20gb of NVIDIA H100, Tesla T4"
    assert table(shown)["count/pod"][-1] == seen


class Runtime(runtime.PretendedRuntime):
    """Its containers end when they are told to, and not after a time."""

    def __init__(self, cdi_dir, _directory):
        super().__init__(cdi_dir)
        self._ending = []

    def start(self, container, on_end):
        made = super().start(dataclasses.replace(container, command=()), on_end)
        if runtime.sleep_seconds(container.command) == float(END_SECONDS):
            self._ending.append(made)
        return made

    def end(self):
        """Those that would end by themselves."""
        for container in self._ending:
            container._end()


@pytest.fixture
def embedded(scene):
    """Starts an embedded cluster for the scene's real `kubectl`, without a DaemonSet in it.

    What is answered is the cluster, and the runtime of its node.
    """
    with tempfile.TemporaryDirectory(prefix="dra-") as name:
        started, runtimes = [], []

        def new_runtime(*directories):
            runtimes.append(Runtime(*directories))
            return runtimes[0]

        def start(cards, *flags):
            node = cluster.NodeSpec("hopper", f"h100-80gb-hbm3:{cards}", flags=flags)
            made = cluster.Cluster((node,), pathlib.Path(name), runtime_for=new_runtime)
            started.append(made)
            made.start()
            assert made.wait_ready(threading.Event())
            known = json.loads(made.kubeconfig.read_text("utf-8"))
            known["contexts"][0]["name"] = f"kind-{kind_programs.CLUSTER}"
            (scene.state / "kubeconfig").write_text(json.dumps(known), encoding="utf-8")
            program = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
            scene.put(
                "kubectl",
                'case "$*" in *" rollout "*|*0-namespace.yaml) exit ;;\n'
                # The one node has the cards of both workers.
                '*" get nodes "*) echo node/worker; echo node/worker2; exit ;;\n'
                '*" logs "*) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0f)"; exit ;; esac\n'
                f'exec {program} --cache-dir={name}/cache "$@"',
            )
            return made, runtimes[0]

        yield start
        for made in started:
            made.stop()


def outcomes(scene, *manifests):
    """What the pods of manifests became; each of them as expected."""
    paths = [str(DEMO / f"{name}.yaml") for name in manifests]
    shown = scene.run("run", *paths, LOOK_SECONDS="1", WAIT_SECONDS="60", END_SECONDS=END_SECONDS)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert not marked(shown.stdout)
    return {row[1] for row in table(shown.stdout).values()}


@pytest.mark.parametrize(
    ("cards", "flags", "manifests", "expected"),
    [
        (2, (), ["mig/3-with-whole-gpu", "sharing/6-refused"], {RUNNING, UNSCHEDULABLE, REFUSED}),
        (
            1,
            ("--shares=memory", "--mig-mode=off"),
            ["sharing/5-too-much"],
            {RUNNING, UNSCHEDULABLE},
        ),
        (16, (), ["quickstart/8-extended-resource"], {RUNNING}),
    ],
)
def test_real_pods_become_what_is_expected(scene, embedded, cards, flags, manifests, expected):
    embedded(cards, *flags)
    assert outcomes(scene, *manifests) == expected


def test_a_real_pod_that_waits_runs_when_those_before_it_have_ended(scene, embedded):
    made, containers = embedded(1)

    def one_waits():
        reason = "reason=FailedScheduling"
        return made.client.list(kube.EVENTS, "waiting", field_selector=reason)[0]

    def end_the_others():
        polling.until(one_waits, seconds=300, what="a pod that waits")
        containers.end()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = pool.submit(end_the_others)
        assert outcomes(scene, "mig/6-waiting") == {"Succeeded", "Running (was Unschedulable)"}
        ended.result(60)
