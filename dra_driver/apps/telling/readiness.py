"""Whether claims can be prepared and devices are offered, and what is waited for if not.

The plugin goes on by itself once that is there; this only tells, in the log and to the probe.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from dra_driver import telemetry
from dra_driver.adapters.system import workers
from dra_driver.apps.offering import inventory
from dra_driver.model import devices

LOOK_AGAIN = 10.0
"""Seconds between looks when nothing is heard."""
PAUSE = 1.0
"""Seconds between two looks, at least."""
_SLOW = (
    "the GPUs were not looked at yet: NVML does not come back. Remedy: dmesg | grep -i -e nvrm -e "
    "xid on the node tells of cards that do not answer"
)
_UNPUBLISHED = "ResourceSlices are not published yet"


class Readiness:
    """Looks at what the driver needs all the time, and asks the API server when it has to."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        *,
        missing: Callable[[Sequence[devices.Gpu]], str | None],
        published: Callable[[], bool],
        ask: Callable[[], str | None],
        vanished: Callable[[], str | None] = lambda: None,
        refusal: Callable[[], str | None] = lambda: None,
        left_out: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Nothing is started yet.

        Args:
            gpus: what the node has.
            missing: what containers would lack of these GPUs.
            published: whether this instance has published slices, or another one does.
            ask: what is wrong with the API server, for this driver; None if nothing is.
            vanished: what has become of the directories of the node; None if nothing has.
            refusal: why it takes no change of what was published earlier.
            left_out: what it refuses of that, by name, and what it says.
        """
        self._gpus = gpus
        self._missing = missing
        self._published = published
        self._ask = ask
        self._vanished = vanished
        self._refusal = refusal
        self._left_out = left_out
        self._log = telemetry.logger("readiness")
        self._doubted = threading.Event()
        self._cluster: str | None = None
        self._told: str | None = None
        # What is asked of the API server is not waited for.
        self._worker = workers.Worker("readiness", self._run, end_seconds=0)

    def start(self) -> None:
        """Begin to look."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; a question that was asked is not waited for."""
        self._worker.end()

    @property
    def is_alive(self) -> bool:
        """Whether it looks, or is at its last question."""
        return self._worker.is_alive

    def changed(self) -> None:
        """What there is may have changed."""
        self._worker.wake()

    def doubt(self) -> None:
        """Slices could not be published: ask why."""
        self._doubted.set()
        self._worker.wake()

    def hindrance(self) -> str | None:
        """What is waited for now, with what to do about it; None if that is nothing."""
        return self._known() or (None if self._published() else _UNPUBLISHED)

    def _run(self) -> None:
        while not self._worker.is_ending():
            self._worker.heed()
            try:
                self._look()
            except Exception:  # noqa: BLE001 - a thread that ends would never tell anything again
                self._log.exception("looking for what is missing failed unexpectedly")
            self._worker.pause(PAUSE)
            self._worker.rest(LOOK_AGAIN)

    def _look(self) -> None:
        if self._doubted.is_set():
            self._doubted.clear()
            if not self._published():
                self._cluster = self._ask()
        known = self._known()
        if known == self._told:
            return
        self._told = known
        if known is not None:
            self._log.warning("not ready", reason=known)
        else:
            self._log.info("nothing is waited for any more")

    def _known(self) -> str | None:
        return self._vanished() or self._of_gpus() or self._of_slices()

    def _of_gpus(self) -> str | None:
        if not self._gpus.wait_first(0):
            return _SLOW
        seen = self._gpus.snapshot
        if seen.problem is not None:
            # NVML does not tell apart whether a module or a device node is missing.
            nodes = self._missing(())
            return f"no GPU can be seen: {seen.problem}" + (f". Also: {nodes}" if nodes else "")
        # What a GPU of a virtual machine lacks is nothing that a container would be given.
        return self._missing([card.gpu for card in seen.served]) if seen.served else None

    def _of_slices(self) -> str | None:
        if not self._published():
            return self._cluster
        refusal = self._refusal()
        if refusal is not None:
            return f"ResourceSlices are not as they should be: {refusal}"
        return _refused(self._left_out())


def _refused(left_out: Mapping[str, str]) -> str | None:
    if not left_out:
        return None
    name, *others = sorted(left_out)
    named = f"{name} and {len(others)} more" if others else name
    return (
        f"the API server refuses {named}, so {'they are' if others else 'it is'} not offered: "
        f"{left_out[name]}"
    )
