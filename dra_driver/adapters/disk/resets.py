"""The directory of resets of GPUs that were begun and are not over."""

import pathlib

from dra_driver.adapters.disk import stores
from dra_driver.model import resets

_RESET = stores.Kind("reset", resets.encode, resets.decode, key=lambda reset: reset.key)

Resets = stores.Store[resets.Record]


def opened(directory: pathlib.Path) -> Resets:
    """The resets in a directory, which is made by the first write; its parent must exist."""
    return stores.Store(directory, _RESET)
