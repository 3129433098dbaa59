"""Packed weights of int8 GEMM: panels of NR output channels.

A panel holds the requantization tables of its channels and then their weights, in the
order in which the tile of an ISA reads them. Padded pixels hold the input's zero point,
and the bias absorbs it: with x' = x - x_zero and w' = w - w_zero,

    sum(x' w') + bias = sum(x w') + (bias - x_zero * sum(w'))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import multiply_by_quantized_multiplier
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.windows import GemmS8Shape

FAST = "EK_GEMM_FAST"
"""Requantization as the tile computes it; `GemmTileSet.tables` proves it exact."""
LAW = "EK_GEMM_LAW"
"""Requantization by TFLite's fixed-point multiplier (gemmlowp), for any shift."""
SCALE = "EK_GEMM_SCALE"
"""Requantization by a double scale, rounded once with ties away from zero."""
EVEN = "EK_GEMM_EVEN"
"""Requantization by a float scale, rounded half to even, as onnxruntime does."""

LINE = 64
"""Bytes of a cache line, of which a panel takes whole ones."""

GATHERED = 16
"""The most bytes of a row of a window that is gathered; one vector load copies them."""

HEAD_BYTES = 16
"""Bytes of a panel's tables for each channel."""

MIN_GATHER_SAVING = 1.15
"""Windows are gathered if padding each tap takes this many times the bytes."""

MAX_RIGHT_SHIFT = 23
"""The largest right shift of the fast requantization."""


@dataclass(frozen=True)
class Requant:
    """How int32 sums become int8.

    Attributes:
        x_zero: zero point of the input
        w_zero: zero point of the weights
        y_zero: zero point of the result
        low: lower end of the clamp
        high: upper end of the clamp
        multiplier: int32 [o], with `shift`: a fixed-point multiplier for each channel
        shift: int32 [o], positive to the left
        scale: [o] in place of multipliers: float64 (SCALE) or float32 (EVEN)
    """

    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None

    @property
    def plain(self) -> bool:
        """Whether saturation to int8 is the clamp, and the zero point the least result.

        Then negative sums give -128 however they are rounded. Only for multipliers.
        """
        bounds = (self.low, self.high, self.y_zero)
        return self.scale is None and bounds == (-128, 127, -128)


@dataclass(frozen=True)
class GemmTile:
    """A register tile of MR windows times NR channels.

    Attributes:
        mr: windows (MR)
        nr: channels (NR)
        unit: elements that runs are padded to a multiple of (KR)
        fixed: cycles of a tile besides its products
        window: cycles of each window besides its products
        element: bytes of an input element as the tile reads it
        converts: whether rows pass through ek_gemm_s8_load_t first
        depth: the only K that the tile computes, as one run, for a multiple of nr
            channels and plain requantization; 0: any
    """

    mr: int
    nr: int
    unit: int
    fixed: float
    window: float
    element: int = 1
    converts: bool = False
    depth: int = 0

    def padded(self, run: int) -> int:
        """Return the number of elements that are read of a run."""
        return -(-run // self.unit) * self.unit

    def gathers(self, c: GemmS8Shape) -> bool:
        """Return whether windows are copied to one run each before the product.

        That pays for windows with few bytes in a row, such as those of an RGB image,
        since each row would be padded to a multiple of `unit`.
        """
        taps, run = c.taps
        is_one_run_a_row = taps == c.kh > 1
        is_short = run * self.element <= GATHERED
        is_plain = c.groups == 1 and not c.phase and c.phases is None

        if not (is_one_run_a_row and is_short and is_plain):
            return False

        apart = taps * self.padded(run)
        together = self.padded(taps * run)
        return apart > MIN_GATHER_SAVING * together

    def runs(self, c: GemmS8Shape) -> tuple[int, int]:
        """Return the pointers of a window and the elements behind each."""
        taps, run = c.taps
        return (1, taps * run) if self.gathers(c) else (taps, run)


def _accepts_all(c: GemmS8Shape, q: Requant, core: Core) -> bool:
    """Accept every shape, requantization and core."""
    return True


@dataclass(frozen=True)
class GemmTileSet:
    """The tiles of an ISA.

    Their functions are named ek_gemm_s8_m<mr>[n<nr>][k<depth>][z][x]_<suffix>: n where
    the tiles differ in width, k for tiles of one depth, z for weights with a zero
    point, x for EK_GEMM_EVEN.

    Attributes:
        suffix: end of the functions' names
        isa: features that a core needs
        tiles: the tiles
        pack_weights: packs int8 [panels, nr, taps, run] to [panels, ...] of any type
        tables: returns int32 tables [o], the bias first, from the bias [o], the
            requantization and the largest |sum| of each channel [o]; None where the
            fast requantization would not be exact
        zero: the tiles for weights with a zero point; empty where they are the same
        wide: whether `pack_weights` takes int16 less the zero point, so that the tiles
            need not know it
        offset: what ek_gemm_s8_load_t adds to the input's elements
        apart: whether EK_GEMM_EVEN has functions of its own
        accepts: whether the tiles are meant for a shape, requantization and core
    """

    suffix: str
    header: str
    isa: frozenset[str]
    tiles: tuple[GemmTile, ...]
    pack_weights: Callable[[Array], Array]
    tables: Callable[[Array, Requant, Array], list[Array] | None]
    zero: tuple[GemmTile, ...] = ()
    wide: bool = False
    offset: int = 0
    apart: bool = False
    accepts: Callable[[GemmS8Shape, Requant, Core], bool] = _accepts_all

    def usable(self, q: Requant) -> tuple[GemmTile, ...]:
        """Return the tiles that can compute a requantization."""
        tiles = self.tiles
        if q.w_zero and self.zero:
            tiles = self.zero
        if q.plain:
            return tiles

        # Tiles of one depth leave the clamp to saturation.
        return tuple(t for t in tiles if not t.depth)

    def function(self, tile: GemmTile, w_zero: int, finish: str) -> str:
        """Return the name of a tile's C function."""
        has_widths = len({t.nr for t in self.tiles}) > 1
        has_own_even = self.apart and finish == EVEN
        # The functions for EK_GEMM_EVEN take any depth.
        has_own_depth = tile.depth > 0 and not has_own_even
        has_own_zero = w_zero != 0 and not self.wide

        width = f"n{tile.nr}" if has_widths else ""
        depth = f"k{tile.depth}" if has_own_depth else ""
        zero = "z" if has_own_zero else ""
        even = "x" if has_own_even else ""
        return f"ek_gemm_s8_m{tile.mr}{width}{depth}{zero}{even}_{self.suffix}"


@dataclass(frozen=True)
class Panels:
    """The packed panels of a layer.

    Attributes:
        array: int64 [panels, bytes / 8], with the panels of all phases and groups one
            after the other
        finish: the requantization, EK_GEMM_*
    """

    array: Array
    finish: str

    @property
    def bytes(self) -> int:
        """The size of one panel in bytes."""
        return int(self.array.shape[1]) * 8


def pack(
    c: GemmS8Shape,
    w: Array,
    bias: Array,
    q: Requant,
    tiles: GemmTileSet,
    tile: GemmTile,
) -> Panels:
    """Pack int8 weights [o, kh, kw, depth] and an int32 bias [o] for a tile."""
    w, bias, q = fold_constant_channels(w, bias, q)
    bound = accumulator_bounds(w, bias, q)

    blocks: list[Array] = []
    finish = FAST
    phases = _phase_weights(c, w, q.w_zero)
    for part, weights in zip(c.parts(), phases, strict=True):
        packed = _pack_weights(part, weights, q, tiles, tile)

        # Each phase has other taps, hence another sum of weights in its bias.
        flat = weights.reshape(c.oc, -1).astype(np.int64)
        weight_sums = (flat - q.w_zero).sum(1)
        zero = q.x_zero + tiles.offset
        folded = wrap_int32(bias.astype(np.int64) - zero * weight_sums)

        finish, tables = _tables(folded, q, bound, tiles)
        head = _head(c, tables, tile)
        blocks.append(np.concatenate([head, packed], 1))

    # All panels have the size of the largest, so that their addresses are a product.
    largest = max(b.shape[1] for b in blocks)
    size = -(-largest // LINE) * LINE
    padded: list[Array] = []
    for block in blocks:
        missing = size - block.shape[1]
        padded.append(np.pad(block, ((0, 0), (0, missing))))

    # As int64 the array is aligned to 8 bytes in C, too.
    array = np.concatenate(padded).view(np.int64)
    return Panels(array, finish)


def _head(c: GemmS8Shape, tables: list[Array], tile: GemmTile) -> Array:
    """Return tables [o] as the bytes before each panel's weights, [panels, 16 nr]."""
    columns: list[Array] = []
    for table in tables:
        by_group = table.reshape(c.groups, -1)
        by_panel = _pad_to_panels(by_group, tile.nr, 0)
        columns.append(by_panel.reshape(-1, tile.nr).view(np.int8))
    head = np.concatenate(columns, 1)

    # Weights begin at one offset, whatever tables the requantization has.
    missing = HEAD_BYTES * tile.nr - head.shape[1]
    return np.pad(head, ((0, 0), (0, missing)))


def _pack_weights(
    part: GemmS8Shape, w: Array, q: Requant, tiles: GemmTileSet, tile: GemmTile
) -> Array:
    """Return the bytes [panels, ...] of the weights of one phase."""
    taps, run = tile.runs(part)
    channels = part.oc // part.groups
    shape = (part.groups, channels, taps, tile.padded(run))

    # Weights behind the run and in added channels equal the zero point: they add
    # nothing to a sum, whatever the tile reads there.
    rows = np.full(shape, q.w_zero, np.int8)
    rows[..., :run] = w.reshape(*shape[:3], run)
    by_panel = _pad_to_panels(rows, tile.nr, q.w_zero)
    panels = by_panel.reshape(-1, tile.nr, *shape[2:])

    if tiles.wide:
        # The difference of two int8 has nine bits.
        panels = panels.astype(np.int16) - np.int16(q.w_zero)

    packed = np.ascontiguousarray(tiles.pack_weights(panels))
    return packed.reshape(len(packed), -1).view(np.int8)


def _phase_weights(c: GemmS8Shape, w: Array, w_zero: int) -> list[Array]:
    """Return the weights of each part of a shape, in the order of `c.parts()`."""
    if c.phases is None:
        return [w]
    sh, sw = c.phases
    kh = -(-c.kh // sh) * sh
    kw = -(-c.kw // sw) * sw

    # Phases have one size; the taps that some lack add nothing to a sum.
    shape = (c.oc, kh, kw, c.depth)
    padded = np.full(shape, w_zero, np.int8)
    padded[:, : c.kh, : c.kw] = w

    weights: list[Array] = []
    for a in range(sh):
        for b in range(sw):
            first_row = (a + c.pt) % sh
            first_column = (b + c.pl) % sw
            taps = padded[:, first_row::sh, first_column::sw]

            # A transposed convolution meets the taps of its kernel backwards.
            weights.append(taps[:, ::-1, ::-1])
    return weights


def _pad_to_panels(rows: Array, nr: int, fill: int) -> Array:
    """Return [groups, channels, ...] with channels padded to a multiple of nr."""
    missing = -rows.shape[1] % nr
    pads = [(0, 0)] * rows.ndim
    pads[1] = (0, missing)
    padded = np.pad(rows, pads, constant_values=fill)

    # The packing of an ISA reshapes the array, without a copy where it can.
    return np.ascontiguousarray(padded)


def accumulator_bounds(w: Array, bias: Array, q: Requant) -> Array:
    """Return the largest magnitude of each channel's sum, int64 [o].

    That is sum(|w - w_zero|) max|x - x_zero| + |bias|, for weights [o, ...].
    """
    flat = w.reshape(w.shape[0], -1).astype(np.int64)
    weights = flat - q.w_zero

    # Either end of int8 may be further from the zero point.
    largest_input = max(127 - q.x_zero, q.x_zero + 128)
    products = np.abs(weights).sum(1) * largest_input
    bound: Array = products + np.abs(bias.astype(np.int64))
    return bound


def fold_constant_channels(
    w: Array, bias: Array, q: Requant
) -> tuple[Array, Array, Requant]:
    """Give channels whose result no input changes weights that add nothing.

    Dead channels may have a bias of 2^30 and a multiplier of 2^-27, which would bar a
    whole layer from the fast requantization. Such a channel always gives one result r;
    weights w_zero, bias 4 r, multiplier 2^30 and shift -1 give r, too:
    4 r * 2^30 / 2^31 / 2 = r.

    Args:
        w: int8 weights [o, ...]
        bias: int32 [o]
        q: the requantization; returned as it is if it has no multipliers

    Returns:
        weights, bias and requantization with the same results
    """
    if q.multiplier is None or q.shift is None:
        return w, bias, q
    ends = _sum_ends(w, bias, q)
    if any((np.abs(end) >= 1 << 31).any() for end in ends):
        return w, bias, q

    # Requantization is monotonic: equal results at both ends are equal everywhere.
    results: list[Array] = []
    for end in ends:
        product = multiply_by_quantized_multiplier(
            end.astype(np.int32), q.multiplier, q.shift
        )
        results.append(np.clip(product, q.low - q.y_zero, q.high - q.y_zero))
    least, largest = results

    # Beyond this bound the left shift wraps, and nothing is monotonic.
    left_shift = np.clip(q.shift.astype(np.int64), 0, 31)
    fits = np.maximum(*np.abs(ends)) < np.int64(1) << 31 - left_shift
    is_constant = (least == largest) & fits

    by_channel = is_constant.reshape(-1, *[1] * (w.ndim - 1))
    weights = np.where(by_channel, np.int8(q.w_zero), w)
    multiplier = np.where(is_constant, 1 << 30, q.multiplier).astype(np.int32)
    shift = np.where(is_constant, -1, q.shift).astype(np.int32)
    biases = np.where(is_constant, 4 * least, bias).astype(np.int32)
    return weights, biases, replace(q, multiplier=multiplier, shift=shift)


def _sum_ends(w: Array, bias: Array, q: Requant) -> list[Array]:
    """Return the least and the largest sum of each channel, int64 [o] each."""
    # The bias does not vary, so only the products span a range.
    no_bias = np.zeros_like(bias)
    span = accumulator_bounds(w, no_bias, q)

    middle = bias.astype(np.int64)
    least = middle - span
    largest = middle + span
    return [least, largest]


def right_shifts(
    q: Requant, bound: Array, least: int = 1
) -> tuple[Array, Array] | None:
    """Return multipliers and right shifts with the results of `q`, int32 [o] each.

    Channels that always give y_zero get multiplier 0 and shift 1.

    Args:
        q: a requantization with multipliers
        bound: the largest magnitude of each channel's sum [o]
        least: the least shift that the caller's instructions can do

    Returns:
        None if a shift is not from `least` to `MAX_RIGHT_SHIFT`
    """
    assert q.multiplier is not None
    assert q.shift is not None
    multiplier = q.multiplier.astype(np.int64)
    right = -q.shift.astype(np.int64)

    # The doubling high product, rounded: |sum| multiplier / 2^31 + 1 at most. Where it
    # is less than half of the shift's unit, the result rounds to zero.
    high_product = (np.minimum(bound, 1 << 31) * multiplier >> 31) + 1
    half_unit = np.int64(1) << np.clip(right - 1, 0, 62)
    is_dead = (multiplier == 0) | ((right > 0) & (high_product < half_unit))

    multiplier = np.where(is_dead, 0, multiplier)
    right = np.where(is_dead, 1, right)
    if ((right < least) | (right > MAX_RIGHT_SHIFT)).any():
        return None
    return multiplier.astype(np.int32), right.astype(np.int32)


def wrap_int32(sums: Array) -> Array:
    """Return int64 sums as int32 modulo 2^32, as C adds them."""
    return sums.astype(np.uint64).astype(np.uint32).view(np.int32)


def _tables(
    bias: Array, q: Requant, bound: Array, tiles: GemmTileSet
) -> tuple[str, list[Array]]:
    """Return the requantization of a layer, EK_GEMM_*, and its tables [o]."""
    if q.scale is not None:
        if q.scale.dtype == np.float32:
            # The tile adds the zero point as a vector, together with the rounding.
            zeros = np.full_like(bias, q.y_zero)
            return EVEN, [bias, q.scale, zeros]
        return SCALE, [bias, q.scale]

    fast = tiles.tables(bias, q, bound)
    if fast is not None:
        return FAST, fast

    assert q.multiplier is not None
    assert q.shift is not None
    multiplier = q.multiplier.astype(np.int32)
    shift = q.shift.astype(np.int32)
    return LAW, [bias, multiplier, shift]
