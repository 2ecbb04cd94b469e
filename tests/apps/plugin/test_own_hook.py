"""The hook of the image, copied to where the container runtime finds it."""

import stat

import pytest

from dra_driver import gpu_kubelet_plugin
from dra_driver.apps.plugin import own_hook


@pytest.fixture
def hook(tmp_path, monkeypatch):
    path = tmp_path / "image" / "nvidia-cdi-hook"
    path.parent.mkdir()
    path.write_bytes(b"#!/bin/sh\n\xff\n")
    monkeypatch.setattr(own_hook, "HOOK", path)
    return path


@pytest.fixture
def directory(tmp_path):
    """That of the plugin, which is not there; the kubelet's is."""
    (tmp_path / "plugins").mkdir()
    return tmp_path / "plugins" / "gpu.nvidia.com"


def test_it_is_copied_whole_and_can_be_run(hook, directory):
    copied, problem = own_hook.installed(directory)
    assert (copied, problem) == (directory / "nvidia-cdi-hook", None)
    assert copied.read_bytes() == hook.read_bytes()
    assert stat.S_IMODE(copied.stat().st_mode) == 0o755
    assert [path.name for path in directory.iterdir()] == ["nvidia-cdi-hook"]


def test_a_copy_that_runs_is_replaced_and_not_changed(hook, directory):
    copied, _ = own_hook.installed(directory)
    with copied.open("rb") as running:
        hook.write_bytes(b"#!/bin/sh\nexit 0\n")
        own_hook.installed(directory)
        assert running.read() == b"#!/bin/sh\n\xff\n"
    assert copied.read_bytes() == hook.read_bytes()


def test_an_image_without_one_has_none(directory, hook):
    hook.unlink()
    assert own_hook.installed(directory) == (None, None)
    assert not directory.exists()


def test_what_keeps_it_from_being_copied_is_told(hook, directory):
    directory.parent.rmdir()
    copied, problem = own_hook.installed(directory)
    assert copied is None
    assert problem.startswith(f"{hook} is not used: ")
    assert str(directory) in problem
    assert problem.endswith("libraries are found through LD_LIBRARY_PATH")


def meant(**environment):
    found = gpu_kubelet_plugin._meaning(environment, None)
    return {name: (value, source) for name, value, source in found.given}, found.told


def test_in_the_operator_s_pod_the_copy_is_the_hook(hook, directory):
    plugins = {"KUBELET_PLUGINS_DIRECTORY_PATH": str(directory.parent)}
    given, told = meant(**plugins)
    assert given["cdi_hook"] == (
        str(directory / "nvidia-cdi-hook"),
        "nvidia-cdi-hook of the image",
    )
    assert told == ()
    own = {"NVIDIA_CDI_HOOK_PATH": "/opt/hook"}
    given, _ = meant(**plugins, **own)
    assert given["cdi_hook"][0] == "/opt/hook"


def test_a_driver_of_another_name_has_its_copy_in_its_own_directory(hook, directory):
    plugins = {"KUBELET_PLUGINS_DIRECTORY_PATH": str(directory.parent)}
    given, _ = meant(**plugins, DRA_DRIVER_DRIVER_NAME="gpu.example.com")
    own = directory.with_name("gpu.example.com")
    assert given["cdi_hook"][0] == str(own / "nvidia-cdi-hook")
    assert given["plugin_dir"][0] == str(own)


def test_a_copy_that_is_not_to_be_had_is_told_and_no_setting(hook):
    given, (told,) = meant(KUBELET_PLUGINS_DIRECTORY_PATH="/nowhere/plugins")
    assert "cdi_hook" not in given
    assert "is not used" in told
