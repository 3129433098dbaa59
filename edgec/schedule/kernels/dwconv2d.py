"""Depthwise int8 convolutions on Arm, without and with the dot product (sdot).

csrc/ek_dwconv2d_s8.h computes blocks of eight channels by one of three loops:

slide: windows of 3x3 side by side, whose columns are shared
plain: windows of any shape, a few taps at a time
any: channels that are few, have several results each, or whose sums need 64 bits

Without sdot the products of two taps are summed in 16 bits, which bounds the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Table, constant
from edgec.ir.c_structs import Conv2dParams, Dwconv2dS8Params
from edgec.schedule.conv import Conv
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.dot import fast_tables
from edgec.schedule.gemm_s8.panels import (
    Requant,
    accumulator_bounds,
    fold_constant_channels,
    wrap_int32,
)
from edgec.schedule.kernels.gemm_s8 import DEPTHWISE_S8, requant
from edgec.schedule.variant import Schedule, Variant

BLOCK = 8
"""Channels of a block: EK_DW."""

MAX_PAIR = 255
"""The sum of the magnitudes of two weights up to which the sum of their products with
any two int8 values fits into int16: 255 * 128 < 2^15.
"""

MIN_COLUMNS = 8
"""Output columns that all channels pass before the next ones, at least."""


@dataclass(frozen=True)
class DepthwiseShape(Conv):
    """The sizes of a depthwise convolution."""

    @property
    def slide(self) -> str:
        """The name of the loop over 3x3 windows for this shape; "" where none fits."""
        if (self.kh, self.kw) != (3, 3) or not self.dense:
            return ""
        if (self.sh, self.sw) == (1, 1) and self.pl <= 2 * self.dw:
            return "k3s1"
        if (self.sh, self.sw, self.dh, self.dw) == (2, 2, 1, 1) and self.pl <= 1:
            return "k3s2"
        return ""

    @property
    def dense(self) -> bool:
        """Whether each input channel has one result, and there is a block of them."""
        return self.oc == self.ic >= BLOCK

    def starts(self) -> list[int]:
        """Return the first output channel of each block.

        The last block ends with the last channel, and so may overlap the one before.
        """
        last = max(self.oc - BLOCK, 0)
        return [*range(0, last, BLOCK), last]


@dataclass(frozen=True)
class Loops:
    """The loops of an instruction set.

    Attributes:
        suffix: the end of the functions' names
        isa: features that a core needs
        header: the header of csrc
        dot: whether sdot takes four taps of a channel at once; else the products of two
            taps are summed in 16 bits
        rows: rows of the image that the slide loop reads for stride 1
    """

    suffix: str
    isa: frozenset[str]
    header: str
    dot: bool
    rows: int

    @property
    def taps_at_once(self) -> int:
        """Taps that the plain loop takes at once."""
        return 4 if self.dot else 2

    def lift(self, weights: Array) -> Array | None:
        """Return what the slide loop has to add to all weights of a channel.

        The loop multiplies smaller weights, and adds lift times the sum of the window.

        Args:
            weights: int64 [taps, BLOCK], less their zero point

        Returns:
            int64 [BLOCK], zeros where the weights fit as they are; None where the loop
            cannot compute the block exactly
        """
        if self._holds(weights):
            return np.zeros(BLOCK, np.int64)

        # The middle of the weights of a channel leaves the smallest magnitudes.
        middle = (weights.min(0) + weights.max(0) + 1) // 2
        lift = np.clip(middle, -128, 127)
        return lift if self._holds(weights - lift) else None

    def _holds(self, weights: Array) -> bool:
        """Return whether weights are int8, and their sums fit into the loop's types."""
        if weights.min() < -128 or weights.max() > 127:
            return False
        if self.dot:
            return True

        pairs = (weights[i : i + 2] for i in range(0, len(weights), 2))
        return all(np.abs(pair).sum(0).max() <= MAX_PAIR for pair in pairs)

    def pack_slide(self, weights: Array) -> Array:
        """Return weights [9, BLOCK] as the slide loop reads them."""
        if not self.dot:
            return weights.astype(np.int8).reshape(-1)

        # sdot takes the three taps of a column, and a zero.
        columns = np.zeros((3, BLOCK, 4), np.int8)
        columns[:, :, :3] = weights.reshape(3, 3, BLOCK).transpose(1, 2, 0)
        return columns.reshape(-1)

    def pack_plain(self, weights: Array) -> Array:
        """Return weights [taps, BLOCK] as the plain loop reads them."""
        if self.dot:
            return weights.reshape(-1, 4, BLOCK).transpose(0, 2, 1).reshape(-1)

        return weights.reshape(-1)


NEON = Loops(
    "neon", frozenset({"neon"}), "neon/ek_dwconv2d_s8_neon.h", dot=False, rows=3
)
DOT = Loops(
    "dot", frozenset({"neon", "dotprod"}), "dot/ek_dwconv2d_s8_dot.h", dot=True, rows=4
)


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of channels.

    Attributes:
        start: its first output channel
        weights: int64 [taps, at most BLOCK], less their zero point
        tables: int32 [4, BLOCK], the requantization as the loop reads it
        lift: int64 [BLOCK], as `Loops.lift` returns it, for the slide loop
    """

    start: int
    weights: Array
    tables: Array
    lift: Array | None = None


@dataclass(frozen=True)
class _LoopBlocks:
    """The blocks of each loop."""

    slide: list[_Block]
    plain: list[_Block]
    other: list[_Block]

    @property
    def all(self) -> list[_Block]:
        """All blocks, in the order in which they are computed."""
        return [*self.slide, *self.plain, *self.other]


def _blocks(
    s: DepthwiseShape, w: Array, bias: Array, q: Requant, loops: Loops
) -> _LoopBlocks:
    """Return the blocks of a layer, each with the fastest loop that computes it exactly.

    w: [kh, kw, oc]. bias: [oc].
    """
    rows, bias, q = fold_constant_channels(w.reshape(-1, s.oc).T, bias, q)
    weights = rows.T.astype(np.int64) - q.w_zero
    bounds = accumulator_bounds(rows, bias, q)

    # The zero point of the image is folded into the bias.
    folded = wrap_int32(bias.astype(np.int64) - q.x_zero * weights.sum(0))

    blocks = _LoopBlocks([], [], [])
    for start in s.starts():
        part = slice(start, start + BLOCK)
        tables: list[Array] | None = None
        if s.dense or q.scale is not None:
            tables = _fast_tables(folded[part], q, part, bounds[part])

        if tables is None:
            exact = _lanes(_exact_tables(folded[part], q, part))
            blocks.other.append(_Block(start, weights[:, part], exact))
            continue

        block = _Block(start, weights[:, part], _lanes(tables))
        lift = loops.lift(block.weights) if s.slide else None
        if not s.dense:
            blocks.other.append(block)
        elif lift is not None:
            blocks.slide.append(replace(block, lift=lift))
        else:
            blocks.plain.append(block)

    return blocks


def _fast_tables(
    bias: Array, q: Requant, part: slice, bounds: Array
) -> list[Array] | None:
    """Return the tables of ek_half_neon for some channels, the bias first.

    None where its arithmetic in 32 bits is not exact. bounds: of the sums.
    """
    if q.scale is not None:
        scale = np.ascontiguousarray(q.scale[part]).view(np.int32)
        return [bias, scale, np.full_like(scale, q.y_zero), np.full_like(scale, 24)]

    _, multiplier, shift = _exact_tables(bias, q, part)
    return fast_tables(bias, replace(q, multiplier=multiplier, shift=shift), bounds)


def _exact_tables(bias: Array, q: Requant, part: slice) -> list[Array]:
    """Return the tables of TFLite's fixed point for some channels."""
    assert q.multiplier is not None
    assert q.shift is not None
    return [bias, q.multiplier[part], q.shift[part]]


def _lanes(tables: list[Array]) -> Array:
    """Return at most four tables of at most BLOCK numbers as int32 [4, BLOCK]."""
    lanes = np.zeros((4, BLOCK), np.int32)
    for i, table in enumerate(tables):
        lanes[i, : len(table)] = table

    return lanes


def depthwise_call(
    s: DepthwiseShape, w: Array, bias: Array, q: Requant, loops: Loops, columns: int = 0
) -> tuple[Kernel, Dwconv2dS8Params]:
    """Return the kernel for a layer, and its parameters.

    w: [kh, kw, oc]. bias: [oc]. columns: output columns that all channels pass before
    the next ones.
    """
    blocks = _blocks(s, w, bias, q, loops)
    by_taps = [*blocks.plain, *blocks.other]
    taps, tap_weights = _taps(s, by_taps, loops.taps_at_once)
    packed_taps: list[Array] = []
    for i, weights in enumerate(tap_weights):
        is_plain = i < len(blocks.plain)
        packed_taps.append(loops.pack_plain(weights) if is_plain else weights)

    packed_slide: list[Array] = []
    lifts: list[Array] = []
    for block in blocks.slide:
        assert block.lift is not None
        packed_slide.append(loops.pack_slide(block.weights - block.lift))
        lifts.append(block.lift)

    # Tables of starts and requantization are in the order of computation.
    starts = [block.start for block in blocks.all]
    tables = np.stack([block.tables for block in blocks.all])
    spread = _input_channels(s, [block.start for block in blocks.other])

    # The struct has no groups: each channel is one.
    sizes = asdict(s)
    del sizes["group_ic"]
    p = Dwconv2dS8Params(
        **sizes,
        columns=columns,
        slide=len(blocks.slide),
        plain=len(blocks.plain),
        any=len(blocks.other),
        taps=len(taps),
        at=Table(np.array(starts, np.int32), "at"),
        scale=Table(tables, "scale"),
        w=Table(_joined(packed_slide, np.int8), "w"),
        lift=Table(_joined(lifts, np.int8), "lift"),
        w_taps=Table(_joined(packed_taps, np.int8), "w"),
        tap=Table(_joined([taps], np.int32), "tap"),
        spread=Table(_joined(spread, np.uint8), "spread"),
        x_zero=q.x_zero,
        y_zero=q.y_zero,
        low=q.low,
        high=q.high,
    )
    return _kernel(s, blocks, q, loops), p


def _kernel(s: DepthwiseShape, blocks: _LoopBlocks, q: Requant, loops: Loops) -> Kernel:
    """Return the function that is made for the blocks and the requantization."""
    # Saturation to int8 is the clamp where the result begins with -128.
    is_saturated = (q.y_zero, q.low, q.high) == (-128, -128, 127)
    lifts = [block.lift for block in blocks.slide if block.lift is not None]
    has_lift = any(lift.any() for lift in lifts)

    parts = ["ek_dwconv2d_s8"]
    if blocks.slide:
        parts.append(s.slide)
    if q.scale is not None:
        parts.append("even")
    elif blocks.slide:
        if is_saturated:
            parts.append("saturate")
        if has_lift or blocks.plain or blocks.other:
            parts.append("lifted")

    symbol = "_".join((*parts, loops.suffix))
    return Kernel("dwconv2d", loops.header, symbol=symbol)


def _joined(parts: Sequence[Array], dtype: type) -> Array:
    """Return one array of all parts; one zero for none, as C has no empty arrays."""
    flat: list[Array] = [np.zeros(0, dtype)]
    for part in parts:
        flat.append(np.asarray(part, dtype).reshape(-1))

    joined = np.concatenate(flat)
    return joined if joined.size else np.zeros(1, dtype)


def _taps(
    s: DepthwiseShape, blocks: Sequence[_Block], at_once: int
) -> tuple[Array, list[Array]]:
    """Return the taps of the loops `plain` and `any`, and the weights of each block.

    A tap is row << 16 | column, the weights of a block are int8 [taps, BLOCK]. A tap
    comes again for the part of its weights that int8 does not hold, and with weights of
    0 up to a multiple of `at_once`.
    """
    if not blocks:
        return np.zeros(0, np.int32), []

    # [blocks, taps, BLOCK]
    missing = np.zeros((len(blocks), s.kh * s.kw, BLOCK), np.int64)
    for i, block in enumerate(blocks):
        missing[i, :, : block.weights.shape[1]] = block.weights

    # A tap is repeated for all blocks where one of them needs it.
    largest = np.abs(missing).max((0, 2))
    times = np.maximum(1, -(-largest // 127))
    taps = np.repeat(np.arange(s.kh * s.kw), times)
    taps = np.concatenate([taps, np.zeros(-len(taps) % at_once, np.int64)])

    weights = np.zeros((len(blocks), len(taps), BLOCK), np.int8)
    for i, tap in enumerate(taps):
        weights[:, i] = np.clip(missing[:, tap], -127, 127)
        missing[:, tap] -= weights[:, i]

    positions = (taps // s.kw) << 16 | taps % s.kw
    return positions.astype(np.int32), list(weights)


def _input_channels(s: DepthwiseShape, starts: Iterable[int]) -> list[Array]:
    """Return the input channel of each output channel of the blocks of the loop `any`.

    The loop loads BLOCK input channels, and the channels are counted from the first
    that it loads.
    """
    multiplier = s.oc // s.ic
    last_load = s.ic - min(s.ic, BLOCK)
    channels: list[Array] = []
    for start in starts:
        block = np.arange(start, start + BLOCK)
        outputs = np.minimum(block, s.oc - 1)
        inputs = outputs // multiplier

        first = min(start // multiplier, last_load)
        channels.append(inputs - first)

    return channels


def _shape(call: KernelCall) -> DepthwiseShape:
    """Return the sizes of the convolution."""
    return DepthwiseShape.of(call.struct(Conv2dParams))


def _schedules(loops: Loops, call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the numbers of columns that all channels pass before the next ones.

    The rows of the image for the best one take half of the first cache.
    """
    s = _shape(call)
    if constant(call.operands[1]) is None or constant(call.operands[2]) is None:
        return []

    fitting = max(core.l1 // 2 // (loops.rows * s.ic * s.sw), MIN_COLUMNS)
    shares = -(-s.ow // fitting)
    columns = -(-s.ow // shares)

    # Without sdot, windows come in pairs.
    columns += columns % 2
    candidates = dict.fromkeys((columns, max(columns // 2, 1), 2 * columns, s.ow))
    return [{"columns": n} for n in candidates]


def _apply(loops: Loops, call: KernelCall, schedule: Schedule) -> KernelCall:
    """Return the call with packed weights."""
    s = _shape(call)
    w = constant(call.operands[1])
    bias = constant(call.operands[2])
    assert w is not None
    assert bias is not None

    weights = w.reshape(s.kh, s.kw, s.oc)
    columns = schedule["columns"]
    kernel, p = depthwise_call(s, weights, bias, requant(call), loops, columns)

    # The addresses of the taps, and a row of zeros for padding.
    scratch = Scratch(8 * p.taps + max(s.ic, BLOCK))
    operands = (call.operands[0], call.operands[3], p, scratch)
    return KernelCall(kernel, (*operands, 0, 1))


def _variant(loops: Loops, of: Kernel) -> Variant:
    """Return the variant of a plain kernel by the loops of an instruction set."""
    return Variant(
        of,
        f"ek_dwconv2d_s8_{loops.suffix}",
        loops.isa,
        lambda call, core: _schedules(loops, call, core),
        lambda call, core, schedule: _apply(loops, call, schedule),
    )


VARIANTS = [_variant(loops, of) for loops in (DOT, NEON) for of in DEPTHWISE_S8]
