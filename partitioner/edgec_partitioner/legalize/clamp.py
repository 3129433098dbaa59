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

from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.quantize import Quantize
from edgec_partitioner.legalize._unary import ALL, applied, int8_table

KINDS = ("clamp",)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Rescale, then compare with the bounds that the scale does not keep by itself."""
    x = op.inputs[0]
    y = op.output
    want = int8_table(op)
    if want is None or x.const is not None:
        return False
    if x.type.quant == y.type.quant:
        scaled = ALL
    else:
        scaled = applied(Quantize(), ALL, x.type, y.type)
    bounds: list[tuple[OpDef, int]] = []
    if scaled.min() < want.min():
        bounds.append((Maximum(), int(want.min())))
    if scaled.max() > want.max():
        bounds.append((Minimum(), int(want.max())))
    if not np.array_equal(np.clip(scaled, want.min(), want.max()), want):
        return False
    if not bounds:
        r.update(op, Quantize(), [x])
        return True
    if x.type.quant == y.type.quant:
        value = x
    else:
        value = r.add(op, Quantize(), [x], f"{y.name}_scaled", y.type.quant)
    operands = [
        r.const(np.array(q, np.int8), f"{y.name}_bound", y.type.quant)
        for _, q in bounds
    ]
    if len(bounds) == 2:
        value = r.add(
            op, bounds[0][0], [value, operands[0]], f"{y.name}_low", y.type.quant
        )
    r.update(op, bounds[-1][0], [value, operands[-1]])
    return True


def example(rng: np.random.Generator) -> Graph:
    """One bound or two, reached by the input or not; an output scale of its own or the
    input's.
    """
    build = Builder("clamp")
    shape = (1, *map(int, rng.integers(1, 9, 3)))
    low, high = (float(v) for v in sorted(rng.normal(size=2)))
    spread = sorted(rng.normal(size=2) * 3)
    quant = _quant(spread[0], spread[1])
    x = build.input("x", TensorType(shape, "int8", quant))
    spec = (Clamp(low, high), Clamp(low, None), Clamp(None, high))[rng.integers(3)]
    limits = [float(v) for v in spec.f(np.array(spread, np.float32))]
    out: Quant = quant if rng.random() < 0.5 else _quant(limits[0], limits[1])
    build.graph.outputs = [build.add(spec, [x], quant=out)]
    return build.graph


def _quant(low: float, high: float) -> Quant:
    """The scale of a range, widened so that it holds zero."""
    low = min(low, 0.0)
    high = max(high, 0.0)
    scale = float(np.float32((high - low) / 255 or 1.0))
    return Quant.per_tensor(scale, round(-128 - low / scale))
