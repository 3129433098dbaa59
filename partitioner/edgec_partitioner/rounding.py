"""Graphs that round as onnxruntime does, as what an Edge TPU may run: TFLite's
operations.
"""

from __future__ import annotations

from edgec.ir import Graph, Op, Quant, QuantRule
from edgec.ir.rewrite import Rewriter
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.rounded import Rounded

COARSER = 2.0
"""A prescribed scale may be so many times that of the file: rounding to it then costs a
step at most.
"""


def as_tflite(graph: Graph) -> Graph:
    """A copy in which all ops round as TFLite does; itself where they do.

    A function whose output has a prescribed scale there goes through that scale, or
    through floats.
    """
    if all(op.spec.as_tflite() == op.spec for op in graph.ops):
        return graph
    twin = graph.copy()
    rw = Rewriter(twin)
    for op in rw.ops():
        if isinstance(op.spec, Rounded):
            _rewrite(rw, op, op.output.type.quant)
        elif not isinstance(op.spec, Quantize):  # of floats, which stay at the border
            op.spec = op.spec.as_tflite()
    return twin


def _rewrite(rw: Rewriter, op: Op, wanted: Quant | None) -> None:
    assert wanted is not None
    spec = op.spec.as_tflite()
    own = spec.fixed_quant() if spec.quant is QuantRule.FIXED else wanted
    if own == wanted:
        rw.update(op, spec)
    elif own.scale[0] <= COARSER * wanted.scale[0]:
        y = rw.add(op, spec, op.inputs, f"{op.output.name}_prescribed", own)
        rw.update(op, Quantize(), [y])
    else:
        real = rw.add(op, Dequantize(), op.inputs, f"{op.output.name}_x")
        rw.update(
            op, Quantize(even=True), [rw.add(op, spec, [real], f"{op.output.name}_y")]
        )
