"""The files that are converted: which, and what is in them."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from dra_driver import errors
from dra_driver.adapters.console import documents

MOST_BYTES = 32 * 2**20
"""Of one file: manifests that somebody keeps are far smaller."""
MOST_FILES = 10_000
STANDARD_INPUT = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_BRACES = "{{"


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """A file. `name` is as in messages; `path` is None for the standard input.

    `documents` are those of the text in order, None the empty ones.
    """

    name: str
    path: pathlib.Path | None
    text: str
    documents: tuple[Any, ...]


def read(files: Iterable[str]) -> tuple[list[Input], list[str]]:
    """What was named, folders gone through; and for what cannot be read, why.

    Raises:
        errors.Rejected: a name is nothing that can be read, or is of too many files.
    """
    inputs: list[Input] = []
    problems: list[str] = []
    for name, path in _named(files):
        if len(inputs) == MOST_FILES:
            raise errors.Rejected(f"more than {MOST_FILES} files: convert a folder at a time")
        try:
            inputs.append(_read(name, path))
        except (OSError, ValueError) as error:
            problems.append(f"{name}: it cannot be read: {_reason(error)}")
        except _Template as error:
            problems.append(f"{name}: {error}")
    return inputs, problems


class _Template(Exception):  # noqa: N818 - what it is
    """It is the template of a manifest."""


def _named(files: Iterable[str]) -> Iterator[tuple[str, pathlib.Path | None]]:
    seen: set[str] = set()
    for name in files:
        if name == STANDARD_INPUT:
            if name not in seen:
                yield "standard input", None
            seen.add(name)
            continue
        if not name:
            raise errors.Rejected("-f: an empty name: name a file or a folder, or - to read")
        path = pathlib.Path(name)
        listed = list(_below(path)) if path.is_dir() else [path]
        if not listed:
            raise errors.Rejected(f"{name}: the folder has no {', '.join(_SUFFIXES)} file")
        for each in listed:
            # The file itself: a link that was named stays a link.
            real = str(each.resolve())
            if real not in seen:
                seen.add(real)
                yield str(each), each
    if not seen:
        raise errors.Rejected("nothing to convert: name a file or a folder with -f, or - to read")


def _below(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Files by name; links are not followed: what they lead to may be anywhere."""
    found = []
    for place, _, names in os.walk(folder, onerror=_unreadable):
        found += [pathlib.Path(place) / name for name in names if name.endswith(_SUFFIXES)]
    return iter(sorted(path for path in found if not path.is_symlink()))


def _unreadable(error: OSError) -> NoReturn:
    raise errors.Rejected(
        f"{error.filename}: the folder cannot be read: {_reason(error)}"
    ) from error


def _read(name: str, path: pathlib.Path | None) -> Input:
    if path is None:
        text = documents.read(sys.stdin.buffer, MOST_BYTES)
    else:
        with path.open("rb") as file:
            text = documents.read(file, MOST_BYTES)
    try:
        found = documents.of_text(text.removeprefix("\ufeff"))
    except ValueError as error:
        if _BRACES in text:
            raise _Template(
                f"{_BRACES} … }} in it makes it a template of Helm, and no manifest: make "
                "manifests of it first (helm template CHART | dra-driver convert -f -), or change "
                "what the chart makes them of"
            ) from error
        raise
    return Input(name, path, text, tuple(found))


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is no UTF-8"
    return str(error)
