"""`dra-driver fault`: into which card of which node, what is said of it, and what is refused."""

import re

import pytest

from dra_driver import cli
from dra_driver.adapters.disk import card_names as names_on_disk
from dra_driver.model import card_names, health
from dra_driver.sim.gpus import (
    gpu_event_log,
    gpu_faults,
    gpu_health_state,
    gpu_operations,
    gpu_state,
    gpus,
    injecting,
)

NODES = {"hopper": "h100-80gb-hbm3:2", "mixed": "t4:1,l4:1", "cpu": "none"}
VARIABLES = ("NODE_NAME", "KUBECONFIG", "DRA_DRIVER_CONFIG", "DRA_DRIVER_NODE_NAME")


class Cluster:
    """The directory of an embedded cluster with its nodes, and what was said there."""

    def __init__(self, directory, capsys):
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig.yaml"
        self.kubeconfig.touch()
        self._capsys = capsys
        self._told = {}
        for node, spec in NODES.items():
            gpus.SimulatedNvml(self.gpus(node), spec=spec, node=node)
            self._told[node] = gpu_event_log.Reader(self.gpus(node))

    def gpus(self, node):
        return self.directory / node / "gpus"

    def uuid(self, node="hopper", number=0):
        return gpu_state.open_file(self.gpus(node)).read().gpus[number].uuid

    def state(self, node="hopper", number=0):
        """What is not as with a new card."""
        cards = gpu_health_state.open_file(self.gpus(node)).read().cards
        known = cards.get(self.uuid(node, number), gpu_health_state.Health())
        return known.model_dump(exclude_defaults=True)

    def heard(self, node="hopper"):
        self._told[node].listen(lambda _: True)
        return list(iter(self._told[node].next, None))

    def fault(self, *arguments):
        """What is said of a fault that was put in."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["fault", *arguments])
        said = self._capsys.readouterr()
        assert (ended.value.code, said.err) == (0, "")
        return said.out

    def refusal(self, *arguments):
        """What is said of one that was not, in one line."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["fault", *arguments])
        said = self._capsys.readouterr()
        assert (ended.value.code, said.out) == (1, "")
        assert re.fullmatch(r"dra-driver: .*\n", said.err)
        assert [self.heard(node) for node in NODES] == [[], [], []]
        return said.err.removeprefix("dra-driver: ").removesuffix("\n")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """No settings from outside."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def cluster(tmp_path, capsys, monkeypatch):
    made = Cluster(tmp_path, capsys)
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
    return made


def event(uuid, kind=health.EventKind.XID, **data):
    return gpu_event_log.Told(uuid, kind, **data)


def test_an_xid_is_told_by_the_card_that_is_named(cluster):
    assert cluster.fault("hopper/gpu-1", "xid", "31").startswith("hopper/gpu-1: told XID 31: ")
    assert cluster.heard() == [event(cluster.uuid(number=1), data=31)]
    assert cluster.heard("mixed") == []


def test_the_cluster_may_be_named_by_a_flag(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    cluster.fault("hopper/gpu-0", "thermal", "--kubeconfig", str(cluster.kubeconfig))
    assert cluster.state() == {"thermal": True}


def test_the_cluster_may_be_named_from_its_own_directory(cluster, monkeypatch):
    monkeypatch.chdir(cluster.directory)
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig.name)
    cluster.fault("hopper/gpu-0", "thermal")
    assert cluster.state() == {"thermal": True}


def test_a_lost_card_is_back_once_it_is_cleared_and_others_stay_lost(cluster):
    for card in ("gpu-0", "gpu-1"):
        assert "has fallen off the bus" in cluster.fault(f"hopper/{card}", "lost")
    cluster.fault("hopper/gpu-0", "clear")
    assert gpu_faults.lost(cluster.gpus("hopper")) == {cluster.uuid(number=1)}


def test_an_xid_of_a_partition_is_told_of_its_instance(cluster):
    made = gpu_operations.create_instance(cluster.gpus("hopper"), cluster.uuid(), "1g.10gb", 6)
    partition = "gpu-0-mig-1g10gb-19-6"
    cluster.fault("hopper/gpu-0", "xid", "48", "--instance", partition)
    assert cluster.heard() == [event(cluster.uuid(), data=48, gi=made.id)]
    cluster.refusal("hopper/gpu-1", "xid", "48", "--instance", partition)


def test_a_card_keeps_the_name_that_it_is_published_with(cluster):
    state, second = cluster.directory / "hopper" / "state", cluster.uuid(number=1)
    state.mkdir()
    names = names_on_disk.CardNames(state / "names")
    for uuid, name in ((second, "gpu-0"), (cluster.uuid(), "gpu-7")):
        names.write(card_names.CardName(gpu=uuid, device=name))
    cluster.fault("hopper/gpu-0", "thermal")
    assert (cluster.state(number=1), cluster.state()) == ({"thermal": True}, {})
    said = cluster.refusal("hopper/gpu-1", "thermal")
    assert said.startswith("GPU 'gpu-1': the node has gpu-0, gpu-7; ")


WRONG = {
    "node": ("ampere/gpu-0", "node 'ampere': the embedded cluster has cpu, hopper, mixed"),
    "no node": ("/gpu-0", "node '': the embedded cluster has cpu, hopper, mixed"),
    "outside": ("../hopper/gpu-0", "node '../hopper': the embedded cluster has "),
    "card": ("hopper/gpu-2", "GPU 'gpu-2': the node has gpu-0, gpu-1; write the name of a whole"),
    "no card": ("cpu/gpu-0", "GPU 'gpu-0': the node has no GPU"),
    "partition": (
        "hopper/gpu-0-mig-1g10gb-19-6",
        "GPU 'gpu-0-mig-1g10gb-19-6': the node has gpu-0",
    ),
}


@pytest.mark.parametrize(("target", "text"), WRONG.values(), ids=WRONG)
def test_a_card_that_is_not_there_is_refused_with_those_that_are(cluster, target, text):
    assert cluster.refusal(target, "ecc").startswith(text)
    assert [cluster.state(), cluster.state("mixed")] == [{}, {}]


def test_a_fault_that_there_is_not_is_refused_with_those_that_there_are(cluster):
    assert cluster.refusal("hopper/gpu-0", "xyz").startswith("fault 'xyz': it is one of xid, ")
    cluster.refusal("hopper/gpu-0", "xid")


def test_the_help_names_all_faults(capsys):
    with pytest.raises(SystemExit):
        cli.main(["fault", "--help"])
    told = re.sub(r"-\s+", "-", capsys.readouterr().out)
    assert [verb for verb in injecting.VERBS if verb not in told] == []


def test_another_cluster_is_left_alone(cluster, tmp_path):
    other = tmp_path / "other" / "config"
    other.parent.mkdir()
    other.touch()
    said = cluster.refusal("hopper/gpu-0", "ecc", "--kubeconfig", str(other))
    assert said.startswith(f"{other} is of no embedded cluster that runs: start one with dra-d")


def test_without_a_cluster_it_is_said_how_to_get_one(cluster, monkeypatch):
    monkeypatch.delenv("KUBECONFIG")
    assert cluster.refusal("hopper/gpu-0", "ecc") == (
        "no embedded cluster is named: have KUBECONFIG, or --kubeconfig, name the kubeconfig that "
        "dra-driver demo --keep prints"
    )


# In the pod of a plugin


def own(directory):
    return ["--node-name", "n", "--kubelet-root", str(directory)]


@pytest.fixture
def pod(tmp_path, cluster):
    """The flags of a plugin with simulated GPUs, and their directory."""
    root = tmp_path / "kubelet"
    simulation = root / "plugins" / "gpu.nvidia.com" / "simulation"
    gpus.SimulatedNvml(simulation, spec="h100-80gb-hbm3:1")
    return own(root), simulation


def test_in_the_pod_of_a_plugin_its_own_settings_say_where_its_gpus_are(pod, cluster):
    flags, simulation = pod
    [card] = gpu_state.open_file(simulation).read().gpus
    assert cluster.fault("gpu-0", "thermal", *flags) == "gpu-0: it is too hot, and runs slowly\n"
    assert gpu_health_state.open_file(simulation).read().cards[card.uuid].thermal
    cluster.fault("gpu-0", "clear", "--node-name", "n", "--simulation-dir", str(simulation))
    assert gpu_health_state.open_file(simulation).read().cards == {}


def test_settings_come_from_the_environment_too(pod, cluster, monkeypatch):
    _, simulation = pod
    monkeypatch.setenv("NODE_NAME", "n")
    monkeypatch.setenv("DRA_DRIVER_SIMULATION_DIR", str(simulation))
    assert cluster.fault("gpu-0", "xid", "79").startswith("gpu-0: told XID 79: ")


def test_real_gpus_are_left_alone(cluster, tmp_path):
    said = cluster.refusal("gpu-0", "lost", *own(tmp_path / "real"))
    missing = tmp_path / "real" / "plugins" / "gpu.nvidia.com" / "simulation"
    assert said.startswith(f"gpu-0: there are no simulated GPUs in {missing}, and real ones are ")
    assert not missing.exists()


def test_outside_of_a_pod_it_is_said_how_to_name_a_node(cluster):
    said = cluster.refusal("gpu-0", "ecc")
    assert said.startswith("node_name is not set: ")
    assert said.endswith("; of a node of a demo write NODE/gpu-0")
