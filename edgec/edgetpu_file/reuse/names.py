"""Gives the inputs and outputs of a compiled file other names."""

from __future__ import annotations

import struct

from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.flatbuffer import Table

from edgec.edgetpu_file.reuse.source import Network

_NAME = 3
"""The field of a tensor's name in TFLite's schema."""


def rename(content: bytearray, file: CompiledFile, network: Network) -> bytearray:
    """Return a compiled file with the names of a network's inputs and outputs.

    A name that fits the place of the old one is written there. A longer one of a tensor
    is put at the end of the file; within the programs the old name stays, which only
    tells their layers apart.

    Args:
        content: the file with all else that is new
        file: the old file
        network: the network
    """
    made = bytearray(content)
    graph = Table.root(file.data).tables(2)[0]
    tensors = (*network.inputs, *network.outputs)
    for index, tensor in zip((*file.inputs, *file.outputs), tensors, strict=True):
        old, new = file.tensors[index].name.encode(), tensor.name.encode()
        if old == new:
            continue
        if _room(new) <= _room(old):
            _replace(made, old, new)
            continue
        entry = graph.tables(0)[index].place(_NAME)
        assert entry is not None
        made += bytes(-len(made) % 4)
        struct.pack_into("<I", made, entry, len(made) - entry)
        made += _string(new, _room(new))
    return made


def _room(name: bytes) -> int:
    """Return the bytes that a name takes: with a zero, and a multiple of four."""
    return -(-(len(name) + 1) // 4) * 4


def _string(name: bytes, room: int) -> bytes:
    """Return a string of a flatbuffer."""
    return struct.pack("<I", len(name)) + name.ljust(room, b"\0")


def _replace(made: bytearray, old: bytes, new: bytes) -> None:
    """Replace a string of a flatbuffer wherever it stands."""
    before, after = _string(old, _room(old)), _string(new, _room(old))
    at = made.find(before)
    while at >= 0:
        made[at : at + len(before)] = after
        at = made.find(before, at + len(before))
