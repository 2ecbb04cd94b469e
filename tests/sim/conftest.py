"""A control plane, and a node with its kubelet, to try things on."""

import kubelet_node
import pytest
from control_plane import DRIVER, ControlPlane

from dra_driver.sim import kubelet


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
