"""Writers of device status on an API server."""

import api_cluster
import pytest
from device_status_scene import Scene


@pytest.fixture(scope="module")
def served():
    """An API server with one Node object."""
    made = api_cluster.Cluster()
    yield made
    made.close()


@pytest.fixture
def started():
    """Makes scenes whose writers run until the end of the test."""
    made = []

    def make(cluster):
        made.append(Scene(cluster))
        made[-1].writer.start()
        return made[-1]

    yield make
    for scene in made:
        scene.writer.stop()


@pytest.fixture
def scene(served, started):
    return started(served)
