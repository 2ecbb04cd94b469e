"""Whether an MPS daemon is ready: what the kubelet asks of a pod that runs one."""

import pathlib

from dra_driver import errors
from dra_driver.adapters.mps import mps_domain, mps_local


def check(file: pathlib.Path) -> None:
    """Return if the daemon that `file`, its `daemon.json`, describes is ready with its limits.

    Raises:
        errors.Retryable: it is not.
        errors.Rejected: the description is damaged.
    """
    path = file.absolute()
    daemon = mps_domain.Domain(path.parent).read()
    if daemon is None:
        raise errors.Retryable(f"{path}: no such file: no MPS daemon is wanted there")
    state = mps_local.LocalLauncher(pathlib.Path("/"), private_shm=False).state(daemon)
    if state != mps_local.State.READY:
        raise errors.Retryable(f"MPS daemon {daemon.id}: {state}: {mps_local.why(daemon)}")
