"""Containers that podman really runs, with specs as our driver writes them."""

import concurrent.futures
import pathlib
import subprocess
import tempfile
import threading
import uuid

import pytest
from polling import until

from dra_driver import errors
from dra_driver.logic.preparing import cdi, injecting
from dra_driver.model import claims, driver
from dra_driver.sim.cluster import podman, runtime
from dra_driver.sim.gpus import gpus

pytestmark = [pytest.mark.podman, pytest.mark.sampled(7)]

DRIVER = "gpu.nvidia.com"


class Node:
    """A CDI directory and a directory for roots, and the runtime that uses them."""

    def __init__(self, root):
        self.cdi_dir = root / "cdi"
        self.roots = root / "roots"
        self.cdi_dir.mkdir()
        self.smi = root / "nvidia-smi"
        self.smi.write_text(gpus.NVIDIA_SMI.read_text())
        self.smi.chmod(0o755)
        self.runtime = podman.PodmanRuntime(self.cdi_dir, self.roots)
        self.started = []
        self.names = []

    def prepare(self, *devices):
        """Write the spec of a claim; the CDI names of its devices, (minor, model, uuid)."""
        uid = claims.ClaimUid(str(uuid.uuid4()))
        edits = {
            f"gpu-{minor}": cdi.Edits(env={f"SIMULATED_GPU_{minor}": f"{model}|{gpu_uuid}"})
            for minor, model, gpu_uuid in devices
        }
        common = cdi.Edits(mounts=(cdi.Mount(str(self.smi), "/usr/bin/nvidia-smi"),))
        (self.cdi_dir / cdi.file_name(DRIVER, uid)).write_text(
            cdi.spec(DRIVER, uid, cdi.Injection(common, edits))
        )
        return [cdi.device_id(DRIVER, uid, name) for name in edits]

    def start(self, *command, cdi_ids=(), on_end=lambda: None, **env):
        container = runtime.Container(str(uuid.uuid4()), "main", command, env, tuple(cdi_ids))
        self.names.append(f"dra-{container.pod_uid}-main")
        self.started.append(self.runtime.start(container, on_end))
        return self.started[-1]

    def containers(self):
        """Those of its containers that podman knows."""
        return sorted({*self.names} & {*all_containers()})

    def close(self):
        for container in self.started:
            container.stop()
        self.runtime.close()


def all_containers():
    """The names of all containers that podman knows."""
    finished = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return finished.stdout.split()


@pytest.fixture
def node():
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        made = Node(pathlib.Path(name))
        yield made
        made.close()
        if made.roots.exists():
            assert list(made.roots.iterdir()) == []
    assert made.containers() == []


def output(container, lines=1):
    """What it has written, once there are so many lines."""
    until(lambda: len(container.view().output) >= lines, what=f"{lines} lines", seconds=60)
    return list(container.view().output)


def test_one_container_gets_the_devices_of_a_claim_with_two_and_of_another_claim(node):
    pair = node.prepare((0, "Tesla T4", "GPU-0"), (2, "Tesla T4", "GPU-2"))
    one = node.prepare((1, "Tesla V100-SXM2-16GB", "GPU-1"))
    container = node.start(cdi_ids=[*pair, *one])
    until(node.containers, what="podman knows it", seconds=60)
    assert output(container, 3) == [
        "GPU 0: Tesla T4 (UUID: GPU-0)",
        "GPU 1: Tesla V100-SXM2-16GB (UUID: GPU-1)",
        "GPU 2: Tesla T4 (UUID: GPU-2)",
    ]
    assert container.view().env == {
        "SIMULATED_GPU_0": "Tesla T4|GPU-0",
        "SIMULATED_GPU_1": "Tesla V100-SXM2-16GB|GPU-1",
        "SIMULATED_GPU_2": "Tesla T4|GPU-2",
    }
    assert container.status() is None


def test_instances_of_one_gpu_are_injected_together_and_twice(node):
    """Each brings the node of the GPU; nodes of the kernel's memory devices (major 1) stand in."""
    card, *caps = (
        driver.DeviceNode(f"/dev/{name}", f"/dev/{stand_in}", 1, minor, 0o666)
        for name, stand_in, minor in (
            ("nvidia0", "null", 3),
            ("nvidia-caps/nvidia-cap12", "zero", 5),
            ("nvidia-caps/nvidia-cap21", "full", 7),
        )
    )
    uid = claims.ClaimUid(str(uuid.uuid4()))
    files = driver.DriverFiles("580.65.06", (), (), (), (), None)
    made = injecting.injection(files, (), {"a": (card, caps[0]), "b": (card, caps[1])})
    (node.cdi_dir / cdi.file_name(DRIVER, uid)).write_text(cdi.spec(DRIVER, uid, made))
    ids = [cdi.device_id(DRIVER, uid, name) for name in "aab"]
    list_numbers = "stat -c '%n %t:%T' /dev/nvidia0 /dev/nvidia-caps/*; sleep 99"
    container = node.start("sh", "-c", list_numbers, cdi_ids=ids)
    assert output(container, 3) == [
        "/dev/nvidia0 1:3",
        "/dev/nvidia-caps/nvidia-cap12 1:5",
        "/dev/nvidia-caps/nvidia-cap21 1:7",
    ]


def test_a_container_without_a_claim_sees_no_gpu_of_others(node):
    node.prepare((0, "Tesla T4", "GPU-0"))
    # Two streams of a container are two pipes, and nobody knows whose line was first.
    look = "ls /usr/bin/nvidia-smi 2>&1; env | grep -c SIMULATED; sleep 99"
    container = node.start("sh", "-c", look)
    assert output(container, 2) == ["ls: /usr/bin/nvidia-smi: No such file or directory", "0"]


def test_a_container_that_ends_tells_it_with_its_status_and_leaves_nothing(node):
    ended = threading.Event()
    container = node.start("sh", "-c", 'echo "$GREETING"; exit 3', on_end=ended.set, GREETING="a b")
    assert ended.wait(60)
    assert container.status() == 3
    assert container.view().output == ("a b",)
    assert node.containers() == []


def test_a_container_that_is_stopped_while_it_starts_does_not_stay(node):
    ended = threading.Event()
    container = node.start("sleep", "1000", on_end=ended.set)
    container.stop()
    assert ended.is_set()
    assert node.containers() == []
    container.stop()


def test_a_device_that_no_spec_has_is_refused_before_podman_is_asked(node):
    with pytest.raises(errors.Rejected, match="unresolvable"):
        node.start(cdi_ids=[f"{cdi.kind(DRIVER)}=absent"])
    assert not node.roots.exists()


def test_what_podman_refuses_is_in_the_output(node):
    [cdi_id] = node.prepare((0, "Tesla T4", "GPU-0"))
    [spec] = node.cdi_dir.iterdir()
    # The library that podman uses wants an absolute path; the pretended runtime does not look.
    spec.write_text(spec.read_text().replace('"/usr/bin/nvidia-smi"', '""'))
    ended = threading.Event()
    container = node.start(cdi_ids=[cdi_id], on_end=ended.set)
    assert ended.wait(60)
    assert container.status() not in (None, 0)
    assert "CDI" in "\n".join(container.view().output)


def test_output_that_is_no_text_or_very_long_does_no_harm(node):
    ended = threading.Event()
    script = "printf '\\377\\n'; i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i + 1)); done"
    container = node.start("sh", "-c", script, on_end=ended.set)
    assert ended.wait(60)
    lines = container.view().output
    assert lines[0] == "\ufffd"
    assert len(lines) == podman.LINES
    assert container.status() == 0


def test_the_directory_that_podman_looks_at_is_that_of_the_node(node):
    """Another node's claim is not visible, and the machine's directory stays as it is."""
    [cdi_id] = node.prepare((0, "Tesla T4", "GPU-0"))
    output(node.start(cdi_ids=[cdi_id]))
    assert [
        path.name for path in node.cdi_dir.iterdir() if (podman.CDI_DIR / path.name).exists()
    ] == []
    assert not podman.CDI_DIR.is_mount()


def test_the_machine_s_directory_stays_while_another_demo_uses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(podman, "CDI_DIR", tmp_path / "run" / "cdi")
    maker, user = podman._MountPoint(), podman._MountPoint()
    maker.hold()
    user.hold()
    maker.release()
    assert podman.CDI_DIR.is_dir()
    user.release()
    assert podman.CDI_DIR.is_dir()  # It is not this one's to remove.
    podman.CDI_DIR.rmdir()
    maker = podman._MountPoint()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(maker.hold) for _ in range(8)]:
            done.result()
    maker.release()
    assert not podman.CDI_DIR.exists()
    maker.release()


def test_the_machine_s_directory_stays_if_it_was_there_or_has_something_in_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(podman, "CDI_DIR", tmp_path)
    before = podman._MountPoint()
    before.hold()
    before.release()
    assert tmp_path.is_dir()
    monkeypatch.setattr(podman, "CDI_DIR", tmp_path / "cdi")
    filled = podman._MountPoint()
    filled.hold()
    (tmp_path / "cdi" / "vendor.json").touch()
    filled.release()
    assert (tmp_path / "cdi" / "vendor.json").exists()


def test_a_missing_tool_is_told_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(podman, "_TOOLS", ("podman", "no-such-tool"))
    with pytest.raises(errors.Fatal) as refused:
        podman.PodmanRuntime(tmp_path, tmp_path)
    assert "missing: no-such-tool. On Debian: apt-get install podman runc busybox-static" in str(
        refused.value
    )


def test_without_root_it_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(podman.os, "geteuid", lambda: 1000)
    with pytest.raises(errors.Fatal, match="missing: root"):
        podman.PodmanRuntime(tmp_path, tmp_path)


def test_a_root_that_cannot_be_made_can_be_tried_again(node):
    node.roots.write_text("in the way")
    with pytest.raises(errors.Retryable, match="container main: "):
        node.start("true")
    node.roots.unlink()
    output(node.start("echo", "works"))
