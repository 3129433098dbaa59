"""Rows of vectors laid out as NHWC images.

A matrix product of such rows is a 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edgec.ir import Array, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.shape import Reshape
from edgec.ops.window import Pads

Shape = tuple[int, ...]


def rows_as_image(lead: Sequence[int], channels: int) -> Shape:
    """Return the shape [1, H, W, channels] of an image of vectors.

    `lead` are the dimensions before the channels. Up to two dimensions above 1 stay as
    they are; more of them are joined to the height.
    """
    longer_than_one = [d for d in lead if d > 1]
    width = longer_than_one[-1] if longer_than_one else 1
    return (1, prod(longer_than_one[:-1]), width, channels)


def shaped(r: Rewriter, before: Op, x: Value, shape: Shape) -> Value:
    """Return `x` reshaped to `shape`, or itself if it has that shape.

    before: the op before which the RESHAPE stands.
    """
    if x.type.shape == shape:
        return x

    # A reshape keeps the elements, and so their scale.
    name = f"{x.name}_image"
    return r.add(before, Reshape(shape), [x], name, x.type.quant)


def padded_image(r: Rewriter, before: Op, x: Value, pads: Pads) -> Value:
    """Return the image `x` with a border of zeros, by a PAD.

    before: the op before which the PAD stands.
    pads: the widths of the border (top, bottom, left, right).
    """
    top, bottom, left, right = pads
    border = ((0, 0), (top, bottom), (left, right), (0, 0))
    name = f"{x.name}_padded"
    return r.add(before, Pad(border), [x], name, x.type.quant)


def conv1x1(
    r: Rewriter,
    op: Op,
    x: Value,
    matrix: Array,
    bias: Sequence[Value] = (),
    spec: Conv2D | None = None,
) -> None:
    """Let `op` compute the product of the vectors of `x` with a float matrix.

    matrix: [O, C]. The vectors lie along the last axis of `x`, or are C elements each
    of the flattened `x` if that axis has another size. spec: the convolution, one
    without activation if missing.
    """
    o, c = matrix.shape
    name = op.output.name
    lead = x.type.shape[:-1]
    if x.type.shape[-1] != c:
        lead = (x.type.size // c,)

    # Reshapes that only add or drop ones cost nothing.
    image = rows_as_image(lead, c)
    filters = r.const(matrix.reshape(o, 1, 1, c), f"{name}_weights")
    inputs = [shaped(r, op, x, image), filters, *bias]

    spec = spec or Conv2D()
    shape = op.output.type.shape
    if shape == (*image[:3], o):
        r.update(op, spec, inputs)
        return
    # The op itself brings the image back to the shape of its result.
    product = r.add(op, spec, inputs, f"{name}_image")
    r.update(op, Reshape(shape), [product])
