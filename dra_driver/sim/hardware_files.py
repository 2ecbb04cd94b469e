"""State of simulated hardware on disk, shared by every process that looks at that hardware."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import Generic, TypeVar

import pydantic

from dra_driver import errors
from dra_driver.adapters.disk import files

M = TypeVar("M", bound=pydantic.BaseModel)


class ModelFile(Generic[M]):
    """One pydantic model in one JSON file. No file is an `empty` model."""

    def __init__(self, path: pathlib.Path, empty: M) -> None:
        self._path = path
        self._empty = empty
        self._seen: tuple[str | None, M] = (None, empty)

    def read(self) -> M:
        """What the file holds now; not to be changed. Parsed again only if the text changed.

        The text is compared and not the file's times: two writes within one clock tick differ.

        Raises:
            errors.Fatal: the file is not what was written.
        """
        text = files.read(self._path)
        seen, content = self._seen
        if text != seen:
            content = self._parse(text)
            self._seen = (text, content)
        return content

    @contextlib.contextmanager
    def edit(self) -> Iterator[M]:
        """The content, to be changed in place. Written when the block ends well and if it differs.

        Only one editor at a time, in whatever process; readers do not wait.
        """
        with locked(self._path):
            content = self._parse(files.read(self._path))
            before = content.model_dump_json()
            yield content
            if content.model_dump_json() != before:
                text = content.model_dump_json(indent=2) + "\n"
                # Simulated hardware outlives processes, and not the machine.
                files.write(self._path, text, durable=False)

    def clear(self) -> None:
        """Go back to the empty model."""
        with locked(self._path):
            files.remove(self._path)

    def _parse(self, text: str | None) -> M:
        if text is None:
            return self._empty.model_copy(deep=True)
        try:
            return type(self._empty).model_validate_json(text)
        except pydantic.ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'content'}: {problem['msg']}"
                for problem in error.errors()
            )
            raise errors.Fatal(
                f"simulated hardware {str(self._path)!r} cannot be read: {problems}; "
                "remove the file, and the hardware is made anew"
            ) from error


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Hold what has this path, one at a time, in whatever process. A hidden file beside it stays.

    The path itself need not exist.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
