"""Rewrites an Edge TPU segment into what TFLite can express; every rewrite is bit-exact on int8."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op, Refusal, Value
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.window import Pads, tflite_padding

_NO_PADS: Pads = (0, 0, 0, 0)


def obstacle(op: Op) -> Refusal | None:
    """Why an op that the Edge TPU knows cannot be written for it, even after `legalize`; None if it can."""
    if _inexpressible_pads(op):
        return None
    if op.spec.to_tflite(op) is None:
        fix = "none needed: edgec compiles it to C for the CPU"
        return Refusal(
            "tflite_form", "the operation must have a TFLite form, which carries it to the compiler", op.kind, fix
        )
    return None


def legalize(graph: Graph) -> Graph:
    """A copy of an Edge TPU segment that TFLite can express.

    Convolution pads that are neither TFLite's SAME nor VALID become a PAD op of their own: it fills in the zero point,
    which the kernels count as nothing.
    """
    result = graph.copy()
    ops: list[Op] = []
    for op in result.ops:
        if _inexpressible_pads(op):
            ops.append(_split_pads(result, op))
        ops.append(op)
    result.ops = ops
    return result


def _inexpressible_pads(op: Op) -> bool:
    spec = op.spec
    if not isinstance(spec, Conv2D | DepthwiseConv2D):
        return False
    x, w = op.inputs[0].type.shape, op.inputs[1].type.shape
    return tflite_padding(spec.pads, (x[1], x[2]), (w[1], w[2]), spec.stride, spec.dilation) is None


def _split_pads(graph: Graph, op: Op) -> Op:
    """Take the pads out of a convolution; returns the op that does them before it."""
    assert isinstance(op.spec, Conv2D | DepthwiseConv2D)
    top, bottom, left, right = op.spec.pads
    pad, x = Pad(((0, 0), (top, bottom), (left, right), (0, 0))), op.inputs[0]
    (shaped,) = pad.infer(x.type)
    padded = Value(graph.unique_name(f"{x.name}_padded"), shaped.with_quant(x.type.quant))
    op.spec = replace(op.spec, pads=_NO_PADS)
    op.inputs = [padded, *op.inputs[1:]]
    return Op(pad, [x], [padded], op.source)
