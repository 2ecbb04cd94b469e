"""What Fabric Manager tells, now and then: which partitions of the NVLink fabric GPUs are in.

A thread of its own asks, and whoever looks at the GPUs takes the last answer: it may take long, and
is not waited for with anything held. While there is no answer, what was known stays.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.driver import driver_root, fabric_manager
from dra_driver.adapters.system import workers
from dra_driver.logic.passthrough import fabric as partitioning
from dra_driver.model import devices, fabric

EVERY = 60.0
"""Seconds between two questions, once there was an answer."""
AGAIN = 10.0
"""Seconds after a question without an answer."""
FIRST = 5.0
"""Seconds that the first answer is waited for, so that attributes are not published without it
each time the plugin starts."""

Ask = Callable[[], Sequence[fabric.Partition]]
"""Raises errors.DriverError."""


class Fabric:
    """The partitions of a node's fabric, as they were told last."""

    def __init__(self, ask: Ask, *, every: float = EVERY, again: float = AGAIN) -> None:
        """Nothing is asked yet."""
        self._ask = ask
        self._every = every
        self._again = again
        self._known: Sequence[fabric.Partition] | None = None
        self._trouble = ""
        self._notes: tuple[str, ...] = ()
        self._asked = threading.Event()
        self._log = telemetry.logger("fabric")
        # A question that is under way ends by itself.
        self._worker = workers.Worker("fabric", self._run, end_seconds=1.0)

    def start(self) -> None:
        """Begin to ask, and wait for the first answer for a while."""
        self._worker.start()
        self._asked.wait(FIRST)

    def stop(self) -> None:
        """Stop asking."""
        self._worker.end()

    def placed(self, gpus: Sequence[devices.Gpu]) -> Sequence[devices.Gpu]:
        """All GPUs of the node with the partitions that they are in."""
        known = self._known
        if known is None:
            # A GPU of a virtual machine has what its claim's record tells.
            return [dataclasses.replace(gpu, fabric=gpu.fabric or ()) for gpu in gpus]
        placed = partitioning.placed(gpus, known)
        for note in placed.notes:
            if note not in self._notes:
                self._log.warning("attributes are left out", reason=note)
        self._notes = placed.notes
        return placed.gpus

    def ask(self) -> bool:
        """Ask now; whether there was an answer."""
        try:
            known = tuple(self._ask())
        except errors.DriverError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._log.warning("Fabric Manager tells no partitions", reason=self._trouble)
            return False
        if known != self._known:
            self._log.info("Fabric Manager has told its partitions", partitions=len(known))
        self._known, self._trouble = known, ""
        return True

    def _run(self) -> None:
        while not self._worker.is_ending():
            answered = False
            try:
                answered = self.ask()
            except Exception:  # noqa: BLE001 - a thread that ends would ask never again
                self._log.exception("asking Fabric Manager failed unexpectedly")
            self._asked.set()
            self._worker.pause(self._every if answered else self._again)


class Unasked:
    """Nobody is asked, and nothing is published."""

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def placed(self, gpus: Sequence[devices.Gpu]) -> Sequence[devices.Gpu]:
        """Without what the record of a claim may tell from when somebody was asked."""
        return [dataclasses.replace(gpu, fabric=None) for gpu in gpus]


def of_node(config: settings.KubeletPlugin, layout: driver_root.Layout) -> Fabric | Unasked:
    """As the settings have it."""
    if not config.fabric_manager:
        return Unasked()
    if not config.passes_any:
        telemetry.logger("settings").warning(
            "without effect", reason="--fabric-manager: vfio is off for all GPUs"
        )
        return Unasked()
    address = fabric.parse_address(config.fabric_manager)
    manager = fabric_manager.FabricManager(layout, address, host=config.host_root)
    return Fabric(manager.partitions)
