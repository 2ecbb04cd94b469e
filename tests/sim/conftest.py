"""A control plane, a node with its kubelet, and a plugin manager alone, to try things on."""

import pathlib
import tempfile

import kubelet_node
import pytest
import scripted_plugin
from control_plane import DRIVER, ControlPlane

from dra_driver.sim.cluster import kubelet, plugins


@pytest.fixture
def plane(tmp_path):
    running = ControlPlane(tmp_path)
    running.add_class(f'device.driver == "{DRIVER}"')
    yield running
    running.close()


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(kubelet, "RETRY_SECONDS", 0.1)
    made = kubelet_node.OneNode()
    yield made
    made.close()


@pytest.fixture
def agent(node):
    return node.start_kubelet()


@pytest.fixture
def plugin(node, agent):
    """A plugin that the kubelet of the node has registered."""
    return node.add_plugin()


@pytest.fixture
def registry(monkeypatch):
    """At a short path: that of a socket may have 107 bytes."""
    monkeypatch.setattr(plugins, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(plugins, "LOOK_SECONDS", 0.02)
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as directory:
        yield pathlib.Path(directory) / "plugins_registry"


@pytest.fixture
def gone():
    """The drivers that had no plugin for too long."""
    return []


@pytest.fixture
def new_manager(registry, gone):
    made = []

    def new_manager(**options):
        made.append(plugins.Plugins(registry, on_gone=gone.append, **options))
        made[-1].start()
        return made[-1]

    yield new_manager
    for manager in made:
        manager.stop()


@pytest.fixture
def manager(new_manager):
    return new_manager()


@pytest.fixture
def new_plugin(registry, manager):
    made = []

    def new_plugin(**options):
        made.append(scripted_plugin.ScriptedPlugin(registry, **options))
        return made[-1]

    yield new_plugin
    for plugin in made:
        plugin.stop()
