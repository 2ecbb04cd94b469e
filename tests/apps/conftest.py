"""A node to try things on. What a module can share is started once for it."""

import api_cluster
import plugin_process
import plugin_victim
import pytest

from dra_driver.model import prepared


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
    """What calls it; claims that a test leaves are unprepared."""
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


def _end(plugins):
    for plugin in plugins:
        plugin.kill()
    assert [line for plugin in plugins for line in plugin.complaints()] == []
