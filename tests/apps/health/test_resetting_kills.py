"""The driver is killed before each step of a reset, and made anew: it ends what was begun.

It is a process of its own, forked: it shares nothing with this one but the directories.
"""

import os
import pathlib
import shutil
import signal

import effort
import polling
import pytest
import reset_scene
from apps import killed_plugin

from dra_driver.adapters.system import file_holders
from dra_driver.sim.gpus import host_gpu_reset

pytestmark = pytest.mark.deep

FOLDERS = ("resets", "health", "gpus")
PARTITION = "gpu-0-mig-1g10gb-19-6"
RESET = ["nvml reset", "after nvml reset"]
MODE = ["nvml set_persistence", "after nvml set_persistence"]
HOURS = 7200.0
PROC = pathlib.Path("/proc")


class Life:
    """A node whose driver dies; each life is some hours after the one before."""

    def __init__(self, root, api, starter, gpus):
        self._root, self._api, self._starter, self._gpus = root, api, starter, gpus
        self._log = root / "steps"
        self._time = 0.0

    def make(self):
        node = reset_scene.Node(self._root, self._gpus, self._api, self._starter)
        node.time = self._time
        return node

    def arrange(self, *numbers):
        """Cards that a driver wants reset, hours later."""
        self._time += HOURS
        node = self.make()
        node.wanting.want(*(node.uuid(number) for number in numbers))
        return node

    def dies(self, at):
        """Whether the driver, which is started and looks, is gone before this step."""
        self._log.write_text("")
        child = self.begin(at)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        assert os.WEXITSTATUS(status) == 0
        return False

    def begin(self, at=0):
        """The driver, started, in a process."""
        child = os.fork()
        if child:
            return child
        try:
            folders = [str(self._root / name) for name in FOLDERS]
            killed_plugin.Killer(folders, self._root, self._log, at).install()
            self.make().look()
            os._exit(0)
        finally:
            os._exit(1)

    def steps(self):
        return [line for line in self._log.read_text().splitlines() if "nvml" in line]

    def survivor(self):
        """The driver after the next start, which has looked."""
        self._time += 60.0
        node = self.make()
        node.look()
        return node


@pytest.fixture
def new_life(tmp_path, api, starter):
    return lambda gpus="h100-80gb-hbm3:2": Life(tmp_path, api, starter, gpus)


def test_a_reset_killed_before_any_step_is_done_once_and_leaves_nothing(new_life):
    life = new_life()
    for at in effort.steps():
        node = life.arrange(0)
        before = node.resets()
        node.close()
        died = life.dies(at)
        node = life.survivor()
        assert node.resets() == [before[0] + 1, before[1]], life.steps()
        assert node.is_over()
        assert node.told() is None
        tries = [at for at in node.health.book.resets(node.uuid(0)) if node.time - at < HOURS]
        assert len(tries) in {1, 2}
        node.close()
        if not died:
            break
    assert life.steps() == [*MODE, *RESET, *MODE]
    assert at > 20


def test_whatever_is_changed_is_written_down_before(new_life):
    life = new_life()
    for at in effort.steps():
        life.arrange(0).close()
        died = life.dies(at)
        node = life.make()
        assert node.begun.contents().records or all(node.persistence()), life.steps()
        node.close()
        life.survivor().close()
        if not died:
            break


def test_cards_that_are_reset_together_survive_a_kill_together(new_life):
    life = new_life("v100-16gb-sxm2:3")
    for at in effort.steps():
        node = life.arrange(0)
        node.link(0, 1)
        before = node.resets()
        node.close()
        died = life.dies(at)
        node = life.survivor()
        assert node.resets() == [before[0] + 1, before[1] + 1, 0], life.steps()
        assert node.is_over()
        node.close()
        if not died:
            break
    assert life.steps() == [*MODE, *MODE, *RESET, *MODE, *MODE]


def test_instances_that_were_left_over_go_with_the_reset_and_their_pages_too(new_life, api):
    life = new_life()
    for at in effort.steps():
        node = life.arrange(0)
        ref = api.make(PARTITION)
        node.prepare(ref)
        api.delete(ref)
        for path in (*(node.root / "claims").iterdir(), *node.cdi.iterdir()):
            path.unlink()
        shutil.rmtree(node.root / "dra-device-metadata")
        assert [path for path in node.files() if path.startswith("gpus")]
        node.close()
        died = life.dies(at)
        node = life.survivor()
        assert node.is_over()
        assert node.is_clean(), life.steps()
        node.close()
        if not died:
            break


def test_a_reset_that_goes_on_without_its_driver_is_waited_for(tmp_path, api):
    life = Life(tmp_path, api, None, "h100-80gb-hbm3:1")
    node = life.arrange(0)
    host_gpu_reset.inject(node.simulation, host_gpu_reset.Fault(hangs=True))
    [opened] = node.found.nodes(node.uuid(0), 0)
    node.close()
    child = life.begin()

    def programs():
        return [pid for pid in file_holders.pids(PROC, [opened]) if pid != child]

    [program] = polling.until(programs, what="nvidia-smi at work")
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        node = life.survivor()
        assert node.results == []
        assert f"(pid {program})" in node.told()
        assert "what an earlier reset left is not in order yet" in node.told()
        host_gpu_reset.inject(node.simulation, host_gpu_reset.Fault())
    finally:
        os.kill(program, signal.SIGKILL)
    polling.until(lambda: program not in programs(), what="the end of nvidia-smi")
    node.look()
    assert node.resets() == [1]
    assert node.is_over()
    node.close()


def test_a_boot_ends_what_was_begun(new_life, new_patient):
    life = new_life()
    at = 1
    while True:
        life.arrange(0).close()
        assert life.dies(at)
        node = life.make()
        is_begun = bool(node.begun.contents().records)
        node.close()
        if is_begun:
            break
        at += 1
    node = new_patient(boot="boot-2")
    node.recovering.look()
    assert node.begun.contents().records == {}
