"""Directories of records: what the driver remembers on a node, one small file for each thing.

To keep something new, say what a record is and how it is written, and open a store:

    class Names(pydantic.BaseModel): ...                      # in model/, frozen, extra="forbid"
    def encode(names): return stored.encode("names", 1, names.model_dump(mode="json"))
    def decode(text): return Names.model_validate(stored.decode(text, "names", {1}))

    _NAMES = stores.Kind("names", encode, decode, key=lambda names: names.gpu)
    store = stores.Store(state / "names", _NAMES)             # in adapters/, a module of its own
    store.write(names); store.get(gpu); store.remove(gpu); store.contents()

`decode` raises errors.Rejected, or pydantic.ValidationError, for a text that it cannot use. Whoever
writes or removes a record holds the lock of what it is of; looking needs none. A file is whole or
absent, and durable before it counts as written. An undo has to remove only, never to write: that
works on a full disk. What should be undone one by one is kept in one file each.

The policy for whatever may be found, the same for every store:

- Damage (no JSON, a wrong checksum, a block that is lost) and records of a newer driver stay with
  their key: `get` raises `Damaged`, `contents` tells of it beside the records that can be read.
  Whoever comes upon it, with the key's lock held, keeps a copy for a person (`keep_aside`), tells,
  puts a record in its place that says what is known from elsewhere, and undoes with that.
- What a killed process had begun to write (`leftovers`) is no record. It is removed with the key's
  lock held, since a live process may be writing it.
- Files of others, and copies that were kept, are neither read nor removed.
- A directory that vanished is an empty one, and is made again by the next write.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

import pydantic

from dra_driver import errors
from dra_driver.adapters.disk import files

R = TypeVar("R")

_SUFFIX = ".json"
_FOLDER_MODE = 0o700
_KEY = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z._-]{0,118}[0-9A-Za-z])?")
_LOST = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})
"""What a disk that has lost a block says of the file; others can be read."""
_TICK_NS = 50_000_000
"""The clock of files stands still for up to 10 ms: within that, two writes look the same."""


class Damaged(errors.Rejected):
    """A file is there, and is no record that this driver can read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """What the records of a store are.

    `noun` is what one is called; `key` is what it is of, and gives its file's name. Other names
    than those that match `keys` are of somebody else's files.
    """

    noun: str
    encode: Callable[[R], str]
    decode: Callable[[str], R]
    key: Callable[[R], str]
    keys: re.Pattern[str] = _KEY


@dataclasses.dataclass(frozen=True)
class Contents(Generic[R]):
    """All records by key, and for each file that cannot be read the reason; in order of keys."""

    records: Mapping[str, R]
    damaged: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen(Generic[R]):
    """What a file was found to hold: a record, or why there is none in it."""

    signature: tuple[int, int, int]
    is_settled: bool
    text: str | None
    found: R | str


class Store(Generic[R]):
    """The records in one directory; safe to use from several threads and processes.

    Every method raises one of `files.TROUBLE` where the disk refuses.
    """

    def __init__(
        self, directory: pathlib.Path, kind: Kind[R], *, within: str | None = None
    ) -> None:
        """The directory need not exist; its parent must.

        `within`: each record has a directory of its own, and is in the file of this name in it.
        Those directories are made, and removed, by others.
        """
        self.directory = directory
        self._kind = kind
        self._within = within
        # What has not changed is not parsed again. Replaced as a whole, or entry by entry.
        self._seen: dict[str, _Seen[R]] = {}

    def make(self) -> None:
        """Have the directory, for the driver alone; one that is there stays as it is."""
        files.make_directory(self.directory, _FOLDER_MODE)

    def path(self, key: str) -> pathlib.Path:
        """The file of this key.

        Raises:
            errors.Rejected: it is none.
        """
        if not self._kind.keys.fullmatch(key):
            raise errors.Rejected(f"{key!r} is not what a {self._kind.noun} can be of")
        if self._within is not None:
            return self.directory / key / self._within
        return self.directory / f"{key}{_SUFFIX}"

    def write(self, record: R) -> None:
        """Remember, durably."""
        key, text = self._kind.key(record), self._kind.encode(record)
        files.write(self.path(key), text, folder_mode=None if self._within else _FOLDER_MODE)
        self._seen[key] = _Seen((0, 0, 0), is_settled=False, text=text, found=record)

    def remove(self, key: str) -> None:
        """Forget; unknown is fine. It works on a full disk."""
        files.remove(self.path(key))
        self._seen.pop(key, None)

    def get(self, key: str) -> R | None:
        """The record of this key; None where there is none.

        Raises:
            Damaged: its file cannot be read.
        """
        seen = self._look(key, str(self.path(key)))
        if seen is None:
            return None
        self._seen[key] = seen
        if isinstance(seen.found, str):
            raise Damaged(seen.found)
        return seen.found

    def contents(self, prefix: str = "") -> Contents[R]:
        """Everything on disk now whose key begins like this."""
        found = {
            key: seen
            for key, path in self._files(prefix)
            if (seen := self._look(key, path)) is not None
        }
        kept = {} if not prefix else dict(self._seen)
        for key in [key for key in kept if key.startswith(prefix)]:
            del kept[key]
        self._seen = kept | found
        return Contents(
            {key: seen.found for key, seen in found.items() if not isinstance(seen.found, str)},
            {key: seen.found for key, seen in found.items() if isinstance(seen.found, str)},
        )

    def keep_aside(self, key: str) -> pathlib.Path | None:
        """Keep a copy of a damaged file for a person to look at; it stays until it is replaced.

        None where there is no room for another name: that is no reason to do nothing.
        """
        with contextlib.suppress(*files.TROUBLE):
            return files.keep_copy(self.path(key), "damaged")
        return None

    def leftovers(self) -> list[str]:
        """The keys that killed processes had begun to write records of."""
        targets = map(files.target_of_leftover, files.names(self.directory))
        keys = (target.removesuffix(_SUFFIX) for target in targets if target is not None)
        return [key for key in keys if self._kind.keys.fullmatch(key)]

    def clear(self, key: str) -> None:
        """Remove what a killed process had begun to write; the record stays as it is."""
        files.clear(self.path(key))

    def _files(self, prefix: str) -> Iterator[tuple[str, str]]:
        """The keys that begin like this, and their files. Called with each call of the kubelet."""
        folder, inner = str(self.directory), self._within
        for name in files.names(self.directory):
            key = name if inner is not None else name.removesuffix(_SUFFIX)
            if not name.startswith(prefix) or (inner is None and key == name):
                continue
            # What was read before has such a name.
            if key in self._seen or self._kind.keys.fullmatch(key):
                yield key, f"{folder}/{name}" if inner is None else f"{folder}/{name}/{inner}"

    def _look(self, key: str, path: str) -> _Seen[R] | None:
        try:
            status = os.stat(path)  # noqa: PTH116 - most of what a look costs
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in _LOST:
                raise files.explained(error, "read", path) from error
            return _Seen((0, 0, 0), is_settled=False, text=None, found=_unreadable(error, path))
        signature = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._seen.get(key)
        if known is not None and known.is_settled and known.signature == signature:
            return known
        # A file that was just written may be written again without a change of its times.
        is_settled = abs(time.time_ns() - status.st_mtime_ns) > _TICK_NS
        return self._read(key, path, signature, is_settled=is_settled)

    def _read(
        self, key: str, path: str, signature: tuple[int, int, int], *, is_settled: bool
    ) -> _Seen[R] | None:
        try:
            text = files.read(path)
        except UnicodeDecodeError as error:
            reason = f"not a {self._kind.noun} ({type(error).__name__}: {error})"
            return _Seen(signature, is_settled, None, reason)
        except files.Unusable as error:
            if error.code not in _LOST:
                raise
            return _Seen(signature, is_settled, None, f"its file cannot be read: {error}")
        if text is None:
            return None
        known = self._seen.get(key)
        if known is not None and known.text == text:
            return dataclasses.replace(known, signature=signature, is_settled=is_settled)
        return _Seen(signature, is_settled, text, self._parsed(key, text))

    def _parsed(self, key: str, text: str) -> R | str:
        try:
            record = self._kind.decode(text)
        except errors.Rejected as error:
            return str(error)
        except pydantic.ValidationError as error:
            return f"content is not a {self._kind.noun}: {error}"
        found = self._kind.key(record)
        if found != key:
            return f"it is the {self._kind.noun} of {found}: was the file copied?"
        return record


def _unreadable(error: OSError, path: str) -> str:
    return f"its file cannot be read: {files.explained(error, 'read', path)}"
