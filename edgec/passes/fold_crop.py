"""Lets a convolution leave out rows and columns of its border that nothing reads."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.slice import Slice
from edgec.ops.window import Pads


def run(graph: Graph) -> bool:
    """A slice of height and width behind a convolution whose own border is as large as
    what is cut off.
    """
    rw = Rewriter(graph)
    for op in rw.ops("slice"):
        maker = rw.private(op.inputs[0])
        if (
            maker is None
            or not isinstance(maker.spec, Conv2D | DepthwiseConv2D)
            or not isinstance(op.spec, Slice)
        ):
            continue
        pads = _pads(maker.spec, maker, op.spec)
        if pads is not None and maker.output.type.quant == op.output.type.quant:
            rw.absorb(maker, op, replace(maker.spec, pads=pads))
    return rw.changed


def _pads(spec: Conv2D | DepthwiseConv2D, maker: Op, cut: Slice) -> Pads | None:
    """The border that is left, None when the slice takes more away, or takes steps, or
    channels.
    """
    shape = maker.output.type.shape
    if (
        set(cut.step) != {1}
        or cut.begin[0]
        or cut.begin[3]
        or (cut.shape[0], cut.shape[3]) != (shape[0], shape[3])
    ):
        return None
    pads: list[int] = []
    for i, stride in enumerate(spec.stride):
        first = cut.begin[1 + i]
        count = cut.shape[1 + i]
        left_out = (first, shape[1 + i] - first - count)
        pads += [
            p - n * stride
            for p, n in zip(spec.pads[2 * i : 2 * i + 2], left_out, strict=True)
        ]
    if min(pads) >= 0 and min(cut.shape) > 0:
        return (pads[0], pads[1], pads[2], pads[3])
    return None
