"""What stands for device nodes on a simulated machine."""

from dra_driver.adapters.driver import driver_root
from dra_driver.model import driver


def plain(root: driver_root.Root, path: str) -> driver.DeviceNode | None:
    """The file at a path under a root, as a device node; None where there is none.

    Its path on the host is where it really is: containers get it as a file.
    """
    seen = root.at(path)
    if not seen.exists():
        return None
    return driver.DeviceNode(path, str(seen), major=0, minor=0, mode=0o600)
