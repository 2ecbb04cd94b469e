"""YAML files: settings and manifests."""

import pathlib
from typing import Any

import yaml

from dra_driver import errors


def load_one(path: pathlib.Path) -> Any:
    """The single document in a file; None where it is empty.

    Raises:
        errors.Fatal: it cannot be read, or is no YAML.
    """
    documents = load_all(path)
    if len(documents) > 1:
        raise errors.Fatal(f"{path}: one YAML document is expected, it has {len(documents)}")
    return documents[0] if documents else None


def load_all(path: pathlib.Path) -> list[Any]:
    """The documents in a file that are not empty.

    Raises:
        errors.Fatal: it cannot be read, or is no YAML.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return [document for document in yaml.safe_load_all(file) if document is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise errors.Fatal(f"{path} cannot be read: {error}") from error
