"""The tokens of compiled files, which differ from compilation to compilation."""

from __future__ import annotations

from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.flatbuffer import Table


def without_tokens(data: bytes) -> bytes:
    """Return a compiled file with zeros as its two tokens of 8 bytes."""
    made = bytearray(data)
    (package,) = read_compiled(data, "file").packages
    assert len(package.executables) == 2
    for executable in package.executables:
        at = Table.root(data, executable.span.start).place(14)
        assert at is not None
        made[at : at + 8] = bytes(8)
    return bytes(made)
