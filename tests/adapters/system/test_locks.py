import concurrent.futures
import contextlib
import errno
import fcntl
import functools
import os
import re
import signal
import subprocess
import sys
import threading

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.system import locks, patience

SHORT = functools.partial(patience.Patience, 0.02)

HOLDER = """
import pathlib, sys
from dra_driver.adapters.system import locks, patience
path, *names = sys.argv[1:]
with locks.Locks(pathlib.Path(path)).hold(names, patience.Patience(60)):
    print("held", flush=True)
    sys.stdin.read()
print("released", flush=True)
"""

CROSSING = """
import pathlib, sys
from dra_driver.adapters.system import locks, patience
made = locks.Locks(pathlib.Path(sys.argv[1]))
for turn in range(100):
    with made.hold(["b", "a"], patience.Patience(60)):
        if turn == 0:
            print("began", flush=True)
print("done", flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "locks"


@pytest.fixture
def mine(path):
    made = locks.Locks(path)
    yield made
    assert made._queues == {}
    made.close()


@contextlib.contextmanager
def held_elsewhere(path, *names):
    """Another process that holds the names, until it is told or the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), *names],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def is_free(one, *names):
    try:
        with one.hold(names, patience.Patience(0)):
            return True
    except errors.Retryable:
        return False


def test_two_threads_never_hold_one_name_at_once(mine):
    inside, most, turns = 0, 0, 0

    def work():
        nonlocal inside, most, turns
        for _ in range(200):
            with mine.hold(["gpu-0"], patience.Patience(60)):
                inside += 1
                most = max(most, inside)
                turns += 1
                inside -= 1

    run(work, work, work, work)
    assert (most, turns) == (1, 800)


def test_a_name_that_another_thread_holds_is_given_up_after_the_time(mine):
    with mine.hold(["gpu-0"], patience.Patience(1)):
        refused = []

        def ask():
            with (
                pytest.raises(errors.Retryable) as caught,
                mine.hold(["gpu-0"], patience.Patience(0.02)),
            ):
                pass
            refused.append(str(caught.value))

        run(ask)
    assert refused == ["gpu-0 is in use by another call; it is tried again with the next call"]
    assert is_free(mine, "gpu-0")


def test_a_message_calls_what_is_locked_as_people_know_it(mine):
    with mine.hold(["claim 1234"], patience.Patience(1)):
        refused = []

        def ask():
            called = {"claim 1234": "claim default/train (1234)"}
            with pytest.raises(errors.Retryable) as caught, mine.hold(called, patience.Patience(0)):
                pass
            refused.append(str(caught.value))

        run(ask)
    assert refused == [
        "claim default/train (1234) is in use by another call; it is tried again with the next call"
    ]


def test_different_names_are_held_side_by_side(mine):
    together = threading.Barrier(2, timeout=60)

    def work(name):
        with mine.hold([name], patience.Patience(60)):
            together.wait()

    run(lambda: work("gpu-0"), lambda: work("gpu-1"))


def test_names_in_any_order_do_not_deadlock(mine):
    orders = (["a", "b", "c"], ["c", "a", "b"], ["b", "c"], ["c", "b", "a", "a"])

    def work(order):
        for _ in range(100):
            with mine.hold(order, patience.Patience(60)):
                pass

    run(*(lambda order=order: work(order) for order in orders))


def test_names_in_different_order_do_not_deadlock_with_another_process(path, mine):
    crossing = subprocess.Popen(
        [sys.executable, "-c", CROSSING, str(path)], stdout=subprocess.PIPE, text=True
    )
    with crossing:
        assert crossing.stdout.readline() == "began\n"
        for _ in range(100):
            with mine.hold(["a", "b"], patience.Patience(60)):
                pass
        assert crossing.stdout.readline() == "done\n"
    assert crossing.returncode == 0


def test_a_name_that_another_process_holds_is_given_up_after_the_time(path, mine):
    with held_elsewhere(path, "gpu-0"):
        with (
            pytest.raises(errors.Retryable) as caught,
            mine.hold(["gpu-0"], patience.Patience(0.02)),
        ):
            pass
        assert str(caught.value) == (
            "gpu-0 is in use by another instance of the driver; "
            "it is tried again with the next call"
        )
        assert is_free(mine, "gpu-1", "claim 0a1b")
        # What was taken before the refused name is given back.
        assert not is_free(mine, "a", "gpu-0")
        assert is_free(mine, "a")


def test_a_name_is_had_as_soon_as_the_other_process_gives_it_up(path, mine):
    with held_elsewhere(path, "gpu-0") as holder:
        threading.Timer(0.05, holder.stdin.close).start()
        with mine.hold(["gpu-0"], patience.Patience(60)):
            assert holder.stdout.readline() == "released\n"


def test_the_names_of_a_killed_process_are_free(path, mine):
    with held_elsewhere(path, "gpu-0", "gpu-1") as holder:
        assert not is_free(mine, "gpu-1")
        os.kill(holder.pid, signal.SIGKILL)
        with mine.hold(["gpu-0", "gpu-1"], patience.Patience(60)):
            pass


def test_a_name_that_this_process_holds_is_taken_for_others(path, mine):
    with mine.hold(["gpu-0"], patience.Patience(1)):
        script = (
            "import pathlib, sys\n"
            "from dra_driver.adapters.system import locks, patience\n"
            "with locks.Locks(pathlib.Path(sys.argv[1])).hold(\n"
            "    sys.argv[2:], patience.Patience(0)):\n"
            "    pass\n"
        )
        command = [sys.executable, "-c", script, str(path), "gpu-0"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "gpu-0 is in use by another instance of the driver" in refused.stderr
    subprocess.run(command, timeout=60, check=True)


def test_whether_a_name_is_held_is_told_at_once_and_keeps_nobody_from_it(path, mine):
    assert not mine.is_held("gpu-0")
    with mine.hold(["gpu-0"], patience.Patience(1)):
        assert (mine.is_held("gpu-0"), mine.is_held("gpu-1")) == (True, False)
    with held_elsewhere(path, "gpu-0"):
        assert (mine.is_held("gpu-0"), mine.is_held("gpu-1")) == (True, False)
    with mine.hold(["gpu-0", "gpu-1"], patience.Patience(1)):
        pass


def test_a_block_that_raises_gives_its_names_back(mine):
    with pytest.raises(ZeroDivisionError), mine.hold(["gpu-0", "gpu-1"], patience.Patience(1)):
        raise ZeroDivisionError
    assert is_free(mine, "gpu-0", "gpu-1")


def test_what_the_operating_system_refuses_is_told_with_the_path(path, mine, monkeypatch):
    def refused(*_arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refused)
    told = f"{path} cannot be locked: {os.strerror(errno.ENOLCK)}. Remedy: "
    with pytest.raises(files.TROUBLE, match=re.escape(told)), mine.hold(["gpu-0"], SHORT()):
        pass
    monkeypatch.undo()
    assert is_free(mine, "gpu-0")
    with pytest.raises(files.TROUBLE, match="cannot be opened: No such file"):
        locks.Locks(path.parent / "absent" / "locks")


def test_no_names_are_always_to_be_had(mine):
    assert is_free(mine)


def test_one_file_of_our_own_carries_all_locks(path, mine):
    with mine.hold(["gpu-0", "claim ../x"], patience.Patience(1)):
        assert [entry.name for entry in path.parent.iterdir()] == ["locks"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == 0


def run(*works):
    """Runs each in a thread of its own; fails where one does."""
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    assert failures == []


def test_a_lock_for_which_enough_calls_wait_is_refused_at_once_to_one_more(mine):
    order = []

    def wait(number):
        with mine.hold(["gpu-0"], patience.Patience(60), most=2):
            order.append(number)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        with mine.hold(["gpu-0"], patience.Patience(1)):
            calls = []
            for number in range(2):
                calls.append(pool.submit(wait, number))
                polling.until(lambda number=number: mine.waiting("gpu-0") == number + 1)
            with pytest.raises(
                locks.Busy, match="gpu-0 is in use, and 2 calls wait for it already"
            ):
                wait(2)
        for call in calls:
            call.result(60)
    assert order == [0, 1]


def test_who_is_urgent_comes_before_all_who_are_not_however_many_wait(mine):
    order = []

    def wait(number, **how):
        with mine.hold(["gpu-0"], patience.Patience(60), **how):
            order.append(number)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        with mine.hold(["gpu-0"], patience.Patience(1)):
            calls = []
            for number, is_urgent in enumerate([False, False, True, True]):
                calls.append(pool.submit(wait, number, most=2, is_urgent=is_urgent))
                polling.until(lambda number=number: mine.waiting("gpu-0") == number + 1)
        for call in calls:
            call.result(60)
    assert order == [2, 3, 0, 1]
