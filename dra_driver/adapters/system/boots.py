"""Which boot of the node this is: nothing that was done to a GPU outlives one."""

import pathlib

from dra_driver import errors
from dra_driver.adapters.disk import files


def current(path: pathlib.Path) -> str:
    """What a file tells whose content changes with each boot.

    Raises:
        errors.Fatal: it is absent, or empty.
    """
    text = files.read(path)
    if text is None or not text.strip():
        raise errors.Fatal(
            f"boot id file {path} is absent or empty: is /proc mounted? See --boot-id-file"
        )
    return text.strip()
