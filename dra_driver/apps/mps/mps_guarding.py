"""Keeps an MPS control daemon answering: clients that connect and say nothing are cut off.

Nothing is cut as long as the daemon answers. After a cut others of the kind are likely, and for a
while they are let wait less: so a queue of them passes, and an honest client gets its turn.
"""

import dataclasses
import pathlib
import time

from dra_driver import errors, telemetry
from dra_driver.adapters.mps import mps_guard

_TELL_SECONDS = 5.0
_LOOK_SECONDS, _STRICT_LOOK_SECONDS = 0.25, 0.02

_log = telemetry.logger("mps-daemon")


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """Seconds. `between` questions whether the daemon answers, `strict_between` after a cut.

    A daemon that does not answer is told of after `late` if a client is silent, and after `slow` if
    none is seen: it may just be slow on a busy machine. A silent client is cut off after `silent`,
    or `strict_silent` in the time `strict` after the last cut. A daemon that has not answered for
    `patience`, with nothing cut meanwhile, is started again.
    """

    between: float = 5.0
    strict_between: float = 0.5
    late: float = 2.0
    slow: float = 10.0
    silent: float = 5.0
    strict_silent: float = 0.1
    strict: float = 30.0
    patience: float = 20.0


class Guard:
    """Of one daemon after the other. It looks only while somebody waits for an answer."""

    def __init__(self, times: Times) -> None:
        """It has no daemon yet."""
        self.times = times
        self._daemon: int | None = None
        self._path = pathlib.Path("/")
        self._asked: float | None = None
        self._counted = 0.0
        self._last: mps_guard.Connection | None = None
        self._since: dict[mps_guard.Connection, float] = {}
        self._strict_until = 0.0
        self._cut = 0
        self._told = -_TELL_SECONDS
        self._problem = ""

    def follow(self, daemon: int, path: pathlib.Path) -> None:
        """Look after this child from now on, whose socket is at `path`."""
        self._daemon, self._path = daemon, path
        self.answered()

    def answered(self) -> None:
        """The daemon has answered."""
        self._asked = self._last = None
        self._since = {}

    @property
    def pause(self) -> float:
        """Seconds until the next look, while an answer is waited for."""
        return _STRICT_LOOK_SECONDS if self._is_strict() else _LOOK_SECONDS

    @property
    def between(self) -> float:
        """Seconds until the daemon is to be asked again whether it answers."""
        return self.times.strict_between if self._is_strict() else self.times.between

    @property
    def unanswered(self) -> float:
        """Seconds for which it has been asked in vain; from the last cut on, if there was one."""
        return 0.0 if self._asked is None else time.monotonic() - self._counted

    @property
    def problem(self) -> str:
        """Why the daemon is not fit for clients; empty as long as it may be."""
        times = self.times
        waited = 0.0 if self._asked is None else time.monotonic() - self._asked
        one = self._last if waited >= times.late else None
        if max(self.waits(), default=0.0) >= times.late:
            one = min(self._since, key=self._since.__getitem__)
        if one is not None:
            return f"it does not answer: {one} has connected, and says nothing"
        return f"it has not answered for {times.slow:g} s" if waited >= times.slow else ""

    def waits(self) -> list[float]:
        """For how long it has been seen to wait on each of the clients that are silent now."""
        now = time.monotonic()
        return [now - since for since in self._since.values()]

    def look(self) -> None:
        """See who is silent; to be called again and again while an answer is waited for."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = self._counted = now
        self._since = {one: self._since.get(one, now) for one in self._waited_on()}

    def cut(self) -> bool:
        """Cut off who has been seen to be silent for too long; whether somebody was."""
        now, times = time.monotonic(), self.times
        most = times.strict_silent if self._is_strict() else times.silent
        silent = [one for one, since in self._since.items() if now - since >= most]
        is_cut = False
        for one in silent:
            if self._end(one):
                is_cut = True
                self._counted, self._strict_until = now, now + times.strict
                self._last = one
                self._note(one)
        return is_cut

    def _is_strict(self) -> bool:
        return time.monotonic() < self._strict_until

    def _waited_on(self) -> tuple[mps_guard.Connection, ...]:
        if self._daemon is None:
            return ()
        try:
            return mps_guard.waited_on(self._daemon, self._path)
        except (OSError, errors.DriverError) as error:
            self._complain(error)
            return ()

    def _end(self, one: mps_guard.Connection) -> bool:
        self._since.pop(one, None)
        try:
            return self._daemon is not None and mps_guard.cut(self._daemon, one)
        except (OSError, errors.DriverError) as error:
            self._complain(error)
            return False

    def _note(self, one: mps_guard.Connection) -> None:
        """Have it logged who was cut off: a line every few seconds, however many there are."""
        self._cut += 1
        now = time.monotonic()
        if now - self._told >= _TELL_SECONDS:
            _log.warning(
                "clients of the MPS daemon that said nothing were cut off",
                count=self._cut,
                last_pid=one.pid,
                last_uid=one.uid,
            )
            self._cut, self._told = 0, now

    def _complain(self, error: Exception) -> None:
        if str(error) != self._problem:
            _log.warning(
                "silent clients of the MPS daemon cannot be cut off here; if it does not answer, "
                "it is started again",
                reason=str(error),
            )
        self._problem = str(error)
