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

from edgec.ir import Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.transpose_conv import TransposeConv2D
from edgec_partitioner.legalize._examples import (
    int8_input,
    int8_weights,
    integer,
    random_quant,
    weight_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import array, constant_weights, helps, part_of

OPS = (TransposeConv2D,)
BOUND = 0.0

MAX_PARTS = 8


def rewrite(r: Rewriter, op: Op, spec: TransposeConv2D) -> bool:
    """Compute the channels in as few parts as map."""
    if not constant_weights(op):
        return False
    # transpose_conv_pads changes the size first.
    if spec.tflite_padding(op) is None:
        return False

    channels = op.output.type.shape[3]
    most_parts = min(MAX_PARTS, channels)
    for count in range(2, most_parts + 1):
        # Parts differ by one channel at most.
        edges = [channels * i // count for i in range(count + 1)]
        parts = [slice(first, last) for first, last in pairwise(edges)]
        if not all(_part_helps(op, part) for part in parts):
            continue

        results = [_part(r, op, i, part) for i, part in enumerate(parts)]
        r.update(op, Concat(3), results)
        return True
    return False


def _part_helps(op: Op, part: slice) -> bool:
    """Return whether a part of the output channels breaks fewer rules."""
    x, *weights = op.inputs
    inputs = [x]
    for v in weights:
        # The first axis of weights and bias is that of the output channels.
        data = array(v)[part]
        part_type = v.type.with_shape(data.shape)
        inputs.append(Value(v.name, part_type, data))

    y = op.output.type
    channels = part.stop - part.start
    result = y.with_shape((*y.shape[:3], channels))
    return helps(op, op.spec, inputs, result)


def _part(r: Rewriter, op: Op, i: int, part: slice) -> Value:
    """Return part `i` of the output channels, with its weights and bias.

    part: the channels.
    """
    x, *weights = op.inputs
    inputs = [x]
    for v in weights:
        # The first axis of weights and bias is that of the output channels.
        data = array(v)[part]
        quant = part_of(v.type.quant, part)
        constant = r.const(data, f"{v.name}_part{i}", quant)
        inputs.append(constant)

    y = op.output
    name = f"{y.name}_part{i}"
    return r.add(op, op.spec, inputs, name, y.type.quant)


def example(rng: np.random.Generator) -> Graph:
    """Return a transposed convolution just above the size that was seen to map.

    The weights have one scale, or one for each channel.
    """
    build = Builder("transpose_conv_channels")
    channels = integer(rng, 9, 17)
    q = random_quant(rng, 0.05)
    x = int8_input(build, (1, 128, 128, 1), q)

    quant = weight_quant(rng, 0.01, 0.001, 0.02, channels)
    w = int8_weights(build, rng, (channels, 3, 3, 1), quant)

    spec = TransposeConv2D((2, 2), (0, 1, 0, 1))
    out_quant = Quant.per_tensor(0.1, 3)
    y = build.add(spec, [x, w], quant=out_quant)
    return with_output(build, y)
