"""The PCI id database, `pci.ids`: what devices are called (https://pci-ids.ucw.cz)."""

from collections.abc import Iterable, Mapping


def products(lines: Iterable[str], vendor: int) -> Mapping[int, str]:
    """The names of a vendor's devices, by device id; nothing is read beyond them.

    A vendor is a line `10de  NVIDIA Corporation`, its devices follow with one tab before them, and
    what they are built into with two. A line that cannot be understood is left out.
    """
    found: dict[int, str] = {}
    wanted, is_inside = f"{vendor:04x}", False
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith("\t"):
            if is_inside:
                break
            is_inside = line[:4].lower() == wanted and line[4:5].isspace()
        elif is_inside and not line.startswith("\t\t"):
            number, _, name = line.strip().partition(" ")
            if (device := _number(number)) is not None and name.strip():
                found[device] = name.strip()
    return found


def _number(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) == 4 else None
    except ValueError:
        return None
