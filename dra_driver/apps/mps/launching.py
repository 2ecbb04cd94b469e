"""What runs MPS daemons: processes of this container, or pods."""

from typing import Protocol

from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.system import patience
from dra_driver.model import mps


class Launcher(Protocol):
    """Runs MPS daemons, as processes or as pods. All methods are idempotent.

    Only those that say so wait for anything, and ask anything outside of the node.
    """

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own, which its clients need."""

    def start(self, daemon: mps.Daemon) -> None:
        """Want it, with these limits. It has begun to run only after `bring_up`."""

    def bring_up(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Have one that is wanted begin to run; may ask the API server, and wait."""

    def state(self, daemon: mps.Daemon) -> mps_local.State:
        """How far it is, with these limits."""

    def wait_ready(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Bring it up, and wait until it answers and has its limits, or is wanted with others."""

    def retire(self, daemon: mps.Daemon) -> bool:
        """Have it end, and stay away; whether it has ended."""

    def wait_ended(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Wait until one that was retired has ended; it is killed if that takes too long."""

    def remove(self, daemon: mps.Daemon) -> None:
        """Leave nothing of one that has ended."""
