"""What the kernel is asked to do with PCI functions, and how long that may take."""

import pathlib
from typing import Protocol

from dra_driver import errors
from dra_driver.model import devices


class Hung(errors.Retryable):
    """The kernel has not come back: what was written may happen yet."""


class Refused(errors.Retryable):
    """The kernel has said no; the text says to what, and with which error."""


class Kernel(Protocol):
    """Does what is written into files of sysfs, and loads modules."""

    def write(self, path: pathlib.Path, text: str, seconds: float) -> None:
        """Write a text into a file of sysfs, all at once.

        Raises:
            OSError: the kernel says no.
            Hung: it did not come back within the seconds.
        """

    def load(self, module: str, seconds: float) -> None:
        """Load a module of the host's kernel.

        Raises:
            Refused: it cannot be loaded.
            Hung: it did not come back within the seconds.
        """

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """The processes that are at work still on a function, also of an earlier life."""
