"""The two facts of an ELF shared object that decide how a container gets it."""

import dataclasses
import errno
import mmap
import pathlib
import struct

_PT_LOAD = 1
_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_STRTAB = 5
_DT_SONAME = 14


@dataclasses.dataclass(frozen=True, slots=True)
class SharedObject:
    """`bits` is 32 or 64; `soname` is what programs are linked against, None if it has none."""

    bits: int
    soname: str | None


_NOT_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})


def read(path: pathlib.Path) -> SharedObject | None:
    """The facts of the file, or None if it is no little-endian ELF file or cannot be read.

    The SONAME of a 32-bit file is not looked for: such files are only told apart here.
    Format: System V ABI, "Object Files" and "Dynamic Section".

    Raises:
        OSError: nothing can be said of any file, for want of descriptors for one.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"\x7fELF" or data[5] != 1:
                return None
            if data[4] != 2:
                return SharedObject(32, None)
            return SharedObject(64, _soname(data))
    except OSError as error:
        if error.errno in _NOT_THE_FILE:
            raise
        return None
    except (ValueError, IndexError, struct.error):
        # ValueError: an empty file cannot be mapped. The others: it ends before it should.
        return None


def _soname(data: mmap.mmap) -> str | None:
    (headers_at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for at in range(headers_at, headers_at + size * count, size):
        kind, _flags, offset, address, _physical, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == _PT_LOAD:
            loads.append((address, offset, length))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
    entries = _dynamic_entries(data, *dynamic) if dynamic else {}
    if _DT_SONAME not in entries or _DT_STRTAB not in entries:
        return None
    table = entries[_DT_STRTAB]
    for address, offset, length in loads:
        if address <= table < address + length:
            start = table - address + offset + entries[_DT_SONAME]
            end = data.find(b"\0", start)
            return data[start:end].decode() if end > start else None
    return None


def _dynamic_entries(data: mmap.mmap, offset: int, length: int) -> dict[int, int]:
    entries: dict[int, int] = {}
    for at in range(offset, offset + length, 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == _DT_NULL:
            break
        entries[tag] = value
    return entries
