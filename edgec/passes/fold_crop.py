"""Lets a convolution leave out border rows and columns that a slice cuts off."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Graph
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.conv_base import ConvBase
from edgec.ops.slice import Slice
from edgec.ops.window import Pads


def run(graph: Graph) -> bool:
    """Fold each slice of height and width into the convolution before it.

    The pads of the convolution must be at least as large as the cut.
    """
    rw = Rewriter(graph)
    for op, cut in rw.matches(Slice):
        x = op.inputs[0]
        producer = rw.producer_of(x, Conv2D, DepthwiseConv2D)
        if producer is None or rw.sole_user(x) is None:
            continue
        conv, spec = producer
        pads = _remaining_pads(spec, x.type.shape, cut)
        if pads is not None and x.type.quant == op.output.type.quant:
            rw.absorb(conv, op, replace(spec, pads=pads))
    return rw.changed


def _remaining_pads(conv: ConvBase, shape: tuple[int, ...], cut: Slice) -> Pads | None:
    """Return the pads with which a convolution computes only the slice.

    `shape` is the output shape of the convolution, [N, H, W, C]. None if the slice
    cuts off more than the pads produce, takes steps, or cuts images or channels.
    """
    if set(cut.step) != {1} or min(cut.shape) <= 0:
        return None
    if cut.begin[0] or cut.begin[3]:
        return None
    if cut.shape[0] != shape[0] or cut.shape[3] != shape[3]:
        return None

    pads: list[int] = []
    for i, stride in enumerate(conv.stride):
        first = cut.begin[1 + i]
        count = cut.shape[1 + i]
        cut_before = first
        cut_after = shape[1 + i] - first - count
        # An output row further in begins `stride` input rows further in.
        pads.append(conv.pads[2 * i] - cut_before * stride)
        pads.append(conv.pads[2 * i + 1] - cut_after * stride)

    # The slice also cuts off pixels that do not depend on the pads alone.
    if min(pads) < 0:
        return None
    return (pads[0], pads[1], pads[2], pads[3])
