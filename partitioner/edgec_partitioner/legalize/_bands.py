"""A chain of ops on images, computed in horizontal stripes.

Each op reads as many rows as it needs for the rows of its result. Such stripes are
known from fused-layer CNN accelerators (Alwani et al., "Fused-layer CNN accelerators",
MICRO 2016), here with the overlap computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import pairwise
from math import prod

from edgec.ir import Op, OpDef, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv_base import ConvBase
from edgec.ops.pad import Pad
from edgec.ops.pool_base import PoolOp
from edgec.ops.slice import slice_axes
from edgec.ops.window import Pads
from edgec_partitioner.legalize._images import padded_image

MAX_STRIPES = 64
_NO_PADS: Pads = (0, 0, 0, 0)

Rows = tuple[int, int]
"""A range of rows: first, and last + 1."""


@dataclass(frozen=True)
class Band:
    """The part of an op's input that a stripe of its result depends on.

    Attributes:
        first: the first row of the input.
        last: the row after the last one.
        border: the zeros around these rows (top, bottom, left, right).
    """

    first: int
    last: int
    border: Pads

    @property
    def rows(self) -> int:
        """The number of rows of the input."""
        return self.last - self.first


def chain(r: Rewriter, op: Op, limit: int) -> list[Op] | None:
    """Return the ops from `op` on until a result has at most `limit` elements.

    None if one of them cannot be computed in stripes, or if another op reads a result
    on the way.
    """
    ops = [op]
    while _by_rows(ops[-1]):
        y = ops[-1].output
        if y.type.size <= limit:
            return ops
        user = r.sole_user(y)
        # A second reader would need the whole tensor.
        if user is None or user.inputs[0] is not y:
            return None
        ops.append(user)
    return None


def bands(ops: Sequence[Op], limit: int) -> list[Rows] | None:
    """Return the fewest equal stripes with which no tensor exceeds `limit` elements.

    The stripes are ranges of rows of the last op's result. None if even `MAX_STRIPES`
    are too few.
    """
    rows = ops[-1].output.type.shape[1]
    most_stripes = min(MAX_STRIPES, rows)

    # Fewer stripes compute fewer rows twice.
    for count in range(2, most_stripes + 1):
        edges = [rows * i // count for i in range(count + 1)]
        stripes = list(pairwise(edges))
        if all(_largest(ops, stripe) <= limit for stripe in stripes):
            return stripes
    return None


def compute(r: Rewriter, before: Op, ops: Sequence[Op], rows: Rows, name: str) -> Value:
    """Add the ops that compute some rows of the result of a chain.

    Return the value with these rows.

    before: the op before which the new ops stand.
    ops: the chain.
    rows: the rows of the result of the last op.
    name: the suffix of the names of the new values.
    """
    needs = _needs(ops, rows)
    assert needs is not None

    image = ops[0].inputs[0]
    first = needs[0]
    cut = slice_axes(image.type, {1: (first.first, first.rows, 1)})
    x = r.add(before, cut, [image], f"{image.name}_{name}")

    for op, need in zip(ops, needs, strict=True):
        spec, border = _on_stripe(op.spec, op, need)
        if any(border):
            x = padded_image(r, before, x, border)
        # A PAD is its border alone, added above.
        if spec is None:
            continue

        inputs = [x, *op.inputs[1:]]
        y = op.output
        y_name = f"{y.name}_{name}"
        x = r.add(before, spec, inputs, y_name, y.type.quant)
    return x


def _by_rows(op: Op) -> bool:
    """Return whether rows of the result are computed from rows of the input.

    All other inputs must be constant.
    """
    if any(v.const is None for v in op.inputs[1:]):
        return False
    if len(op.outputs) > 1 or op.inputs[0].type.rank != 4:
        return False
    return _works_by_rows(op.spec, op)


@singledispatch
def _works_by_rows(spec: OpDef, op: Op) -> bool:
    """Return whether an op on one image, with constants, computes row by row."""
    # A constant that differs between rows would have to be cut as well.
    x = op.inputs[0].type
    channels = (x.shape[3],)
    for v in op.inputs[1:]:
        constant = v.type
        if constant.size != 1 and constant.shape != channels:
            return False

    same_shape = op.output.type.shape == x.shape
    return spec.elementwise and same_shape


@_works_by_rows.register
def _pads_rows(spec: Pad, op: Op) -> bool:
    """Return whether the border is of zeros, around height and width alone."""
    zeros = spec.mode == "constant" and spec.value == 0
    return zeros and spec.pads[0] == spec.pads[3] == (0, 0)


@_works_by_rows.register
def _pools_rows(spec: PoolOp, op: Op) -> bool:
    """Return whether all windows lie inside of the image."""
    return spec.pads == _NO_PADS


@_works_by_rows.register
def _convolves_rows(spec: ConvBase, op: Op) -> bool:
    """Return that a convolution can have any pads."""
    return True


@singledispatch
def _window(spec: OpDef, op: Op) -> tuple[int, int, Pads]:
    """Return the height and vertical stride of an op's window, and its pads."""
    return 1, 1, _NO_PADS


@_window.register
def _window_of_pad(spec: Pad, op: Op) -> tuple[int, int, Pads]:
    """Return a window of one row, and the border."""
    return 1, 1, (*spec.pads[1], *spec.pads[2])


@_window.register
def _window_of_pool(spec: PoolOp, op: Op) -> tuple[int, int, Pads]:
    """Return the window of a pool, which has no pads here."""
    return spec.kernel[0], spec.stride[0], _NO_PADS


@_window.register
def _window_of_convolution(spec: ConvBase, op: Op) -> tuple[int, int, Pads]:
    """Return the window of a filter; dilation spreads its taps."""
    taps = op.inputs[1].type.shape[1]
    dilation = spec.dilation[0]
    stride = spec.stride[0]

    # Between two taps there are dilation - 1 rows that are not read.
    kernel = (taps - 1) * dilation + 1
    return kernel, stride, spec.pads


def _need(op: Op, rows: Rows) -> Band | None:
    """Return the part of its input that an op reads for some rows of its result.

    None if that is a border of zeros alone.
    """
    height = op.inputs[0].type.shape[1]
    kernel, stride, pads = _window(op.spec, op)
    top, _, left, right = pads

    # In rows of the padded image, less the pads.
    first_row, end_row = rows
    first = first_row * stride - top
    last = (end_row - 1) * stride - top + kernel

    # Rows outside of the image are zeros.
    above = max(0, -first)
    below = max(0, last - height)
    border = (above, below, left, right)

    band = Band(max(0, first), min(height, last), border)
    if band.rows <= 0:
        return None
    return band


def _needs(ops: Sequence[Op], rows: Rows) -> list[Band] | None:
    """Return the part that each op of a chain reads for some rows of its end.

    None if one of them would read zeros alone.
    """
    needs: list[Band] = []
    # The input of an op is the result of the one before.
    for op in reversed(ops):
        need = _need(op, rows)
        if need is None:
            return None
        needs.append(need)
        rows = (need.first, need.last)

    needs.reverse()
    return needs


def _largest(ops: Sequence[Op], rows: Rows) -> float:
    """Return the number of elements of the largest tensor of a stripe.

    Infinity if the stripe cannot be computed.
    """
    needs = _needs(ops, rows)
    if needs is None:
        return float("inf")

    # The result of the last op counts as well.
    first, end = rows
    result_shape = ops[-1].output.type.shape
    row_elements = prod(result_shape[2:])
    sizes = [(end - first) * row_elements]

    for op, need in zip(ops, needs, strict=True):
        _, _, width, channels = op.inputs[0].type.shape
        top, bottom, left, right = need.border
        # The padded input may be a tensor of its own.
        padded_height = need.rows + top + bottom
        padded_width = width + left + right
        sizes.append(padded_height * padded_width * channels)
    return max(sizes)


@singledispatch
def _on_stripe(spec: OpDef, op: Op, need: Band) -> tuple[OpDef | None, Pads]:
    """Return an op on a stripe, and the border to put around the stripe first.

    No op if the border is all it does.
    """
    return spec, _NO_PADS


@_on_stripe.register
def _pad_on_stripe(spec: Pad, op: Op, need: Band) -> tuple[OpDef | None, Pads]:
    """Return the border alone."""
    return None, need.border


@_on_stripe.register
def _convolution_on_stripe(
    spec: ConvBase, op: Op, need: Band
) -> tuple[OpDef | None, Pads]:
    """Return the convolution, with its pads if TFLite has a name for them."""
    x = op.inputs[0].type
    batch, _, width, channels = x.shape
    stripe_type = x.with_shape((batch, need.rows, width, channels))
    stripe = Value("band", stripe_type)

    # The name depends on the size of the image that the op reads.
    padded = replace(spec, pads=need.border)
    on_stripe = Op(padded, [stripe, *op.inputs[1:]], [])
    if padded.tflite_padding(on_stripe) is not None:
        return padded, _NO_PADS

    bare = replace(spec, pads=_NO_PADS)
    return bare, need.border
