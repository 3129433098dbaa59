"""Pads that are neither TFLite's SAME nor VALID become a PAD op before the window.

Pattern: a convolution or pool with such pads. Condition: a maximum pool's zero point is
the lowest int8; an average pool counts its padding. Replacement: PAD, then the same op
without pads (VALID). Proof: PAD fills in the zero point, which is what convolutions and
such averages read outside of the image, and what is below no element of a maximum pool.
Pays always: PAD is cheap on the Edge TPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.window import Pads
from edgec_partitioner.legalize._examples import flag, int8_input, integer, one_op
from edgec_partitioner.legalize._images import padded_image

OPS = (Conv2D, DepthwiseConv2D, MaxPool2D, AveragePool2D)
BOUND = 0.0

_NO_PADS: Pads = (0, 0, 0, 0)
_Window = Conv2D | DepthwiseConv2D | MaxPool2D | AveragePool2D


def rewrite(r: Rewriter, op: Op, spec: _Window) -> bool:
    """Move the pads of the op to a PAD before it."""
    # SAME and VALID map as they are.
    if spec.tflite_padding(op) is not None:
        return False
    if not _fills_with_zero(spec, op.inputs[0].type):
        return False
    pad_apart(r, op, spec)
    return True


def pad_apart(r: Rewriter, op: Op, spec: _Window) -> None:
    """Move the pads of a convolution or pool to a PAD of zeros before it."""
    x, *weights = op.inputs
    padded = padded_image(r, op, x, spec.pads)
    bare = replace(spec, pads=_NO_PADS)

    # The zeros are elements of the image now.
    if isinstance(bare, AveragePool2D):
        bare = replace(bare, count_pads=False)
    r.update(op, bare, [padded, *weights])


def _fills_with_zero(spec: _Window, x: TensorType) -> bool:
    """Return whether the window reads its pads as zeros, or as numbers like them.

    The pads of a maximum are below all elements: so is a zero point of -128.
    """
    if isinstance(spec, MaxPool2D):
        return x.is_quantized and x.dtype == "int8" and x.zero_point == -128
    if isinstance(spec, AveragePool2D):
        return spec.count_pads
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a pool with pads that are neither SAME nor VALID."""
    build = Builder("odd_pads")
    size = integer(rng, 3, 7) * 2
    channels = integer(rng, 1, 9)
    maximum = flag(rng)

    # A maximum pool needs a zero point below all elements.
    zero_point = -128
    if not maximum:
        zero_point = integer(rng, -128, 128)
    quant = Quant.per_tensor(0.1, zero_point)
    x = int8_input(build, (1, size, size, channels), quant)

    spec: OpDef
    pads = (1, 1, 1, 1)
    if maximum:
        spec = MaxPool2D((3, 3), (2, 2), pads)
    else:
        spec = AveragePool2D((3, 3), (2, 2), pads, count_pads=True)
    return one_op(build, spec, x)
