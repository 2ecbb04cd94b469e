"""The driver as it is really laid out: all who use it find it, at the right place.

Users are NVML, the control program of MPS, nvidia-smi, and containers (CDI).
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import driver_trees
import pytest

from dra_driver import errors, settings
from dra_driver.adapters.driver import driver_programs
from dra_driver.adapters.mps import mps_control
from dra_driver.adapters.nvml import nvidia_smi, nvml
from dra_driver.apps.node import host

VERSION = driver_trees.VERSION
trees = pytest.mark.parametrize("tree", driver_trees.TREES, ids=lambda tree: tree.name)


def configured(tree, **flags):
    return settings.KubeletPlugin(
        node_name="here", driver_root=tree.root, library_dirs=tree.given, **flags
    )


class Container:
    """The plugin's: the driver root of the node is mounted in it, and the node's root is not."""

    def __init__(self, tree, tmp_path):
        self.tree = tree
        node = tree.make(tmp_path / "node")
        self.seen = tmp_path / "driver-root"
        self.seen.symlink_to(node / tree.root.lstrip("/"))
        self.config = configured(tree, driver_root_seen=self.seen)

    def at(self, path):
        """Where it sees what has this path on the host."""
        return self.seen / self.tree.below_root(path).lstrip("/")

    def searched(self, stem):
        """The variables by which the loader finds a library."""
        library = self.at(self.tree.library(stem))
        if self.tree.searches:
            return {"LD_LIBRARY_PATH": str(library.parent)}
        return {"LD_PRELOAD": str(library)}


@pytest.fixture
def container(tree, tmp_path):
    return Container(tree, tmp_path)


@trees
def test_nvml_is_the_library_of_the_node(container, tree):
    with pytest.raises(nvml.NoLibrary) as caught:
        host.hardware(container.config).nvml.init()

    library = container.at(tree.library("libnvidia-ml"))
    # It is what the loader was given; these are no real libraries.
    assert f": {library}: invalid ELF header" in str(caught.value)


@trees
def test_nvidia_smi_runs_with_the_library_of_the_node(container, tree):
    program = container.at(f"{tree.programs}/nvidia-smi")
    program.write_text('#!/bin/sh\necho "$0"\nenv\nexit 1\n')

    with pytest.raises(errors.Retryable) as caught:
        host.hardware(container.config).nvidia_smi.time_slice("GPU-1")

    said = str(caught.value).split("said: ")[1].split("; ")
    assert said[0] == str(program)
    variables = dict(line.split("=", 1) for line in said[1:] if line.startswith("LD_"))
    assert variables == container.searched("libnvidia-ml")


@trees
def test_the_control_program_of_mps_finds_server_and_library(container, tree):
    found = mps_control.find(host.hardware(container.config).driver)

    directory = container.at(tree.programs)
    assert found.path == directory / "nvidia-cuda-mps-control"
    assert found.environment == {
        "PATH": f"{directory}:/usr/bin:/bin",
        **container.searched("libcuda"),
    }


@trees
def test_containers_are_given_the_files_of_the_node(container, tree):
    files = host.installed_driver(container.config).files(VERSION)

    named = tree.named or tree.below_root(tree.libraries)
    assert {library.path: library.host_path for library in files.libraries} == {
        f"{named}/{stem}.so.{VERSION}": tree.library(stem)
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    }
    cuda = next(library for library in files.libraries if "libcuda" in library.file_name)
    assert cuda.links == ("libcuda.so", "libcuda.so.1")
    assert {file.host_path for file in files.binaries} == {
        f"{tree.programs}/{name}"
        for name in ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
    }


ON_THE_NODE = """
import json, os, pathlib, sys
import driver_trees, test_driver_layouts

outside = os.open("/", os.O_RDONLY)
told = {}
for tree in driver_trees.TREES:
    # What is loaded on the way would not be found further down.
    test_driver_layouts.found(tree)
    os.chroot(f"{sys.argv[1]}/{tree.name}")
    os.chdir("/")
    told[tree.name] = test_driver_layouts.found(tree)
    os.fchdir(outside)
    os.chroot(".")
print(json.dumps(told))
"""


def found(tree):
    """What the users find whose own root is that of the node."""
    config = configured(tree)
    hardware = host.hardware(config)
    told = {}
    with contextlib.suppress(errors.DriverError):
        try:
            hardware.nvml.init()
        except nvml.NoLibrary as error:
            told["nvml"] = str(error)
        smi = driver_programs.find(hardware.driver, nvidia_smi.PROGRAM, library=nvidia_smi.LIBRARY)
        mps = mps_control.find(hardware.driver)
        told["programs"] = [str(smi.path), str(mps.path)]
        told["environment"] = [smi.environment, mps.environment]
        files = host.installed_driver(config).files(VERSION)
        told["libraries"] = sorted(library.host_path for library in files.libraries)
    return told


@pytest.fixture(scope="module")
def on_the_node(tmp_path_factory):
    """What a plugin finds that runs on the node itself, by the names of the trees."""
    if os.geteuid() != 0:
        pytest.skip("chroot takes root")
    directory = tmp_path_factory.mktemp("nodes")
    for tree in driver_trees.TREES:
        tree.make(directory / tree.name)
    here = pathlib.Path(__file__)
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_NODE, str(directory)],
        env={**os.environ, "PYTHONPATH": f"{here.parent}:{here.parents[2]}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@trees
def test_a_plugin_on_the_node_itself_finds_the_same(tree, on_the_node):
    told = on_the_node[tree.name]

    assert f"{tree.library('libnvidia-ml')}: invalid ELF header" in told["nvml"]
    assert told["programs"] == [
        f"{tree.programs}/{name}" for name in ("nvidia-smi", "nvidia-cuda-mps-control")
    ]
    assert told["libraries"] == sorted(
        tree.library(stem) for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    )
    path = {"PATH": f"{tree.programs}:/usr/bin:/bin"}
    assert told["environment"] == [
        searched_on_the_node(tree, "libnvidia-ml"),
        {**path, **searched_on_the_node(tree, "libcuda")},
    ]


def searched_on_the_node(tree, stem):
    """The loader finds by itself what the node has, but for what only the settings name."""
    if tree.root == "/" and not tree.given:
        return {}
    if tree.searches:
        return {"LD_LIBRARY_PATH": tree.libraries}
    return {"LD_PRELOAD": tree.library(stem)}
