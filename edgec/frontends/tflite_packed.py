"""Packed constants of a .tflite file: sparse ones, and two int4 in a byte."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from edgec.ir import Array

_CSR = 1
MAX_ELEMENTS_PER_STORED = 1024
MIN_STORED = 1 << 14
"""A sparse tensor may have 1024 elements for each stored one, and 2^14 times as many in
any case: a damaged file must not take all memory.
"""


def dense(stored: Array, sparsity: Any, shape: tuple[int, ...]) -> Array:
    """Return the elements of a sparse tensor, with zeros between the stored ones.

    Raises ValueError for parameters that do not fit.

    The format is that of TFLite's SparsityParameters, after TACO (Kjolstad et al. 2017,
    "The tensor algebra compiler"). Dimensions are those of the tensor, then those of
    its blocks, each a part of one of them; they are walked in `traversalOrder`, each of
    them whole or (like compressed rows) along a list of places.
    """
    order = _list(sparsity.traversalOrder)
    blocked = _list(sparsity.blockMap)
    rank = len(shape)
    kinds = sparsity.dimMetadata or []
    expected = list(range(rank + len(blocked)))
    # Each dimension can have blocks only once.
    repeated = len(set(blocked)) < len(blocked)
    if sorted(order) != expected or len(kinds) != len(order) or repeated:
        raise ValueError(
            f"sparsity of dimensions {order} and blocks {blocked} does not fit "
            f"{list(shape)}"
        )
    count = prod(shape)
    if count > MAX_ELEMENTS_PER_STORED * max(len(stored), MIN_STORED):
        raise ValueError(f"{len(stored)} elements of a sparse tensor {list(shape)}")

    blocks: list[int] = []
    for i in range(len(blocked)):
        kind = kinds[order.index(rank + i)]
        blocks.append(int(kind.denseSize))
    sizes = _block_counts(shape, blocked, blocks)

    # One row without coordinates, which each dimension extends.
    places = np.zeros((1, 0), np.int64)
    for axis, kind in zip(order, kinds, strict=True):
        places = _walked(places, kind, sizes[axis], count)
    if len(places) != len(stored):
        raise ValueError(
            f"{len(stored)} elements for {len(places)} places of a sparse tensor"
        )

    # The coordinate of an element: block number times block size, plus the place in it.
    coordinates = [places[:, order.index(i)] for i in range(rank)]
    for i, (axis, block) in enumerate(zip(blocked, blocks, strict=True)):
        inside = places[:, order.index(rank + i)]
        coordinates[axis] = coordinates[axis] * block + inside
    elements = np.zeros(shape, stored.dtype)
    elements[tuple(coordinates)] = stored
    return elements


def _block_counts(
    shape: tuple[int, ...], blocked: list[int], blocks: list[int]
) -> list[int]:
    """Return the sizes of all dimensions: of the tensor in blocks, then of the blocks.

    Raises ValueError for blocks that do not divide a dimension.
    """
    sizes = [*shape, *blocks]
    for axis, block in zip(blocked, blocks, strict=True):
        if not 0 <= axis < len(shape) or block < 1 or shape[axis] % block:
            raise ValueError(
                f"blocks of {block} do not divide dimension {axis} of {list(shape)}"
            )
        sizes[axis] //= block
    return sizes


def _walked(places: Array, kind: Any, size: int, count: int) -> Array:
    """Return the coordinates of the rows after one more dimension.

    places: the coordinates so far, [rows, dimensions]. size: of the dimension. count:
    the elements of the tensor.
    """
    if kind.format == _CSR:
        parents, along = _walked_sparse(len(places), kind, size)
    else:
        if kind.denseSize != size or len(places) * size > count:
            raise ValueError(
                f"{len(places)} times {kind.denseSize} elements of a sparse tensor of "
                f"{count}"
            )
        # A dense dimension repeats each row for each of its places.
        parents = np.repeat(np.arange(len(places)), size)
        along = np.tile(np.arange(size), len(places))
    return np.concatenate([places[parents], along[:, None]], 1)


def _walked_sparse(rows: int, kind: Any, size: int) -> tuple[Array, Array]:
    """Return, for each element of a compressed dimension, its row and its place.

    `arraySegments` has the first element of each row, `arrayIndices` the places.
    """
    segments = kind.arraySegments
    indices = kind.arrayIndices
    starts = _list(segments.values if segments is not None else None)
    places = _list(indices.values if indices is not None else None)
    lengths = np.diff(starts)
    fits = len(starts) == rows + 1 and not (lengths < 0).any()
    if not fits or starts[0] != 0 or starts[-1] != len(places):
        raise ValueError(f"{len(starts)} segments for {rows} rows of a sparse tensor")
    if places and not 0 <= min(places) <= max(places) < size:
        raise ValueError(
            f"place {max(places)} in a dimension of {size} of a sparse tensor"
        )
    return np.repeat(np.arange(rows), lengths), np.array(places, np.int64)


def int4(stored: bytes, shape: tuple[int, ...]) -> Array:
    """Return the int8 form of pairs of int4.

    The low half of each byte comes first. Raises ValueError for a wrong count of bytes.
    """
    pairs = np.frombuffer(stored, np.uint8)
    count = prod(shape)
    if len(pairs) != (count + 1) // 2:
        raise ValueError(f"{len(pairs)} bytes for {count} elements of 4 bits")

    # Each half in the upper bits; an arithmetic shift then extends the sign.
    halves = np.stack([pairs << 4, pairs & 0xF0], 1)
    elements = halves.reshape(-1)[:count].view(np.int8)
    return (elements >> 4).reshape(shape)


def _list(values: Any) -> list[int]:
    return [] if values is None else [int(v) for v in values]
