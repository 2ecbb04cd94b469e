"""A node to try things on. What a module can share is started once for it."""

import functools
import pathlib
import shutil
import tempfile

import api_cluster
import mig_node
import mps_pods_scene
import mps_scene
import mps_supervisor
import nursery
import plugin_process
import plugin_victim
import pytest
import sharing_claims
import sharing_node

from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import preparing
from dra_driver.model import prepared
from dra_driver.sim.gpus import gpu_faults


@pytest.fixture(scope="module")
def cluster():
    """An API server with one Node object."""
    made = api_cluster.Cluster()
    yield made
    made.close()


@pytest.fixture(scope="module")
def machine():
    """The directories of that node."""
    made = plugin_process.Machine()
    yield made
    made.close()


@pytest.fixture(scope="module")
def new_plugin(machine, cluster):
    """Makes plugins on the node; those that still run at the end are killed."""
    made = []

    def make(**options):
        made.append(plugin_process.Plugin(machine, cluster, **options))
        return made[-1]

    yield make
    _end(made)


@pytest.fixture(scope="module")
def plugin(new_plugin):
    """A plugin on that node, with a bigger and a smaller GPU."""
    return new_plugin().start()


@pytest.fixture
def kubelet(plugin, machine):
    """What calls it, once it serves calls; claims that a test leaves are unprepared."""
    plugin.kubelet.unprepare()
    yield plugin.kubelet
    for path in sorted(machine.records.glob("*.json")):
        plugin.kubelet.unprepare(prepared.decode(path.read_text()).ref)
    assert machine.files() == []


@pytest.fixture
def own_cluster():
    """An API server for one test alone."""
    made = api_cluster.Cluster()
    yield made
    made.close()


@pytest.fixture
def own_machine():
    """Directories for one test alone."""
    made = plugin_process.Machine()
    yield made
    made.close()


@pytest.fixture
def own_plugin(own_machine, own_cluster):
    """Makes plugins for one test alone."""
    made = []

    def make(**options):
        cluster = options.pop("cluster", own_cluster)
        made.append(plugin_process.Plugin(own_machine, cluster, **options))
        return made[-1]

    yield make
    _end(made)


@pytest.fixture
def victim(own_machine, own_cluster):
    """A plugin that can be killed before any of its steps."""
    made = plugin_victim.Victim(own_machine, own_cluster)
    yield made
    _end([made.plugin])


@pytest.fixture
def checks(own_machine, own_cluster):
    """What must be true of the files of claims."""
    return plugin_victim.Checks(own_machine, own_cluster)


@pytest.fixture
def api():
    """Claims without an API server."""
    return mig_node.Claims()


@pytest.fixture
def new_node(tmp_path, api, monkeypatch):
    """Makes nodes in this process, on the same directories; one made later is a restart."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    # However short a call: no look at simulated GPUs hangs.
    monkeypatch.setattr(inventory, "LEAST_LOOK", mig_node.SECONDS)
    # What is seen counts, and need not be seen twice.
    monkeypatch.setattr(inventory, "LOOK_AGAIN", 0.0)
    made = []

    def make(gpus="h100-80gb-hbm3:2", **options):
        made.append(mig_node.Node(tmp_path, gpus, api, **options))
        return made[-1]

    yield make
    for each in made:
        each.held.close()


@pytest.fixture
def node(new_node):
    """Two H100."""
    return new_node()


@pytest.fixture
def faults(node):
    """Lets calls of NVML fail."""
    return functools.partial(gpu_faults.inject, node.simulation)


@pytest.fixture
def failing_call(monkeypatch):
    """Lets call number `number` (from 0) of a method fail; gives the calls."""

    def let(target, name, error, number):
        original, calls = getattr(target, name), []

        def call(*arguments):
            calls.append(arguments)
            if len(calls) == number + 1:
                raise error
            return original(*arguments)

        monkeypatch.setattr(target, name, call, raising=False)
        return calls

    return let


@pytest.fixture
def lose(node):
    """Lets a GPU fall off the bus."""
    return lambda number: gpu_faults.remove(node.simulation, node.uuid(number))


def _end(plugins):
    for plugin in plugins:
        plugin.kill()
    assert [line for plugin in plugins for line in plugin.complaints()] == []


@pytest.fixture(scope="session")
def starter():
    """Starts supervisors and the stand-in for nvidia-smi without loading them each time."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="nursery-", dir="/tmp"))
    made = nursery.Nursery(directory)
    yield made
    made.close()
    shutil.rmtree(directory)


@pytest.fixture
def place():
    """Where MPS daemons of one test are."""
    made = mps_scene.Scene()
    yield made
    made.close()


@pytest.fixture
def supervise(place):
    """Starts supervisors there; see `mps_supervisor.Supervisor`."""
    with mps_supervisor.starting(place) as start:
        yield start


@pytest.fixture(scope="module")
def pods_cluster(cluster):
    """That API server, with the namespace of the pods of MPS daemons."""
    return mps_pods_scene.with_namespace(cluster)


@pytest.fixture
def pods(pods_cluster, place):
    """What runs those pods; the daemons are in that place."""
    with mps_pods_scene.running_pods(pods_cluster) as made:
        yield made


@pytest.fixture
def launchers(pods_cluster, place, pods):
    """Makes launchers of such pods."""
    return mps_pods_scene.Launchers(pods_cluster, place)


@pytest.fixture
def launcher(launchers):
    """One of them."""
    return launchers.new()


@pytest.fixture
def users():
    """Claims with configs and shares, without an API server."""
    return sharing_claims.Claims()


@pytest.fixture
def new_host(users, starter, monkeypatch):
    """Makes nodes that share GPUs, on the same directories; one made later is a restart."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    monkeypatch.setattr(inventory, "LEAST_LOOK", mig_node.SECONDS)
    # What is seen counts, and need not be seen twice.
    monkeypatch.setattr(inventory, "LOOK_AGAIN", 0.0)
    root = pathlib.Path(tempfile.mkdtemp(prefix="sharing-", dir="/tmp"))
    made = []

    def make(gpus="h100-80gb-hbm3:3", **options):
        made.append(sharing_node.Node(root, gpus, users, starter, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def host(new_host):
    """Two H100, each for one claim at a time."""
    return new_host()


@pytest.fixture
def shared_host(new_host):
    """Two H100 in shares by memory and cores, held to by MPS."""
    return new_host(shares=sharing_node.BY_MEMORY)
