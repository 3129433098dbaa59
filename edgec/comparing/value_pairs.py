"""Matches the values of two networks by name, through layouts and conversions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, TensorType, Value
from edgec.ir.types import dequantize
from edgec.ops.quantize import Quantize
from edgec.quantize.change.channel_groups import whole

CONVERTED = re.compile(r"(_int8|_f32)$")
"""Suffix that edgec gives a value converted to another type."""
CONVERTED_OR_RELAID = re.compile(r"(_int8|_f32|_\d+)$")
"""Suffix that edgec gives a value converted to another type or layout."""
COMPARED_TYPES = ("float32", "int8", "uint8", "int16")


@dataclass(frozen=True)
class Twin:
    """The value of the other network that stands for the same real numbers.

    Attributes:
        name: name of the value
        perms: transpositions that give the layout of this network's value; the first
            is used if several are possible
    """

    name: str
    perms: tuple[tuple[int, ...], ...]


def twins(
    of: Mapping[str, Value],
    among: Mapping[str, Value],
    relaid: bool,
    counts: Mapping[str, int] | None = None,
) -> dict[str, Twin]:
    """Return the twin of each value of a network that has one.

    Args:
        of: values of the network, by name
        among: values of the other network, by name
        relaid: whether only one of the networks keeps channels last, so that values of
            one name may be transposed
        counts: number of channels of the twin, for values that are only a part of the
            channels of their twin
    """
    pattern = CONVERTED_OR_RELAID if relaid else CONVERTED
    pairs: dict[str, Twin] = {}
    for value in of.values():
        if value.type.dtype not in COMPARED_TYPES:
            continue

        name = value.name
        shape = value.type.shape
        count = (counts or {}).get(name)
        if count is not None:
            name = whole(name)
            shape = (*shape[:-1], count)

        for candidate in _candidate_names(name, pattern):
            other = among.get(candidate)
            if other is None or other.type.dtype not in COMPARED_TYPES:
                continue
            # The same name with another shape is a converted form, or chance.
            perms = tuple(layouts(other.type.shape, shape, relaid))
            if perms:
                pairs[value.name] = Twin(other.name, perms)
                break
    return pairs


def _candidate_names(name: str, suffix: re.Pattern[str]) -> Iterator[str]:
    """Yield a name, the names it may be derived from, and converted forms of these."""
    yield name
    shorter = suffix.sub("", name)
    # A value may be converted and transposed, and so have several suffixes.
    while shorter != name and shorter:
        yield shorter
        name = shorter
        shorter = suffix.sub("", name)

    # The other network may have the converted form alone.
    yield f"{name}_int8"
    yield f"{name}_f32"


def layouts(
    theirs: tuple[int, ...], mine: tuple[int, ...], relaid: bool = False
) -> Iterator[tuple[int, ...]]:
    """Yield the transpositions that turn shape `theirs` into shape `mine`.

    They are none at all, and channels moved to the other end of an image. With
    `relaid`, the latter are there also if the shapes are equal.
    """
    rank = len(mine)
    if len(theirs) != rank:
        return

    candidates = [tuple(range(rank))]
    # The batch stays first; channels come from the last axis, or go there.
    if rank >= 3 and (relaid or theirs != mine):
        candidates.append((0, *range(2, rank), 1))
        candidates.append((0, rank - 1, *range(1, rank - 1)))

    for perm in dict.fromkeys(candidates):
        if tuple(theirs[axis] for axis in perm) == mine:
            yield perm


def reals(array: Array, t: TensorType) -> Array:
    """Return the real numbers that the elements stand for, float32."""
    return dequantize(array, t)


def rounded(real: Array, t: TensorType) -> Array:
    """Return real numbers as a tensor of type `t` stores them."""
    if t.quant is None:
        return np.ascontiguousarray(real, t.np_dtype)
    # The op itself rounds, so that a comparison has no rounding of its own.
    if t.dtype in ("int8", "uint8"):
        return Quantize(t.dtype).ref([real], [TensorType(real.shape)], [t])[0]
    info = np.iinfo(t.np_dtype)
    scale, zero = t.quant.broadcast(real.ndim)
    steps = np.rint(real.astype(np.float64) / scale) + zero
    return np.asarray(np.clip(steps, info.min, info.max), t.np_dtype)


def limits(t: TensorType) -> tuple[float, float] | None:
    """Return the smallest and the largest real of a quantized type.

    It is None for floats, and for types with a scale per channel.
    """
    quant = t.quant
    if quant is None or len(quant.scale) != 1 or t.dtype == "float32":
        return None
    info = np.iinfo(t.np_dtype)
    scale = quant.scale[0]
    zero_point = quant.zero_point[0]
    return (info.min - zero_point) * scale, (info.max - zero_point) * scale
