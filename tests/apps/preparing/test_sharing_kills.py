"""The driver is killed before each step that shares a GPU, and made anew.

It is a process of its own, forked. Daemons outlive it, as they do on a node.
"""

import functools
import os
import shutil
import signal
import traceback

import effect_claims
import effort
import polling
import pytest
import sharing_claims
import sharing_node
from apps import killed_plugin

from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.nvml import nvidia_smi, nvml_compute
from dra_driver.adapters.pci import pci_bus

pytestmark = pytest.mark.deep

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
LIMITED_PARTITION = sharing_claims.mps_mig(
    defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="2Gi"
)
CHEATING = effect_claims.CHEATING


class Killer(killed_plugin.Killer):
    """Also before what is done to daemons, their directories, time slices and compute modes."""

    def install(self):
        super().install()
        for kind, names in (
            (nvidia_smi.NvidiaSmi, ("time_slice", "set_time_slice")),
            (nvml_compute.ComputeModes, ("get", "set", "check")),
            (pci_bus.PciBus, ("load", "allow", "unbind", "bind")),
            (
                mps_local.LocalLauncher,
                ("start", "wait_ready", "retire", "wait_ended", "remove"),
            ),
        ):
            for name in names:
                self._note(kind, name)

    def step(self, what, target):
        # A process that is killed leaves the same before these and after.
        if what not in {"chmod", "fsync"}:
            super().step(what, target)

    def audit(self, event, arguments):
        super().audit(event, arguments)
        if event == "os.remove" and arguments[1] >= 0:
            self.step("remove in a directory", None)
        elif event in {"os.mkdir", "os.rmdir", "shutil.rmtree"}:
            self.step(event, arguments[0])
        elif event in {"subprocess.Popen", "signal.pidfd_send_signal"}:
            self.step(event, None)

    def _note(self, kind, name):
        original = getattr(kind, name)

        def call(itself, *arguments, **options):
            self.step(name, None)
            answer = original(itself, *arguments, **options)
            self.step(f"after {name}", None)
            return answer

        setattr(kind, name, call)


class Life:
    """A host whose driver dies."""

    def __init__(self, new_host, **options):
        self._new_host = functools.partial(new_host, **options)
        self.host = self.restart()
        self._log = self.host.root / "steps"

    def restart(self):
        self.host = self._new_host().start()
        return self.host

    def dies_in(self, action, at):
        """Whether the driver is gone in the action, before this step."""
        self._log.write_text("")
        child = os.fork()
        if child == 0:
            try:
                root = self.host.root
                folders = [str(root / name) for name in sharing_node.FOLDERS]
                Killer(folders, root, self._log, at).install()
                action()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        assert os.WEXITSTATUS(status) == 0
        return False

    def steps(self, *words):
        """The steps of the last life, of these kinds."""
        lines = self._log.read_text().splitlines()
        return [line for line in lines if not words or line in words]


def survives(life, ref, action, works, *, arrange=lambda: None, clean=None, quick=False):
    """Kill it before each step in turn: afterwards the claim can be given back, and works.

    Unless it is quick, of two steps one is followed by this and one by that, since a daemon takes
    its time: each file that is written, and each thing that is done, comes with several steps.
    """
    clean = clean or (lambda host: host.is_clean())
    for at in effort.steps():
        for is_asked_again in (True, False) if quick else (bool(at % 2),):
            arrange()
            if not life.dies_in(action, at):
                return
            host = life.restart()
            if is_asked_again:
                host.prepare(ref)
                assert works(host, ref), life.steps()
            host.unprepare(ref)
            assert clean(host), life.steps()


def is_limited_in_its_partition(host, ref):
    assert host.gets(ref, **CHEATING) == (50, 2)
    return {host.described(ref).device} == host.mig_uuids()


@pytest.fixture
def life(new_host):
    return Life(new_host)


# Of these one prepare, and the unprepare of another effect.
@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
@pytest.mark.parametrize("case", effect_claims.CASES.values(), ids=effect_claims.NAMES)
def test_a_claim_survives_a_kill_before_any_step_of_each_effect(life, users, operation, case):
    life.host.set_card(**case.before)
    untouched = life.host.hardware()
    ref = users.give(case.device, configs=case.configs)

    def is_back(host):
        assert (host.files(), host.hardware()) == ([], untouched)
        return host.runs_nothing()

    survives(
        life,
        ref,
        lambda: getattr(life.host, operation)(ref),
        case.works,
        arrange=lambda: operation == "prepare" or life.restart().prepare(ref),
        clean=is_back,
        quick=case.is_quick,
    )
    # Attempts are repeated until what they have to wait for is there.
    done = case.prepared if operation == "prepare" else case.unprepared
    assert tuple(dict.fromkeys(life.steps(*done))) == done


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_claim_with_a_daemon_in_its_partition_survives_a_kill_before_any_step(
    life, users, operation
):
    # What nobody has open is forgotten, as far as the kernel's driver forgets.
    life.host.set_card(persistence_mode=False)
    ref = users.give(PARTITION, configs=[LIMITED_PARTITION])
    survives(
        life,
        ref,
        lambda: getattr(life.host, operation)(ref),
        is_limited_in_its_partition,
        arrange=lambda: operation == "prepare" or life.restart().prepare(ref),
    )
    # Attempts are repeated until the daemon is ready, or has ended.
    done = {"prepare": ["start"], "unprepare": ["retire", "remove"]}[operation]
    assert list(dict.fromkeys(life.steps("start", "retire", "remove"))) == done


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_second_share_that_is_killed_leaves_the_first_alone(new_host, users, operation):
    life = Life(new_host, shares=sharing_node.BY_MEMORY)
    first, second = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    life.host.prepare(first)
    process, kept = life.host.daemon(first), life.host.files()

    def is_shared(host, ref):
        assert host.daemon(first) == process
        assert host.gets(ref, **CHEATING) == (40, 30)
        return host.gets(first) == (20, 10)

    def is_the_firsts_alone(host):
        host.look_after()
        assert host.files() == kept
        assert host.daemon(first) == process
        return host.gets(first, **CHEATING) == (20, 10)

    survives(
        life,
        second,
        lambda: getattr(life.host, operation)(second),
        is_shared,
        arrange=lambda: operation == "prepare" or life.restart().prepare(second),
        clean=is_the_firsts_alone,
    )
    life.host.unprepare(second)
    life.restart().unprepare(first)
    assert life.host.is_clean()


def test_a_killed_prepare_whose_record_is_lost_leaves_no_daemon_after_the_next_start(life, users):
    ref = users.give(GPU, configs=[sharing_claims.mps_gpu()])
    for at in effort.steps():
        if not life.dies_in(lambda ref=ref: life.host.prepare(ref), at):
            break
        users.delete(ref)
        for folder in ("claims", "cdi"):
            for path in (life.host.root / folder).iterdir():
                path.unlink()
        life.restart()
        assert life.host.daemons() == [], life.steps()
        # A supervisor that was about to start finds out by itself.
        polling.until(life.host.runs_nothing)
        shutil.rmtree(life.host.root / "gpus")
        life.host.set_card(compute_mode=sharing_node.DEFAULT)
        ref = users.give(GPU, configs=[sharing_claims.mps_gpu()])
        life.restart()
