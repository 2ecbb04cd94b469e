"""The quickstart: every manifest alone, all of them together, and what its README says of them."""

import collections
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading

import pytest
import structlog
from polling import until

from dra_driver import cli, telemetry
from dra_driver.adapters.console import terminal
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import demo, outcome

pytestmark = pytest.mark.sampled(12)

FOLDER = pathlib.Path(__file__).parents[2] / "demo" / "quickstart"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
T4, V100 = "Tesla T4", "Tesla V100-SXM2-16GB"
A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


class Played:
    """What the command printed: pods by namespace/name."""

    def __init__(self, body):
        self.body = body
        self.pods = {f"{pod['namespace']}/{pod['name']}": pod for pod in body["pods"]}

    def devices(self, name):
        """The devices of a pod, of all its claims."""
        return [device for claim in self.pods[name]["claims"] for device in claim["devices"]]

    def uuids(self, name):
        return [device["uuid"] for device in self.devices(name)]

    def models(self, name):
        return [device["model"] for device in self.devices(name)]

    def outputs(self, name):
        """The output of each container."""
        return [container["output"] for container in self.pods[name]["containers"]]


def run_command(*options):
    command = [sys.executable, "-m", "dra_driver", "demo", "--output", "json", *options]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return Played(json.loads(finished.stdout))


@pytest.fixture(
    scope="module", params=["pretended", pytest.param("podman", marks=pytest.mark.podman)]
)
def played(request):
    """All manifests together, by the command as a user types it: without naming them."""
    yield run_command("--runtime", request.param)
    if request.param == "podman":
        # Others have containers on this machine too: theirs end, while they start new ones.
        left = containers()
        until(lambda: not left & containers(), what=f"the end of {left}", seconds=180)


def containers():
    finished = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return {name for name in finished.stdout.split() if name.startswith("dra-")}


def pods_of(path):
    return {
        f"{body['metadata']['namespace']}/{body['metadata']['name']}": (
            body["metadata"].get("annotations", {}).get(outcome.EXPECT_ANNOTATION, "Running")
        )
        for body in manifests.load([path])
        if body["kind"] == "Pod"
    }


# All together


def test_every_pod_is_there_and_as_it_is_expected(played):
    assert {name: pod["phase"] for name, pod in played.pods.items()} == pods_of(FOLDER)
    assert len(played.pods) == 14


def test_the_nodes_are_listed_with_their_devices(played):
    devices = {node["name"]: node["devices"] for node in played.body["nodes"]}
    gpus = [f"gpu-{number}" for number in range(8)]
    assert (devices["ampere"], devices["mixed"]) == (gpus, gpus)
    # An H100 can be cut as well: each place of each profile is a device.
    assert [name for name in devices.pop("hopper") if "-mig-" not in name] == gpus
    assert len(devices) == 2


def test_the_readme_has_the_number_of_devices(played):
    count = sum(len(node["devices"]) for node in played.body["nodes"])
    assert f"\nNodes are ready: {count} devices published\n" in README
    assert f" {count} devices: " in README
    assert f" {count} devices: " in played.pods["impossible/pod"]["reason"]


def test_every_container_sees_the_gpus_of_its_claims_as_nvidia_smi_lists_them(played):
    for name, pod in played.pods.items():
        devices = sorted(played.devices(name), key=lambda device: device["device"])
        lines = [
            f"GPU {position}: {device['model']} (UUID: {device['uuid']})"
            for position, device in enumerate(devices)
        ]
        assert played.outputs(name) == [lines] * len(pod["containers"])
        for container in pod["containers"]:
            assert container["env"] == {
                f"SIMULATED_GPU_{device['device'].removeprefix('gpu-')}": (
                    f"{device['model']}|{device['uuid']}"
                )
                for device in devices
            }
            # And a file for each request, which says what it has.
            first, *described = [mount["containerPath"] for mount in container["mounts"]]
            assert first == "/usr/bin/nvidia-smi"
            assert described
            assert all(path.endswith("/gpu.nvidia.com-metadata.json") for path in described)
            assert container["deviceNodes"] == []


def test_devices_are_those_of_the_pod_s_node(played):
    for name, pod in played.pods.items():
        assert {device["pool"] for device in played.devices(name)} <= {pod["node"]}
        assert {device["driver"] for device in played.devices(name)} <= {"gpu.nvidia.com"}


def test_no_gpu_is_in_two_claims(played):
    claims = {
        (pod["namespace"], claim["name"]): [device["uuid"] for device in claim["devices"]]
        for pod in played.pods.values()
        for claim in pod["claims"]
    }
    uuids = [uuid for found in claims.values() for uuid in found]
    assert [uuid for uuid, count in collections.Counter(uuids).items() if count > 1] == []
    # Ten claims from templates and one made by hand have a GPU, one has two, and one has none. That
    # of the scheduler has two.
    assert sorted(map(len, claims.values())) == [0, *[1] * 11, 2, 2]


def test_two_pods_of_one_template_have_a_gpu_each(played):
    first, second = played.uuids("two-pods/pod-1"), played.uuids("two-pods/pod-2")
    assert [len(first), len(second)] == [1, 1]
    assert first != second


def test_a_pod_with_two_claims_sees_both_gpus(played):
    claims = played.pods["two-claims/pod"]["claims"]
    assert [len(claim["devices"]) for claim in claims] == [1, 1]
    [output] = played.outputs("two-claims/pod")
    assert len(output) == 2


def test_two_containers_of_a_pod_see_the_same_gpu(played):
    first, second = played.outputs("shared-by-containers/pod")
    assert first == second
    assert len(first) == 1


def test_two_pods_that_share_a_claim_see_the_same_gpu_on_one_node(played):
    one, two = (played.pods[f"shared-by-pods/pod-{number}"] for number in (1, 2))
    assert one["claims"] == two["claims"]
    assert [claim["name"] for claim in one["claims"]] == ["our-gpu"]
    assert one["node"] == two["node"]
    assert one["containers"][0]["output"] == two["containers"][0]["output"]


def test_a_count_of_two_gives_two_gpus_of_one_node(played):
    devices = played.devices("count/pod")
    assert len({device["uuid"] for device in devices}) == 2
    assert len({device["pool"] for device in devices}) == 1


def test_an_extended_resource_gives_two_gpus_by_a_claim_that_nobody_wrote(played):
    [claim] = played.pods["extended-resource/pod"]["claims"]
    assert claim["name"].startswith("pod-extended-resources-")
    devices = played.devices("extended-resource/pod")
    assert len({device["uuid"] for device in devices}) == 2
    assert len({device["pool"] for device in devices}) == 1


@pytest.mark.parametrize(
    ("pod", "models"),
    [
        ("by-product", {A100}),
        ("by-memory", {T4, V100}),
        ("by-compute-capability", {T4, A100, H100}),
        ("t4-or-else-v100", {T4, V100}),
        ("t4-or-v100", {T4, V100}),
    ],
)
def test_a_selector_chooses_among_the_models(played, pod, models):
    [model] = played.models(f"selectors/{pod}")
    assert model in models


def test_the_impossible_pod_says_which_selector_no_gpu_meets(played):
    pod = played.pods["impossible/pod"]
    assert pod["node"] is None
    assert pod["containers"] == []
    assert pod["reason"].startswith("0/3 nodes are available: ")
    assert (
        "not matched by selector \"device.capacity['gpu.nvidia.com'].memory"
        ".compareTo(quantity('1Ti')) >= 0\"" in pod["reason"]
    )


# Each alone


@pytest.fixture
def run_here(capsys):
    """Runs a manifest in this process."""
    telemetry.configure(level="error", log_format="console")

    def run_here(path, **options):
        asked = demo.Options(files=(path,), output="json", **options)
        assert demo.run(asked, threading.Event(), terminal.Terminal()) == 0
        return Played(json.loads(capsys.readouterr().out))

    yield run_here
    structlog.reset_defaults()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_alone_comes_out_as_expected(path, run_here):
    played = run_here(path)
    assert {name: pod["phase"] for name, pod in played.pods.items()} == pods_of(path)


def test_with_t4s_free_the_first_choice_is_taken(tmp_path, run_here):
    """In the whole quickstart others may have taken them before."""
    objects = [
        body
        for body in manifests.load([FOLDER / "6-selectors.yaml"])
        if body["metadata"]["name"] in ("selectors", "t4-or-else-v100")
    ]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    old, new = demo.parse_node("old=v100-16gb-sxm2:1"), demo.parse_node("new=t4:1")
    assert run_here(path, nodes=(old, new)).models("selectors/t4-or-else-v100") == [T4]
    assert run_here(path, nodes=(old,)).models("selectors/t4-or-else-v100") == [V100]


# What the README says


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = [line for block in readme_blocks("console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def test_the_readme_has_the_usual_parts():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Overview",
        "Requirements",
        "How to run",
        "Expected output",
        "Clean up",
    ]


def test_the_readme_lists_every_manifest_with_its_pods_and_what_becomes_of_them():
    rows = re.findall(r"^\| \[(.*?)\]\((.*?)\) \| .* \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    told = {
        (name, target): dict.fromkeys(re.findall(r"`(.*?)`", pods), state)
        for name, target, pods, state in rows
    }
    assert told == {(path.name, path.name): pods_of(path) for path in MANIFESTS}


def test_the_files_that_the_readme_s_commands_name_are_there():
    words = [word for command in commands() for word in command]
    paths = [word for word in words if "demo/quickstart" in word]
    assert len(paths) >= 4
    for path in paths:
        assert (FOLDER.parents[1] / path).exists(), path


def test_the_commands_of_the_readme_are_understood():
    parser = cli._parser()
    plain = [command[1:] if command[0] == "sudo" else command for command in commands()]
    ours = [command for command in plain if command[0].endswith("dra-driver")]
    assert len(ours) >= 3
    for command in ours:
        assert parser.parse_args(command[1:]).run == cli._demo
    assert ["make", "demo"] in commands()
    makefile = (FOLDER.parents[1] / "Makefile").read_text()
    assert re.search(r"^demo: .*\n\t@\$\(BIN\)/dra-driver demo$", makefile, re.MULTILINE)


def test_the_output_in_the_readme_is_that_of_these_manifests():
    [text] = [block for block in readme_blocks("text") if "\nPods\n" in block]
    lines = text.splitlines()
    table = lines[lines.index("Pods") + 3 :]
    shown = {line.split()[0]: line.split()[1] for line in table[: table.index("")]}
    assert shown == pods_of(FOLDER)
    blocks = re.findall(r"^(\S+/\S+): (\S+) on (\S+)$", text, re.MULTILINE)
    assert len(blocks) >= 2
    assert {name: state for name, state, _node in blocks}.items() <= shown.items()
    assert lines[-1] == "14 of 14 pods are as expected."


def test_the_readme_s_way_to_clean_up_works_on_a_cluster(tmp_path):
    """What `kubectl delete` is told to ignore has gone with its namespace."""
    [delete] = [command for command in commands() if command[:2] == ["kubectl", "delete"]]
    program = shutil.which("kubectl", path=str(pathlib.Path(sys.executable).parent))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dra_driver",
            "demo",
            "--keep",
            "--output",
            "json",
            "--timeout",
            "5",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told = next(line for line in process.stderr if "KUBECONFIG=" in line)
        kubeconfig = told.strip().partition("=")[2]
        environment = {"KUBECONFIG": kubeconfig, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}

        def kubectl(*arguments):
            return subprocess.run(
                [program, *arguments],
                cwd=FOLDER.parents[1],
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            ).stdout

        # Without waiting for each object: kubectl allows itself five requests a second for that.
        kubectl(*delete[1:], "--wait=false")
        until(lambda: kubectl("get", "pods,resourceclaims", "-A", "-o", "name") == "", seconds=120)
        # A namespace goes with the last that was in it.
        spaces = kubectl("get", "namespaces", "-o", "name").split()
        assert spaces == ["namespace/default", "namespace/kube-system"]
    finally:
        process.terminate()
        process.communicate(timeout=60)
