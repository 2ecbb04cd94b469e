"""What neighbours look at: a running cluster with this driver's real slices, claims and files."""

import contextlib
import pathlib
import tempfile
import threading

import api_cluster
import neighbour_fleet
import plugin_process
import pytest
import reserved_port

from dra_driver.sim.cluster import cluster, runtime


@pytest.fixture(scope="session")
def fleet():
    """Nodes with cards of several kinds, in an embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        made = cluster.Cluster(
            neighbour_fleet.SPECS,
            pathlib.Path(name),
            runtime_for=lambda cdi_dir, _: runtime.PretendedRuntime(cdi_dir),
        )
        try:
            made.start()
            assert made.wait_ready(threading.Event())
            yield neighbour_fleet.Fleet(made)
        finally:
            made.stop()


@pytest.fixture
def own_cluster():
    """An API server for one test alone."""
    made = api_cluster.Cluster()
    yield made
    made.close()


@pytest.fixture
def own_machine():
    """The directories of its node."""
    made = plugin_process.Machine()
    yield made
    made.close()


@pytest.fixture
def free_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number
