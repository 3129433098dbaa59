"""A transposed convolution of any pads becomes one with TFLite's SAME padding between a
PAD and a slice.

Pattern: a transposed convolution whose pads are neither SAME nor VALID. Replacement: as
many rows and columns of zero points around the image (PAD) as make the SAME output
cover what is asked for, the convolution with SAME padding, and a slice of its output;
without PAD or slice where they would do nothing. SAME rather than VALID because no
other padding was seen to map. Proof: a zero point adds nothing to the sums, so each
output keeps its terms, its scale and its bias. Pays always: a border and a crop are
cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant
from edgec.ir.rewrite import Rewriter
from edgec.ops.slice import slice_axes
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.window import Pads
from edgec_partitioner.legalize._examples import (
    int8_input,
    int8_weights,
    integers,
    random_quant,
    with_output,
)
from edgec_partitioner.legalize._images import padded_image
from edgec_partitioner.legalize._weights import constant_weights

OPS = (TransposeConv2D,)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: TransposeConv2D) -> bool:
    """Pad the image, convolve it with SAME padding, and cut the result."""
    if not constant_weights(op):
        return False
    if spec.tflite_padding(op) is not None:
        return False

    x, *weights = op.inputs
    y = op.output
    vertical = _fit(op, spec, 0)
    horizontal = _fit(op, spec, 1)
    border = (*vertical.border, *horizontal.border)
    if any(border):
        x = padded_image(r, op, x, border)

    pads = (*vertical.same_pads, *horizontal.same_pads)
    same = replace(spec, pads=pads)
    inputs = [x, *weights]
    (full,) = same.infer(*(v.type for v in inputs))
    if full.shape == y.type.shape:
        r.update(op, same, inputs)
        return True

    image = r.add(op, same, inputs, f"{y.name}_whole", y.type.quant)
    _, height, width, _ = y.type.shape
    rows = (vertical.first, height, 1)
    columns = (horizontal.first, width, 1)
    requested = slice_axes(image.type, {1: rows, 2: columns})
    r.update(op, requested, [image])
    return True


@dataclass(frozen=True)
class _Fit:
    """A transposed convolution with SAME padding, along one axis.

    Attributes:
        border: the zeros before and after the image.
        same_pads: the pads of SAME.
        first: the first element of the result that is asked for.
    """

    border: tuple[int, int]
    same_pads: tuple[int, int]
    first: int


def _fit(op: Op, spec: TransposeConv2D, i: int) -> _Fit:
    """Return how SAME padding gives the requested result along axis `i`.

    SAME gives stride * size outputs. The first of them is the sum number `top`, where
    the op asks for the sum number `pad`.
    """
    axis = 1 + i
    size = op.inputs[0].type.shape[axis]
    kernel = op.inputs[1].type.shape[axis]
    requested = op.output.type.shape[axis]
    stride = spec.stride[i]
    pad = spec.pads[2 * i]

    overlap = kernel - stride
    top = max(0, overlap) // 2
    bottom = overlap - top

    # Each zero before the image moves the first sum by a stride.
    whole_strides = (pad - top) // stride
    before = max(0, -whole_strides)
    first = pad + stride * before - top

    # Rounded up: the image with its borders must give so many outputs.
    pixels = -(-(first + requested) // stride)
    after = max(0, pixels - (size + before))
    return _Fit((before, after), (top, bottom), first)


def example(rng: np.random.Generator) -> Graph:
    """Return a transposed convolution whose pads are neither SAME nor VALID.

    Kernels are of 1 to 5, strides of 1 to 3; negative pads after the image are output
    padding.
    """
    build = Builder("transpose_conv_pads")
    q = random_quant(rng, 0.05)
    size = integers(rng, 7, 9, 2)
    x = int8_input(build, (1, *size, 3), q)
    quant = Quant.per_tensor(0.02)
    out_quant = Quant.per_tensor(0.3, 3)

    while True:
        stride_y, stride_x = integers(rng, 1, 4, 2)
        kernel = integers(rng, 1, 6, 2)
        top, bottom, left, right = rng.integers((0, -2, 0, -2), 4)
        pads: Pads = (int(top), int(bottom), int(left), int(right))
        w = int8_weights(build, rng, (4, *kernel, 3), quant)
        spec = TransposeConv2D((stride_y, stride_x), pads)
        y = build.add(spec, [x, w], quant=out_quant)

        # By chance the pads may have a name; then try others.
        if spec.tflite_padding(build.graph.ops[-1]) is None:
            return with_output(build, y)
        build.graph.ops.clear()
