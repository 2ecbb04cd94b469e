"""The directory of ledgers: one file for each GPU that this driver has cut, or is cutting.

Read and written with the GPU's lock held, except by those who only look.
"""

import pathlib

from dra_driver import errors
from dra_driver.adapters import files
from dra_driver.model import ledgers


class Ledgers:
    """Ledgers of one node, in one boot."""

    def __init__(self, directory: pathlib.Path, *, boot_id: str) -> None:
        """The directory is made if it is absent; its parent must exist."""
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self._boot_id = boot_id

    def get(self, gpu: str) -> ledgers.Ledger:
        """The ledger of the GPU with this UUID; a blank one where there is none of this boot.

        A damaged file counts as none: what it told of is then foreign, and is left alone.
        """
        blank = ledgers.Ledger(gpu=gpu, boot_id=self._boot_id)
        try:
            text = files.read(self._path(gpu))
            found = blank if text is None else ledgers.decode(text)
        except (UnicodeDecodeError, errors.Rejected):
            return blank
        return found if (found.boot_id, found.gpu) == (self._boot_id, gpu) else blank

    def put(self, ledger: ledgers.Ledger) -> None:
        """Remember, durably; a blank one is forgotten."""
        if ledger.is_blank:
            files.remove(self._path(ledger.gpu))
        else:
            files.write(self._path(ledger.gpu), ledgers.encode(ledger))

    def _path(self, gpu: str) -> pathlib.Path:
        return self._directory / f"{gpu}.json"
