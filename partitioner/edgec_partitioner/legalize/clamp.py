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
from edgec_partitioner.legalize._examples import int8_input, integers, with_output
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
    clipped = np.clip(scaled, table.min(), table.max())
    if not np.array_equal(clipped, table):
        return False

    bounds = _bounds(scaled, table)
    if bounds:
        _rescale_and_clamp(r, op, bounds)
    else:
        r.update(op, Quantize(), [x])
    return True


def _bounds(scaled: Array, table: Array) -> _Bounds:
    """Return the bounds within the range of the rescaled inputs.

    scaled, table: the rescaled inputs and the outputs, for all int8 inputs.
    """
    bounds: _Bounds = []
    lowest = int(table.min())
    if scaled.min() < lowest:
        bounds.append((Maximum(), lowest))

    highest = int(table.max())
    if scaled.max() > highest:
        bounds.append((Minimum(), highest))
    return bounds


def _rescale_and_clamp(r: Rewriter, op: Op, bounds: _Bounds) -> None:
    """Replace a clamp by QUANTIZE, where the scale changes, and one or two bounds."""
    value = op.inputs[0]
    y = op.output
    name = y.name
    quant = y.type.quant
    if value.type.quant != quant:
        value = r.add(op, Quantize(), [value], f"{name}_scaled", quant)

    operands: list[Value] = []
    for _, bound in bounds:
        data = np.array(bound, np.int8)
        operand = r.const(data, f"{name}_bound", quant)
        operands.append(operand)

    # The last op keeps the output's name.
    if len(bounds) == 2:
        lower, _ = bounds[0]
        inputs = [value, operands[0]]
        value = r.add(op, lower, inputs, f"{name}_low", quant)
    last, _ = bounds[-1]
    r.update(op, last, [value, operands[-1]])


def example(rng: np.random.Generator) -> Graph:
    """Return a clamp with one bound or two.

    The input may or may not reach them, and the output has a scale of its own or that
    of the input.
    """
    build = Builder("clamp")
    shape = (1, *integers(rng, 1, 9, 3))
    bounds = rng.normal(size=2)
    low = float(bounds.min())
    high = float(bounds.max())
    spread = rng.normal(size=2) * 3
    spread.sort()
    quant = _quant(spread[0], spread[1])
    x = int8_input(build, shape, quant)

    both = Clamp(low, high)
    lower = Clamp(low, None)
    upper = Clamp(None, high)
    spec = (both, lower, upper)[rng.integers(3)]

    out_quant: Quant = quant
    if rng.random() >= 0.5:
        limits = spec.f(spread.astype(np.float32))
        out_quant = _quant(float(limits[0]), float(limits[1]))
    y = build.add(spec, [x], quant=out_quant)
    return with_output(build, y)


def _quant(low: float, high: float) -> Quant:
    """Return the scale of a range, widened so that it holds zero."""
    low = min(low, 0.0)
    high = max(high, 0.0)

    # A range of zero alone has no scale; any will do.
    step = (high - low) / 255 or 1.0
    scale = float(np.float32(step))
    zero_point = round(-128 - low / scale)
    return Quant.per_tensor(scale, zero_point)
