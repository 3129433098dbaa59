"""Rewrites an Edge TPU segment into what TFLite can express; every rewrite is bit-exact on int8."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op, Refusal, Value
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.window import Pads, tflite_padding

_NO_PADS: Pads = (0, 0, 0, 0)
_POOL_RULE = "same_or_valid_padding"


def cures(op: Op, refusal: Refusal) -> bool:
    """Whether `legalize` rewrites the op so that this rule holds."""
    return refusal.rule == _POOL_RULE and _splits_pads(op)


def obstacle(op: Op) -> Refusal | None:
    """Why an op that the Edge TPU knows cannot be written for it, even after `legalize`; None if it can."""
    if _splits_pads(op) or op.spec.to_tflite(op) is not None:
        return None
    fix = "none needed: edgec compiles it to C for the CPU"
    return Refusal(
        "tflite_form", "the operation must have a TFLite form, which carries it to the compiler", op.kind, fix
    )


def legalize(graph: Graph) -> Graph:
    """A copy of an Edge TPU segment that TFLite can express.

    Pads that are neither TFLite's SAME nor VALID become a PAD op of their own, which fills in the zero point: that is
    what convolutions and averages that count their padding read there, and, where it is the lowest int8, a maximum too.
    """
    result = graph.copy()
    ops: list[Op] = []
    for op in result.ops:
        if _splits_pads(op):
            ops.append(_split_pads(result, op))
        ops.append(op)
    result.ops = ops
    return result


def _splits_pads(op: Op) -> bool:
    """Whether the op has pads that TFLite cannot express but that a PAD before it replaces."""
    spec, x = op.spec, op.inputs[0].type
    if isinstance(spec, Conv2D | DepthwiseConv2D):
        size, kernel = (x.shape[1], x.shape[2]), (op.inputs[1].type.shape[1], op.inputs[1].type.shape[2])
        return tflite_padding(spec.pads, size, kernel, spec.stride, spec.dilation) is None
    if isinstance(spec, MaxPool2D):
        lowest = x.dtype == "int8" and x.quant is not None and x.zero_point == -128
        return lowest and spec.tflite_padding(op) is None
    return isinstance(spec, AveragePool2D) and spec.count_pads


def _split_pads(graph: Graph, op: Op) -> Op:
    """Take the pads out of an op; returns the op that does them before it."""
    spec, x = op.spec, op.inputs[0]
    assert isinstance(spec, Conv2D | DepthwiseConv2D | MaxPool2D | AveragePool2D)
    top, bottom, left, right = spec.pads
    pad = Pad(((0, 0), (top, bottom), (left, right), (0, 0)))
    (shaped,) = pad.infer(x.type)
    padded = Value(graph.unique_name(f"{x.name}_padded"), shaped.with_quant(x.type.quant))
    if isinstance(spec, AveragePool2D):
        op.spec = replace(spec, pads=_NO_PADS, count_pads=False)
    else:
        op.spec = replace(spec, pads=_NO_PADS)
    op.inputs = [padded, *op.inputs[1:]]
    return Op(pad, [x], [padded], op.source)
