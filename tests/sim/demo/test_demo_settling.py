"""When the demo stops waiting: all is as expected, or nothing more can come."""

import threading

import pytest

from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import runtime
from dra_driver.sim.demo import demo, outcome

SEEN = runtime.View({}, (), (("/host", "/usr/bin/nvidia-smi"),), ("GPU 0",))
UNSEEN = runtime.View({}, (), (("/host", "/usr/bin/nvidia-smi"),), ())
NOTHING = runtime.View({}, (), (), ())
LONG = demo.STEADY_SECONDS + 1


def pod(phase, view=SEEN, expected="Running", **fields):
    containers = {"main": view} if phase == "Running" else {}
    return outcome.Pod("default", "a", expected, phase, None, None, (), containers, **fields)


def result(*args, **fields):
    return outcome.Outcome({}, (pod(*args, **fields),))


def busy(reason=None):
    """A workload whose controller has more to do."""
    work = outcome.Workload("Deployment", "default", "web", at_rest=False, reason=reason)
    return outcome.Outcome({}, (pod("Running"),), (work,))


@pytest.mark.parametrize(
    ("what", "seconds", "engine", "settled"),
    [
        (result("Running"), 0.0, "pretended", False),
        (result("Running"), 0.2, "pretended", True),
        (result("Running", NOTHING), 0.2, "podman", True),
        (result("Running", UNSEEN), 0.2, "podman", False),
        (result("Running", UNSEEN), demo.OUTPUT_SECONDS + 1, "podman", True),
        (result("Unschedulable", expected="Unschedulable"), 0.2, "podman", True),
        (result("Pending"), 50.0, "pretended", False),
        (result("Failed"), 0.0, "podman", True),
        (result("Unschedulable"), 0.2, "pretended", False),
        (result("Unschedulable"), LONG, "pretended", True),
        (result("Unschedulable"), LONG, "podman", False),
        (outcome.Outcome({}, ()), 0.2, "pretended", True),
        # Its controller is still at it, or cannot.
        (busy(), LONG, "pretended", False),
        (busy(reason="forbidden"), 0.2, "pretended", False),
        (busy(reason="forbidden"), LONG, "pretended", True),
        # What runs will not wait any more.
        (result("Running", expected=outcome.WAITED), 0.0, "pretended", True),
        (result("Running", expected="Unschedulable"), 0.0, "podman", True),
        (result("Pending", expected=outcome.WAITED), LONG, "pretended", False),
        (result("Unschedulable", expected=outcome.WAITED), LONG, "pretended", True),
        (result("Refused", expected=outcome.REFUSED), 0.2, "podman", True),
        # It is asked for again, and may be prepared then.
        (result("Refused"), 0.2, "pretended", False),
        (result("Refused"), LONG, "pretended", True),
    ],
)
def test_the_wait_ends_when_nothing_more_can_come(what, seconds, engine, settled):
    assert demo._is_settled(what, seconds, engine) is settled


@pytest.mark.parametrize(
    ("other", "settled"),
    [
        (pod("Running", ends=True), False),
        (pod("Running"), True),
        (pod("Succeeded", ends=True), True),
        (pod("Unschedulable", ends=True), True),
    ],
)
def test_a_pod_that_waits_has_hope_while_one_that_will_end_is_running(other, settled):
    waiting = pod("Unschedulable", expected=outcome.WAITED)
    assert demo._is_settled(outcome.Outcome({}, (waiting, other)), LONG, "pretended") is settled


@pytest.mark.parametrize(
    ("what", "ready"),
    [
        (result("Running", has_run=True), True),
        (result("Succeeded", has_run=True), True),
        (result("Running", has_run=True, expected=outcome.WAITED), True),
        (result("Unschedulable", expected="Unschedulable"), True),
        (result("Unschedulable", expected=outcome.WAITED), False),
        (result("Pending"), False),
        (busy(), False),
    ],
)
def test_the_next_step_comes_when_all_pods_have_run_or_are_as_expected(what, ready):
    assert demo._have_run(what) is ready


def test_progress_names_a_pod_that_is_waited_for():
    assert demo._progress(result("Pending")) == (
        "Waiting for pods: 0 of 1 as expected; default/a is Pending"
    )
    assert demo._progress(result("Running")) == "Waiting for pods: 1 of 1 as expected"


class Looks:
    """An observer whose looks have these ends, one after another; the last over and over."""

    def __init__(self, *ends):
        self.ends = list(ends)

    def look(self):
        found = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(found, Exception):
            raise found
        return found

    def check_alive(self):
        pass


def settle(*ends, stop=None, **options):
    with terminal.Terminal().progress("waiting") as progress:
        asked = demo.Options(**options)
        return demo._settle(Looks(*ends), asked, stop or threading.Event(), progress, None)


LATE = kube.Unavailable("GET /api/v1/pods", 0, "no answer", "timed out")


def test_a_look_that_is_not_answered_in_time_is_not_the_last(capsys):
    running = result("Running")
    assert settle(result("Pending"), LATE, LATE, running) == running


def test_who_is_never_answered_is_told_so_at_the_end_of_the_time(capsys):
    with pytest.raises(kube.Unavailable, match="no answer"):
        settle(LATE, timeout=0.01)


def test_who_is_not_answered_and_stopped_waits_no_longer(capsys):
    stop = threading.Event()
    stop.set()
    with pytest.raises(kube.Unavailable, match="no answer"):
        settle(LATE, stop=stop, timeout=600)
