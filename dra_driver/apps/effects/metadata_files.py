"""The files of device metadata: what containers read of their devices, and the CDI specs that mount
them.

A claim's files are found by its UID, which is in each of them; their directory is named after the
claim, so that one that was made again under its name has the same. Whoever writes or removes files
of a claim holds its lock.
"""

import contextlib
import dataclasses
import errno
import pathlib
import threading
from collections.abc import Collection, Iterable, Iterator

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.logic.preparing import metadata
from dra_driver.model import device_metadata, prepared

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A file that is there; `owner` is None where it does not tell whose it is."""

    folder: str
    request: str
    owner: metadata.Owner | None


class MetadataFiles:
    """The files of one driver. Every method raises one of `files.TROUBLE` where the disk refuses.

    Threads may share it.
    """

    def __init__(self, plugin_dir: pathlib.Path, cdi_dir: pathlib.Path, driver_name: str) -> None:
        """`plugin_dir` must exist, and have this path on the host; so must `cdi_dir`."""
        self.driver_name = driver_name
        self._root = plugin_dir / metadata.FOLDER
        self._cdi_dir = cdi_dir
        # Of two claims of one name, none takes a directory that the other is about to fill.
        self._changing = threading.Lock()

    def put(self, record: prepared.Record, documents: Collection[metadata.Document]) -> bool:
        """Have these files, and their CDI specs; whether any was missing, or another one.

        A file that is there stays the same file, as containers have it mounted. None of them need
        be durable: no container runs after the machine went down.

        Raises:
            errors.Retryable: another claim of that name has the directory.
        """
        has_changed = False
        with self._changing:
            for path, text in self._files_of(record, documents):
                has_changed |= self._put_file(record, path, text)
            for path, text in self._specs_of(record, documents):
                if not _says(path, text):
                    files.write(
                        path, text, mode=_FILE_MODE, durable=False, folder_mode=_FOLDER_MODE
                    )
                    has_changed = True
        return has_changed

    def says(self, record: prepared.Record, documents: Collection[metadata.Document]) -> bool:
        """Whether these files, and their CDI specs, are there, and say just that."""
        wanted = (*self._files_of(record, documents), *self._specs_of(record, documents))
        return all(_says(path, text) for path, text in wanted)

    def remove(self, uid: str, folder: str | None = None, *, unknown: bool = False) -> None:
        """Have none of a claim. It takes no space, and none is fine.

        `folder` is its directory, where that is known. With `unknown` those files in it go too that
        do not tell whose they are.
        """
        with self._changing:
            for name in self._spec_names():
                if metadata.cdi_uid(self.driver_name, name) == uid:
                    files.remove(self._cdi_dir / name)
            for found in self.found() if folder is None else self._found_in(folder):
                owner = found.owner
                if owner.uid == uid if owner is not None else folder is not None and unknown:
                    self._remove_file(found.folder, found.request)

    def remove_folder(self, folder: str) -> None:
        """Have no files in a directory of which nobody tells whose it is."""
        with self._changing:
            for request in _names(self._root / folder):
                self._remove_file(folder, request)
            files.remove_directory(self._root / folder)

    def found(self) -> list[Found]:
        """All files that there are; those of directories without any have an empty request."""
        return [one for folder in _names(self._root) for one in self._found_in(folder)]

    def mounted(self) -> set[str]:
        """The claims that have a CDI spec, or of which one was begun."""
        uids = (metadata.cdi_uid(self.driver_name, name) for name in self._spec_names())
        return {uid for uid in uids if uid is not None}

    def _found_in(self, folder: str) -> Iterator[Found]:
        if "_" not in folder or not (self._root / folder).is_dir():
            return
        requests = _names(self._root / folder)
        if not requests:
            yield Found(folder, "", None)
        for request in requests:
            yield Found(folder, request, self._owner(self._root / folder / request))

    def _owner(self, directory: pathlib.Path) -> metadata.Owner | None:
        try:
            text = files.read(directory / metadata.FILE)
        except UnicodeDecodeError:
            return None
        return metadata.owner(text) if text is not None else None

    def _put_file(self, record: prepared.Record, path: pathlib.Path, text: str) -> bool:
        with contextlib.suppress(UnicodeDecodeError):
            present = files.read(path)
            if present == text:
                return False
            self._refuse_others(record, path, present)
        if files.rewrite(path, text):
            return True
        for directory in (self._root, path.parent.parent, path.parent):
            files.have_directory(directory, _FOLDER_MODE)
        files.write(path, text, mode=_FILE_MODE, durable=False)
        return True

    def _refuse_others(
        self, record: prepared.Record, path: pathlib.Path, present: str | None
    ) -> None:
        owner = metadata.owner(present) if present is not None else None
        if owner is not None and owner.uid != record.uid:
            raise errors.Retryable(
                f"claim {record.ref}: {path} describes devices of an earlier claim of that name, "
                f"with UID {owner.uid}, which are not given back yet"
            )

    def _remove_file(self, folder: str, request: str) -> None:
        directory = self._root / folder / request
        files.remove(directory / metadata.FILE)
        for one in (directory, self._root / folder):
            try:
                files.remove_directory(one)
            except files.Unusable as error:
                # There is another request's file, or something that is not ours.
                if error.code not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise

    def _files_of(
        self, record: prepared.Record, documents: Iterable[metadata.Document]
    ) -> Iterator[tuple[pathlib.Path, str]]:
        for one in documents:
            yield self._path(record, one.request), one.text

    def _specs_of(
        self, record: prepared.Record, documents: Iterable[metadata.Document]
    ) -> Iterator[tuple[pathlib.Path, str]]:
        content = device_metadata.of(record)
        if content is None:
            return
        for one in documents:
            text = metadata.cdi_spec(
                self.driver_name,
                record.uid,
                one.request,
                host=str(self._path(record, one.request)),
                inside=metadata.container_path(self.driver_name, record.name, content, one.request),
            )
            name = metadata.cdi_file(self.driver_name, record.uid, one.request)
            yield self._cdi_dir / name, text

    def _path(self, record: prepared.Record, request: str) -> pathlib.Path:
        folder = metadata.folder(record.namespace, record.name)
        return self._root / folder / request / metadata.FILE

    def _spec_names(self) -> set[str]:
        """Of CDI specs of whatever kind, those that were begun included."""
        return {files.target_of_leftover(name) or name for name in _names(self._cdi_dir)}


def _says(path: pathlib.Path, text: str) -> bool:
    try:
        return files.read(path) == text
    except UnicodeDecodeError:
        return False


def _names(directory: pathlib.Path) -> list[str]:
    """What is in a directory; nothing where it is none."""
    try:
        return files.names(directory)
    except files.Unusable as error:
        if error.code != errno.ENOTDIR:
            raise
        return []
