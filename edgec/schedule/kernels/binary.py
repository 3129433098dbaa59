"""Elementwise ops of two broadcast inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import (
    Array,
    Elementwise,
    Kernel,
    KernelCall,
    KernelRounding,
    Struct,
    Table,
    constant,
)
from edgec.ir.kernel import Operand
from edgec.ops.arithmetic import Maximum, Minimum, SquaredDifference
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.prelu import PRelu
from edgec.schedule.bytewise import no_overflow, pairs, scaled_sum
from edgec.schedule.kernels.elementwise import (
    LUT_SIMD,
    OFFSET_SIMD,
    by_offset,
    by_table,
)
from edgec.schedule.simd import WHOLE, on_vectors, simd, vectorized
from edgec.schedule.variant import Variant

_SHORTEST = 16
"""Elements of a row (and of a vector of Neon) from which on vectors are worth their
beginning and end.
"""
_REPEATED = 256
"""Elements of a row from which on it is long."""
_MOST_REPEATED = 512
"""EK_REPEATED: elements that several short rows may have together."""
_NO_OVERFLOW = 1 << 30

_ADD = Add.kernels.of("s8")
_SUB = Sub.kernels.of("s8")
_MUL = Mul.kernels.of("s8")
_ADD_EVEN = Add.kernels.of("s8", KernelRounding.EVEN)
_SUB_EVEN = Sub.kernels.of("s8", KernelRounding.EVEN)
_EXTREMA = (Maximum.kernels.of("s8"), Minimum.kernels.of("s8"))
_BYTES = (
    _ADD,
    _SUB,
    _MUL,
    _ADD_EVEN,
    _SUB_EVEN,
    Mul.kernels.of("s8", KernelRounding.EVEN),
    *_EXTREMA,
    SquaredDifference.kernels.of("s8"),
    PRelu.kernels.of("s8"),
)

_HEADER = "simd/ek_binary_simd.h"
_SUM_SIMD = Kernel("sum", _HEADER, "s8", isa="simd")
_LAW_SIMD = Kernel("law", _HEADER, "s8", isa="simd")
_MUL_SIMD = on_vectors(_MUL)


def _dims(call: KernelCall, name: str) -> list[int]:
    sizes = call.struct("ek_nd_t").fields[name]
    assert isinstance(sizes, Sequence)
    return [int(n) for n in sizes]


def _one_constant(call: KernelCall) -> tuple[Array, Operand, Operand, int] | None:
    """Where one input is a single constant: the table of the function of the other,
    that one, the output, its size.
    """
    a, b, y = call.operands[:3]
    for place, (other, x) in enumerate(((b, a), (a, b))):
        const = constant(other)
        if const is not None and const.size == 1 and constant(x) is None:
            table = pairs(call).take(int(const.item()) + 128, 1 - place)
            size = prod(_dims(call, "dim"))
            if _dims(call, "ab"[place]) == _dense(call):
                return (table, x, y, size)
            return None
    return None


def _dense(call: KernelCall) -> list[int]:
    """The strides of an input that is not broadcast."""
    dims = _dims(call, "dim")
    return [0 if d == 1 else prod(dims[i + 1 :]) for i, d in enumerate(dims)]


def _offset(call: KernelCall) -> KernelCall | None:
    found = _one_constant(call)
    return by_offset(*found) if found else None


def _table(call: KernelCall) -> KernelCall | None:
    found = _one_constant(call)
    return by_table(*found) if found else None


@dataclass(frozen=True)
class _BroadcastRows:
    """The inputs, and the fields nd and repeat, as the vectors walk them."""

    a: Operand
    b: Operand
    dims: dict[str, object]


def _rows(call: KernelCall) -> _BroadcastRows | None:
    """None where rows are too short or not dense.

    Many short rows with the same b become fewer long ones.

    Then a constant b is written repeatedly; another is repeated by the kernel.
    """
    a, b = call.operands[:2]
    dim, sa, sb = (_dims(call, k) for k in ("dim", "a", "b"))
    if not {sa[5], sb[5]} <= {0, 1} or prod(dim) == 0:
        return None
    rows = prod(dim[:5])
    n = dim[5]
    if rows == 1 or n >= _REPEATED or sb != [0] * 5 + [1] or sa != _dense(call):
        if rows == 1 or n >= _SHORTEST:
            return _BroadcastRows(a, b, {"nd": (dim, sa, sb), "repeat": 1})
        return None
    times = max(
        (t for t in range(1, _MOST_REPEATED // n + 1) if rows % t == 0), default=1
    )
    if times * n < _SHORTEST:
        return None
    const = constant(b)
    if const is not None:
        b = Table(np.tile(const.reshape(-1), times), "repeated")
    rows = rows // times
    n = times * n
    nd = ([1, 1, 1, 1, rows, n], [0, 0, 0, 0, n, 1], [0, 0, 0, 0, 0, 1])
    return _BroadcastRows(a, b, {"nd": nd, "repeat": times if const is None else 1})


def _sum(call: KernelCall) -> KernelCall | None:
    rows = _rows(call)
    found = scaled_sum(call)
    if rows is None or found is None:
        return None
    q = call.struct(
        "ek_linear_t" if call.kernel.rounding is KernelRounding.EVEN else "ek_add_t"
    ).fields
    spec = Struct(
        "ek_sum_s8_t", **rows.dims, low=q["low"], high=q["high"], sum=found.parts()
    )
    return KernelCall.of(_SUM_SIMD, rows.a, rows.b, call.operands[2], spec, *WHOLE)


def _law(call: KernelCall) -> KernelCall | None:
    """Where there is no scaled sum."""
    rows = _rows(call)
    if rows is None or not no_overflow(call):
        return None
    sign = -1 if call.kernel == _SUB else 1
    spec = Struct(
        "ek_law_s8_t", **rows.dims, **call.struct("ek_add_t").fields, sign=sign
    )
    return KernelCall.of(_LAW_SIMD, rows.a, rows.b, call.operands[2], spec, *WHOLE)


def _product(call: KernelCall) -> KernelCall | None:
    rows = _rows(call)
    q = call.struct("ek_mul_t")
    if rows is None or 255 * 255 << max(0, q.number("shift")) >= _NO_OVERFLOW:
        return None
    spec = Struct("ek_product_s8_t", **rows.dims, **q.fields)
    return KernelCall.of(_MUL_SIMD, rows.a, rows.b, call.operands[2], spec, *WHOLE)


def _extremum(call: KernelCall) -> KernelCall | None:
    rows = _rows(call)
    if rows is None:
        return None
    spec = Struct("ek_extremum_s8_t", **rows.dims, low=-128, high=127)
    return KernelCall.of(
        on_vectors(call.kernel), rows.a, rows.b, call.operands[2], spec, *WHOLE
    )


def _floats(call: KernelCall) -> KernelCall | None:
    """Rows of floats with the same b; of others the C compiler makes as good a loop."""
    rows = _rows(call)
    if rows is None or (rows.dims["repeat"] == 1 and not isinstance(rows.b, Table)):
        return None
    if len(call.operands) > 4:
        act = call.struct("ek_act_f32_t").fields
    else:
        act = {"low": -math.inf, "high": math.inf}
    spec = Struct("ek_binary_f32_t", **rows.dims, low=act["low"], high=act["high"])
    return KernelCall.of(
        on_vectors(call.kernel), rows.a, rows.b, call.operands[2], spec, *WHOLE
    )


VARIANTS: list[Variant] = [
    *(v for of in _BYTES for v in simd(of, OFFSET_SIMD, _offset)),
    *(v for of in _BYTES for v in simd(of, LUT_SIMD, _table)),
    *(
        v
        for of in (_ADD, _SUB, _ADD_EVEN, _SUB_EVEN)
        for v in simd(of, _SUM_SIMD, _sum)
    ),
    *(v for of in (_ADD, _SUB) for v in simd(of, _LAW_SIMD, _law)),
    *simd(_MUL, _MUL_SIMD, _product),
    *(v for of in _EXTREMA for v in simd(of, on_vectors(of), _extremum)),
    *(
        v
        for of in vectorized(Elementwise.BINARY)
        for v in simd(of, on_vectors(of), _floats)
    ),
]
