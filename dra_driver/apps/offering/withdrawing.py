"""What is left out of the slices because nothing else would keep claims away from it.

An API server whose feature gate for taints is off drops them. A device that is withdrawn is left
out then, unless a claim has it: the node knows of those that are prepared, and the API server of
those that are allocated. It is asked as seldom as can be, as that takes a list of all claims.
"""

import time
from collections.abc import Callable, Collection, Mapping

from dra_driver import errors, telemetry
from dra_driver.logic.health import tainting
from dra_driver.logic.offering import tainted

Allocated = Callable[[], Collection[str]]
"""The names of the node's devices that claims have, prepared or not.

Raises:
    errors.DriverError: that is not known now.
"""
ASK_AGAIN = 10.0
"""Seconds for which a device is left alone that a claim was seen to have, before it is asked
again."""


class Withdrawing:
    """What was decided last. For one thread."""

    def __init__(self, allocated: Allocated) -> None:
        self._allocated = allocated
        self._hidden: frozenset[str] = frozenset()
        self._had: frozenset[str] = frozenset()
        self._asked = float("-inf")
        self._log = telemetry.logger("offers")

    def hidden(self, taints: Mapping[str, tainted.Taints], held: Collection[str]) -> frozenset[str]:
        """The devices to be left out, of those with these taints; `held` are here for a claim."""
        sick = {name for name, has in taints.items() if tainting.withdraws(has)}.difference(held)
        new = sick - self._hidden
        gone = new.difference(self._kept(new)) if new else set()
        if gone:
            self._log.warning(
                "the API server takes no taints, so devices that are not well are left out",
                devices=sorted(gone),
            )
        self._hidden = frozenset(sick & self._hidden | gone)
        return self._hidden

    def _kept(self, names: Collection[str]) -> Collection[str]:
        """Those of the devices that a claim has, or may have."""
        now = time.monotonic()
        if self._had.issuperset(names) and now - self._asked < ASK_AGAIN:
            return names
        try:
            self._had = frozenset(self._allocated())
        except errors.DriverError as error:
            self._log.info(
                "devices that are not well stay listed, as it is not known who has them",
                devices=sorted(names),
                reason=str(error),
            )
            return names
        self._asked = now
        return self._had
