"""Which value of one network is which of another: by name, through other layouts and
conversions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Quant, TensorType, Value
from edgec.ir.types import dequantize
from edgec.ops.quantize import Quantize
from edgec.quantize.strands import whole

_MADE = re.compile(r"(_int8|_f32)$")
_MOVED = re.compile(r"(_int8|_f32|_\d+)$")
"""What edgec puts behind the name of a value that it makes another form of; of one that
it lays out anew as well.
"""
_COMPARED = ("float32", "int8", "uint8", "int16")


@dataclass(frozen=True)
class Twin:
    """Where a value's elements are found in the other network. perms: that it may be a
    transposition by; the first that fits is taken.
    """

    name: str
    perms: tuple[tuple[int, ...], ...]


def twins(
    of: Mapping[str, Value],
    among: Mapping[str, Value],
    relaid: bool,
    counts: Mapping[str, int] | None = None,
) -> dict[str, Twin]:
    """For each value of one network that of another that stands for the same reals, by
    its name.

    relaid: one of the two keeps channels first, so that values of one name may be
    transposed. counts: of values that are a part of the channels of their twin, how
    many that has.
    """
    found: dict[str, Twin] = {}
    for v in of.values():
        if v.type.dtype not in _COMPARED:
            continue
        shape = v.type.shape
        count = (counts or {}).get(v.name)
        if count is not None:
            shape = (*shape[:-1], count)
        for name in _names(
            v.name if count is None else whole(v.name), _MOVED if relaid else _MADE
        ):
            other = among.get(name)
            if other is None or other.type.dtype not in _COMPARED:
                continue
            if perms := tuple(layouts(other.type.shape, shape, relaid)):
                found[v.name] = Twin(other.name, perms)
                break
    return found


def _names(name: str, made: re.Pattern[str]) -> Iterator[str]:
    """The name, and those of what it may have been made from."""
    yield name
    while (shorter := made.sub("", name)) != name and shorter:
        yield shorter
        name = shorter
    yield f"{name}_int8"
    yield f"{name}_f32"


def layouts(
    theirs: tuple[int, ...], mine: tuple[int, ...], relaid: bool = False
) -> Iterator[tuple[int, ...]]:
    """The transpositions that may make one shape of another: none, or channels to the
    other end of an image. relaid: these too where none fits as well.
    """
    rank = len(mine)
    if len(theirs) != rank:
        return
    tried = [tuple(range(rank))]
    if rank >= 3 and (relaid or theirs != mine):
        tried += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    yield from (p for p in dict.fromkeys(tried) if tuple(theirs[i] for i in p) == mine)


def reals(array: Array, t: TensorType) -> Array:
    """What the elements stand for, float32."""
    return dequantize(array, t)


def rounded(real: Array, t: TensorType) -> Array:
    """Reals as a tensor of this type holds them."""
    if t.quant is None:
        return np.ascontiguousarray(real, t.np_dtype)
    if t.dtype in ("int8", "uint8"):
        return Quantize(t.dtype).ref([real], [TensorType(real.shape)], [t])[0]
    info = np.iinfo(t.np_dtype)
    scale, zero = t.quant.broadcast(real.ndim)
    steps = np.rint(real.astype(np.float64) / scale) + zero
    return np.asarray(np.clip(steps, info.min, info.max), t.np_dtype)


def limits(t: TensorType) -> tuple[float, float] | None:
    """The smallest and the largest real that a quantized type holds; None for others."""
    q: Quant | None = t.quant
    if q is None or len(q.scale) != 1 or t.dtype == "float32":
        return None
    info = np.iinfo(t.np_dtype)
    return (info.min - q.zero_point[0]) * q.scale[0], (
        info.max - q.zero_point[0]
    ) * q.scale[0]
