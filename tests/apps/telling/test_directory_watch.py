"""Directories of the node that go while the plugin runs."""

import os
import pathlib
import shutil

import api_cluster
import plugin_process
import pytest

from dra_driver import errors, settings
from dra_driver.adapters.disk import directories
from dra_driver.apps.node import node_directories
from dra_driver.apps.plugin import probe
from dra_driver.apps.telling import directory_watch


@pytest.fixture
def config(own_machine):
    made = settings.KubeletPlugin(
        node_name=api_cluster.NODE,
        kubelet_root=own_machine.kubelet,
        cdi_dir=own_machine.cdi,
        state_dir=own_machine.root / "state",
    )
    for path in (made.plugin, made.state / "claims", made.state / "gpus", made.cdi_dir):
        path.mkdir(parents=True)
    return made


def probed(config, **flags):
    try:
        probe.check(config, **flags)
    except errors.Retryable as error:
        return str(error)
    return ""


def test_nothing_is_told_while_all_are_there_and_nothing_is_put_into_them(config):
    watch = directory_watch.DirectoryWatch(config)
    before = {path: path.stat().st_mtime_ns for path in (config.registry, config.cdi_dir)}
    assert watch.trouble() is None
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("registry", "registration directory"),
        ("plugin", "plugin directory"),
        ("state", "state directory"),
        ("state/claims", "directory of records"),
        ("state/gpus", "directory of ledgers"),
    ],
)
def test_one_that_is_gone_is_named_and_only_a_new_start_mends_it(config, own_machine, name, what):
    path = getattr(config, name.partition("/")[0]) / name.partition("/")[2]
    shutil.rmtree(path)
    told = directory_watch.DirectoryWatch(config).trouble()
    assert told.startswith(f"{what} {path}: it is gone. {node_directories.ONLY_ANEW}")
    assert not path.exists()


def test_the_directory_of_cdi_specs_is_made_again(config, capsys):
    watch = directory_watch.DirectoryWatch(config)
    config.cdi_dir.rmdir()
    assert watch.trouble() is None
    assert config.cdi_dir.is_dir()
    assert capsys.readouterr().out.count("the CDI directory was gone; it is made again") == 1
    config.cdi_dir.rmdir()
    config.cdi_dir.touch()
    told = f"CDI directory {config.cdi_dir}: it is no directory any more"
    assert watch.trouble().startswith(told)


def test_one_that_was_removed_under_a_mount_is_known_by_that(config):
    """As in a container, whose mount stays the directory that is removed."""
    descriptor = os.open(config.cdi_dir, os.O_RDONLY)
    try:
        seen = pathlib.Path(f"/proc/self/fd/{descriptor}")
        config.cdi_dir.rmdir()
        found = directories.loss(seen)
        assert found == directories.Loss(
            "it was removed, and this is the old one", was_replaced=True, is_lasting=True
        )
        replaced = config.model_copy(update={"cdi_dir": seen})
        assert node_directories.ONLY_ANEW in directory_watch.DirectoryWatch(replaced).trouble()
    finally:
        os.close(descriptor)


def test_a_plugin_whose_state_directory_is_gone_is_told_to_be_started_again(
    own_machine, own_cluster, own_plugin
):
    state = own_machine.root / "state"
    config = settings.KubeletPlugin(
        node_name=api_cluster.NODE, kubelet_root=own_machine.kubelet, state_dir=state
    )
    plugin = own_plugin(state_dir=state).start()
    plugin.register()
    api_cluster.wait_for(lambda: probed(config) == "", lambda: probed(config))
    ref = own_cluster.claim("gpu-0")
    answer = plugin.kubelet.prepare(ref)
    shutil.rmtree(state)
    assert probed(config).partition("state directory")[2].startswith(f" {state}: it is gone")
    assert probed(config, allow_starting=True) == probed(config)
    plugin.wait_log("not ready")
    plugin.kill()
    plugin.start()
    # It is rebuilt from the API and the CDI spec.
    plugin.register()
    api_cluster.wait_for(lambda: probed(config) == "", lambda: probed(config))
    assert plugin.kubelet.prepare(ref) == answer == [plugin_process.device(ref, "gpu-0")]
    plugin.kubelet.unprepare(ref)


def test_a_plugin_goes_on_without_its_directory_of_cdi_specs(own_machine, own_cluster, own_plugin):
    plugin = own_plugin().start()
    plugin.kubelet.prepare(own_cluster.claim("gpu-0"))
    shutil.rmtree(own_machine.cdi)
    # A probe makes it look.
    config = settings.KubeletPlugin(node_name=api_cluster.NODE, kubelet_root=own_machine.kubelet)
    api_cluster.wait_for(lambda: (probed(config), own_machine.cdi.is_dir())[1], "it again")
    plugin.wait_log("the CDI directory was gone; it is made again")
    ref = own_cluster.claim("gpu-1")
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1")]
    assert own_machine.spec(ref) is not None
