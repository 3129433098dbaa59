"""A chain of ops on images, computed in horizontal bands: which rows each op needs for
which rows of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from edgec.ir import Op, OpDef, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.slice import slice_axes
from edgec.ops.window import Pads

_MOST_BANDS = 64
_NO_PADS: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class Band:
    """What an op reads for a band of its result: rows first to last - 1 of its input,
    and zeros around them.
    """

    first: int
    last: int
    border: Pads


def chain(r: Rewriter, op: Op, limit: int) -> list[Op] | None:
    """The ops from `op` on until a result has at most `limit` elements, if each can be
    computed in bands.
    """
    found = [op]
    while _banded(found[-1]):
        if found[-1].output.type.size <= limit:
            return found
        user = r.sole_user(found[-1].output)
        if user is None or user.inputs[0] is not found[-1].output:
            return None
        found.append(user)
    return None


def bands(ops: Sequence[Op], limit: int) -> list[tuple[int, int]] | None:
    """The fewest equal bands of rows of the last op's result for which no tensor
    exceeds `limit` elements.
    """
    rows = ops[-1].output.type.shape[1]
    for count in range(2, min(_MOST_BANDS, rows) + 1):
        edges = [rows * i // count for i in range(count + 1)]
        found = list(pairwise(edges))
        if all(_largest(ops, band) <= limit for band in found):
            return found
    return None


def compute(
    r: Rewriter, before: Op, ops: Sequence[Op], rows: tuple[int, int], name: str
) -> Value:
    """Rows [first, last) of the result of a chain, from as many rows of its input."""
    needs = _needs(ops, rows)
    assert needs is not None
    x = ops[0].inputs[0]
    x = r.add(
        before,
        slice_axes(x.type, {1: (needs[0].first, needs[0].last - needs[0].first, 1)}),
        [x],
        f"{x.name}_{name}",
    )
    for op, need in zip(ops, needs, strict=True):
        inside = _inside(op, need)
        border = inside[1]
        if any(border):
            pad = Pad(((0, 0), border[:2], border[2:], (0, 0)))
            x = r.add(before, pad, [x], f"{x.name}_padded", x.type.quant)
        if inside[0] is not None:
            x = r.add(
                before,
                inside[0],
                [x, *op.inputs[1:]],
                f"{op.output.name}_{name}",
                op.output.type.quant,
            )
    return x


def _banded(op: Op) -> bool:
    """Whether rows of the result are computed from rows of the input, and what else is
    read is constant.
    """
    spec = op.spec
    x = op.inputs[0].type
    if (
        any(v.const is None for v in op.inputs[1:])
        or len(op.outputs) > 1
        or x.rank != 4
    ):
        return False
    if isinstance(spec, Pad):
        return (
            spec.mode == "constant"
            and spec.value == 0
            and spec.pads[0] == spec.pads[3] == (0, 0)
        )
    if isinstance(spec, MaxPool2D | AveragePool2D):
        return spec.pads == _NO_PADS
    constant = all(
        v.type.size == 1 or v.type.shape == (x.shape[3],) for v in op.inputs[1:]
    )
    alike = spec.elementwise and constant and op.output.type.shape == x.shape
    return isinstance(spec, Conv2D | DepthwiseConv2D) or alike


def _need(op: Op, rows: tuple[int, int]) -> Band | None:
    """What one op reads for rows [first, last) of its result; None where that is zeros
    alone.
    """
    spec = op.spec
    height = op.inputs[0].type.shape[1]
    kernel = 1
    stride = 1
    pads = _NO_PADS
    if isinstance(spec, Pad):
        pads = (*spec.pads[1], *spec.pads[2])
    elif isinstance(spec, MaxPool2D | AveragePool2D):
        kernel = spec.kernel[0]
        stride = spec.stride[0]
    elif isinstance(spec, Conv2D | DepthwiseConv2D):
        kernel = (op.inputs[1].type.shape[1] - 1) * spec.dilation[0] + 1
        stride = spec.stride[0]
        pads = spec.pads
    first = rows[0] * stride - pads[0]
    last = (rows[1] - 1) * stride - pads[0] + kernel
    border = (max(0, -first), max(0, last - height), pads[2], pads[3])
    band = Band(max(0, first), min(height, last), border)
    return band if band.first < band.last else None


def _needs(ops: Sequence[Op], rows: tuple[int, int]) -> list[Band] | None:
    """What each op of a chain reads for a band of the last one's result."""
    found: list[Band] = []
    for op in reversed(ops):
        need = _need(op, rows)
        if need is None:
            return None
        found.append(need)
        rows = (need.first, need.last)
    return found[::-1]


def _largest(ops: Sequence[Op], rows: tuple[int, int]) -> float:
    """Elements of the largest tensor of a band."""
    needs = _needs(ops, rows)
    if needs is None:
        return float("inf")
    sizes: list[int] = []
    for op, need in zip(ops, needs, strict=True):
        _, _, w, c = op.inputs[0].type.shape
        top, bottom, left, right = need.border
        sizes.append((need.last - need.first + top + bottom) * (w + left + right) * c)
    return max(*sizes, (rows[1] - rows[0]) * prod(ops[-1].output.type.shape[2:]))


def _inside(op: Op, need: Band) -> tuple[OpDef | None, Pads]:
    """The op on a band, and the border to put around the band first; no op where the
    border is all.
    """
    spec = op.spec
    x = op.inputs[0].type
    if isinstance(spec, Pad):
        return None, need.border
    if not isinstance(spec, Conv2D | DepthwiseConv2D):
        return spec, _NO_PADS
    whole = replace(spec, pads=need.border)
    band = Value(
        "band", x.with_shape((x.shape[0], need.last - need.first, *x.shape[2:]))
    )
    if whole.tflite_padding(Op(whole, [band, *op.inputs[1:]], [])) is not None:
        return whole, _NO_PADS
    return replace(spec, pads=_NO_PADS), need.border
