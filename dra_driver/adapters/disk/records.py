"""The directory of records: one file for each claim that is, or is being, prepared.

A file for each claim lets claims be prepared side by side, and keeps damage to one of them.
"""

import pathlib
import re

from dra_driver.adapters.disk import stores
from dra_driver.model import prepared

Contents = stores.Contents[prepared.Record]
"""All records by claim UID, and for each file that cannot be read the reason."""

_CLAIM = stores.Kind(
    "record",
    prepared.encode,
    prepared.decode,
    key=lambda record: record.uid,
    keys=re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"),
)


class Records(stores.Store[prepared.Record]):
    """Records of one node, by claim UID. Other instances of the driver may write them too."""

    def __init__(self, directory: pathlib.Path) -> None:
        """The directory is made if it is absent; its parent must exist."""
        super().__init__(directory, _CLAIM)
        self.make()
