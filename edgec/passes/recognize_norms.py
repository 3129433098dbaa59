"""Finds layer and instance normalisation where exporters write out mean and variance,
and gives them scale and bias.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.norm import InstanceNorm, LayerNorm
from edgec.ops.reduce import Mean


def run(graph: Graph) -> bool:
    """(x - mean) * rsqrt(variance + eps) first, then the constants that follow a
    normalisation.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul", "add"):
        if (
            op.output.type.dtype != "float32"
            or getattr(op.spec, "act", "none") != "none"
        ):
            continue
        if not _absorb(rw, op) and op.kind == "mul":
            _recognize(rw, op)
    return rw.changed


# ---- the normalisation itself
# --------------------------------------------------------------------------------------
def _recognize(rw: Rewriter, op: Op) -> None:
    for centred, inverse in (op.inputs, op.inputs[::-1]):
        found = _variance(rw, inverse, centred)
        x = _uncentred(rw, centred, found[0]) if found is not None else None
        if found is None or x is None or x.type != op.output.type:
            continue
        axes, eps = found
        rank = x.type.rank
        if axes == tuple(range(axes[0], rank)):
            row = x.type.shape[axes[0] :]
            rw.update(
                op,
                LayerNorm(len(axes), eps),
                [x, rw.const(np.ones(row, np.float32), f"{op.output.name}_scale")],
            )
            return
        if axes == tuple(range(1, rank - 1)):
            values = (np.ones, "scale"), (np.zeros, "bias")
            made = [
                rw.const(fn(x.type.shape[-1:], np.float32), f"{op.output.name}_{n}")
                for fn, n in values
            ]
            rw.update(op, InstanceNorm(eps), [x, *made])
            return


def _variance(
    rw: Rewriter, inverse: Value, centred: Value
) -> tuple[tuple[int, ...], float] | None:
    """Axes and eps of rsqrt(mean(centred²) + eps)."""
    root = rw.private(inverse, "rsqrt")
    shifted = rw.private(root.inputs[0], "add") if root is not None else None
    if shifted is None or getattr(shifted.spec, "act", "none") != "none":
        return None
    for variance, eps in (shifted.inputs, shifted.inputs[::-1]):
        mean = rw.private(variance, "mean")
        number = scalar(eps)
        if (
            mean is None
            or number is None
            or not isinstance(mean.spec, Mean)
            or not mean.spec.keep_dims
        ):
            continue
        square = rw.private(mean.inputs[0], "square", "mul")
        if square is not None and set(square.inputs) == {centred}:
            return mean.spec.axes, number
    return None


def _uncentred(rw: Rewriter, centred: Value, axes: tuple[int, ...]) -> Value | None:
    """x of x - mean(x)."""
    difference = rw.made_by(centred, "sub")
    if difference is None or getattr(difference.spec, "act", "none") != "none":
        return None
    x = difference.inputs[0]
    mean = rw.made_by(difference.inputs[1], "mean")
    if mean is None or mean.inputs[0] is not x or not isinstance(mean.spec, Mean):
        return None
    return x if mean.spec.axes == axes and mean.spec.keep_dims else None


# ---- its scale and bias
# --------------------------------------------------------------------------------------
def _absorb(rw: Rewriter, op: Op) -> bool:
    """A constant factor or term of the normalised axes goes into the normalisation
    before.
    """
    for x, other in (op.inputs, op.inputs[::-1]):
        norm = rw.private(x, "layer_norm", "instance_norm")
        if (
            norm is None
            or x.type != op.output.type
            or any(v.const is None for v in norm.inputs[1:])
        ):
            continue
        given = _as_row(other, norm.inputs[1].type.shape, x.type.rank)
        if given is None:
            continue
        scale, bias = _constants(norm)
        scale, bias = (
            (scale * given, bias * given) if op.kind == "mul" else (scale, bias + given)
        )
        name = norm.inputs[1].name
        made = [
            rw.const(a.astype(np.float32), f"{name}_{n}")
            for a, n in ((scale, "scale"), (bias, "bias"))
        ]
        plain = norm.kind == "layer_norm" and not bias.any()
        rw.absorb(norm, op, inputs=[norm.inputs[0], *(made[:1] if plain else made)])
        return True
    return False


def _constants(norm: Op) -> tuple[Array, Array]:
    """Scale and bias in double."""
    scale = norm.inputs[1].const
    assert scale is not None
    bias = norm.inputs[2].const if len(norm.inputs) > 2 else np.zeros(scale.shape)
    assert bias is not None
    return scale.astype(np.float64), bias.astype(np.float64)


def _as_row(value: Value, row: tuple[int, ...], rank: int) -> Array | None:
    """A constant that is the same along the leading axes, broadcast to the last ones."""
    c = value.const
    if (
        c is None
        or c.ndim > rank
        or any(d != 1 for d in c.shape[: max(0, c.ndim - len(row))])
    ):
        return None
    last = c.reshape(c.shape[max(0, c.ndim - len(row)) :]).astype(np.float64)
    shape: tuple[int, ...] = last.shape
    fits = all(
        own in (1, size) for own, size in zip(shape[::-1], row[::-1], strict=False)
    )
    return np.broadcast_to(last, row) if fits else None
