"""A clamp to a range that has no name of its own becomes a change of scale.

Pattern: an int8 min(max(x, low), high). Condition: equal results for all 256 inputs at
the scales given, which are compared. Replacement: QUANTIZE to the output's scale; where
that scale reaches beyond the range, MAXIMUM and MINIMUM with the bounds behind it.
Proof: QUANTIZE rescales as the clamp does and saturates at the ends of int8, where the
quantizer puts the bounds; the comparison covers every input. Pays always: the clamp has
no TFLite form at all.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, OpDef, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.quantize import Quantize
from edgec_partitioner.legalize._examples import int8_input, with_output
from edgec_partitioner.legalize._unary import ALL, applied, int8_table

OPS = (Clamp,)
BOUND = 0.0

_Bounds = list[tuple[OpDef, int]]
"""MAXIMUM or MINIMUM, with the int8 operand of each."""


def rewrite(r: Rewriter, op: Op, spec: Clamp) -> bool:
    """Rescale, then apply the bounds that the output scale does not enforce."""
    x = op.inputs[0]
    y = op.output
    table = int8_table(op)
    if table is None or x.const is not None:
        return False
    # Equal scales need no QUANTIZE.
    scaled = ALL
    if x.type.quant != y.type.quant:
        scaled = applied(Quantize(), ALL, x.type, y.type)
    if not np.array_equal(np.clip(scaled, table.min(), table.max()), table):
        return False

    bounds = _bounds(scaled, table)
    if bounds:
        _rescale_and_clamp(r, op, bounds)
    else:
        r.update(op, Quantize(), [x])
    return True


def _bounds(scaled: Array, table: Array) -> _Bounds:
    """Return the bounds within the range of the rescaled inputs."""
    bounds: _Bounds = []
    if scaled.min() < table.min():
        bounds.append((Maximum(), int(table.min())))
    if scaled.max() > table.max():
        bounds.append((Minimum(), int(table.max())))
    return bounds


def _rescale_and_clamp(r: Rewriter, op: Op, bounds: _Bounds) -> None:
    """Replace a clamp by QUANTIZE, where the scale changes, and one or two bounds."""
    value = op.inputs[0]
    y = op.output
    quant = y.type.quant
    if value.type.quant != quant:
        value = r.add(op, Quantize(), [value], f"{y.name}_scaled", quant)

    operands: list[Value] = []
    for _, q in bounds:
        operands.append(r.const(np.array(q, np.int8), f"{y.name}_bound", quant))
    # The last op keeps the output's name.
    if len(bounds) == 2:
        lower, _ = bounds[0]
        value = r.add(op, lower, [value, operands[0]], f"{y.name}_low", quant)
    last, _ = bounds[-1]
    r.update(op, last, [value, operands[-1]])


def example(rng: np.random.Generator) -> Graph:
    """Return a clamp with one bound or two.

    The input may or may not reach them, and the output has a scale of its own or that
    of the input.
    """
    build = Builder("clamp")
    shape = (1, *map(int, rng.integers(1, 9, 3)))
    low, high = (float(v) for v in sorted(rng.normal(size=2)))
    spread = sorted(rng.normal(size=2) * 3)
    quant = _quant(spread[0], spread[1])
    x = int8_input(build, shape, quant)

    spec = (Clamp(low, high), Clamp(low, None), Clamp(None, high))[rng.integers(3)]
    limits = [float(v) for v in spec.f(np.array(spread, np.float32))]
    out: Quant = quant if rng.random() < 0.5 else _quant(limits[0], limits[1])
    return with_output(build, build.add(spec, [x], quant=out))


def _quant(low: float, high: float) -> Quant:
    """Return the scale of a range, widened so that it holds zero."""
    low = min(low, 0.0)
    high = max(high, 0.0)
    scale = float(np.float32((high - low) / 255 or 1.0))
    return Quant.per_tensor(scale, round(-128 - low / scale))
