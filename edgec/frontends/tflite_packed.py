"""Constants that a .tflite file stores more tightly than their elements: sparse ones,
and two int4 in a byte.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from edgec.ir import Array

_CSR = 1
_SPARSEST = 1024
"""Elements for each one that is stored, and 2^14 times as many in all: a damaged file
must not take all memory.
"""


def dense(stored: Array, sparsity: Any, shape: tuple[int, ...]) -> Array:
    """The elements of a sparse tensor, zeros between those stored.

    Raises ValueError for parameters that do not fit.

    Dimensions are those of the tensor, then those of its blocks, which divide some of
    them; they are walked in `traversalOrder`, each of them whole or (as compressed rows
    are) along the places that it lists.
    """
    order, blocked = (_list(v) for v in (sparsity.traversalOrder, sparsity.blockMap))
    rank = len(shape)
    kinds = sparsity.dimMetadata or []
    if (
        sorted(order) != list(range(rank + len(blocked)))
        or len(kinds) != len(order)
        or len(set(blocked)) < len(blocked)
    ):
        raise ValueError(
            f"sparsity of dimensions {order} and blocks {blocked} does not fit "
            f"{list(shape)}"
        )
    blocks = [int(kinds[order.index(rank + i)].denseSize) for i in range(len(blocked))]
    sizes = [*shape, *blocks]
    most = prod(shape)
    if most > _SPARSEST * max(len(stored), 1 << 14):
        raise ValueError(f"{len(stored)} elements of a sparse tensor {list(shape)}")
    for axis, block in zip(blocked, blocks, strict=True):
        if not 0 <= axis < rank or block < 1 or shape[axis] % block:
            raise ValueError(
                f"blocks of {block} do not divide dimension {axis} of {list(shape)}"
            )
        sizes[axis] //= block
    rows = np.zeros(1, np.int64)
    places = np.zeros((1, 0), np.int64)
    for axis, kind in zip(order, kinds, strict=True):
        rows, places = _walked(rows, places, kind, sizes[axis], most)
    if len(rows) != len(stored):
        raise ValueError(
            f"{len(stored)} elements for {len(rows)} places of a sparse tensor"
        )
    at = [places[:, order.index(i)] for i in range(rank)]
    for i, (axis, block) in enumerate(zip(blocked, blocks, strict=True)):
        at[axis] = at[axis] * block + places[:, order.index(rank + i)]
    whole = np.zeros(shape, stored.dtype)
    whole[tuple(at)] = stored
    return whole


def _walked(
    rows: Array, places: Array, kind: Any, size: int, most: int
) -> tuple[Array, Array]:
    """One more dimension: the number of each row so far, and its coordinates."""
    if kind.format == _CSR:
        starts, found = (
            _list(v.values if v is not None else None)
            for v in (kind.arraySegments, kind.arrayIndices)
        )
        ends = np.diff(starts)
        if (
            len(starts) != len(rows) + 1
            or (ends < 0).any()
            or starts[0] != 0
            or starts[-1] != len(found)
        ):
            raise ValueError(
                f"{len(starts)} segments for {len(rows)} rows of a sparse tensor"
            )
        if found and not 0 <= min(found) <= max(found) < size:
            raise ValueError(
                f"place {max(found)} in a dimension of {size} of a sparse tensor"
            )
        parents = np.repeat(np.arange(len(rows)), ends)
        along = np.array(found, np.int64)
    else:
        if kind.denseSize != size or len(rows) * size > most:
            raise ValueError(
                f"{len(rows)} times {kind.denseSize} elements of a sparse tensor of {most}"
            )
        parents = np.repeat(np.arange(len(rows)), size)
        along = np.tile(np.arange(size), len(rows))
    return np.arange(len(parents)), np.concatenate([places[parents], along[:, None]], 1)


def int4(stored: bytes, shape: tuple[int, ...]) -> Array:
    """The int8 of pairs of int4, the low half of each byte first."""
    pairs = np.frombuffer(stored, np.uint8)
    count = prod(shape)
    if len(pairs) != (count + 1) // 2:
        raise ValueError(f"{len(pairs)} bytes for {count} elements of 4 bits")
    halves = np.stack([pairs << 4, pairs & 0xF0], 1).reshape(-1)[:count].view(np.int8)
    return (halves >> 4).reshape(shape)


def _list(values: Any) -> list[int]:
    return [] if values is None else [int(v) for v in values]
