"""The driver is killed before each step that changes a file or a GPU, and made anew.

It is a process of its own, forked: it shares nothing with this one but the directories.
"""

import functools
import os
import shutil
import signal

import effort
import mig_node
import pytest
from apps import killed_plugin

pytestmark = pytest.mark.deep

FIRST, SECOND, OTHER_CARD = mig_node.FIRST, mig_node.SECOND, mig_node.OTHER_CARD
FOLDERS = ("claims", "cdi", "gpus", "simulation")

MAKE = ["nvml create", "after nvml create", "nvml create_compute", "after nvml create_compute"]
UNMAKE = [
    *("nvml destroy_compute", "after nvml destroy_compute"),
    *("nvml destroy", "after nvml destroy"),
]
MODE = ["nvml set_mode", "after nvml set_mode"]


class Life:
    """A node whose driver dies; what others did to its GPUs has to stay."""

    def __init__(self, new_node, api, root, gpus="h100-80gb-hbm3:2"):
        self._new_node, self._root, self._gpus = new_node, root, gpus
        self._log = root / "steps"
        self.api = api
        self.before = None
        self.arrange = lambda: None
        self.node = self.restart()

    def restart(self):
        self.node = self._new_node(self._gpus)
        self.node.recover()
        return self.node

    def dies_in(self, action, at):
        """Whether the driver is gone in the action, before this step."""
        self._log.write_text("")
        child = os.fork()
        if child == 0:
            try:
                folders = [str(self._root / name) for name in FOLDERS[:3]]
                killed_plugin.Killer(folders, self._root, self._log, at).install()
                action()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        assert os.WEXITSTATUS(status) == 0
        return False

    def steps(self, word="nvml"):
        return [line for line in self._log.read_text().splitlines() if word in line]

    def save(self):
        for name in FOLDERS:
            shutil.copytree(self._root / name, self._root / "saved" / name, symlinks=True)

    def load(self):
        for name in FOLDERS:
            shutil.rmtree(self._root / name)
            shutil.move(self._root / "saved" / name, self._root / name)


@pytest.fixture
def life(new_node, api, tmp_path):
    return Life(new_node, api, tmp_path)


def survives(life, ref, action, *devices):
    """Kill it before each step in turn: afterwards the claim works, and can be given back."""
    before = life.before or life.node.hardware()
    for at in effort.steps():
        if not life.dies_in(action, at):
            return
        life.save()
        life.restart().unprepare(ref)
        assert (life.node.files(), life.node.hardware()) == ([], before), life.steps("")
        life.load()
        life.restart().prepare(ref)
        works(life.node, ref, *devices)
        life.node.unprepare(ref)
        assert (life.node.files(), life.node.hardware()) == ([], before), life.steps("")
        life.arrange()


def works(node, ref, *devices):
    partitions = node.record(ref).partitions
    assert [one.device for one in partitions] == list(devices)
    found = node.mig_uuids(0) | (node.mig_uuids(1) if len(node.hardware()) > 1 else set())
    assert {one.uuid for one in partitions} <= found
    assert all(any(text.endswith(one.uuid) for text in node.variables(ref)) for one in partitions)


def test_a_prepare_killed_before_any_step_can_be_asked_again_or_undone(life, api):
    ref = api.make(FIRST)
    survives(life, ref, lambda: life.node.prepare(ref), FIRST)
    assert life.steps() == [*MODE, *MAKE]


def test_an_unprepare_killed_before_any_step_can_be_asked_again_or_taken_back(life, api):
    ref = api.make(FIRST)
    life.before = life.node.hardware()
    life.arrange = lambda: life.restart().prepare(ref)
    life.arrange()
    survives(life, ref, lambda: life.node.unprepare(ref), FIRST)
    assert life.steps() == [*UNMAKE, *MODE]


def test_two_partitions_beside_instances_of_others_survive_a_kill_before_any_step(life, api):
    life.node.foreign("1g.10gb", 0)
    life.node.foreign("1g.10gb", 0, number=1, compute=False)
    ref = api.make(FIRST, OTHER_CARD)
    life.restart()
    survives(life, ref, lambda: life.node.prepare(ref), FIRST, OTHER_CARD)
    assert life.steps() == [*MAKE, *MAKE]


def test_an_unprepare_of_two_partitions_beside_those_of_others_survives_a_kill(life, api):
    life.node.foreign("1g.10gb", 0)
    ref = api.make(FIRST, OTHER_CARD)
    life.before = life.node.hardware()
    life.arrange = lambda: life.restart().prepare(ref)
    life.arrange()
    survives(life, ref, lambda: life.node.unprepare(ref), FIRST, OTHER_CARD)
    assert life.steps() == [*UNMAKE, *MODE, *UNMAKE]


def test_a_claim_given_another_partition_survives_a_kill_before_any_step(life, api):
    ref = api.make(FIRST)
    life.before = life.node.hardware()

    def arrange():
        api.allocate(ref, FIRST)
        life.restart().prepare(ref)
        api.allocate(ref, OTHER_CARD)

    life.arrange = arrange
    arrange()
    survives(life, ref, lambda: life.node.prepare(ref), OTHER_CARD)
    assert life.steps() == [*UNMAKE, *MODE, *MODE, *MAKE]


def test_on_ampere_a_prepare_survives_a_kill_before_any_step(new_node, api, tmp_path):
    life = Life(new_node, api, tmp_path, "a100-40gb-sxm4:1")
    life.node.set_mig_mode(on=True)
    life.restart()
    ref = api.make("gpu-0-mig-3g20gb-9-4")
    survives(life, ref, lambda: life.node.prepare(ref), "gpu-0-mig-3g20gb-9-4")
    assert life.steps() == MAKE


def test_a_second_claim_that_is_killed_does_not_touch_the_first(life, api):
    other, ref = api.make(SECOND), api.make(FIRST)
    life.node.prepare(other)
    kept = life.node.files()
    before = life.node.hardware()
    for at in effort.steps():
        if not life.dies_in(lambda: life.node.prepare(ref), at):
            break
        life.restart().unprepare(ref)
        assert (life.node.files(), life.node.hardware()) == (kept, before), life.steps("")
    assert life.steps() == MAKE


def test_a_killed_prepare_whose_claim_nobody_asks_for_again_is_cleaned_up(life, api):
    ref = api.make(FIRST)
    for at in effort.steps():
        if not life.dies_in(functools.partial(life.node.prepare, ref), at):
            break
        api.delete(ref)
        # The record is lost as well, and all that is known of it.
        shutil.rmtree(life.node.root / "claims")
        shutil.rmtree(life.node.root / "dra-device-metadata", ignore_errors=True)
        for path in life.node.cdi.iterdir():
            path.unlink()
        life.restart().clean()
        assert life.node.hardware() == [(False, False, [], True)] * 2, life.steps("")
        assert [name for name in life.node.files() if ".json.new" not in name] == []
        ref = api.make(FIRST)
    assert life.steps() == [*MODE, *MAKE]
