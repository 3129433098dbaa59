"""Rows of vectors laid out as NHWC images, on which a matrix product is a 1x1
convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edgec.ir import Array, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.shape import Reshape

Shape = tuple[int, ...]


def rows_as_image(lead: Sequence[int], channels: int) -> Shape:
    """[1, H, W, channels] for vectors along `lead`; up to two dimensions above 1 stay
    as they are.
    """
    live = [d for d in lead if d > 1]
    width = live[-1] if live else 1
    return (1, prod(live[:-1]), width, channels)


def shaped(r: Rewriter, before: Op, x: Value, shape: Shape) -> Value:
    """`x` under another shape."""
    if x.type.shape == shape:
        return x
    return r.add(before, Reshape(shape), [x], f"{x.name}_image", x.type.quant)


def conv1x1(
    r: Rewriter,
    op: Op,
    x: Value,
    image: Shape,
    matrix: Array,
    bias: Sequence[Value],
    spec: Conv2D | None = None,
) -> None:
    """Let `op` give the product of the vectors of `x`, laid out as `image`, with a
    float matrix [O, C].
    """
    o, c = matrix.shape
    weights = r.const(matrix.reshape(o, 1, 1, c), f"{op.output.name}_weights")
    inputs = [shaped(r, op, x, image), weights, *bias]
    spec = spec or Conv2D()
    if op.output.type.shape == (*image[:3], o):
        r.update(op, spec, inputs)
    else:
        r.update(
            op,
            Reshape(op.output.type.shape),
            [r.add(op, spec, inputs, f"{op.output.name}_image")],
        )
