"""Nodes whose GPUs can be reset."""

import mig_node
import pytest
import reset_scene

from dra_driver.apps.offering import inventory


@pytest.fixture
def new_patient(tmp_path, api, starter, monkeypatch):
    """Makes such nodes on the same directories; one made later is a restart."""
    monkeypatch.setattr(inventory, "LEAST_LOOK", mig_node.SECONDS)
    # What is seen counts, and need not be seen twice.
    monkeypatch.setattr(inventory, "LOOK_AGAIN", 0.0)
    made = []

    def make(gpus="h100-80gb-hbm3:2", *, own_program=False, **options):
        started_by = None if own_program else starter
        made.append(reset_scene.Node(tmp_path, gpus, api, started_by, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def patient(new_patient):
    """Two H100."""
    return new_patient()
