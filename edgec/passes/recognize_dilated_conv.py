"""Recognises dilated convolutions in SPACE_TO_BATCH, convolution, BATCH_TO_SPACE.

TensorFlow writes dilation in this way. The images that SPACE_TO_BATCH makes are the
phases of one image: every b-th row and column, from each of the first b. An op that
treats all images and pixels alike gives the same result on the whole image, and a
convolution of stride 1 gives the same result on the whole image with its window's
elements b apart. So the ops in between move out of the blocks, with dilations and pads
multiplied by b. This moves numbers and computes none, so that it is exact for every
type. Both block ops are read as reshape, transpose, reshape (see
`edgec.ops.space_depth`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgec.ir import Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.window import Pair

_TO_BATCH = (2, 4, 0, 1, 3, 5)
"""The permutation [N, H, by, W, bx, C] → [by, bx, N, H, W, C]."""
_TO_SPACE = (2, 3, 0, 4, 1, 5)
"""The permutation [by, bx, N, H, W, C] → [N, H, by, W, bx, C]."""


@dataclass(frozen=True)
class _Reordering:
    """A reshape, a transpose and a reshape in a row.

    Attributes:
        x: the input of the first reshape.
        shape: the shape to which the first reshape brings it.
    """

    x: Value
    shape: tuple[int, ...]


def run(graph: Graph) -> bool:
    """Replace each SPACE_TO_BATCH and BATCH_TO_SPACE of the same blocks.

    All ops between the two must be able to work on the whole image.
    """
    rw = Rewriter(graph)
    for op in rw.ops("reshape"):
        end = _reordering(rw, op, _TO_SPACE)
        if end is None:
            continue
        by, bx, n, *image = end.shape
        if end.x.type.shape != (by * bx * n, *image):
            continue
        block: Pair = (by, bx)
        chain = _chain(rw, end.x, block)
        if chain is not None:
            _move_out(rw, op, chain, block)
    return rw.changed


def _reordering(rw: Rewriter, op: Op, perm: tuple[int, ...]) -> _Reordering | None:
    """Return the reshape, transpose by `perm` and reshape that end with `op`.

    None for ops that are no such reshape.
    """
    if op.kind != "reshape":
        return None
    # The block op is replaced as a whole, so its parts must have no other user.
    middle = rw.private(op.inputs[0], "transpose")
    if middle is None or middle.spec != Transpose(perm):
        return None
    start = rw.private(middle.inputs[0], "reshape")
    if start is None:
        return None
    return _Reordering(start.inputs[0], start.output.type.shape)


def _chain(rw: Rewriter, batch: Value, block: Pair) -> list[Op] | None:
    """Return the ops between a SPACE_TO_BATCH and `batch`, last first.

    The last element of the list is the final reshape of the SPACE_TO_BATCH. None if an
    op in between cannot move.
    """
    chain: list[Op] = []
    while True:
        op = rw.private(batch)
        if op is None:
            return None
        chain.append(op)
        start = _reordering(rw, op, _TO_BATCH)
        if start is not None and _is_space_to_batch(op, start, block):
            return chain
        if not _may_move(op):
            return None
        batch = op.inputs[0]


def _is_space_to_batch(op: Op, start: _Reordering, block: Pair) -> bool:
    """Return whether a reordering that ends with `op` is SPACE_TO_BATCH of `block`.

    The transpose alone does not tell: the reshapes must split and join the right axes.
    """
    n, h, by, w, bx, c = start.shape
    image = (n, h * by, w * bx, c)
    batch = (by * bx * n, h, w, c)
    # Axes split and joined otherwise are another reshape.
    if (by, bx) != block or start.x.type.shape != image:
        return False
    return op.output.type.shape == batch


def _may_move(op: Op) -> bool:
    """Return whether `op` gives the same results on the whole image.

    A convolution of stride 1 and an op that treats all pixels alike do, if their first
    input is the only computed one.
    """
    if any(v.const is None for v in op.inputs[1:]):
        return False
    if len(op.outputs) > 1 or op.inputs[0].type.rank != 4:
        return False
    if isinstance(op.spec, Conv2D | DepthwiseConv2D):
        return op.spec.stride == (1, 1)

    shape = op.output.type.shape
    if not op.spec.elementwise or shape != op.inputs[0].type.shape:
        return False
    # A constant that differs between pixels would differ between phases.
    channels = (shape[3],)
    return all(v.type.size == 1 or v.type.shape == channels for v in op.inputs[1:])


def _move_out(rw: Rewriter, end: Op, chain: list[Op], block: Pair) -> None:
    """Apply the ops of a chain to the whole image, in place of its phases.

    `end` is the last reshape of the BATCH_TO_SPACE.
    """
    *moved, space_to_batch = chain
    start = _reordering(rw, space_to_batch, _TO_BATCH)
    assert start is not None
    x = start.x
    # The ops are added in their order, first to last.
    shape = end.output.type.shape
    for op in reversed(moved):
        spec = _dilated(op.spec, block)
        inputs = [x, *op.inputs[1:]]
        x = rw.add(end, spec, inputs, op.output.name, op.output.type.quant)
    rw.update(end, Reshape(shape), [x])
    rw.forward(end, x)


def _dilated(spec: OpDef, block: Pair) -> OpDef:
    """Return the op on the whole image that equals `spec` on its phases."""
    if not isinstance(spec, Conv2D | DepthwiseConv2D):
        return spec

    # Neighbours in a phase are b pixels apart in the image.
    by, bx = block
    top, bottom, left, right = spec.pads
    dilation_h, dilation_w = spec.dilation
    return replace(
        spec,
        pads=(top * by, bottom * by, left * bx, right * bx),
        dilation=(dilation_h * by, dilation_w * bx),
    )
