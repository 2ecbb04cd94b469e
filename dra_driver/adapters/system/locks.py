"""Locks by name, between the threads of this process and between instances of the driver.

During a rolling update two instances share one state directory. One file carries all locks, as
record locks on single bytes, so that no file is left behind for each name. The kernel drops a
dead process's locks.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import threading
from collections.abc import Iterable, Iterator, Mapping

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.system import patience

POLL = 0.005
"""Seconds between looks at a lock that the *other* instance holds; the kernel cannot wake us."""
MOST_WAITERS = 32
"""Calls that may wait for one lock: whoever has it for long must not use up all workers."""


class Busy(errors.Retryable):
    """A lock was not to be had."""


class Locks:
    """Named locks over one file, had in the order in which they were asked for.

    Those that are urgent come first. Names are taken in sorted order, so holders cannot deadlock.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        # Closing any descriptor of the file would drop this process's locks: one stays open.
        with files.explaining("opened", path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._guard = threading.Lock()
        self._queues: dict[str, list[_Turn]] = {}

    def close(self) -> None:
        """Give the file up; no lock may be held."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def hold(
        self,
        names: Iterable[str] | Mapping[str, str],
        waiting: patience.Patience,
        *,
        most: int = MOST_WAITERS,
        is_urgent: bool = False,
    ) -> Iterator[None]:
        """Hold all the names for the length of the block; `most` may wait for one before.

        Who `is_urgent` comes before all who are not, and may wait however many do. A mapping tells
        what messages call each, where people know it otherwise.

        Raises:
            Busy: one of them stayed taken for as long as there was patience, or too many others
                wait for it already.
            errors.Abandoned: nobody waits any more.
        """
        called = names if isinstance(names, Mapping) else {}
        with contextlib.ExitStack() as stack:
            for name in sorted(set(names)):
                wanted = _Wanted(name, called.get(name, name), most, is_urgent)
                stack.enter_context(self._one(wanted, waiting))
            yield

    def waiting(self, name: str) -> int:
        """How many threads of this process wait for the lock."""
        with self._guard:
            return max(len(self._queues.get(name, ())) - 1, 0)

    def is_held(self, name: str) -> bool:
        """Whether somebody has the lock at this moment, here or in another instance."""
        try:
            with self.hold([name], patience.Patience(0), most=0):
                return False
        except Busy:
            return True

    @contextlib.contextmanager
    def _one(self, wanted: "_Wanted", waiting: patience.Patience) -> Iterator[None]:
        turn = self._enter(wanted)
        try:
            self._await_turn(wanted, turn, waiting)
            self._acquire_byte(wanted, waiting)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _offset(wanted.name))
        finally:
            self._leave(wanted.name, turn)

    def _enter(self, wanted: "_Wanted") -> "_Turn":
        """Queue up; who is first has the lock, as far as this process is concerned."""
        turn = _Turn(wanted.is_urgent)
        with self._guard:
            queue = self._queues.setdefault(wanted.name, [])
            if len(queue) > wanted.most and not wanted.is_urgent:
                raise Busy(
                    f"{wanted.called} is in use, and {wanted.most} calls wait for it already; it "
                    "is tried again with the next call"
                )
            # Never before the first, who has the lock.
            place = next(
                (at for at in range(1, len(queue)) if turn.is_urgent and not queue[at].is_urgent),
                len(queue),
            )
            queue.insert(place, turn)
            if queue[0] is turn:
                turn.come.set()
        return turn

    def _leave(self, name: str, turn: "_Turn") -> None:
        with self._guard:
            queue = self._queues[name]
            queue.remove(turn)
            if queue:
                queue[0].come.set()
            else:
                del self._queues[name]

    def _await_turn(self, wanted: "_Wanted", turn: "_Turn", waiting: patience.Patience) -> None:
        if turn.come.is_set():
            return
        # One event for both: that it is this one's turn, and that nobody waits any more.
        with waiting.waking(turn.come.set):
            turn.come.wait(waiting.left)
        with self._guard:
            has_turn = self._queues[wanted.name][0] is turn
        if not has_turn:
            waiting.check()
            raise wanted.taken("another call")

    def _acquire_byte(self, wanted: "_Wanted", waiting: patience.Patience) -> None:
        offset = _offset(wanted.name)
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
            except BlockingIOError:
                if not waiting.left:
                    raise wanted.taken("another instance of the driver") from None
                waiting.sleep(POLL)
            except OSError as error:
                raise files.explained(error, "locked", self._path) from error
            else:
                return


@dataclasses.dataclass(eq=False, slots=True)
class _Turn:
    """A place in a queue."""

    is_urgent: bool
    come: threading.Event = dataclasses.field(default_factory=threading.Event)


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """A lock, what messages call it, and how many may wait for it."""

    name: str
    called: str
    most: int
    is_urgent: bool

    def taken(self, holder: str) -> Busy:
        return Busy(f"{self.called} is in use by {holder}; it is tried again with the next call")


def _offset(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2
