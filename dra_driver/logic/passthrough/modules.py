"""Which kernel module passes a function through, by the kernel's own table.

A VFIO driver for some functions only says so in `modules.alias`, as `alias vfio_pci:v0000… module`,
where a function's modalias has `pci:` (Linux, `include/linux/mod_devicetable.h`,
`PCI_ID_F_VFIO_DRIVER_OVERRIDE`). The best is the one whose pattern leaves least open.
"""

import fnmatch
from collections.abc import Iterable, Iterator

from dra_driver.logic.passthrough import cards

GENERIC = "vfio_pci"
"""The module that passes any function through."""
_PREFIX = "vfio_pci:"
_PCI = "pci:"


def best(modalias: str, lines: Iterable[str]) -> str:
    """The module for a function, by the lines of `modules.alias`; the generic one if none says."""
    wanted = _PREFIX + modalias.removeprefix(_PCI)
    found = [
        (len(pattern.replace("*", "")), cards.plain(module))
        for pattern, module in _aliases(lines)
        if fnmatch.fnmatchcase(wanted, pattern)
    ]
    return max(found, default=(0, GENERIC))[1]


def _aliases(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        match line.split():
            case ["alias", pattern, module] if pattern.startswith(_PREFIX):
                yield pattern, module
