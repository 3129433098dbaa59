"""Reads flatbuffers and the maps of flexbuffers, with every offset checked.

The formats: https://flatbuffers.dev/internals and https://flatbuffers.dev/flexbuffers.
Positions are from the start of the whole file, also inside a buffer that is nested in
another one, so that a value can be replaced at its place.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

_FLEX_STRING = 5
_FLEX_MAP = 9
_FLEX_VECTOR_OF_STRINGS = 15
_FLEX_VECTORS = (10, _FLEX_VECTOR_OF_STRINGS)
_LITTLE = "little"


class DamagedError(ValueError):
    """An offset or a length leads out of the file."""


@dataclass(frozen=True)
class Span:
    """Bytes of a file.

    Attributes:
        start: position of the first byte
        size: number of bytes
    """

    start: int
    size: int

    @property
    def end(self) -> int:
        """Return the position after the last byte."""
        return self.start + self.size

    def of(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data[self.start : self.end]


def number(data: bytes, at: int, size: int, signed: bool = False) -> int:
    """Return the little-endian integer of `size` bytes at a position.

    Raises:
        DamagedError: the position is out of the file
    """
    if at < 0 or at + size > len(data):
        raise DamagedError(f"an offset leads to byte {at} of {len(data)}")
    return int.from_bytes(data[at : at + size], _LITTLE, signed=signed)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Table:
    """A table of a flatbuffer; fields are given by their number in the schema, from 0.

    Attributes:
        data: the whole file
        at: position of the table
    """

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes, start: int = 0) -> Table:
        """Return the root table of the flatbuffer that starts at a position."""
        return cls(data, start + number(data, start, 4))

    def place(self, field: int) -> Optional[int]:
        """Return the position of a field's value; None if the table has no such field."""
        fields = self.at - number(self.data, self.at, 4, signed=True)
        slot = 4 + 2 * field
        if slot + 2 > number(self.data, fields, 2):
            return None
        offset = number(self.data, fields + slot, 2)
        return self.at + offset if offset else None

    def integer(
        self, field: int, size: int = 4, default: int = 0, signed: bool = True
    ) -> int:
        """Return a number of `size` bytes."""
        at = self.place(field)
        return default if at is None else number(self.data, at, size, signed)

    def float32(self, field: int) -> float:
        """Return a float of 32 bits, by default 0."""
        at = self.place(field)
        if at is None:
            return 0.0
        number(self.data, at, 4)
        value: float = struct.unpack_from("<f", self.data, at)[0]
        return value

    def table(self, field: int) -> Optional[Table]:
        """Return a table; None if it is absent."""
        at = self.place(field)
        return None if at is None else Table(self.data, self._target(at))

    def span(self, field: int, size: int = 1) -> Optional[Span]:
        """Return the place of a string, or of a vector whose elements have `size` bytes."""
        at = self.place(field)
        if at is None:
            return None
        start = self._target(at)
        span = Span(start + 4, number(self.data, start, 4) * size)
        if span.end > len(self.data):
            raise DamagedError(
                f"a vector of {span.size} bytes at byte {start} ends after the file"
            )
        return span

    def text(self, field: int) -> str:
        """Return a string, by default the empty one; bytes that are no UTF-8 are escaped."""
        span = self.span(field)
        return "" if span is None else span.of(self.data).decode(errors="replace")

    def integers(
        self, field: int, size: int = 4, signed: bool = True
    ) -> Tuple[int, ...]:
        """Return a vector of numbers of `size` bytes, by default the empty one."""
        span = self.span(field, size)
        if span is None:
            return ()
        places = range(span.start, span.end, size)
        return tuple(number(self.data, at, size, signed) for at in places)

    def tables(self, field: int) -> Tuple[Table, ...]:
        """Return a vector of tables, by default the empty one."""
        return tuple(Table(self.data, at) for at in self._targets(field))

    def spans(self, field: int) -> Tuple[Span, ...]:
        """Return the places of a vector of strings."""
        found: List[Span] = []
        for at in self._targets(field):
            span = Span(at + 4, number(self.data, at, 4))
            if span.end > len(self.data):
                raise DamagedError(f"a string at byte {at} ends after the file")
            found.append(span)
        return tuple(found)

    def _targets(self, field: int) -> Tuple[int, ...]:
        span = self.span(field, 4)
        if span is None:
            return ()
        return tuple(self._target(at) for at in range(span.start, span.end, 4))

    def _target(self, at: int) -> int:
        target = at + number(self.data, at, 4)
        number(self.data, target, 4)
        return target


def strings_of_map(data: bytes, span: Span) -> Dict[str, Tuple[Span, ...]]:
    """Return the strings of a flexbuffer's map, by key; other values are left out.

    Args:
        data: the whole file
        span: the flexbuffer

    Returns: for each key one string, or those of a vector of strings
    """
    if span.size < 3:
        raise DamagedError(f"a map at byte {span.start} has {span.size} bytes")
    width = number(data, span.end - 1, 1)
    kind = number(data, span.end - 2, 1) >> 2
    if kind != _FLEX_MAP or width not in (1, 2, 4, 8):
        raise DamagedError(f"the value at byte {span.start} is not a map")
    at = _back(data, span, span.end - 2 - width, width)
    width = 1 << (number(data, span.end - 2, 1) & 3)
    keys = _back(data, span, at - 3 * width, width)
    key_width = number(data, at - 2 * width, width)
    if key_width not in (1, 2, 4, 8):
        raise DamagedError(f"the keys of the map at byte {at} are damaged")
    count = _length(data, span, at, width)

    values: Dict[str, Tuple[Span, ...]] = {}
    for i in range(count):
        key = _back(data, span, keys + i * key_width, key_width)
        end = data.find(b"\0", key, span.end)
        name = data[key : max(key, end)].decode(errors="replace")
        packed = number(data, at + count * width + i, 1)
        kind, value_width = packed >> 2, 1 << (packed & 3)
        if kind == _FLEX_STRING or kind in _FLEX_VECTORS:
            value = _back(data, span, at + i * width, width)
            values[name] = (
                (_string(data, span, value, value_width),)
                if kind == _FLEX_STRING
                else _strings(data, span, value, value_width, kind)
            )
    return values


def _strings(
    data: bytes, span: Span, at: int, width: int, kind: int
) -> Tuple[Span, ...]:
    count = _length(data, span, at, width)
    found: List[Span] = []
    for i in range(count):
        packed = number(data, at + count * width + i, 1)
        if kind == _FLEX_VECTOR_OF_STRINGS:
            # an old form, without a type for each element
            packed = _FLEX_STRING << 2
        if packed >> 2 == _FLEX_STRING:
            value = _back(data, span, at + i * width, width)
            found.append(_string(data, span, value, 1 << (packed & 3)))
    return tuple(found)


def _string(data: bytes, span: Span, at: int, width: int) -> Span:
    return Span(at, _length(data, span, at, width))


def _length(data: bytes, span: Span, at: int, width: int) -> int:
    """Return the number of elements, which stands before a vector or string."""
    length = number(data, at - width, width)
    if at + length > span.end:
        raise DamagedError(f"{length} elements at byte {at} end after the buffer")
    return length


def _back(data: bytes, span: Span, at: int, width: int) -> int:
    """Return the position that an offset leads to; it counts backwards from itself."""
    target = at - number(data, at, width)
    if not span.start <= target < span.end:
        raise DamagedError(f"an offset at byte {at} leads out of its buffer")
    return target
