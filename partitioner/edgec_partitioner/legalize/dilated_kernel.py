"""A dilated convolution that does not map becomes one with a larger kernel, zero
between the taps.

Pattern: a convolution whose dilation is refused: unequal in x and y, or of a depthwise
convolution. Condition: constant weights; the larger kernel breaks no other rule and has
at most 81 taps. Replacement: the same convolution with the smaller of the dilations in
both directions, or none where that is refused too, and weights that are zero where the
old kernel had no tap. Proof: a zero weight adds nothing to the sums, and the window
covers the same elements, so the pads stay. Pays while the zeros are multiplied sooner
than the tensors are transferred; hence the bound on the kernel, which is the largest
that was seen to map (9x9).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.window import Pair
from edgec_partitioner.legalize._weights import array, constant_weights, helps, zeros

KINDS = ("conv2d", "depthwise_conv2d")
BOUND = 0.0

_MAX_TAPS = 81


def rewrite(r: Rewriter, op: Op) -> bool:
    """Spread the taps."""
    spec, (x, w, *bias) = op.spec, op.inputs
    if (
        not isinstance(spec, Conv2D | DepthwiseConv2D)
        or spec.dilation == (1, 1)
        or not constant_weights(op)
    ):
        return False
    common = gcd(*spec.dilation)
    for rest in sorted({common, 1}, reverse=True):
        steps = (spec.dilation[0] // rest, spec.dilation[1] // rest)
        filters = _spread(w, steps)
        if steps == (1, 1) or filters.shape[1] * filters.shape[2] > _MAX_TAPS:
            continue
        sparse = replace(spec, dilation=(rest, rest))
        if helps(
            op,
            sparse,
            [x, Value(w.name, w.type.with_shape(filters.shape), filters), *bias],
        ):
            r.update(
                op,
                sparse,
                [x, r.const(filters, f"{w.name}_spread", w.type.quant), *bias],
            )
            return True
    return False


def _spread(w: Value, steps: Pair) -> Array:
    """The weights with steps - 1 rows and columns of zeros between the taps."""
    o, kh, kw, c = w.type.shape
    wide = zeros(w, (o, (kh - 1) * steps[0] + 1, (kw - 1) * steps[1] + 1, c))
    wide[:, :: steps[0], :: steps[1]] = array(w)
    return wide


def example(rng: np.random.Generator) -> Graph:
    """Dense and depthwise, dilations that are unequal, asymmetric weights now and then."""
    build = Builder("dilated_kernel")
    dense = bool(rng.integers(2))
    c = int(rng.integers(1, 5))
    o = int(rng.integers(1, 5))
    dilation = ((1, 2), (2, 1), (2, 4), (1, 3), (4, 1))[rng.integers(5)]
    kernel = (int(rng.choice([2, 3])), int(rng.choice([2, 3])))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(5, 10, 2)), c), "int8", q)
    )
    shape = (o, *kernel, c) if dense else (1, *kernel, c * o)
    zero = int(rng.integers(-20, 20)) if rng.random() < 0.3 else 0
    w = build.const(
        rng.integers(-127, 128, shape).astype(np.int8),
        "w",
        Quant.per_tensor(0.004, zero),
    )
    pads = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    same = (pads[0] // 2, pads[0] - pads[0] // 2, pads[1] // 2, pads[1] - pads[1] // 2)
    spec = (Conv2D if dense else DepthwiseConv2D)(
        (1, 1), same, dilation, str(rng.choice(["none", "relu"])), zero != 0
    )
    build.graph.outputs = [build.add(spec, [x, w], quant=Quant.per_tensor(0.3, 3))]
    return build.graph
