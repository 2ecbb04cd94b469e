"""`nvidia-cdi-hook` of the image, put where the container runtime can run it on the host."""

import pathlib

from dra_driver import errors
from dra_driver.adapters.disk import files

HOOK = pathlib.Path("/usr/bin/nvidia-cdi-hook")
"""Where the image has it."""


def installed(directory: pathlib.Path) -> tuple[pathlib.Path | None, str | None]:
    """Where its copy is, and why there is none; neither where there is no hook to copy.

    `directory` is the plugin's, which has the same path on the host. It is made, if the kubelet's
    is there. A hook that runs goes on, as it is replaced and not changed.
    """
    if not HOOK.is_file():
        return None, None
    copied = directory / HOOK.name
    try:
        files.make_directory(directory, 0o750)
        files.copy(HOOK, copied, mode=0o755)
    except errors.DriverError as error:
        return None, f"{HOOK} is not used: {error}; libraries are found through LD_LIBRARY_PATH"
    return copied, None
