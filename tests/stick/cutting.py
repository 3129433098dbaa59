"""Cuts the operator for the Edge TPU out of a compiled file.

What remains is a .tflite file of that operator alone, so that its outputs can be compared
exactly: other operators run on the CPU with kernels that round elsewhere, or are not in
the interpreter at all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.flatbuffer import Table


def cut(data: bytes, where: str) -> bytes:
    """Return the file with its first operator for the Edge TPU alone.

    Its inputs and outputs become those of the graph; new vectors are appended, since
    offsets of a flatbuffer lead forward.
    """
    operators = read_compiled(data, where).operators
    index = next(i for i, o in enumerate(operators) if o.package is not None)
    (graph,) = Table.root(data).tables(2)
    made = bytearray(data)
    # The vector of operators: its length becomes 1, its first entry that operator.
    vector = _target(data, graph, 3)
    place = graph.tables(3)[index].at
    struct.pack_into("<II", made, vector, 1, place - (vector + 4))
    for field, tensors in ((1, operators[index].inputs), (2, operators[index].outputs)):
        _append(made, graph, field, tensors)
    return bytes(made)


def _append(made: bytearray, graph: Table, field: int, numbers: Sequence[int]) -> None:
    made += b"\0" * (-len(made) % 4)
    at = graph.place(field)
    assert at is not None
    struct.pack_into("<I", made, at, len(made) - at)
    made += struct.pack(f"<I{len(numbers)}i", len(numbers), *numbers)


def _target(data: bytes, table: Table, field: int) -> int:
    at = table.place(field)
    assert at is not None
    offset: int = struct.unpack_from("<I", data, at)[0]
    return at + offset
