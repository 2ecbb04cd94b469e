"""`dra-driver status` as a whole, on saved files and against the embedded API server."""

import contextlib
import json

import gpu_slices
import pytest
import status_scene
from control_plane import ControlPlane, request

from dra_driver import cli
from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube
from dra_driver.apps.looking import status_view
from dra_driver.logic.picturing import occupancy

pytestmark = pytest.mark.sampled(7)


@pytest.fixture
def status(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments):
        """Exit status, output, errors."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["status", *map(str, arguments)])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def write(tmp_path):
    def save(name, *bodies):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*bodies]}))
        return path

    return save


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Both nodes of the scene in a file."""
    path = tmp_path_factory.mktemp("saved") / "scene.yaml"
    items = [*status_scene.hopper(), *status_scene.mixed()]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


HOPPER_80 = """\
Node hopper: 8 x NVIDIA H100 80GB HBM3
gpu      0    1    2    3    4    5    6    7       free   largest fit   frag
-----------------------------------------------------------------------------
gpu-0   |a 3g.40gb training |b 1g|····|c 1g|····|   2/8    1g.10gb       50%
gpu-1   |c 1g|····:····:····:····:····:····:····|   7/8    3g.40gb       43%
gpu-2   |d llm-0, llm-1                         |   0/8    none          0%
gpu-3   |e 1g|f 1g|g 1g|····|h 1g|i 1g|····:····|   3/8    1g.20gb       33%
gpu-4   |j 4g.40gb reserved |····:····:····:····|   4/8    3g.40gb       0%
gpu-5   |k,l share-1, share-2                   |   0/8    none          0%
gpu-6   |····:····:····:····:····:····:····:····|   8/8    whole         0%
gpu-7   |····:····:····:····:····:····:····:····|   8/8    whole         0%

Claims on hopper
key   claim                          pods                has
-----------------------------------------------------------------------------
a     default/training-gpu-x7k2q     training            gpu-0 3g.40gb
b     default/small-a-gpu-x7k2q      small-a (Pending)   gpu-0 1g.10gb
c     default/small-b-gpu-x7k2q      small-b             gpu-0 1g.10gb
                                                         gpu-1 1g.10gb
d     default/big                    llm-0, llm-1        gpu-2
e     default/notebook-0-gpu-x7k2q   notebook-0          gpu-3 1g.10gb
f     default/notebook-1-gpu-x7k2q   notebook-1          gpu-3 1g.10gb
g     default/notebook-2-gpu-x7k2q   notebook-2          gpu-3 1g.10gb
h     default/notebook-4-gpu-x7k2q   notebook-4          gpu-3 1g.10gb
i     default/notebook-5-gpu-x7k2q   notebook-5          gpu-3 1g.10gb
j     default/reserved               none                gpu-4 4g.40gb
k     default/share-1-gpu-x7k2q      share-1             gpu-5 (memory 10Gi)
l     default/share-2-gpu-x7k2q      share-2             gpu-5 (memory 20Gi)
-     default/monitor-gpu-x7k2q      monitor             gpu-4 (admin access)

Node hopper: 8 GPUs, 2 idle, 32 of 64 memory slices free, largest fit whole, fragmentation 16%
"""

MIXED_80 = """\
Node mixed: 2 x Tesla T4
gpu       whole GPU                                    free   largest fit   frag
--------------------------------------------------------------------------------
gpu-0     |a infer                                 |   0/1    none          0%
gpu-1 !   |········································|   1/1    none          100%

Node mixed: 1 x NVIDIA A100-SXM4-40GB
gpu      0     1     2     3     4     5     6        free   largest fit   frag
-------------------------------------------------------------------------------
gpu-2   |3g.20gb················|-----|b 1g |1g···|   5/7    3g.20gb       20%

Claims on mixed
key   claim           pods    has
------------------------------------------
a     default/infer   infer   gpu-0
b     default/tiny    tiny    gpu-2 1g.5gb

Health on mixed
  gpu-1: gpu.nvidia.com/gpu-lost:NoSchedule since 2026-11-28T10:00:00Z: the GPU is lost

Node mixed: 3 GPUs, 1 idle, 5 of 7 memory slices free, largest fit 3g.20gb, fragmentation 20%
"""

CLUSTER_80 = """\
Cluster: 2 nodes, 11 GPUs, 3 idle, 37 of 71 memory slices free, largest fit whole, fragmentation 16%
"""


def test_each_node_is_a_grid_with_claims_and_sums(status, both, monkeypatch):
    monkeypatch.setattr(terminal, "PIPE_WIDTH", 80)
    code, out, _ = status("--from", both)
    assert code == 0
    assert out == f"{HOPPER_80}\n{MIXED_80}\n{CLUSTER_80}"


def test_no_line_of_a_grid_is_wider_than_the_terminal(capsys, monkeypatch):
    seen = occupancy.of(gpu_slices.snapshot(*status_scene.hopper(), *status_scene.mixed()))
    for width in range(75, 201):
        monkeypatch.setattr(terminal, "PIPE_WIDTH", width)
        status_view.show(seen, terminal.Terminal(), as_json=False)
        lines = capsys.readouterr().out.splitlines()
        tables = [line for line in lines if line.startswith(("gpu", "key", "---"))]
        assert max(map(len, tables)) <= width
        assert sum("|" in line for line in lines) == 11, "no row is folded"


def test_mig_uuids_are_in_the_table_where_there_is_room(status, write, monkeypatch):
    scene = write("scene.yaml", *status_scene.mixed())
    assert "MIG UUID" in status("--from", scene)[1]
    monkeypatch.setattr(terminal, "PIPE_WIDTH", 80)
    assert "MIG" not in status("--from", scene)[1]


def test_one_node_alone_has_no_sums_of_a_cluster(status, both, monkeypatch):
    monkeypatch.setattr(terminal, "PIPE_WIDTH", 80)
    code, out, _ = status("--from", both, "--node", "mixed")
    assert (code, out) == (0, f"{MIXED_80}\n")


def test_json_has_all_of_it(status, both):
    code, out, _ = status("--from", both, "--output", "json")
    body = json.loads(out)
    assert code == 0
    assert [node["name"] for node in body["nodes"]] == ["hopper", "mixed"]
    first = body["nodes"][0]["gpus"][0]
    assert first["largest"] == {"profile": "1g.10gb", "size": 1, "starts": [5]}
    assert (first["free"], first["size"], first["fragmentation"]) == (2, 8, 0.5)
    [part] = [part for part in first["parts"] if part["start"] == 4]
    assert part["profile"] == "1g.10gb"
    assert part["held_by"][0]["claim"] == "small-a-gpu-x7k2q"
    assert part["held_by"][0]["pods"] == [{"name": "small-a", "phase": "Pending"}]
    assert body["totals"]["gpus"] == 11
    shared = body["nodes"][0]["gpus"][5]["parts"][0]["held_by"]
    assert [who["consumed"] for who in shared] == [{"memory": "10Gi"}, {"memory": "20Gi"}]


def test_many_pods_of_a_claim_are_cut_in_tables(status, write):
    pods = tuple(f"p{number}" for number in range(6))
    scene = write("s.yaml", *gpu_slices.on_demand("n"), gpu_slices.held("a", "gpu-0", pods=pods))
    assert "p0, p1, p2, p3, and 2 more" in status("--from", scene)[1]


def test_more_than_26_claims_have_keys_of_two_letters(status, write):
    claims = [
        gpu_slices.held(f"c{minor}-{start}", gpu_slices.name(minor, "1g.10gb", start))
        for minor in range(4)
        for start in range(7)
    ]
    _, out, _ = status("--from", write("s.yaml", *gpu_slices.on_demand("n", 4), *claims))
    lines = [line.split() for line in out.splitlines()]
    listed = [line[0] for line in lines if line[1:2] and line[1].startswith("default/c")]
    assert listed == [*"abcdefghijklmnopqrstuvwxyz", "aa", "ab"]


def test_what_is_wrong_is_noted(status, write):
    twice = [
        gpu_slices.held("a", "gpu-0"),
        gpu_slices.held("b", gpu_slices.name(0, "1g.10gb", 0)),
        gpu_slices.held("c", "gpu-9"),
        gpu_slices.held("d", "gpu-0", node="gone"),
    ]
    _, out, _ = status("--from", write("s.yaml", *gpu_slices.on_demand("n"), *twice))
    assert "  gpu-0 has more allocated than there is\n" in out
    assert "  gpu-9 is allocated and not published: claim default/c" in out
    assert "  gpu.nvidia.com/gone/gpu-0 is allocated, and there is no such pool" in out


def test_gpus_of_another_driver_are_told_apart(status, write):
    bodies = gpu_slices.on_demand("n")
    for body in bodies:
        body["spec"]["driver"] = "gpu.example.com"
    _, out, _ = status("--from", write("s.yaml", *bodies))
    assert "Node n: 1 x NVIDIA H100 80GB HBM3, driver gpu.example.com\n" in out


def test_a_folder_of_files_can_be_read(status, write):
    path = write("saved/a.yaml", *gpu_slices.on_demand("one"))
    write("saved/b.json", *gpu_slices.on_demand("two"))
    (path.parent / "notes.txt").write_text("not: [read")
    assert "Cluster: 2 nodes, 2 GPUs, 2 idle" in status("--from", path.parent)[1]


def test_gpus_that_are_given_as_a_whole_have_a_grid_of_their_own(status, write):
    devices = [
        gpu_slices.whole("n", 0, model=gpu_slices.A100, on_demand=False),
        gpu_slices.instance("n", 1, "1g.5gb", 3, model=gpu_slices.A100),
    ]
    _, out, _ = status("--from", write("s.yaml", *gpu_slices.published("n", *devices)))
    assert out.count("Node n: 1 x NVIDIA A100-SXM4-40GB\n") == 2


def test_nodes_that_are_not_in_the_files_are_shown_all_the_same(status, write):
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
    _, out, _ = status("--from", write("s.yaml", *gpu_slices.on_demand("n"), other))
    assert "Node n: 1 GPU, 1 idle" in out


def test_nothing_published_is_said(status, write):
    code, out, _ = status("--from", write("s.yaml"))
    assert (code, out.splitlines()[0]) == (0, "No node publishes GPUs.")
    assert "there are no ResourceSlices: no driver has published devices" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "nope"], "node 'nope' publishes no GPUs; nodes that do: mixed"),
        (["--kubeconfig", "x"], "--kubeconfig and --from exclude each other"),
        (["--from", "/nonexistent.yaml"], "/nonexistent.yaml cannot be read"),
    ],
)
def test_what_cannot_be_shown_ends_with_1(status, write, arguments, message):
    code, out, err = status("--from", write("scene.yaml", *status_scene.mixed()), *arguments)
    assert (code, out) == (1, "")
    assert message in err


def test_a_folder_without_files_ends_with_1(status, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = status("--from", tmp_path / "empty")
    assert code == 1
    assert "the folder has no .yaml, .yml, .json file" in err


@pytest.mark.parametrize("arguments", [[], ["--kubeconfig", "/nonexistent"]])
def test_without_a_kubeconfig_the_error_says_how_to_give_one(status, arguments):
    code, out, err = status(*arguments)
    assert (code, out) == (1, "")
    assert "Pass --kubeconfig FILE" in err


@pytest.mark.parametrize(
    ("refusal", "step"),
    [
        (kube.Unavailable("GET /x", 0, "no answer", "refused"), "kubectl get --raw /readyz tells"),
        (kube.Forbidden("GET /x", 403, "Forbidden", "may not"), "ClusterRole dra-driver-viewer"),
    ],
)
def test_a_cluster_that_tells_nothing_is_answered_with_the_next_step(
    status, own_cluster, monkeypatch, refusal, step
):
    def refuse(*_, **__):
        raise refusal

    monkeypatch.setattr(kube.Client, "list", refuse)
    code, out, err = status("--kubeconfig", own_cluster.kubeconfig)
    assert (code, out) == (1, "")
    assert err.startswith(f"dra-driver: {refusal}. ")
    assert step in err


def test_the_help_defines_fragmentation(status):
    code, out, _ = status("--help")
    assert code == 0
    assert "it is (F - C) / F" in " ".join(out.split())


class TestAgainstACluster:
    @pytest.fixture
    def plane(self, tmp_path):
        running = ControlPlane(tmp_path)
        running.add_class("device.attributes['gpu.nvidia.com'].type == 'mig'", name="mig")
        running.add_class("device.attributes['gpu.nvidia.com'].type == 'gpu'", name="whole")
        running.add_node("n")
        for body in gpu_slices.on_demand("n", 2):
            running.create(kube.SLICES, body["metadata"]["name"], spec=body["spec"])
        with contextlib.closing(running):
            yield running

    def add_pod(self, plane, name, *selectors, device_class):
        wanted = [f"device.attributes['gpu.nvidia.com'].{text}" for text in selectors]
        plane.add_claim(f"{name}-gpu", request("gpu", *wanted, device_class=device_class))
        plane.add_pod(name, claims={"gpu": f"{name}-gpu"})
        plane.node_of(name)

    def test_what_the_scheduler_allocates_is_shown_and_nothing_is_written(
        self, plane, status, tmp_path, monkeypatch, capsys
    ):
        plane.start_scheduler()
        self.add_pod(plane, "half", "profile == '3g.40gb'", device_class="mig")
        self.add_pod(plane, "small", "profile == '1g.10gb'", device_class="mig")
        self.add_pod(plane, "big", device_class="whole")
        plane.stop_parts()
        capsys.readouterr()  # What the scheduler has logged.
        before = plane.claims(), [plane.pod(name) for name in ("half", "small", "big")]
        monkeypatch.setattr(terminal, "PIPE_WIDTH", 80)
        code, out, err = status("--kubeconfig", tmp_path / "kubeconfig")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert [line for line in lines if "|" in line] == [
            "gpu-0   |a 3g.40gb half     |b 1g|····:····:····|   3/8    1g.20gb       33%",
            "gpu-1   |c big                                  |   0/8    none          0%",
        ]
        assert "b     default/small-gpu   small (Pending)   gpu-0 1g.10gb" in lines
        assert (plane.claims(), [plane.pod(name) for name in ("half", "small", "big")]) == before
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        assert status()[1] == out

    def test_a_partition_that_the_driver_made_has_its_uuid(self, plane, status, tmp_path):
        plane.start_scheduler()
        self.add_pod(plane, "half", "profile == '3g.40gb'", device_class="mig")
        plane.stop_parts()
        device = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0-mig-3g40gb-9-0"}
        uuid = "MIG-1e2fb25c-3b0c-5f5b-8f86-5b5dcf0d1d3b"
        reported = {"status": {"devices": [device | {"data": {"uuid": uuid}}]}}
        plane.client.patch(kube.CLAIMS, "half-gpu", reported, "default", subresource="status")
        _, out, _ = status("--kubeconfig", tmp_path / "kubeconfig")
        assert uuid in out

    @pytest.mark.usefixtures("plane")
    def test_an_unknown_node_ends_with_1_and_names_those_that_are_known(self, status, tmp_path):
        code, _, err = status("--kubeconfig", tmp_path / "kubeconfig", "--node", "m")
        assert code == 1
        assert "node 'm' publishes no GPUs; nodes that do: n" in err


def test_an_api_server_that_is_too_old_is_named_as_the_reason(status, tmp_path):
    with contextlib.closing(ControlPlane(tmp_path, resource_versions=("v1beta1",))):
        code, _, err = status("--kubeconfig", tmp_path / "kubeconfig")
    assert code == 1
    assert "status needs Kubernetes 1.34 or newer" in err


class TestHealth:
    def show(self, capsys, *devices):
        scene = gpu_slices.snapshot(*gpu_slices.published("a", *devices))
        status_view.show(occupancy.of(scene), terminal.Terminal(), as_json=False)
        return capsys.readouterr().out

    def part(self, start, *taints):
        return gpu_slices.instance("a", 0, "1g.10gb", start) | {"taints": list(taints)}

    def taint(self, effect):
        return {"key": "example.com/worn", "effect": effect}

    def test_partitions_are_named_and_their_gpu_is_marked(self, capsys):
        out = self.show(capsys, self.part(0), self.part(1, self.taint("NoExecute")))
        assert "\ngpu-0 !   |" in out
        assert "Health on a\n  gpu-0-mig-1g10gb-19-1: example.com/worn:NoExecute\n" in out

    def test_of_many_devices_some_are_named(self, capsys):
        ill = [self.part(start, self.taint("NoSchedule")) for start in range(6)]
        out = self.show(capsys, *ill, self.part(6))
        names = ", ".join(f"gpu-0-mig-1g10gb-19-{start}" for start in range(4))
        assert f"  {names}, and 2 more: example.com/worn:NoSchedule\n" in out

    def test_what_only_informs_is_told_last_and_marks_nothing(self, capsys):
        out = self.show(capsys, self.part(0, self.taint("None")))
        assert "\ngpu-0   |" in out
        assert "Health" not in out
        assert "For information on a\n  gpu-0: example.com/worn:None\n" in out
