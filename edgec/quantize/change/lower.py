"""Rewrites float ops whose int8 form is missing or bad, before calibration."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np

from edgec.ir import Graph, Op, OpDef, TensorType, Value
from edgec.ops.binary import Add
from edgec.ops.conv import DepthwiseConv2D
from edgec.ops.norm import BatchNorm, InstanceNorm
from edgec.ops.pool import AveragePool2D
from edgec.ops.reduce import MEAN_SIZES, Mean
from edgec.ops.transpose_conv import TransposeConv2D

FUSED_ACTIVATIONS = ("relu", "relu6")
"""The activations that a depthwise convolution computes itself."""


def lower(graph: Graph) -> Graph:
    """Return a copy that quantizes better, equal but for rounding.

    Batch normalisations of images that no convolution took up become depthwise 1x1
    convolutions. These have a scale per channel and an int32 bias, unlike a
    multiplication and an addition in int8. A relu or relu6 behind one becomes its own
    activation if nothing else reads the value between them.

    An average over a whole image becomes a mean. Int8 means have a scale of their own,
    where a pool takes that of the image, whose largest element is several times as
    large as the largest average.

    Transposed convolutions lose bias and activation to an op behind them: the Edge TPU
    knows no newer form. A bias that an instance norm removes again is left out.
    """
    result = graph.copy()
    # Lowering one op adds and removes others, which need none.
    for op in list(result.ops):
        if _is_image(op):
            _lower_op(op.spec, op, result)
    return result


@singledispatch
def _lower_op(spec: OpDef, op: Op, graph: Graph) -> None:
    """Leave an op as it is; the functions registered below lower those of their type."""


def _is_image(op: Op) -> bool:
    """Return whether an op reads a float image NHWC, and else constants alone."""
    if not op.inputs:
        return False

    x, *constants = op.inputs
    is_float_image = x.type.rank == 4 and x.type.dtype == "float32"

    return is_float_image and all(v.const is not None for v in constants)


@_lower_op.register
def _lower_batch_norm(spec: BatchNorm, op: Op, graph: Graph) -> None:
    """Make a batch normalisation a depthwise 1x1 convolution.

    Its line y = factor * x + offset gives weights and bias of each channel.
    """
    channels = op.inputs[0].type.shape[3]
    factor, offset = spec.line([v.const for v in op.inputs[1:] if v.const is not None])
    shape = (1, 1, 1, channels)
    name = op.output.name
    weight_name = graph.unique_name(f"{name}_factor")
    weight = Value(weight_name, TensorType(shape), factor.reshape(shape))
    bias_name = graph.unique_name(f"{name}_offset")
    bias = Value(bias_name, TensorType((channels,)), offset)

    # The activation is free of cost inside the convolution.
    readers = graph.users().get(op.output, [])
    act = "none"
    is_only_reader = len(readers) == 1 and op.output not in graph.outputs
    if is_only_reader and readers[0].kind in FUSED_ACTIVATIONS:
        act = readers[0].kind
        op.outputs = readers[0].outputs
        graph.ops.remove(readers[0])

    op.spec = DepthwiseConv2D(act=act)
    op.inputs = [op.inputs[0], weight, bias]


@_lower_op.register
def _lower_global_pool(spec: AveragePool2D, op: Op, graph: Graph) -> None:
    """Make the average of a whole image a mean."""
    x = op.inputs[0].type
    # A mean of more elements is not known to map to the Edge TPU.
    if spec.is_mean(x) and x.size <= MEAN_SIZES[0]:
        op.spec = Mean((1, 2))


def _removes_bias(spec: OpDef) -> bool:
    """Return whether a constant added to a channel does not change the op's result."""
    return isinstance(spec, InstanceNorm) and not spec.groups


def _needed_bias(graph: Graph, op: Op, spec: TransposeConv2D) -> Value | None:
    """Return the bias of a transposed convolution, None where it changes nothing."""
    if len(op.inputs) < 3 or not np.any(op.inputs[2].const):
        return None

    # Only readers of the plain sum remove a constant: not those behind an activation.
    readers = [r.spec for r in graph.users().get(op.output, [])]
    is_inner = op.output not in graph.outputs and bool(readers)
    if spec.act == "none" and is_inner and all(map(_removes_bias, readers)):
        return None

    return op.inputs[2]


@_lower_op.register
def _lower_transpose_conv(spec: TransposeConv2D, op: Op, graph: Graph) -> None:
    """Move bias and activation of a transposed convolution into an op behind it."""
    bias = _needed_bias(graph, op, spec)
    op.spec = replace(spec, act="none")
    op.inputs = op.inputs[:2]
    if bias is None and spec.act == "none":
        return

    # The op behind writes the old result, so that its readers stay as they are.

    y = op.output
    product = Value(graph.unique_name(f"{y.name}_sum"), y.type)
    op.outputs = [product]
    if bias is None:
        behind = Op(OpDef.registry[spec.act](), [product], [y], op.source)
    else:
        behind = Op(Add(spec.act), [product, bias], [y], op.source)

    graph.ops.insert(graph.ops.index(op) + 1, behind)
