"""A node whose GPUs go to virtual machines."""

import pathlib
import tempfile

import passing_scene
import pytest


@pytest.fixture
def new_scene():
    made, roots = [], []

    def make(*arguments, **options):
        roots.append(tempfile.TemporaryDirectory(dir="/tmp"))
        made.append(passing_scene.Scene(pathlib.Path(roots[-1].name), *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for root in roots:
        root.cleanup()


@pytest.fixture
def scene(new_scene):
    """An H100 and a T4."""
    return new_scene()
