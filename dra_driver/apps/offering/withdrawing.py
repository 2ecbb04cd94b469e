"""What may be left out of the slices, of what claims might have.

A device is left out when its GPU is not there any more; and when it is withdrawn and the API server
drops taints, its feature gate for them being off, so that nothing else would keep claims away. What
a claim has stays: the node knows of claims that are prepared, and the API server of those that are
allocated. It is asked as seldom as can be, as that takes a list of all claims.
"""

import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from dra_driver import errors, telemetry

Allocated = Callable[[], Collection[str]]
"""The names of the node's devices that claims have, prepared or not.

Raises:
    errors.DriverError: that is not known now.
"""
ASK_AGAIN = 10.0
"""Seconds for which a device is left alone that a claim was seen to have, before it is asked again;
and after which it is asked once more about one that was left out, as a scheduler may have been
behind at that moment."""


class Withdrawing:
    """What was decided last. For one thread."""

    def __init__(self, allocated: Allocated) -> None:
        self._allocated = allocated
        self._out: dict[str, float | None] = {}
        """When it is asked once more about what is left out; None: it was."""
        self._had: frozenset[str] = frozenset()
        self._asked = float("-inf")
        self._due: float | None = None
        self._log = telemetry.logger("offers")

    @property
    def wait(self) -> float | None:
        """In how many seconds more may be known, of what was asked about last; None: all is."""
        return None if self._due is None else max(self._due - time.monotonic(), 0.0)

    def out(self, doubtful: AbstractSet[str], listed: Collection[str]) -> frozenset[str]:
        """Those that no claim has; while that is not known, those that are not `listed` now."""
        now = time.monotonic()
        self._out = {name: at for name, at in self._out.items() if name in doubtful}
        new = doubtful - self._out.keys()
        late = {name for name, at in self._out.items() if at is not None and at <= now}
        is_known = self._had >= new and now - self._asked < ASK_AGAIN
        if late or (new and not is_known):
            if not self._ask(new | late, now):
                self._due = now + ASK_AGAIN
                return frozenset(self._out.keys() | (new.difference(listed) if listed else ()))
            self._settle(new, late, now)
        waits = [at for at in self._out.values() if at is not None]
        if doubtful - self._out.keys():
            waits.append(self._asked + ASK_AGAIN)
        self._due = min(waits, default=None)
        return frozenset(self._out)

    def _settle(self, new: AbstractSet[str], late: AbstractSet[str], now: float) -> None:
        """Decide about what it was asked about."""
        self._out |= dict.fromkeys(late)
        if back := late & self._had:
            self._log.warning(
                "devices were given to claims while they were left out, and are listed again",
                devices=sorted(back),
            )
            self._out = {name: at for name, at in self._out.items() if name not in back}
        if gone := new - self._had:
            self._log.warning(
                "devices that no claim has are left out: their GPU is gone, or they are not well "
                "and the API server takes no taints",
                devices=sorted(gone),
            )
            self._out |= dict.fromkeys(gone, now + ASK_AGAIN)

    def _ask(self, names: Collection[str], now: float) -> bool:
        """Learn what claims have; whether that is known now."""
        try:
            self._had = frozenset(self._allocated())
        except errors.DriverError as error:
            self._log.info(
                "devices that are not well stay listed, as it is not known who has them",
                devices=sorted(names),
                reason=str(error),
            )
            return False
        self._asked = now
        return True
