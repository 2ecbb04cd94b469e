"""The directory of what is remembered of the health of GPUs, a file for each."""

import pathlib

from dra_driver.adapters.disk import stores
from dra_driver.model import health_records

_HEALTH = stores.Kind(
    "record of health", health_records.encode, health_records.decode, key=lambda one: one.gpu
)

HealthRecords = stores.Store[health_records.Record]


def at(directory: pathlib.Path) -> HealthRecords:
    """The records in a directory, which need not exist."""
    return stores.Store(directory, _HEALTH)


def opened(directory: pathlib.Path) -> HealthRecords:
    """The records in a directory, which is made if it is absent; its parent must exist."""
    store = at(directory)
    store.make()
    return store
