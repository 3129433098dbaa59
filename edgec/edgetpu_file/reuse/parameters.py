"""The places of the layers' parameters in a compiled file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from edgec_runtime.edgetpu_file.executable import Executable
from edgec_runtime.edgetpu_file.flatbuffer import Span

from edgec.edgetpu_file.programs import pieces_of

_Packing = Callable[[int, int], bytes]
"""Packs a layer whose weights, and whose biases, are all one number."""


@dataclass
class Store:
    """The parameters of a package, from which the layers take theirs in order.

    Attributes:
        data: the file
        pieces: the places of those that are cached, each a layer or a part of one
        streamed: the place of those that go to the chip in each inference
        next_piece, next_byte: what is free of both
        kept: cached pieces that belong to no layer
    """

    data: bytes
    pieces: tuple[Span, ...]
    streamed: Span
    next_piece: int = 0
    next_byte: int = 0
    kept: int = 0

    @classmethod
    def of(cls, data: bytes, caching: Executable | None, runs: Executable) -> Store:
        """Return the parameters of two executables."""
        pieces = () if caching is None else pieces_of(data, caching)
        start = 0 if caching is None else caching.parameters.start
        places = tuple(Span(start + piece.offset, piece.size) for piece in pieces)
        return cls(data, places, runs.parameters)

    def take(self, size: int, packing: _Packing) -> Span | None:
        """Return the place of a layer, or None.

        Its padding must be what `packing` writes: so no other data are taken for it.

        Args:
            size: bytes of the layer
            packing: how it is packed
        """
        for first in range(self.next_piece, len(self.pieces)):
            last = self._end(first, size)
            if last is None:
                continue
            place = Span(self.pieces[first].start, size)
            if _fits(place.of(self.data), packing):
                self.kept += first - self.next_piece
                self.next_piece = last
                return place
        place = Span(self.streamed.start + self.next_byte, size)
        if place.end > self.streamed.end or not _fits(place.of(self.data), packing):
            return None
        self.next_byte += size
        return place

    def _end(self, first: int, size: int) -> int | None:
        """Return the piece after those with `size` bytes from `first`, if they have."""
        total = 0
        for index in range(first, len(self.pieces)):
            total += self.pieces[index].size
            if total >= size:
                return index + 1 if total == size else None
        return None

    @property
    def left(self) -> int:
        """Return the bytes of streamed parameters that no layer has taken, and count the
        rest of the pieces as kept."""
        self.kept += len(self.pieces) - self.next_piece
        self.next_piece = len(self.pieces)
        return self.streamed.size - self.next_byte


def _fits(old: bytes, packing: _Packing) -> bool:
    """Return whether data have the padding of a layer where it has padding."""
    zeros, ones = (np.frombuffer(packing(n, n), np.uint8) for n in (0, -1))
    padding = zeros == ones
    return bool(np.array_equal(np.frombuffer(old, np.uint8)[padding], zeros[padding]))
