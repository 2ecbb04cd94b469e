"""Shared objects for tests, small enough to be made of bytes."""

import struct


def shared_object(soname: str | None) -> bytes:
    """The smallest 64-bit shared object with this SONAME: header, two segments, two tables."""
    at, base = 64 + 2 * 56, 0x10000
    strings = b"\0" + (soname or "").encode() + b"\0"
    entries = [(14, 1)] if soname is not None else []
    dynamic = b"".join(
        struct.pack("<QQ", *entry) for entry in [*entries, (5, base + at + 48), (0, 0)]
    ).ljust(48, b"\0")
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    total = at + len(dynamic) + len(strings)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, base, base, total, total, 4096)
    pointer = struct.pack("<IIQQQQQQ", 2, 4, at, base + at, base + at, 48, 48, 8)
    return header + load + pointer + dynamic + strings
