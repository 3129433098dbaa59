"""The weights file of a bundle: what the C of all segments reads, once and binary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgec.emit.c import CSource
from edgec.emit.memory import aligned


@dataclass(frozen=True)
class Weights:
    """data: the file. parts: by segment the offset and the size of its part, bytes; offsets are aligned to 64."""

    data: bytes
    parts: Mapping[str, tuple[int, int]]


def join_weights(sources: Iterable[CSource]) -> Weights:
    """The parts of the segments one after the other. They are the same on every target: all are little-endian."""
    data, parts = bytearray(), dict[str, tuple[int, int]]()
    for source in sources:
        data += bytes(aligned(len(data)) - len(data)) if source.weights else b""
        parts[source.name] = (len(data) if source.weights else 0, len(source.weights))
        data += source.weights
    return Weights(bytes(data), parts)
