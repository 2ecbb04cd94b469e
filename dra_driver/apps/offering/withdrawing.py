"""What may be left out of the slices, of what claims might have.

A device is left out when its GPU is not there any more; and when it is withdrawn and the API server
drops taints, its feature gate for them being off, so that nothing else would keep claims away. What
a claim has stays: the node knows of claims that are prepared, and the API server of those that are
allocated. It is asked as seldom as can be, as that takes a list of all claims.
"""

import random
import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from dra_driver import errors, telemetry
from dra_driver.model import backoff

Allocated = Callable[[], Collection[str]]
"""The names of the node's devices that claims have, prepared or not.

Raises:
    errors.DriverError: that is not known now.
"""
ASK_AGAIN = 10.0
"""Seconds after a device was left out until it is asked once more who has it: a scheduler may have
been behind at that moment. And the first pause, at most, before it is asked again about devices
that claims were seen to have, or that it could not be asked about."""
OLD = 1.0
"""Seconds after which an answer is too old to leave out by it what is listed still."""
LEAST_OFTEN = 80.0
"""The longest of those pauses, which double."""


class Withdrawing:
    """What was decided last. For one thread."""

    def __init__(
        self, allocated: Allocated, *, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance` spreads the pauses: many nodes may lose their drivers at once."""
        self._allocated = allocated
        self._chance = chance
        self._pauses = backoff.Schedule(ASK_AGAIN, LEAST_OFTEN)
        self._out: dict[str, float | None] = {}
        """When it is asked once more about what is left out; None: it was."""
        self._had: frozenset[str] = frozenset()
        self._kept: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._in_vain = 0
        self._asked = float("-inf")
        self._not_before = float("-inf")
        self._problem = ""
        self._due: float | None = None
        self._log = telemetry.logger("offers")

    @property
    def wait(self) -> float | None:
        """In how many seconds more may be known, of what was asked about last; None: all is."""
        return None if self._due is None else max(self._due - time.monotonic(), 0.0)

    def out(self, doubtful: AbstractSet[str], listed: AbstractSet[str]) -> frozenset[str]:
        """Those that no claim has; while that is not known, those that are not `listed` now."""
        now = time.monotonic()
        self._keep_up(doubtful, listed, now)
        new = doubtful - self._out.keys()
        late = {name for name, at in self._out.items() if at is not None and at <= now}
        if self._is_to_be_asked(new, late, now) and self._ask(new | late):
            self._settle(new, late)
        self._due = self._next(doubtful)
        return frozenset(self._out.keys() | (new - listed if self._problem else set()))

    def _keep_up(self, doubtful: AbstractSet[str], listed: AbstractSet[str], now: float) -> None:
        """Forget what may have been given out since: it is listed still, or others listed it."""
        is_old = now - self._asked >= OLD
        self._out = {
            name: at
            for name, at in self._out.items()
            if name in doubtful and not (name in listed and (at is None or is_old))
        }
        self._told &= doubtful

    def _is_to_be_asked(self, new: AbstractSet[str], late: AbstractSet[str], now: float) -> bool:
        if not (new or late):
            return False
        is_known = not self._problem and not late and new <= self._kept
        return now >= self._not_before or not (is_known or self._problem)

    def _next(self, doubtful: AbstractSet[str]) -> float | None:
        """When to ask again; None: there is nothing to be asked."""
        waits = [at for at in self._out.values() if at is not None]
        if doubtful - self._out.keys():
            waits.append(self._not_before)
        if not waits:
            return None
        return max(min(waits), self._not_before) if self._problem else min(waits)

    def _settle(self, new: AbstractSet[str], late: AbstractSet[str]) -> None:
        """Decide about what it was asked about."""
        now = time.monotonic()
        self._out |= dict.fromkeys(late)
        if back := self._out.keys() & self._had:
            self._log.warning(
                "devices were given to claims while they were left out, and are listed again",
                devices=sorted(back),
            )
            self._out = {name: at for name, at in self._out.items() if name not in back}
        self._out |= dict.fromkeys(gone := new - self._had, now + ASK_AGAIN)
        if gone - self._told:
            self._log.warning(
                "devices that no claim has are left out: their GPU is gone, or they are not well "
                "and the API server takes no taints",
                devices=sorted(gone - self._told),
            )
        self._told = frozenset(self._told | gone) - back
        kept = frozenset((new | back) & self._had)
        self._in_vain = self._in_vain + 1 if kept <= self._kept else 1
        self._kept = kept
        self._not_before = now + self._pauses.pause(self._in_vain, chance=self._chance())

    def _ask(self, names: Collection[str]) -> bool:
        """Learn what claims have; whether that is known now."""
        try:
            self._had = frozenset(self._allocated())
        except errors.DriverError as error:
            self._in_vain = self._in_vain + 1 if self._problem else 1
            pause = self._pauses.pause(self._in_vain, chance=self._chance())
            self._not_before = time.monotonic() + pause
            if str(error) != self._problem:
                self._log.info(
                    "devices that are gone or not well stay as they are listed: it is not known "
                    "who has them",
                    devices=sorted(names),
                    reason=str(error),
                )
            self._problem = str(error)
            return False
        self._asked = time.monotonic()
        if self._problem:
            self._problem, self._in_vain = "", 0
        return True
