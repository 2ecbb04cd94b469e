"""One question to Fabric Manager, in a process that may hang: what `fabric_manager` runs."""

import os
import pathlib

from dra_driver.adapters.driver import fabric_library, fabric_manager
from dra_driver.model import fabric


def ask(library: pathlib.Path, address: str) -> None:
    """Write the partitions to standard output, which nothing else gets to: the library may talk.

    Raises:
        errors.Rejected: the address is none, or the library not known.
        errors.Retryable: it does not answer.
    """
    where = fabric.parse_address(address)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        found = fabric_library.partitions(library, where, connect_ms=fabric_manager.CONNECT_MS)
        answer.write(fabric_manager.written(found))
