"""Inputs into the chip's layout, and outputs out of it.

The chip has an input densely, in the order y, x, z, padded at its end. An output comes
by tile or as blocks (TileLayout and Slice in edgetpu_file/executable.py). Signed
integers have their highest bit inverted. Sources: api/layer_information.cc and
driver/single_tpu_request.cc in google-coral/libedgetpu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Tuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..edgetpu_file.executable import DATA_TYPE_BYTES, DATA_TYPES, Layer, TileLayout
from ..edgetpu_file.flatbuffer import DamagedError

Bytes = NDArray[np.uint8]
Array = NDArray[Any]


def dense_shape(layer: Layer) -> Tuple[int, ...]:
    """Return the dimensions of a layer's elements in one execution."""
    if layer.ranges:
        return tuple(last - first + 1 for first, last in layer.ranges)
    return layer.y, layer.x, layer.z


def dense_bytes(layer: Layer) -> int:
    """Return the bytes of a layer without padding, of all executions."""
    return (
        math.prod(dense_shape(layer))
        * DATA_TYPE_BYTES[layer.data_type]
        * layer.executions
    )


def padded_bytes(layer: Layer) -> int:
    """Return the bytes of a layer as the chip has it, of all executions."""
    return layer.size * layer.executions


def write_input(layer: Layer, values: Array, memory: Bytes) -> None:
    """Write an input in the chip's layout.

    Args:
        layer: the input
        values: its elements, of any shape
        memory: where it goes: uint8 [padded_bytes]

    Raises:
        DamagedError: its elements take more bytes than it has
    """
    dense = np.ascontiguousarray(values).reshape(layer.executions, -1).view(np.uint8)
    if dense.shape[1] > layer.size:
        raise DamagedError(f"the input {layer.name} has {layer.size} bytes")
    rows = memory.reshape(layer.executions, layer.size)[:, : dense.shape[1]]
    np.copyto(rows, dense)
    _invert_sign(layer, rows)


class OutputLayout:
    """How an output is read.

    Attributes:
        layer: the output
        blocks: the parts that are copied; none for an output that is dense

    Raises:
        DamagedError: the layout leads out of the output's bytes
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._size = DATA_TYPE_BYTES[layer.data_type]
        self._shape = dense_shape(layer)
        if dense_bytes(layer) // layer.executions > layer.size and not layer.slices:
            raise DamagedError(f"the output {layer.name} has {layer.size} bytes")
        self.blocks = self._find_blocks()
        for block in self.blocks:
            block.check(layer)

    def read(self, memory: Bytes, out: Array) -> None:
        """Read an output.

        Args:
            memory: the chip's bytes, uint8 [padded_bytes]
            out: gets its elements; contiguous, with as many bytes as they have
        """
        dense = out.reshape(-1).view(np.uint8).reshape(self.layer.executions, -1)
        rows = memory[: padded_bytes(self.layer)].reshape(dense.shape[0], -1)
        if not self.blocks:
            np.copyto(dense, rows[:, : dense.shape[1]])
        else:
            target = dense[0].reshape(*self._shape, self._size)
            for block in self.blocks:
                block.copy(rows[0], target)
        _invert_sign(self.layer, dense)

    def _find_blocks(self) -> List["Block"]:
        """Return the parts that are copied; none for an output that is dense."""
        layer = self.layer
        if layer.slices and layer.executions == 1:
            return [
                Block(
                    tuple(
                        (first - start, last + 1 - start)
                        for (first, last), (start, _) in zip(s.ranges, layer.ranges)
                    ),
                    s.offset,
                    tuple(stride * self._size for stride in s.strides),
                )
                for s in layer.slices
            ]
        if layer.layout is None or layer.y == layer.x == 1:
            return []
        if layer.executions > 1:
            raise DamagedError(
                f"the output {layer.name} has tiles and {layer.executions} executions"
            )
        # Leading dimensions of 1 stand before y, x, z.
        before = ((0, 1),) * (len(self._shape) - 3)
        try:
            return [
                block.behind(before)
                for block in _tiles(layer, layer.layout, self._size)
            ]
        except IndexError:
            raise DamagedError(
                f"the layout of the output {layer.name} is cut short"
            ) from None


@dataclass(frozen=True)
class Block:
    """Elements at constant distances.

    Attributes:
        ranges: begin and end in each dimension of the output
        offset: byte of the first element
        strides: distance of neighbours in each dimension, in bytes
    """

    ranges: Tuple[Tuple[int, int], ...]
    offset: int
    strides: Tuple[int, ...]

    def behind(self, ranges: Tuple[Tuple[int, int], ...]) -> "Block":
        """Return the block with further dimensions of 1 before its own."""
        return Block(
            (*ranges, *self.ranges), self.offset, (0,) * len(ranges) + self.strides
        )

    def check(self, layer: Layer) -> None:
        """Raise DamagedError if it is not within its output."""
        size = DATA_TYPE_BYTES[layer.data_type]
        last = self.offset + sum(
            (end - begin - 1) * stride
            for (begin, end), stride in zip(self.ranges, self.strides)
        )
        dimensions = dense_shape(layer)
        inside = len(self.ranges) == len(dimensions) == len(self.strides) and all(
            0 <= begin < end <= n for (begin, end), n in zip(self.ranges, dimensions)
        )
        if not inside or self.offset < 0 or last + size > layer.size:
            raise DamagedError(f"the layout of the output {layer.name} leads out of it")
        if min(self.strides) < 0:
            raise DamagedError(f"the layout of the output {layer.name} runs backwards")

    def copy(self, source: Bytes, target: Bytes) -> None:
        """Copy the block; the target's last dimension is the bytes of an element."""
        part = target[tuple(slice(begin, end) for begin, end in self.ranges)]
        np.copyto(
            part, as_strided(source[self.offset :], part.shape, (*self.strides, 1))
        )


def _tiles(layer: Layer, layout: TileLayout, size: int) -> List[Block]:
    """Return the blocks of an output by tile, in the dimensions y, x, z."""
    blocks = []
    for y0, y1 in _runs(layer.y, [layout.y_tile], layout.y_in_tile):
        for x0, x1 in _runs(layer.x, [layout.x_tile, layout.row_size], layout.x_offset):
            tile = layout.tile_offset[layout.y_tile[y0] + layout.x_tile[x0]]
            row = layout.row_size[x0]
            offset = tile + layout.y_in_tile[y0] * row + layout.x_offset[x0]
            rows = _step(layout.y_in_tile, y0, y1) * row
            columns = _step(layout.x_offset, x0, x1)
            blocks.append(
                Block(
                    ((y0, y1), (x0, x1), (0, layer.z)),
                    offset * size,
                    (rows * size, columns * size, size),
                )
            )
    return blocks


def _step(values: Tuple[int, ...], begin: int, end: int) -> int:
    return values[begin + 1] - values[begin] if end - begin > 1 else 0


def _runs(
    count: int, same: List[Tuple[int, ...]], stepping: Tuple[int, ...]
) -> List[Tuple[int, int]]:
    """Return the ranges in which some values stay the same and one grows by a step."""
    runs = []
    begin = 0
    for i in range(1, count + 1):
        if i < count and all(v[i] == v[begin] for v in same):
            step = stepping[i] - stepping[i - 1]
            if i - begin == 1 or step == stepping[begin + 1] - stepping[begin]:
                continue
        runs.append((begin, i))
        begin = i
    return runs


def _invert_sign(layer: Layer, rows: Bytes) -> None:
    """Invert the highest bit of each element of a signed layer."""
    if DATA_TYPES[layer.data_type] in ("int8", "int16"):
        size = DATA_TYPE_BYTES[layer.data_type]
        rows[:, size - 1 :: size] ^= 0x80
