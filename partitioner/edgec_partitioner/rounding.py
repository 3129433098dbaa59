"""Turns graphs that round like onnxruntime or the Edge TPU into TFLite's operations,
and these into the Edge TPU's.

An Edge TPU may run only TFLite's, and computes some of them by a law of its own.
"""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op, OpDef, Quant, QuantRule, Rounding
from edgec.ir.rewrite import Rewriter
from edgec.ops.pool import AveragePool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.rounded import EDGETPU_FUNCTIONS, IDENTITY, Rounded
from edgec.ops.softmax import RoundedSoftmax
from edgec.ops.uint8 import beside_uint8, needs_uint8

COARSER = 2.0
"""A prescribed scale may be so many times that of the file: rounding to it then costs a
step at most.
"""


def as_tflite(graph: Graph) -> Graph:
    """Return a copy in which all ops round like TFLite; the graph itself if they do.

    A function whose output has a prescribed scale in TFLite goes through that scale, or
    through floats. Where TFLite has only a uint8 kernel for an op, such as for weights
    with a zero point, all ops round as uint8 kernels do: a file has one element type.
    """
    graph = _in_tflite(graph)
    uint8 = [beside_uint8(op) for op in graph.ops]
    is_mixed = uint8 != [op.spec for op in graph.ops]
    if not is_mixed or not needs_uint8(graph):
        return graph
    twin = graph.copy()
    for op, spec in zip(twin.ops, uint8, strict=True):
        op.spec = spec
    return twin


def as_chip(graph: Graph) -> Graph:
    """Return a copy with the Edge TPU's arithmetic, in the operations where it is known.

    `as_tflite` of the copy is the graph again.
    """
    twin = graph.copy()
    for op in twin.ops:
        if all(v.type.is_quantized and v.type.dtype == "int8" for v in op.outputs):
            op.spec = chip_spec(op)
    return twin


def chip_spec(op: Op) -> OpDef:
    """Return the spec of an int8 op with the Edge TPU's arithmetic; its own elsewhere."""
    spec = op.spec
    x = op.inputs[0].type
    if isinstance(spec, AveragePool2D):
        # Pads, activations and means into another scale are in no file that was seen.
        is_plain = not any(spec.pads) and spec.act == "none"
        is_known = is_plain and x.quant == op.output.type.quant
    else:
        is_known = spec.edgetpu_rounding
    if is_known:
        rounding = spec.rounding.on_edgetpu  # type: ignore[attr-defined]
        return replace(spec, rounding=rounding)  # type: ignore[call-arg]
    if op.kind in EDGETPU_FUNCTIONS:
        return Rounded(op.kind, rounding=Rounding.EDGETPU)
    if isinstance(spec, Quantize) and x.dtype == "int8":
        return Rounded(IDENTITY, rounding=Rounding.EDGETPU)
    return spec


def _in_tflite(graph: Graph) -> Graph:
    """Return a copy without an op that rounds like onnxruntime; else the graph."""
    if all(op.spec.as_tflite() == op.spec for op in graph.ops):
        return graph
    twin = graph.copy()
    rw = Rewriter(twin)
    for op in rw.ops():
        if isinstance(op.spec, Rounded | RoundedSoftmax):
            _rewrite(rw, op, op.output.type.quant)
        # A conversion from floats stays at the interface, on the CPU.
        elif not isinstance(op.spec, Quantize):
            op.spec = op.spec.as_tflite()
    return twin


def _rewrite(rw: Rewriter, op: Op, stated: Quant | None) -> None:
    """Replace a function that rounds like onnxruntime by TFLite's.

    stated: the output scale of the file.
    """
    assert stated is not None
    spec = op.spec.as_tflite()
    scale = stated
    if spec.quant is QuantRule.FIXED:
        scale = spec.fixed_quant()
    name = op.output.name
    if scale == stated:
        rw.update(op, spec)
    elif scale.scale[0] <= COARSER * stated.scale[0]:
        y = rw.add(op, spec, op.inputs, f"{name}_prescribed", scale)
        rw.update(op, Quantize(), [y])
    else:
        # The prescribed scale would lose too much.
        x = rw.add(op, Dequantize(), op.inputs, f"{name}_x")
        y = rw.add(op, spec, [x], f"{name}_y")
        rw.update(op, Quantize(rounding=Rounding.ONNXRUNTIME), [y])
