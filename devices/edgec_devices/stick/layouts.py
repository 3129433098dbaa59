"""Where the elements of a layer stand in the bytes that cross the USB.

The formulas are those of api/layer_information.cc and driver/single_tpu_request.cc in
google-coral/libedgetpu, read from the chip's side: what the driver undoes for an output
is done here, and the other way round for an input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from edgec_runtime.edgetpu_file.executable import DATA_TYPE_BYTES, DATA_TYPES, Layer
from numpy.typing import NDArray

Array = NDArray[Any]


def input_elements(layer: Layer, data: bytes) -> Array:
    """Return the elements of an input.

    data: the bytes that arrived, one execution after the other, each with its padding

    Returns: executions * y * x * z elements as bytes [n, bytes of an element], as the
    host has them in memory
    """
    per_execution = layer.y * layer.x * layer.z
    width = DATA_TYPE_BYTES[layer.data_type]
    raw = np.frombuffer(data, np.uint8).reshape(layer.executions, -1)
    elements = raw[:, : per_execution * width].reshape(-1, width).copy()
    return _flipped(layer, elements)


def input_bytes(layer: Layer, elements: Array) -> bytes:
    """Return the bytes of an input of its elements: the inverse of `input_elements`."""
    rows = _flipped(layer, elements).reshape(layer.executions, -1)
    padding = layer.size - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, padding))).tobytes()


def output_elements(layer: Layer, data: bytes) -> Array:
    """Return the elements of an output of its bytes: the inverse of `output_bytes`."""
    width = DATA_TYPE_BYTES[layer.data_type]
    at = places(layer)[:, None] * width + np.arange(width)
    return _flipped(layer, np.frombuffer(data, np.uint8)[at])


def output_bytes(layer: Layer, elements: Array) -> bytes:
    """Return the bytes of an output, padding included (zeros).

    elements: [n, bytes of an element], as the host wants them in memory
    """
    width = DATA_TYPE_BYTES[layer.data_type]
    placed = np.zeros(layer.size * layer.executions, np.uint8)
    at = places(layer) * width
    flipped = _flipped(layer, elements)
    for byte in range(width):
        placed[at + byte] = flipped[:, byte]
    return placed.tobytes()


def places(layer: Layer) -> Array:
    """Return the position of each element, in elements from the start of the output."""
    if layer.slices:
        return _of_slices(layer)
    if layer.executions > 1:
        return _of_executions(layer)
    if layer.layout is None or (layer.y == 1 and layer.x == 1):
        return np.arange(layer.y * layer.x * layer.z)
    tiles = layer.layout
    tile = np.asarray(tiles.y_tile)[:, None] + np.asarray(tiles.x_tile)[None, :]
    row = np.asarray(tiles.y_in_tile)[:, None] * np.asarray(tiles.row_size)[None, :]
    start = np.asarray(tiles.tile_offset)[tile] + row + np.asarray(tiles.x_offset)
    places: Array = (start[:, :, None] + np.arange(layer.z)).reshape(-1)
    return places


def _of_executions(layer: Layer) -> Array:
    """Return the positions in a layer that comes in equal parts, each with padding."""
    stride = layer.size // DATA_TYPE_BYTES[layer.data_type]
    starts = np.arange(layer.executions)[:, None] * stride
    return (starts + np.arange(layer.y * layer.x * layer.z)).reshape(-1)


def _of_slices(layer: Layer) -> Array:
    """Return the positions in an output that is given as blocks with strides."""
    width = DATA_TYPE_BYTES[layer.data_type]
    found = np.zeros([last - first + 1 for first, last in layer.ranges], np.int64)
    for block in layer.slices:
        extents = [last - first + 1 for first, last in block.ranges]
        at = np.full(extents, block.offset // width)
        for axis, (extent, stride) in enumerate(
            zip(extents, block.strides, strict=True)
        ):
            shape = [1] * len(extents)
            shape[axis] = extent
            at = at + (np.arange(extent) * stride).reshape(shape)
        where = tuple(
            slice(first - start, last - start + 1)
            for (first, last), (start, _) in zip(
                block.ranges, layer.ranges, strict=True
            )
        )
        found[where] = at
    return found.reshape(-1)


def _flipped(layer: Layer, elements: Array) -> Array:
    """Return signed integers as the chip has them: with the highest bit inverted."""
    if not DATA_TYPES[layer.data_type].startswith("int") or layer.data_type == 2:
        return elements
    flipped = elements.copy()
    flipped[:, -1] ^= 0x80
    return flipped
