"""The directory of ledgers: what this driver has done to each GPU, a file for each thing.

Read and written with the GPU's lock held, except by those who only look.
"""

import pathlib
from collections.abc import Mapping

from dra_driver.adapters.disk import stores
from dra_driver.model import ledgers

_LEDGER = stores.Kind("ledger", ledgers.encode, ledgers.decode, key=lambda ledger: ledger.key)


class Ledgers:
    """Ledgers of one node, in one boot.

    Every method raises one of `files.TROUBLE` where the disk refuses.
    """

    def __init__(self, directory: pathlib.Path, *, boot_id: str) -> None:
        """The directory is made if it is absent; its parent must exist."""
        self._store = stores.Store(directory, _LEDGER)
        self._store.make()
        self._boot_id = boot_id

    def get(self, gpu: str) -> ledgers.Ledger:
        """The ledger of the GPU with this UUID; a blank one where there is none of this boot.

        Of a damaged page its name tells. What a damaged file of an earlier driver told of counts as
        made by others, and is left alone.
        """
        contents = self._contents(gpu)
        named = (ledgers.page(key, self._boot_id) for key in contents.damaged)
        parts = [*contents.records.values(), *(page for page in named if page is not None)]
        ours = [part for part in parts if part.boot_id == self._boot_id]
        return ledgers.bound(gpu, self._boot_id, ours)

    def put(self, ledger: ledgers.Ledger) -> None:
        """Remember, durably. What it tells no more of is removed, without writing anything."""
        contents = self._contents(ledger.gpu)
        wanted = {page.key: page for page in ledgers.pages(ledger)}
        for key, page in wanted.items():
            # A damaged page needs no space: its name tells until it is mended.
            if contents.records.get(key) != page and key not in contents.damaged:
                self._store.write(page)
        for key in contents.records.keys() - wanted.keys():
            self._store.remove(key)
        for key in contents.damaged.keys() - wanted.keys():
            if ledgers.page(key, self._boot_id) is not None:
                self._store.remove(key)
        for key in self._store.leftovers():
            if _is_of(key, ledger.gpu):
                self._store.clear(key)

    def handed_over(self) -> Mapping[str, str]:
        """The GPUs that were taken from NVIDIA's driver in this boot: PCI addresses by UUID."""
        contents = self._store.contents()
        named = (ledgers.page(key, self._boot_id) for key in contents.damaged)
        parts = [*contents.records.values(), *(page for page in named if page is not None)]
        return {
            part.gpu: part.handed_over
            for part in parts
            if part.boot_id == self._boot_id and part.handed_over is not None
        }

    def damaged(self, gpu: str) -> Mapping[str, str]:
        """Why files of this GPU cannot be read, by key."""
        return self._contents(gpu).damaged

    def mend(self, key: str) -> tuple[ledgers.Ledger | None, pathlib.Path | None]:
        """Put a page in the place of a damaged one, or nothing where its name does not tell.

        What there is now, and the copy of the damaged file, if there was room for one. A file
        whose name does not tell stays until there is.
        """
        aside, page = self._store.keep_aside(key), ledgers.page(key, self._boot_id)
        if page is not None:
            self._store.write(page)
        elif aside is not None:
            self._store.remove(key)
        return page, aside

    def has_old(self, gpu: str) -> bool:
        """Whether there is a file that is rewritten with each change; `put` makes pages of it."""
        return gpu in self._contents(gpu).records

    def drop_earlier_boots(self) -> None:
        """Remove the pages of earlier boots, which nobody needs: that takes no lock."""
        contents = self._store.contents()
        for key in contents.records.keys() | contents.damaged.keys():
            if ledgers.is_of_another_boot(key, self._boot_id):
                self._store.remove(key)

    def _contents(self, gpu: str) -> stores.Contents[ledgers.Ledger]:
        contents = self._store.contents(gpu)
        return stores.Contents(
            {key: part for key, part in contents.records.items() if _is_of(key, gpu)},
            {key: text for key, text in contents.damaged.items() if _is_of(key, gpu)},
        )


def _is_of(key: str, gpu: str) -> bool:
    """Whether this is the key of a ledger of the GPU, or of a page of it."""
    return key == gpu or key.startswith(ledgers.prefix(gpu))
