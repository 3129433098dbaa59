"""Recognises layer and instance normalisation that exporters write as several ops.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) * scale + bias

Layer normalisation (Ba et al. 2016, arXiv:1607.06450) takes the mean over the last
axes, instance normalisation (Ulyanov et al. 2016, arXiv:1607.08022) over the pixels of
an image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.norm import InstanceNorm, LayerNorm
from edgec.ops.reduce import Mean


def run(graph: Graph) -> bool:
    """Recognise normalisations, then give them the constants that follow.

    A pass over the graph does the first for some ops and the second for others; the
    pipeline repeats it until nothing changes.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul", "add"):
        if op.output.type.dtype != "float32" or _act(op) != "none":
            continue
        if not _absorb(rw, op) and op.kind == "mul":
            _recognize(rw, op)
    return rw.changed


def _act(op: Op) -> str:
    act: str = getattr(op.spec, "act", "none")
    return act


# ---- the normalisation itself
# --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Variance:
    """The axes of the mean in a variance, and the constant added to the variance."""

    axes: tuple[int, ...]
    eps: float


def _recognize(rw: Rewriter, op: Op) -> None:
    """Replace (x - mean) * rsqrt(variance + eps) by a normalisation."""
    for centred, inverse in (op.inputs, op.inputs[::-1]):
        variance = _variance(rw, inverse, centred)
        if variance is None:
            continue
        x = _uncentred(rw, centred, variance.axes)
        if x is None or x.type != op.output.type:
            continue

        rank = x.type.rank
        # The mean over the last axes is a layer normalisation, over the pixels an
        # instance one.
        first = variance.axes[0]
        if variance.axes == tuple(range(first, rank)):
            _make_layer_norm(rw, op, x, variance)
            return
        if variance.axes == tuple(range(1, rank - 1)):
            _make_instance_norm(rw, op, x, variance)
            return


def _make_layer_norm(rw: Rewriter, op: Op, x: Value, variance: _Variance) -> None:
    """Make `op` a layer normalisation of `x` with a scale of ones."""
    # LayerNorm requires a scale; the product behind it is absorbed later.
    row_shape = x.type.shape[variance.axes[0] :]
    ones = np.ones(row_shape, np.float32)
    scale = rw.const(ones, f"{op.output.name}_scale")
    rw.update(op, LayerNorm(len(variance.axes), variance.eps), [x, scale])


def _make_instance_norm(rw: Rewriter, op: Op, x: Value, variance: _Variance) -> None:
    """Make `op` an instance normalisation of `x` with ones as scale, zeros as bias."""
    # InstanceNorm requires both; the ops behind it are absorbed later.
    channels = x.type.shape[-1:]
    name = op.output.name
    scale = rw.const(np.ones(channels, np.float32), f"{name}_scale")
    bias = rw.const(np.zeros(channels, np.float32), f"{name}_bias")
    rw.update(op, InstanceNorm(variance.eps), [x, scale, bias])


def _variance(rw: Rewriter, inverse: Value, centred: Value) -> _Variance | None:
    """Return the parameters if `inverse` is rsqrt(mean(centred²) + eps).

    None for other values, and if one of the intermediate results has another user.
    """
    root = rw.private(inverse, "rsqrt")
    if root is None:
        return None
    # The sum of the variance and eps.
    shifted = rw.private(root.inputs[0], "add")
    if shifted is None or _act(shifted) != "none":
        return None

    for variance, eps in (shifted.inputs, shifted.inputs[::-1]):
        number = scalar(eps)
        axes = _mean_square_axes(rw, variance, centred)
        if axes is not None and number is not None:
            return _Variance(axes, number)
    return None


def _mean_square_axes(
    rw: Rewriter, variance: Value, centred: Value
) -> tuple[int, ...] | None:
    """Return the axes of the mean if `variance` is mean(centred²).

    The mean must keep its axes, so that it broadcasts against `centred`.
    """
    producer = rw.producer_of(variance, Mean)
    if producer is None or rw.sole_user(variance) is None:
        return None
    mean, spec = producer
    if not spec.keep_dims:
        return None
    square = rw.private(mean.inputs[0], "square", "mul")
    if square is None or set(square.inputs) != {centred}:
        return None
    return spec.axes


def _uncentred(rw: Rewriter, centred: Value, axes: tuple[int, ...]) -> Value | None:
    """Return x if `centred` is x - mean(x) over `axes`.

    The mean must keep its axes, so that it broadcasts against x.
    """
    difference = rw.made_by(centred, "sub")
    if difference is None or _act(difference) != "none":
        return None
    x, subtracted = difference.inputs
    # The variance may share x and the mean, so neither must be private.
    producer = rw.producer_of(subtracted, Mean)
    if producer is None:
        return None
    mean, spec = producer
    if mean.inputs[0] is not x:
        return None
    if spec.axes != axes or not spec.keep_dims:
        return None
    return x


# ---- its scale and bias
# --------------------------------------------------------------------------------------
def _absorb(rw: Rewriter, op: Op) -> bool:
    """Fold a constant factor or term into the normalisation before `op`.

    The constant must span the normalised axes only.
    """
    for x, other in (op.inputs, op.inputs[::-1]):
        norm = rw.private(x, "layer_norm", "instance_norm")
        if norm is None or x.type != op.output.type:
            continue
        if any(v.const is None for v in norm.inputs[1:]):
            continue
        # A constant along other axes cannot be a parameter of the normalisation.
        constant = _as_row(other, norm.inputs[1].type.shape, x.type.rank)
        if constant is None:
            continue
        _fold(rw, norm, op, constant)
        return True
    return False


def _fold(rw: Rewriter, norm: Op, op: Op, constant: Array) -> None:
    """Multiply or add `constant` to the scale and bias of a normalisation.

    `op` is the only user of the normalisation, and goes away.
    """
    # Double, so that several constants are rounded once each.
    scale, bias = _constants(norm)
    if op.kind == "mul":
        scale = scale * constant
        bias = bias * constant
    else:
        bias = bias + constant

    name = norm.inputs[1].name
    new_scale = rw.const(scale.astype(np.float32), f"{name}_scale")
    new_bias = rw.const(bias.astype(np.float32), f"{name}_bias")
    inputs = [norm.inputs[0], new_scale]
    # The bias of a layer normalisation is optional, that of an instance one is not.
    if norm.kind != "layer_norm" or bias.any():
        inputs.append(new_bias)
    rw.absorb(norm, op, inputs=inputs)


def _constants(norm: Op) -> tuple[Array, Array]:
    """Return the scale and bias of a normalisation in double.

    A missing bias is zeros of the scale's shape.
    """
    scale = norm.inputs[1].const
    assert scale is not None
    bias = np.zeros(scale.shape)
    if len(norm.inputs) > 2:
        constant = norm.inputs[2].const
        assert constant is not None
        bias = constant.astype(np.float64)
    return scale.astype(np.float64), bias


def _as_row(value: Value, row: tuple[int, ...], rank: int) -> Array | None:
    """Return a constant broadcast to the last axes of a value of `rank` axes.

    `row` is the shape of these last axes. None if the value is not constant, or
    differs along the leading axes.
    """
    constant = value.const
    if constant is None or constant.ndim > rank:
        return None
    leading = max(0, constant.ndim - len(row))
    if any(size != 1 for size in constant.shape[:leading]):
        return None

    last_shape: tuple[int, ...] = constant.shape[leading:]
    last = constant.reshape(last_shape).astype(np.float64)
    pairs = zip(reversed(last_shape), reversed(row), strict=False)
    fits = all(size in (1, row_size) for size, row_size in pairs)
    return np.broadcast_to(last, row) if fits else None
