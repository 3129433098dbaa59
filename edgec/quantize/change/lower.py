"""Float ops whose int8 form is missing or refused, rewritten as ops that have a good
one, before calibration.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op, OpDef, TensorType, Value
from edgec.ops.binary import Add
from edgec.ops.conv import DepthwiseConv2D
from edgec.ops.norm import BatchNorm, InstanceNorm
from edgec.ops.pool import AveragePool2D
from edgec.ops.reduce import MEAN_SIZES, Mean
from edgec.ops.transpose_conv import TransposeConv2D

_FUSED = ("relu", "relu6")


def lower(graph: Graph) -> Graph:
    """A copy that quantizes better, equal but for rounding.

    Batch normalisations of images that no convolution took up become depthwise 1x1
    convolutions: those have a scale per channel and an int32 bias, which a
    multiplication and an addition in int8 would not have. A relu or relu6 behind, if
    nothing else reads what it reads, becomes the convolution's own.

    An average over a whole image becomes a mean: int8 means have a scale of their own,
    where a pool must take that of the image, whose largest element is some times as
    large as the largest average.

    Transposed convolutions lose bias and activation to an op behind them: the Edge TPU
    knows no newer form. A bias that an instance norm takes away again is left out.
    """
    result = graph.copy()
    for op in list(result.ops):
        if isinstance(op.spec, BatchNorm) and _is_image(op):
            _batch_norm(result, op, op.spec)
        elif isinstance(op.spec, TransposeConv2D) and _is_image(op):
            _transpose_conv(result, op, op.spec)
        elif isinstance(op.spec, AveragePool2D) and _is_image(op):
            _global_pool(op, op.spec)
    return result


def _is_image(op: Op) -> bool:
    x, *constants = op.inputs
    return (
        x.type.rank == 4
        and x.type.dtype == "float32"
        and all(v.const is not None for v in constants)
    )


def _batch_norm(graph: Graph, op: Op, spec: BatchNorm) -> None:
    channels = op.inputs[0].type.shape[3]
    factor, offset = spec.line([v.const for v in op.inputs[1:] if v.const is not None])
    shape = (1, 1, 1, channels)
    name = op.output.name
    weight = Value(
        graph.unique_name(f"{name}_factor"), TensorType(shape), factor.reshape(shape)
    )
    bias = Value(graph.unique_name(f"{name}_offset"), TensorType((channels,)), offset)
    readers = graph.users().get(op.output, [])
    act = "none"
    if (
        len(readers) == 1
        and readers[0].kind in _FUSED
        and op.output not in graph.outputs
    ):
        act = readers[0].kind
        op.outputs = readers[0].outputs
        graph.ops.remove(readers[0])
    op.spec = DepthwiseConv2D(act=act)
    op.inputs = [op.inputs[0], weight, bias]


def _global_pool(op: Op, spec: AveragePool2D) -> None:
    x = op.inputs[0].type
    # as many elements as an Edge TPU is known to take
    if spec.is_mean(x) and x.size <= MEAN_SIZES[0]:
        op.spec = Mean((1, 2))


def _centres(spec: OpDef) -> bool:
    """Whether what is the same for all elements of a channel is nothing to it."""
    return isinstance(spec, InstanceNorm) and not spec.groups


def _transpose_conv(graph: Graph, op: Op, spec: TransposeConv2D) -> None:
    bias = op.inputs[2] if len(op.inputs) > 2 and np.any(op.inputs[2].const) else None
    readers = [r.spec for r in graph.users().get(op.output, [])]
    if (
        spec.act == "none"
        and op.output not in graph.outputs
        and readers
        and all(map(_centres, readers))
    ):
        bias = None
    op.spec = replace(spec, act="none")
    op.inputs = op.inputs[:2]
    if bias is None and spec.act == "none":
        return
    y = op.output
    op.outputs = [Value(graph.unique_name(f"{y.name}_sum"), y.type)]
    rest = [*op.outputs, *([bias] if bias is not None else [])]
    behind = Add(spec.act) if bias is not None else OpDef.registry[spec.act]()
    graph.ops.insert(graph.ops.index(op) + 1, Op(behind, rest, [y], op.source))
