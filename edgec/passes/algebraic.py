"""Strength reduction: the same numbers by a cheaper op, or by none.

On float32, each rule is exact but for the rounding of constants that are combined (one
unit in the last place). On quantized tensors only the rules that move no number apply.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Array, Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.activation import Clamp, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.broadcast import Tile
from edgec.ops.broadcast_dims import MAX_DIMS, count_dims
from edgec.ops.concat import Concat
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.slice import Slice
from edgec.ops.unary import Neg, Reciprocal, Relu, Rsqrt, Sqrt

Rule = Callable[[Rewriter, Op], bool]
"""A function that rewrites an op if it can, and returns whether it did."""


def run(graph: Graph) -> bool:
    """Apply to each op the first rule that fits."""
    rw = Rewriter(graph)
    for op in rw.ops():
        rules = ANY_TYPE.get(op.kind, ())
        if op.outputs[0].type.dtype == "float32":
            rules += FLOAT.get(op.kind, ())
        # A rule that fits may have removed the op, so the others are not tried.
        any(rule(rw, op) for rule in rules)
    return rw.changed


# ---- ops that do nothing
# --------------------------------------------------------------------------------------
def same_shape(rw: Rewriter, op: Op) -> bool:
    """Remove an op that copies its only input.

    Such are a pad or tile without effect, a pool with a window of one element and no
    activation, and a concatenation of one input.
    """
    if op.kind.endswith("pool2d"):
        # A fused activation would be lost with the pool.
        kernel = getattr(op.spec, "kernel", None)
        if kernel != (1, 1) or _act(op) != "none":
            return False
    if op.kind == "concat" and len(op.inputs) > 1:
        return False
    x = op.inputs[0]
    return x.type == op.output.type and rw.forward(op, x)


def whole_slice(rw: Rewriter, op: Op) -> bool:
    """Remove a slice of the whole tensor, unless it reverses an axis."""
    if not isinstance(op.spec, Slice):
        return False
    # Equal shapes with a negative step mean a reversed axis.
    forwards = min(op.spec.step, default=1) > 0
    return forwards and same_shape(rw, op)


def neutral(rw: Rewriter, op: Op) -> bool:
    """Remove x + 0, x - 0, x * 1 and x / 1.

    A sum and a product may have their constant on either side.
    """
    if _act(op) != "none":
        return False

    # The constant that leaves x as it is.
    unit = 0.0 if op.kind in ("add", "sub") else 1.0
    orders = [op.inputs]
    if op.kind in ("add", "mul"):
        orders.append(op.inputs[::-1])
    return any(scalar(c) == unit and rw.forward(op, x) for x, c in orders)


def same_scale(rw: Rewriter, op: Op) -> bool:
    """Remove a quantize op whose input has the scale of its output.

    A float input counts as having the scale it was dequantized from.
    """
    source = op.inputs[0]
    if source.type.dtype == "float32":
        # Widening to float32 is exact, so quantizing again restores the integers.
        dequantize = rw.made_by(source, "dequantize")
        if dequantize is not None:
            source = dequantize.inputs[0]
    return source.type == op.output.type and rw.forward(op, source)


# ---- views
# --------------------------------------------------------------------------------------
def broadcast_for_tile(rw: Rewriter, op: Op) -> bool:
    """Let an elementwise op broadcast an input in place of a tile op before it."""
    for i, v in enumerate(op.inputs):
        x = _tiled_ones(rw, v)
        if x is None:
            continue
        inputs = list(op.inputs)
        inputs[i] = x
        shapes = [u.type.shape for u in inputs]
        shape = op.output.type.shape
        # Another input must have the full size, or the output would shrink.
        if np.broadcast_shapes(*shapes) != shape:
            continue
        # The tile may be there because the kernels have too few dimensions.
        if count_dims(shape, *shapes) <= MAX_DIMS:
            rw.update(op, inputs=inputs)
            return True
    return False


def _tiled_ones(rw: Rewriter, v: Value) -> Value | None:
    """Return the input of the tile op that writes `v`, if it repeats only 1-long axes.

    Broadcasting repeats no longer axes.
    """
    tile = rw.made_by(v, "tile")
    if tile is None or not isinstance(tile.spec, Tile):
        return None
    # An int8 input must keep its scale.
    x = tile.inputs[0]
    if x.type.quant != v.type.quant:
        return None
    pairs = zip(tile.spec.repeats, x.type.shape, strict=True)
    if all(repeat == 1 or size == 1 for repeat, size in pairs):
        return x
    return None


def join_of_join(rw: Rewriter, op: Op) -> bool:
    """Merge concatenations along one axis into one.

    The inner one must have the scale of the outer one.
    """
    if not isinstance(op.spec, Concat):
        return False
    inputs: list[Value] = []
    for v in op.inputs:
        inner = rw.private(v, "concat")
        if (
            inner is None
            or inner.spec != op.spec
            or v.type.quant != op.output.type.quant
        ):
            inputs.append(v)
        else:
            inputs += inner.inputs

    if len(inputs) == len(op.inputs):
        return False
    rw.update(op, inputs=inputs)
    return True


# ---- arithmetic with constants
# --------------------------------------------------------------------------------------
def subtract_constant(rw: Rewriter, op: Op) -> bool:
    """Rewrite x - c as x + (-c), and 0 - x as -x.

    Sums have more rules than differences: they commute and fold into biases.
    """
    a, b = op.inputs
    if b.const is None:
        return scalar(a) == 0 and _unary(rw, op, Neg(), b)
    # Negation is exact.
    negated = rw.const(-b.const, b.name)
    rw.update(op, Add(_act(op)), [a, negated])
    return True


def divide_constant(rw: Rewriter, op: Op) -> bool:
    """Rewrite x / c as x * (1 / c), and 1 / x as a reciprocal.

    1 / c must be a normal number: a subnormal one has lost bits.
    """
    a, b = op.inputs
    if b.const is None:
        return scalar(a) == 1 and _unary(rw, op, Reciprocal(), b)

    with np.errstate(all="ignore"):
        inverse = (1.0 / b.const.astype(np.float64)).astype(np.float32)
    smallest_normal = np.finfo(np.float32).tiny
    normal = np.isfinite(inverse) & (np.abs(inverse) >= smallest_normal)
    if not normal.all():
        return False

    factor = rw.const(inverse, b.name)
    rw.update(op, Mul(_act(op)), [a, factor])
    return True


def divide_by_root(rw: Rewriter, op: Op) -> bool:
    """Rewrite x / sqrt(y) as x * rsqrt(y).

    This leaves one division for each y, which is often broadcast.
    """
    root = rw.private(op.inputs[1], "sqrt")
    if root is None:
        return False
    inverse = rw.add(op, Rsqrt(), root.inputs, root.output.name)
    rw.update(op, Mul(_act(op)), [op.inputs[0], inverse])
    return True


def constant_chain(rw: Rewriter, op: Op) -> bool:
    """Rewrite (x + a) + b as x + (a + b), and the same for products."""
    for x, outer in (op.inputs, op.inputs[::-1]):
        before = rw.private(x, op.kind)
        if outer.const is None or before is None or _act(before) != "none":
            continue
        for y, inner in (before.inputs, before.inputs[::-1]):
            if inner.const is None:
                continue
            combined = _combined(op.kind, inner.const, outer.const)
            # Two vectors along different axes would become a matrix.
            if combined.size <= max(inner.const.size, outer.const.size):
                rw.update(op, inputs=[y, rw.const(combined, outer.name)])
                return True
    return False


def _combined(kind: str, a: Array, b: Array) -> Array:
    """Return the sum or product of two constants, rounded once to float32."""
    fn = np.add if kind == "add" else np.multiply
    # Double keeps the error of the sum below one rounding of float32.
    exact: Array = fn(a.astype(np.float64), b.astype(np.float64))
    return exact.astype(np.float32)


def power(rw: Rewriter, op: Op) -> bool:
    """Rewrite x to the power of 1, 2, 0.5, -0.5 or -1 as an op of its own."""
    x = op.inputs[0]
    exponent = scalar(op.inputs[1])
    # The exponent's shape may broadcast x.
    if x.type.shape != op.output.type.shape:
        return False
    if exponent == 1:
        return rw.forward(op, x)
    if exponent == 2:
        rw.update(op, Mul(), [x, x])
        return True

    # Other exponents keep the op.
    functions: dict[float, OpDef] = {0.5: Sqrt(), -0.5: Rsqrt(), -1.0: Reciprocal()}
    if exponent not in functions:
        return False
    return _unary(rw, op, functions[exponent], x)


def reciprocal_root(rw: Rewriter, op: Op) -> bool:
    """Rewrite 1 / sqrt(x) as rsqrt(x)."""
    root = rw.private(op.inputs[0], "sqrt")
    return root is not None and _unary(rw, op, Rsqrt(), root.inputs[0])


# ---- clamps
# --------------------------------------------------------------------------------------
def limits(op: Op) -> tuple[float, float] | None:
    """Return the range of an op that only clamps, None for other ops."""
    if op.kind in ACTIVATIONS:
        return ACTIVATIONS[op.kind]
    if isinstance(op.spec, Clamp):
        low, high = op.spec.coefficients()
        return low, high
    return None


def clamp_chain(rw: Rewriter, op: Op) -> bool:
    """Merge a clamp of a clamp into one, and remove a clamp without bounds."""
    outer = limits(op)
    if outer is None:
        return False
    if outer == (-np.inf, np.inf):
        return rw.forward(op, op.inputs[0])

    # Another user would still need the inner clamp.
    before = rw.private(op.inputs[0])
    if before is None:
        return False
    inner = limits(before)
    if inner is None:
        return False
    # Clamping the inner bounds also covers ranges that do not overlap.
    low, high = (float(np.clip(bound, *outer)) for bound in inner)
    rw.update(op, _clamp(low, high), before.inputs)
    return True


def extreme(rw: Rewriter, op: Op) -> bool:
    """Rewrite max(x, c) and min(x, c) as clamps with one bound."""
    for x, c in (op.inputs, op.inputs[::-1]):
        bound = scalar(c)
        if bound is None or _act(op) != "none":
            continue
        if op.kind == "maximum":
            spec = _clamp(bound, np.inf)
        else:
            spec = _clamp(-np.inf, bound)
        return _unary(rw, op, spec, x)
    return False


def _clamp(low: float, high: float) -> OpDef:
    """Return the clamp to a range whose infinite ends are no bounds."""
    return Clamp.of(
        None if low == -np.inf else low,
        None if high == np.inf else high,
    )


def one_slope(rw: Rewriter, op: Op) -> bool:
    """Rewrite a PReLU whose slopes are all equal as a LeakyReLU or ReLU."""
    slope = scalar(op.inputs[1])
    if slope is None:
        return False
    # A slope of 0 is a ReLU, with kernels of its own.
    spec: OpDef = LeakyRelu(slope) if slope else Relu()
    return _unary(rw, op, spec, op.inputs[0])


# ---- helpers
# --------------------------------------------------------------------------------------
def _act(op: Op) -> str:
    act: str = getattr(op.spec, "act", "none")
    return act


def _unary(rw: Rewriter, op: Op, spec: OpDef, x: Value) -> bool:
    """Make `op` a function of `x` alone, and return whether that was possible.

    It is not where the op broadcasts `x` or has a fused activation.
    """
    if x.const is not None or x.type != op.output.type or _act(op) != "none":
        return False
    rw.update(op, spec, [x])
    return True


_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")

ANY_TYPE: dict[str, tuple[Rule, ...]] = {
    "slice": (whole_slice,),
    "quantize": (same_scale,),
    "concat": (same_shape, join_of_join),
    **dict.fromkeys(("pad", "tile", "max_pool2d", "average_pool2d"), (same_shape,)),
    **dict.fromkeys(_BINARY, (broadcast_for_tile,)),
}
"""Rules that hold for every element type."""

FLOAT: dict[str, tuple[Rule, ...]] = {
    "add": (neutral, constant_chain),
    "sub": (neutral, subtract_constant),
    "mul": (neutral, constant_chain),
    "div": (neutral, divide_constant, divide_by_root),
    "pow": (power,),
    "reciprocal": (reciprocal_root,),
    "maximum": (extreme,),
    "minimum": (extreme,),
    "prelu": (one_slope,),
    **dict.fromkeys((*ACTIVATIONS, "clamp"), (clamp_chain,)),
}
"""Rules that change floats by no more than rounding."""
