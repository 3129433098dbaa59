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

from dataclasses import replace

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.pad import Pad
from edgec.ops.slice import slice_axes
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.window import Pads
from edgec_partitioner.legalize._weights import constant_weights

KINDS = ("transpose_conv2d",)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Pad, convolve with SAME padding, cut."""
    spec, (x, w, *_) = op.spec, op.inputs
    if (
        not isinstance(spec, TransposeConv2D)
        or not constant_weights(op)
        or spec.tflite_padding(op) is not None
    ):
        return False
    y = op.output.type
    border = [(0, 0)]
    pads = list[int]()
    begin = list[int]()
    for i in (0, 1):
        size = x.type.shape[1 + i]
        kernel = w.type.shape[1 + i]
        stride = spec.stride[i]
        before, after, same, first = _fit(
            size, kernel, stride, spec.pads[2 * i], y.shape[1 + i]
        )
        border.append((before, after))
        pads += same
        begin.append(first)
    whole = replace(spec, pads=(pads[0], pads[1], pads[2], pads[3]))
    name = op.output.name
    if any(any(p) for p in border):
        x = r.add(op, Pad((*border, (0, 0))), [x], f"{x.name}_padded", x.type.quant)
    (full,) = whole.infer(x.type, *(v.type for v in op.inputs[1:]))
    if full.shape == y.shape:
        r.update(op, whole, [x, *op.inputs[1:]])
    else:
        image = r.add(op, whole, [x, *op.inputs[1:]], f"{name}_whole", y.quant)
        taken = {1 + i: (begin[i], y.shape[1 + i], 1) for i in (0, 1)}
        r.update(op, slice_axes(image.type, taken), [image])
    return True


def _fit(
    size: int, kernel: int, stride: int, pad: int, wanted: int
) -> tuple[int, int, tuple[int, int], int]:
    """Zeros before and after the image, SAME's pads, and the first element to take,
    along one axis.

    SAME gives stride * size outputs, of which the first is the `top`-th sum, where
    `pad` asks for the pad-th.
    """
    total = max(0, kernel - stride)
    top = total // 2
    before = max(0, -((pad - top) // stride))
    first = pad + stride * before - top
    after = max(0, -(-(first + wanted) // stride) - (size + before))
    return before, after, (top, kernel - stride - top), first


def example(rng: np.random.Generator) -> Graph:
    """Kernels of 1 to 5, strides of 1 to 3, pads before and after; output padding; with
    and without a bias.
    """
    build = Builder("transpose_conv_pads")
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input(
        "x",
        TensorType((1, int(rng.integers(7, 9)), int(rng.integers(7, 9)), 3), "int8", q),
    )
    while True:
        stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        kernel = (int(rng.integers(1, 6)), int(rng.integers(1, 6)))
        pads: Pads = tuple(int(p) for p in rng.integers((0, -2, 0, -2), 4))  # type: ignore[assignment]
        w = Quant.per_tensor(0.02)
        weights = build.const(
            rng.integers(-127, 128, (4, *kernel, 3)).astype(np.int8), "w", w
        )
        spec = TransposeConv2D(stride, pads)
        y = build.add(spec, [x, weights], quant=Quant.per_tensor(0.3, 3))
        if spec.tflite_padding(build.graph.ops[-1]) is None:
            break
        build.graph.ops.clear()
    build.graph.outputs = [y]
    return build.graph
