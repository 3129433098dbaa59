"""A transposed convolution with a large result computes its channels in parts.

Pattern: a transposed convolution that is refused for the size of its result. Condition:
constant weights; TFLite's padding (see transpose_conv_pads, which changes the size); up
to 8 parts that break fewer rules. Replacement: the fewest such transposed convolutions
of the same image, each with the weights of a part of the output channels, and a
concatenation. Proof: an output channel depends on no other's weights, scale or bias.
Pays where the rest of the model would be cut; the multiplications stay the same.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.transpose_conv import TransposeConv2D
from edgec_partitioner.legalize._weights import array, constant_weights, helps, part_of

KINDS = ("transpose_conv2d",)
BOUND = 0.0

_MOST_PARTS = 8


def rewrite(r: Rewriter, op: Op) -> bool:
    """Compute the channels in as few parts as map."""
    if (
        not isinstance(op.spec, TransposeConv2D)
        or not constant_weights(op)
        or op.spec.tflite_padding(op) is None
    ):
        return False
    channels = op.output.type.shape[3]
    for count in range(2, min(_MOST_PARTS, channels) + 1):
        edges = [channels * i // count for i in range(count + 1)]
        parts = [slice(a, b) for a, b in pairwise(edges)]
        if all(_part_helps(op, part) for part in parts):
            r.update(
                op, Concat(3), [_part(r, op, i, part) for i, part in enumerate(parts)]
            )
            return True
    return False


def _part_helps(op: Op, part: slice) -> bool:
    x, *weights = op.inputs
    cut = [
        Value(v.name, v.type.with_shape(array(v)[part].shape), array(v)[part])
        for v in weights
    ]
    y = op.output.type.with_shape((*op.output.type.shape[:3], part.stop - part.start))
    return helps(op, op.spec, [x, *cut], y)


def _part(r: Rewriter, op: Op, i: int, part: slice) -> Value:
    x, *weights = op.inputs
    cut = [
        r.const(array(v)[part], f"{v.name}_part{i}", part_of(v.type.quant, part))
        for v in weights
    ]
    return r.add(
        op, op.spec, [x, *cut], f"{op.output.name}_part{i}", op.output.type.quant
    )


def example(rng: np.random.Generator) -> Graph:
    """Just above the size that was seen to map; per tensor and per channel."""
    build = Builder("transpose_conv_channels")
    channels = int(rng.integers(9, 17))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input("x", TensorType((1, 128, 128, 1), "int8", q))
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.02, channels))
    if rng.random() < 0.5:
        quant = Quant(scales, (0,) * channels, 0)
    else:
        quant = Quant.per_tensor(0.01)
    w = build.const(
        rng.integers(-127, 128, (channels, 3, 3, 1)).astype(np.int8), "w", quant
    )
    spec = TransposeConv2D((2, 2), (0, 1, 0, 1))
    build.graph.outputs = [build.add(spec, [x, w], quant=Quant.per_tensor(0.1, 3))]
    return build.graph
