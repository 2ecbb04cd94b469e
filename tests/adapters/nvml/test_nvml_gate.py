"""NVML is closed for the whole process while a GPU is reset; who wants it meanwhile waits."""

import threading

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_gate
from dra_driver.sim.gpus import gpu_faults, gpus

SECONDS = 60.0


@pytest.fixture
def library(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="t4:1")


@pytest.fixture
def opened(library):
    return nvml.Nvml(library)


class Visitor:
    """A thread that has NVML open until it is told to leave, and can ask once more inside."""

    def __init__(self, opened):
        self._nvml = opened
        self.is_in, self.asks, self.has_asked, self.leaves = (threading.Event() for _ in range(4))
        self.thread = threading.Thread(target=self._visit)
        self.thread.start()

    def _visit(self):
        with self._nvml.session():
            self.is_in.set()
            self.asks.wait(SECONDS)
            with self._nvml.session() as library:
                assert library.nvmlDeviceGetCount() == 1
            self.has_asked.set()
            self.leaves.wait(SECONDS)

    def end(self):
        for event in (self.asks, self.leaves):
            event.set()
        self.thread.join(SECONDS)


def is_open(library):
    try:
        library.nvmlDeviceGetCount()
    except library.NVMLError:
        return False
    return True


def test_nobody_has_it_open_while_it_is_closed(opened, library):
    with opened.session():
        assert is_open(library)
    with opened.closed(SECONDS):
        assert not is_open(library)
    assert len(opened.discover().gpus) == 1


def test_who_is_in_is_waited_for_and_may_ask_on(opened, library):
    visitor = Visitor(opened)
    assert visitor.is_in.wait(SECONDS)
    closed = threading.Event()

    def close():
        with opened.closed(SECONDS):
            assert not is_open(library)
            closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    polling.until(lambda: opened._gate._is_closed)
    visitor.asks.set()
    assert visitor.has_asked.wait(SECONDS)
    assert not closed.is_set()
    visitor.end()
    assert closed.wait(SECONDS)
    closer.join(SECONDS)


def test_who_comes_meanwhile_waits_and_goes_on(opened):
    found = []
    with opened.closed(SECONDS):
        late = threading.Thread(target=lambda: found.append(opened.discover()))
        late.start()
        polling.until(lambda: opened._gate._changed._waiters)
        assert found == []
    late.join(SECONDS)
    assert len(found[0].gpus) == 1


def test_who_comes_does_not_wait_for_ever(opened, monkeypatch):
    monkeypatch.setattr(nvml_gate, "WAIT_SECONDS", 0.01)
    with opened.closed(SECONDS), pytest.raises(nvml_gate.Closed, match="while a GPU is reset"):
        opened.discover()
    assert len(opened.discover().gpus) == 1


def test_one_who_does_not_leave_is_not_closed_out(opened, library):
    visitor = Visitor(opened)
    assert visitor.is_in.wait(SECONDS)
    late = pytest.raises(errors.Retryable, match="a call of it has not come back")
    with late, opened.closed(0.01):
        pytest.fail("somebody has it open")
    assert is_open(library)
    assert len(opened.discover().gpus) == 1
    visitor.end()
    with opened.closed(SECONDS):
        assert not is_open(library)


def test_two_do_not_close_it_at_once(opened):
    with opened.closed(SECONDS):
        late = pytest.raises(nvml_gate.Closed, match="closed already")
        with late, opened.closed(0.01):
            pytest.fail("it is closed")
        # The first one has it still.
        assert opened._gate._is_closed


def test_who_wants_it_closed_meanwhile_has_it_closed_afterwards(opened, library):
    order = []

    def close():
        with opened.closed(SECONDS):
            order.append("second")
            assert not is_open(library)

    late = threading.Thread(target=close)
    with opened.closed(SECONDS):
        late.start()
        polling.until(lambda: opened._gate._changed._waiters)
        order.append("first")
    late.join(SECONDS)
    assert order == ["first", "second"]
    assert len(opened.discover().gpus) == 1


def test_an_opening_that_fails_is_nobody_inside(tmp_path, library, opened):
    gpu_faults.inject(tmp_path, function="nvmlInitWithFlags", error=9)
    with pytest.raises(errors.Retryable):
        opened.discover()
    gpu_faults.clear(tmp_path)
    opened.shutdown()
    with opened.closed(SECONDS):
        assert not is_open(library)


def test_one_thread_may_close_what_another_has_opened(opened, library):
    opened.init()
    other = threading.Thread(target=opened.shutdown)
    other.start()
    other.join(SECONDS)
    with opened.closed(SECONDS):
        assert not is_open(library)
