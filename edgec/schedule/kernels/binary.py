"""Elementwise ops of two broadcast operands, on rows of vectors.

The kernels of csrc/simd/ek_binary_simd.h walk over rows of the result, the innermost of
six loops, along which an operand moves by one element or stands still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import prod

import numpy as np

from edgec.ir import (
    Array,
    CStruct,
    Elementwise,
    Kernel,
    KernelCall,
    KernelRounding,
    Table,
    constant,
)
from edgec.ir.c_structs import (
    ActivationParams,
    BinaryF32Params,
    BroadcastParams,
    ExtremumS8Params,
    FixedPointProductParams,
    FixedPointSumParams,
    FixedPointSumS8Params,
    FloatSumParams,
    ProductS8Params,
    SumS8Params,
)
from edgec.ir.kernel import Operand
from edgec.ops.arithmetic import Maximum, Minimum, SquaredDifference
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.prelu import PRelu
from edgec.schedule.bytewise import fits_fixed_point, pairs, scaled_sum
from edgec.schedule.kernels.elementwise import (
    LUT_SIMD,
    OFFSET_SIMD,
    by_offset,
    by_table,
)
from edgec.schedule.simd import WHOLE, Rewrite, on_vectors, simd, vectorized
from edgec.schedule.variant import Variant

MIN_ROW = 16
"""Elements of a row, and of a vector of Neon, from which on vectors are worth their
beginning and end.
"""

LONG_ROW = 256
"""Elements of a row from which on joining it with others gains nothing."""

MAX_REPEATED = 512
"""Elements that several short rows may have together: EK_REPEATED."""

MAX_PRODUCT = 1 << 30
"""Products of two centred bytes must stay below this after a shift to the left."""

_HEADER = "simd/ek_binary_simd.h"
_SUM_SIMD = Kernel("sum", _HEADER, "s8", isa="simd")
_FIXED_POINT_SIMD = Kernel("law", _HEADER, "s8", isa="simd")

_ADD = Add.kernels.of("s8")
_SUB = Sub.kernels.of("s8")
_MUL = Mul.kernels.of("s8")
_ADD_EVEN = Add.kernels.of("s8", KernelRounding.EVEN)
_SUB_EVEN = Sub.kernels.of("s8", KernelRounding.EVEN)
_MUL_EVEN = Mul.kernels.of("s8", KernelRounding.EVEN)
_EXTREMA = (Maximum.kernels.of("s8"), Minimum.kernels.of("s8"))
_BYTES = (
    _ADD,
    _SUB,
    _MUL,
    _ADD_EVEN,
    _SUB_EVEN,
    _MUL_EVEN,
    *_EXTREMA,
    SquaredDifference.kernels.of("s8"),
    PRelu.kernels.of("s8"),
)
"""The plain kernels of bytes; with a constant operand each is a function of a byte."""


@dataclass(frozen=True)
class _ByteFunction:
    """An op whose other operand is one constant.

    Attributes:
        table: [256] the results for all bytes
        x, y: the operand that is not constant, and the result
        size: the number of elements
    """

    table: Array
    x: Operand
    y: Operand
    size: int


def _byte_function(call: KernelCall) -> _ByteFunction | None:
    """Return the op as a function of one operand.

    None where neither operand is a single constant, or the other is broadcast.
    """
    a, b, y = call.operands[:3]
    p = call.struct(BroadcastParams)
    sides = ((0, b, a, p.a), (1, a, b, p.b))
    for position, other, x, strides in sides:
        value = constant(other)
        if value is None or value.size != 1 or constant(x) is not None:
            continue

        if list(strides) != _dense_strides(p):
            return None

        # Row or column of the table of pairs, whose first entry is for -128.
        entry = int(value.item()) + 128
        table_of_pairs = pairs(call)
        table = table_of_pairs.take(entry, axis=1 - position)
        return _ByteFunction(table, x, y, prod(p.dim))

    return None


def _dense_strides(p: BroadcastParams) -> list[int]:
    """Return the strides of an operand that is not broadcast."""
    strides: list[int] = []
    for axis, size in enumerate(p.dim):
        strides.append(0 if size == 1 else prod(p.dim[axis + 1 :]))

    return strides


def _offset(call: KernelCall) -> KernelCall | None:
    """Return the call as an addition and a clamp of bytes."""
    f = _byte_function(call)
    return None if f is None else by_offset(f.table, f.x, f.y, f.size)


def _table(call: KernelCall) -> KernelCall | None:
    """Return the call as a look-up of bytes."""
    f = _byte_function(call)
    return None if f is None else by_table(f.table, f.x, f.y, f.size)


@dataclass(frozen=True)
class _BroadcastRows:
    """The operands as the kernels walk over them.

    Attributes:
        a, b: the operands
        nd: the loops, a row innermost
        repeat: how often a row of b is repeated in a row of `nd`
    """

    a: Operand
    b: Operand
    nd: BroadcastParams
    repeat: int = 1

    def call(self, kernel: Kernel, call: KernelCall, p: CStruct) -> KernelCall:
        """Return the call of a kernel with these operands."""
        return KernelCall.of(kernel, self.a, self.b, call.operands[2], p, *WHOLE)


def _rows(call: KernelCall) -> _BroadcastRows | None:
    """Return the rows of a call; None where they are too short, or not dense.

    Many short rows with the same b are joined to fewer long ones.
    """
    a, b = call.operands[:2]
    p = call.struct(BroadcastParams)
    is_dense = p.a[5] in (0, 1) and p.b[5] in (0, 1)
    if not is_dense or prod(p.dim) == 0:
        return None

    rows = prod(p.dim[:5])
    if rows == 1 or p.dim[5] >= LONG_ROW or not _repeats_b(p):
        is_long = rows == 1 or p.dim[5] >= MIN_ROW
        return _BroadcastRows(a, b, p) if is_long else None

    return _joined_rows(a, b, rows, p.dim[5])


def _repeats_b(p: BroadcastParams) -> bool:
    """Return whether all rows have the same b, and those of a follow each other."""
    return list(p.b) == [0, 0, 0, 0, 0, 1] and list(p.a) == _dense_strides(p)


def _joined_rows(a: Operand, b: Operand, rows: int, n: int) -> _BroadcastRows | None:
    """Return longer rows, each of as many rows of n elements as divide their number.

    A constant b is written repeatedly; the kernel repeats any other in a buffer.
    """
    times = 1
    for candidate in range(2, MAX_REPEATED // n + 1):
        if rows % candidate == 0:
            times = candidate
    if times * n < MIN_ROW:
        return None

    repeat = times
    values = constant(b)
    if values is not None:
        b = Table(np.tile(values.reshape(-1), times), "repeated")
        repeat = 1

    length = times * n
    nd = BroadcastParams(
        dim=[1, 1, 1, 1, rows // times, length],
        a=[0, 0, 0, 0, length, 1],
        b=[0, 0, 0, 0, 0, 1],
    )
    return _BroadcastRows(a, b, nd, repeat)


def _sum(call: KernelCall) -> KernelCall | None:
    """Return an int8 sum or difference by one multiplication for each operand."""
    rows = _rows(call)
    scaled = scaled_sum(call)
    if rows is None or scaled is None:
        return None

    bounds: FloatSumParams | FixedPointSumParams
    if call.kernel.rounding is KernelRounding.EVEN:
        bounds = call.struct(FloatSumParams)
    else:
        bounds = call.struct(FixedPointSumParams)

    p = SumS8Params(
        nd=rows.nd,
        repeat=rows.repeat,
        low=bounds.low,
        high=bounds.high,
        sum=scaled.parts(),
    )
    return rows.call(_SUM_SIMD, call, p)


def _fixed_point_sum(call: KernelCall) -> KernelCall | None:
    """Return an int8 sum or difference in TFLite's fixed point.

    It is slower than `_sum`, and takes what no scaled sum equals.
    """
    rows = _rows(call)
    if rows is None or not fits_fixed_point(call):
        return None

    p = FixedPointSumS8Params(
        nd=rows.nd,
        repeat=rows.repeat,
        **asdict(call.struct(FixedPointSumParams)),
        sign=-1 if call.kernel == _SUB else 1,
    )
    return rows.call(_FIXED_POINT_SIMD, call, p)


def _product(call: KernelCall) -> KernelCall | None:
    """Return an int8 product, where no intermediate number leaves 32 bits."""
    rows = _rows(call)
    p = call.struct(FixedPointProductParams)
    largest = 255 * 255 << max(0, p.shift)
    if rows is None or largest >= MAX_PRODUCT:
        return None

    params = ProductS8Params(nd=rows.nd, repeat=rows.repeat, **asdict(p))
    return rows.call(on_vectors(_MUL), call, params)


def _extremum(call: KernelCall) -> KernelCall | None:
    """Return a maximum or minimum of bytes, which has no scales."""
    rows = _rows(call)
    if rows is None:
        return None

    # The whole range of int8, as nothing is clamped.
    p = ExtremumS8Params(nd=rows.nd, repeat=rows.repeat, low=-128, high=127)
    kernel = on_vectors(call.kernel)
    return rows.call(kernel, call, p)


def _floats(call: KernelCall) -> KernelCall | None:
    """Return the call on rows of floats that all have the same b.

    For others the C compiler makes as good a loop of the plain kernel.
    """
    rows = _rows(call)
    if rows is None or (rows.repeat == 1 and not isinstance(rows.b, Table)):
        return None

    act = call.optional_struct(ActivationParams)
    p = BinaryF32Params(
        nd=rows.nd,
        repeat=rows.repeat,
        low=-math.inf if act is None else act.low,
        high=math.inf if act is None else act.high,
    )
    return rows.call(on_vectors(call.kernel), call, p)


def _variants(of: Iterable[Kernel], kernel: Kernel, rewrite: Rewrite) -> list[Variant]:
    """Return the variants of several plain kernels by one kernel."""
    variants: list[Variant] = []
    for plain in of:
        variants += simd(plain, kernel, rewrite)

    return variants


def _by_own_kernels(of: Sequence[Kernel], rewrite: Rewrite) -> list[Variant]:
    """Return the variants of plain kernels that each have a kernel for vectors."""
    variants: list[Variant] = []
    for plain in of:
        variants += simd(plain, on_vectors(plain), rewrite)

    return variants


VARIANTS: list[Variant] = [
    # From the fastest to the slowest: the first that takes a call is chosen.
    *_variants(_BYTES, OFFSET_SIMD, _offset),
    *_variants(_BYTES, LUT_SIMD, _table),
    *_variants((_ADD, _SUB, _ADD_EVEN, _SUB_EVEN), _SUM_SIMD, _sum),
    *_variants((_ADD, _SUB), _FIXED_POINT_SIMD, _fixed_point_sum),
    *_by_own_kernels([_MUL], _product),
    *_by_own_kernels(_EXTREMA, _extremum),
    *_by_own_kernels(vectorized(Elementwise.BINARY), _floats),
]
