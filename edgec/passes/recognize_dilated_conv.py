"""Finds dilated convolutions that are written as SPACE_TO_BATCH, convolution,
BATCH_TO_SPACE.

The images that SPACE_TO_BATCH makes are the phases of one image: every b-th row and
column, from each of the first b. What treats all images alike and pixel by pixel, and
convolutions of stride 1, treat the phases as the whole image with the window's elements
b apart. So what lies between moves out of the blocks, its dilations and pads multiplied
by b; this moves numbers and computes none, so that it is exact for every type. Both
block ops are read as reshape, transpose, reshape (see `edgec.ops.space_depth`).
"""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.window import Pair

_TO_BATCH = (2, 4, 0, 1, 3, 5)
"""[N, H, by, W, bx, C] → [by, bx, N, H, W, C]."""
_TO_SPACE = (2, 3, 0, 4, 1, 5)
"""And back."""


def run(graph: Graph) -> bool:
    """Each BATCH_TO_SPACE whose images come, through ops that may move, from a
    SPACE_TO_BATCH of the same blocks.
    """
    rw = Rewriter(graph)
    for op in rw.ops("reshape"):
        end = _order(rw, op, _TO_SPACE)
        if end is None:
            continue
        batch, (by, bx, n, *image) = end
        block: Pair = (by, bx)
        if batch.type.shape == (by * bx * n, *image):
            inside = _inside(rw, batch, block)
        else:
            inside = None
        if inside is not None:
            _move_out(rw, op, inside, block)
    return rw.changed


def _order(
    rw: Rewriter, op: Op | None, perm: tuple[int, ...]
) -> tuple[Value, tuple[int, ...]] | None:
    """The input of reshape → transpose by `perm` → reshape that ends with `op`, and the
    shape that is transposed.
    """
    if op is not None and op.kind == "reshape":
        middle = rw.private(op.inputs[0], "transpose")
    else:
        middle = None
    start = rw.private(middle.inputs[0], "reshape") if middle is not None else None
    if middle is None or start is None or middle.spec != Transpose(perm):
        return None
    return start.inputs[0], start.output.type.shape


def _inside(rw: Rewriter, batch: Value, block: Pair) -> list[Op] | None:
    """The ops, last first, between a SPACE_TO_BATCH and the batch; with them that op's
    end. None: something stays.
    """
    found: list[Op] = []
    while (op := rw.private(batch)) is not None:
        found.append(op)
        start = _order(rw, op, _TO_BATCH)
        if start is not None and _is_blocked(op, start, block):
            return found
        if not _may_move(op):
            return None
        batch = op.inputs[0]
    return None


def _is_blocked(op: Op, start: tuple[Value, tuple[int, ...]], block: Pair) -> bool:
    """Whether an ordered reshape is SPACE_TO_BATCH of these blocks."""
    (x, (n, h, by, w, bx, c)), y = start, op.output.type.shape
    return (
        (by, bx) == block
        and x.type.shape == (n, h * by, w * bx, c)
        and y == (by * bx * n, h, w, c)
    )


def _may_move(op: Op) -> bool:
    """A convolution of stride 1, or an op that treats all pixels alike; its first input
    is the only computed one.
    """
    if (
        any(v.const is None for v in op.inputs[1:])
        or len(op.outputs) > 1
        or op.inputs[0].type.rank != 4
    ):
        return False
    if isinstance(op.spec, Conv2D | DepthwiseConv2D):
        return op.spec.stride == (1, 1)
    constant = all(
        v.type.size == 1 or v.type.shape == (op.output.type.shape[3],)
        for v in op.inputs[1:]
    )
    return (
        op.spec.elementwise
        and constant
        and op.output.type.shape == op.inputs[0].type.shape
    )


def _move_out(rw: Rewriter, end: Op, inside: list[Op], block: Pair) -> None:
    """Let `end`, which makes the image again, read the same ops applied to the whole
    image.
    """
    *moved, start = inside
    order = _order(rw, start, _TO_BATCH)
    assert order is not None
    x = order[0]
    shape = end.output.type.shape
    for op in reversed(moved):
        x = rw.add(
            end,
            _dilated(op.spec, block),
            [x, *op.inputs[1:]],
            op.output.name,
            op.output.type.quant,
        )
    rw.update(end, Reshape(shape), [x])
    rw.forward(end, x)


def _dilated(spec: OpDef, block: Pair) -> OpDef:
    """The op on the whole image that is `spec` on its phases."""
    if not isinstance(spec, Conv2D | DepthwiseConv2D):
        return spec
    (by, bx), (top, bottom, left, right) = block, spec.pads
    pads = (top * by, bottom * by, left * bx, right * bx)
    return replace(
        spec, pads=pads, dilation=(spec.dilation[0] * by, spec.dilation[1] * bx)
    )
