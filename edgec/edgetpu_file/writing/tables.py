"""Tables of flatbuffers in the order in which edgetpu_compiler writes them.

A table's larger fields come first, those of one size by their number from the last:
generated code of C++ adds them so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers

_KINDS = {
    "offset": (4, "PrependUOffsetTRelativeSlot"),
    "uint64": (8, "PrependUint64Slot"),
    "int32": (4, "PrependInt32Slot"),
    "float32": (4, "PrependFloat32Slot"),
    "int16": (2, "PrependInt16Slot"),
    "int8": (1, "PrependInt8Slot"),
    "uint8": (1, "PrependUint8Slot"),
}
PAGE = 4096
"""Alignment of programs and parameters."""


@dataclass(frozen=True)
class Slot:
    """A field of a table.

    Attributes:
        number: its number in the schema
        kind: a key of _KINDS
        value: a number, or the place of what an offset is to
        default: the value that is not written
    """

    number: int
    kind: str
    value: float
    default: float = 0


class Writer:
    """Writes a flatbuffer from its end to its beginning."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._builder: Any = flatbuffers.Builder(1 << 16)
        self._empty: int | None = None

    def table(self, slots: Iterable[Slot]) -> int:
        """Write a table; return its place."""
        ordered = sorted(slots, key=lambda s: (-_KINDS[s.kind][0], -s.number))
        self._builder.StartObject(1 + max((s.number for s in ordered), default=-1))
        for slot in ordered:
            method = getattr(self._builder, _KINDS[slot.kind][1])
            method(slot.number, slot.value, slot.default)
        place: int = self._builder.EndObject()
        return place

    def text(self, text: str) -> int:
        """Write a string; an empty one is written once."""
        if text or self._empty is None:
            place: int = self._builder.CreateString(text)
            if text:
                return place
            self._empty = place
        return self._empty

    def blob(self, data: bytes, alignment: int = 1) -> int:
        """Write a vector of bytes whose first one is aligned."""
        builder = self._builder
        builder.StartVector(1, len(data), alignment)
        builder.head = builder.head - len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        place: int = builder.EndVector()
        return place

    def blob_string(self, data: bytes) -> int:
        """Write bytes as a string whose first byte is at a page."""
        self._builder.Prep(PAGE, len(data) + 1)
        place: int = self._builder.CreateString(data)
        return place

    def offsets(self, places: Sequence[int]) -> int:
        """Write a vector of offsets."""
        self._builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self._builder.PrependUOffsetTRelative(place)
        made: int = self._builder.EndVector()
        return made

    def integers(self, values: Sequence[int], width: int = 4, element: int = 4) -> int:
        """Write a vector of integers of 4 or 8 bytes.

        element: bytes of an element of the vector, which may be a struct of several
        """
        builder = self._builder
        builder.StartVector(element, len(values) * width // element, width)
        for value in reversed(values):
            (builder.PrependInt32 if width == 4 else builder.PrependInt64)(value)
        made: int = builder.EndVector()
        return made

    def floats(self, values: Sequence[float]) -> int:
        """Write a vector of float32."""
        self._builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self._builder.PrependFloat32(value)
        made: int = self._builder.EndVector()
        return made

    def done(self, root: int, identifier: bytes | None = None) -> bytes:
        """Return the flatbuffer."""
        self._builder.Finish(root, file_identifier=identifier)
        return bytes(self._builder.Output())


def offset(number: int, place: int) -> Slot:
    """Return a field that leads to something."""
    return Slot(number, "offset", place)


def integer(number: int, value: int, default: int = 0) -> Slot:
    """Return a field of 32 bits."""
    return Slot(number, "int32", value, default)


def short(number: int, value: int) -> Slot:
    """Return a field of 16 bits."""
    return Slot(number, "int16", value)


def byte(number: int, value: int) -> Slot:
    """Return a field of 8 bits."""
    return Slot(number, "uint8", value)
