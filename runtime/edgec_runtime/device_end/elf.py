"""Whether a file is code for a machine, by the headers that a loader would believe.

A loader maps what a program header says and looks no further: one that lies beyond the
end of the file is a SIGBUS when it is touched.  This is part of the device end, see
wire.py; the runtime asks it before it loads a library.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, List, NamedTuple, Optional

MACHINES = {"linux-aarch64": 183, "linux-armv7": 40, "linux-x86_64": 62}
MAX_HEADERS = 64

_NARROW = ("linux-armv7",)
_EXECUTABLE = 2
_SHARED = 3  # e_type
_LOAD = 1
_DYNAMIC = 2  # p_type
_EXECUTE = 1  # p_flags


class _Part(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    stored: int
    size: int


def fault(path: str, target: str, library: bool) -> Optional[str]:
    """Why a file is not code for a target: a clause that begins with "is" or "has";
    None where it is.

    library: for dlopen, otherwise to be executed.  Raises OSError where it cannot be
    read.
    """
    with open(path, "rb") as f:
        try:
            return _fault(f, os.fstat(f.fileno()).st_size, target, library)
        except struct.error:
            return "is cut off within its headers"


def _fault(f: BinaryIO, size: int, target: str, library: bool) -> Optional[str]:
    head = f.read(64)
    wide = target not in _NARROW
    if head[:4] != b"\x7fELF":
        return f"is not code for {target}"
    kind, machine, version = struct.unpack_from("<HHI", head, 16)
    if (
        head[4:7] != bytes((2 if wide else 1, 1, 1))
        or machine != MACHINES.get(target, machine)
        or version != 1
    ):
        return f"is not code for {target}"
    if kind not in ((_SHARED,) if library else (_EXECUTABLE, _SHARED)):
        return "is no library" if library else "is no program"
    entry, table = struct.unpack_from("<QQ" if wide else "<II", head, 24)
    width, number = struct.unpack_from("<HH", head, 54 if wide else 42)
    if (
        width != (56 if wide else 32)
        or not 0 < number <= MAX_HEADERS
        or table + width * number > size
    ):
        return "has impossible program headers"
    f.seek(table)
    rows = f.read(width * number)
    return _layout(_parts(rows, width, wide), size, entry, library)


def _parts(rows: bytes, width: int, wide: bool) -> List[_Part]:
    found = []
    for at in range(0, len(rows), width):
        if wide:
            kind, flags, offset, address, _, stored, size = struct.unpack_from(
                "<IIQQQQQ", rows, at
            )
        else:
            kind, offset, address, _, stored, size, flags = struct.unpack_from(
                "<IIIIIII", rows, at
            )
        found.append(_Part(kind, flags, offset, address, stored, size))
    return found


def _layout(parts: List[_Part], size: int, entry: int, library: bool) -> Optional[str]:
    loads = [p for p in parts if p.kind == _LOAD]
    if any(p.offset + p.stored > size for p in parts if p.kind in (_LOAD, _DYNAMIC)):
        return f"is cut off: its headers want more than its {size} bytes"
    if any(
        p.stored > p.size or p.size > 1 << 40 or (p.offset - p.address) % 4096
        for p in loads
    ):
        return "has impossible program headers"
    if library and not any(p.kind == _DYNAMIC for p in parts):
        return "is no library"
    if not library and not any(
        p.flags & _EXECUTE and 0 <= entry - p.address < p.stored for p in loads
    ):
        return "is no program: it starts nowhere"
    return None
