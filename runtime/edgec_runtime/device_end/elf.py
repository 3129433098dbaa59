"""Checks by the headers of a file whether it is code for a machine (ELF).

A loader maps the segments in the program headers and checks no further: an access to a
segment beyond the end of the file is a SIGBUS. This is part of the device end, see
wire.py; the runtime checks libraries with it, too.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, List, NamedTuple, Optional

MACHINES = {"linux-aarch64": 183, "linux-armv7": 40, "linux-x86_64": 62}
MAX_HEADERS = 64
MAX_MAPPED_BYTES = 1 << 40
PAGE_BYTES = 4096

_NARROW = ("linux-armv7",)  # targets with 32 bits
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
    """Return why a file is not code for a target; None if it is.

    The reason is a clause that begins with "is" or "has".

    Args:
        path: the file
        target: the target, for example "linux-aarch64"
        library: whether the file is for dlopen, not for exec

    Raises:
        OSError: the file cannot be read
    """
    with open(path, "rb") as f:
        try:
            return _fault(f, os.fstat(f.fileno()).st_size, target, library)
        except struct.error:
            return "is cut off within its headers"


def _fault(f: BinaryIO, size: int, target: str, library: bool) -> Optional[str]:
    """Return why a file is not code for a target; None if it is.

    Args:
        f: the file
        size: its size in bytes
        target: the target
        library: whether it is for dlopen

    Raises:
        struct.error: the file is shorter than its headers
    """
    head = f.read(64)
    wide = target not in _NARROW
    if not _is_for(head, target, wide):
        return f"is not code for {target}"

    # Executables that can be loaded anywhere are shared objects, too.
    kind = struct.unpack_from("<H", head, 16)[0]
    kinds = (_SHARED,) if library else (_EXECUTABLE, _SHARED)
    if kind not in kinds:
        return "is not a library" if library else "is not a program"

    entry, table = struct.unpack_from("<QQ" if wide else "<II", head, 24)
    width, number = struct.unpack_from("<HH", head, 54 if wide else 42)
    has_width = width == (56 if wide else 32)
    if not has_width or not 0 < number <= MAX_HEADERS:
        return "has impossible program headers"
    if table + width * number > size:
        return "has impossible program headers"
    f.seek(table)
    rows = f.read(width * number)
    return _layout(_parts(rows, width, wide), size, entry, library)


def _is_for(head: bytes, target: str, wide: bool) -> bool:
    """Return whether the beginning of a file is an ELF header for a target.

    Args:
        head: the first 64 bytes
        target: the target
        wide: whether the target has 64 bits
    """
    if head[:4] != b"\x7fELF":
        return False
    _, machine, version = struct.unpack_from("<HHI", head, 16)
    # Class, little-endian, and version of the format.
    has_class = head[4:7] == bytes((2 if wide else 1, 1, 1))
    has_machine = machine == MACHINES.get(target, machine)
    return bool(has_class and has_machine and version == 1)


def _parts(rows: bytes, width: int, wide: bool) -> List[_Part]:
    """Return the program headers in a table.

    Args:
        rows: the table
        width: bytes of a header
        wide: whether it has 64 bits, which also changes the order of fields
    """
    parts = []
    for at in range(0, len(rows), width):
        if wide:
            kind, flags, offset, address, _, stored, size = struct.unpack_from(
                "<IIQQQQQ", rows, at
            )
        else:
            kind, offset, address, _, stored, size, flags = struct.unpack_from(
                "<IIIIIII", rows, at
            )
        parts.append(_Part(kind, flags, offset, address, stored, size))
    return parts


def _layout(parts: List[_Part], size: int, entry: int, library: bool) -> Optional[str]:
    """Return what is wrong with the program headers; None if nothing is.

    Args:
        parts: the headers
        size: bytes of the file
        entry: the address at which a program starts
        library: whether the file is for dlopen
    """
    for part in parts:
        is_read = part.kind in (_LOAD, _DYNAMIC)
        if is_read and part.offset + part.stored > size:
            return f"is cut off: its headers want more than its {size} bytes"

    loads = [p for p in parts if p.kind == _LOAD]
    if not all(map(_is_mappable, loads)):
        return "has impossible program headers"
    if library:
        has_dynamic = any(p.kind == _DYNAMIC for p in parts)
        return None if has_dynamic else "is not a library"

    starts = [_is_code_at(p, entry) for p in loads]
    return None if any(starts) else "is not a program: it starts nowhere"


def _is_mappable(part: _Part) -> bool:
    """Return whether a loader can map a part: offset and address agree in a page."""
    if part.stored > part.size or part.size > MAX_MAPPED_BYTES:
        return False
    return (part.offset - part.address) % PAGE_BYTES == 0


def _is_code_at(part: _Part, address: int) -> bool:
    """Return whether a part has code at an address."""
    is_code = part.flags & _EXECUTE != 0
    return is_code and 0 <= address - part.address < part.stored
