"""Strength reduction: the same numbers by a cheaper op, or by none.

On float32, each rule is exact but for the rounding of constants that are combined (one
unit in the last place). On quantized tensors only the rules that move no number apply.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.activation import Clamp, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.broadcast import Tile
from edgec.ops.concat import Concat
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.slice import Slice
from edgec.ops.unary import Neg, Reciprocal, Relu, Rsqrt, Sqrt

Rule = Callable[[Rewriter, Op], bool]
"""Rewrites an op if it can, and tells whether it did."""


def run(graph: Graph) -> bool:
    """The first rule that fits, for each op."""
    rw = Rewriter(graph)
    for op in rw.ops():
        rules = ANY_TYPE.get(op.kind, ())
        if op.outputs[0].type.dtype == "float32":
            rules += FLOAT.get(op.kind, ())
        any(rule(rw, op) for rule in rules)
    return rw.changed


# ---- ops that do nothing
# --------------------------------------------------------------------------------------
def same_shape(rw: Rewriter, op: Op) -> bool:
    """A pad, tile or pool of one element per window that changes no dimension; a join
    of one input.
    """
    if op.kind.endswith("pool2d") and (
        getattr(op.spec, "kernel", None) != (1, 1) or _act(op) != "none"
    ):
        return False
    if op.kind == "concat" and len(op.inputs) > 1:
        return False
    return op.inputs[0].type == op.output.type and rw.forward(op, op.inputs[0])


def whole_slice(rw: Rewriter, op: Op) -> bool:
    """A slice of everything, forwards."""
    spec = op.spec
    return (
        isinstance(spec, Slice) and min(spec.step, default=1) > 0 and same_shape(rw, op)
    )


def neutral(rw: Rewriter, op: Op) -> bool:
    """x + 0, x - 0, x * 1, x / 1."""
    unit = 0.0 if op.kind in ("add", "sub") else 1.0
    orders = (op.inputs, op.inputs[::-1]) if op.kind in ("add", "mul") else (op.inputs,)
    return any(
        _act(op) == "none" and scalar(c) == unit and rw.forward(op, x)
        for x, c in orders
    )


def same_scale(rw: Rewriter, op: Op) -> bool:
    """A change to the scale that a tensor has, or had before it was widened to float32."""
    x = op.inputs[0]
    before = rw.made_by(x, "dequantize")
    source = before.inputs[0] if before is not None and x.type.dtype == "float32" else x
    return source.type == op.output.type and rw.forward(op, source)


# ---- views
# --------------------------------------------------------------------------------------
def broadcast_for_tile(rw: Rewriter, op: Op) -> bool:
    """An elementwise op broadcasts by itself: no need to repeat an input first."""
    for i, v in enumerate(op.inputs):
        tile = rw.made_by(v, "tile")
        if (
            tile is None
            or not isinstance(tile.spec, Tile)
            or tile.inputs[0].type.quant != v.type.quant
        ):
            continue
        x = tile.inputs[0]
        ones = all(
            r == 1 or d == 1
            for r, d in zip(tile.spec.repeats, x.type.shape, strict=True)
        )
        inputs = [*op.inputs[:i], x, *op.inputs[i + 1 :]]
        if (
            ones
            and np.broadcast_shapes(*(u.type.shape for u in inputs))
            == op.output.type.shape
        ):
            rw.update(op, inputs=inputs)
            return True
    return False


def join_of_join(rw: Rewriter, op: Op) -> bool:
    """Concatenations along one axis are one."""
    inputs: list[Value] = []
    for v in op.inputs:
        before = rw.private(v, "concat")
        same = (
            before is not None
            and before.spec == op.spec
            and v.type.quant == op.output.type.quant
        )
        inputs += before.inputs if before is not None and same else [v]
    if len(inputs) > len(op.inputs) and isinstance(op.spec, Concat):
        rw.update(op, inputs=inputs)
        return True
    return False


# ---- arithmetic with constants
# --------------------------------------------------------------------------------------
def subtract_constant(rw: Rewriter, op: Op) -> bool:
    """x - c = x + (-c); 0 - x = -x."""
    a, b = op.inputs
    if b.const is not None:
        rw.update(op, Add(_act(op)), [a, rw.const(-b.const, b.name)])
        return True
    return scalar(a) == 0 and _unary(rw, op, Neg(), b)


def divide_constant(rw: Rewriter, op: Op) -> bool:
    """x / c = x * (1/c) where 1/c is a normal number; 1 / x is a reciprocal."""
    a, b = op.inputs
    if b.const is None:
        return scalar(a) == 1 and _unary(rw, op, Reciprocal(), b)
    with np.errstate(all="ignore"):
        inverse = (1.0 / b.const.astype(np.float64)).astype(np.float32)
    if (
        not np.isfinite(inverse).all()
        or (np.abs(inverse) < np.finfo(np.float32).tiny).any()
    ):
        return False
    rw.update(op, Mul(_act(op)), [a, rw.const(inverse, b.name)])
    return True


def divide_by_root(rw: Rewriter, op: Op) -> bool:
    """x / sqrt(y) = x * rsqrt(y): one division for each y, which is often broadcast."""
    root = rw.private(op.inputs[1], "sqrt")
    if root is None:
        return False
    rw.update(
        op,
        Mul(_act(op)),
        [op.inputs[0], rw.add(op, Rsqrt(), root.inputs, root.output.name)],
    )
    return True


def constant_chain(rw: Rewriter, op: Op) -> bool:
    """(x + a) + b = x + (a + b), and the same for products."""
    for x, outer in (op.inputs, op.inputs[::-1]):
        before = rw.private(x, op.kind)
        if outer.const is None or before is None or _act(before) != "none":
            continue
        for y, inner in (before.inputs, before.inputs[::-1]):
            if inner.const is None:
                continue
            fn = np.add if op.kind == "add" else np.multiply
            both = fn(
                inner.const.astype(np.float64), outer.const.astype(np.float64)
            ).astype(np.float32)
            if both.size <= max(inner.const.size, outer.const.size):
                rw.update(op, inputs=[y, rw.const(both, outer.name)])
                return True
    return False


def power(rw: Rewriter, op: Op) -> bool:
    """x to the power of 1, 2, 0.5, -0.5 or -1."""
    x = op.inputs[0]
    exponent = scalar(op.inputs[1])
    if x.type.shape != op.output.type.shape:
        return False
    if exponent == 1:
        return rw.forward(op, x)
    if exponent == 2:
        rw.update(op, Mul(), [x, x])
        return True
    named: dict[float, OpDef] = {0.5: Sqrt(), -0.5: Rsqrt(), -1.0: Reciprocal()}
    return exponent in named and _unary(rw, op, named[exponent], x)


def reciprocal_root(rw: Rewriter, op: Op) -> bool:
    """1 / sqrt(x)."""
    root = rw.private(op.inputs[0], "sqrt")
    return root is not None and _unary(rw, op, Rsqrt(), root.inputs[0])


# ---- clamps
# --------------------------------------------------------------------------------------
def limits(op: Op) -> tuple[float, float] | None:
    """The range that an op clamps to and does nothing else."""
    if op.kind in ACTIVATIONS:
        return ACTIVATIONS[op.kind]
    if isinstance(op.spec, Clamp):
        low, high = op.spec.coefficients()
        return low, high
    return None


def clamp_chain(rw: Rewriter, op: Op) -> bool:
    """A clamp of a clamp is one; one without bounds is none."""
    after = limits(op)
    if after is None:
        return False
    if after == (-np.inf, np.inf):
        return rw.forward(op, op.inputs[0])
    before = rw.private(op.inputs[0])
    inner = limits(before) if before is not None else None
    if before is None or inner is None:
        return False
    low, high = (float(np.clip(bound, *after)) for bound in inner)
    rw.update(op, _clamp(low, high), before.inputs)
    return True


def extreme(rw: Rewriter, op: Op) -> bool:
    """max(x, c) and min(x, c) are clamps."""
    for x, c in (op.inputs, op.inputs[::-1]):
        bound = scalar(c)
        if bound is not None and _act(op) == "none":
            if op.kind == "maximum":
                spec = _clamp(bound, np.inf)
            else:
                spec = _clamp(-np.inf, bound)
            return _unary(rw, op, spec, x)
    return False


def _clamp(low: float, high: float) -> OpDef:
    return Clamp.of(None if low == -np.inf else low, None if high == np.inf else high)


def one_slope(rw: Rewriter, op: Op) -> bool:
    """A PReLU whose slopes are all equal."""
    slope = scalar(op.inputs[1])
    return slope is not None and _unary(
        rw, op, LeakyRelu(slope) if slope else Relu(), op.inputs[0]
    )


# ---- helpers
# --------------------------------------------------------------------------------------
def _act(op: Op) -> str:
    act: str = getattr(op.spec, "act", "none")
    return act


def _unary(rw: Rewriter, op: Op, spec: OpDef, x: Value) -> bool:
    """Make an op one of a single input, if it neither broadcasts nor clamps."""
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
