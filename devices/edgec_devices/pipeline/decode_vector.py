"""A64 floating point and Advanced SIMD to Insn.

A kind ends in `_q` when the operation is on 128 bits.  Scalar forms count as 64-bit
vectors.
"""

from __future__ import annotations

from edgec_devices.pipeline.insn import (
    FLAGS,
    UNKNOWN,
    Insn,
    bit,
    field,
    general,
    vector,
)

_THREE_SAME = {
    **dict.fromkeys(
        (
            0b00000,
            0b00010,
            0b00100,
            0b00110,
            0b00111,
            0b10000,
            0b10001,
            0b01110,
            0b10111,
        ),
        "v_int",
    ),
    **dict.fromkeys((0b01100, 0b01101, 0b10100, 0b10101), "v_minmax"),
    **dict.fromkeys((0b00001, 0b00101), "v_saturating"),
    0b00011: "v_logic",
    0b01000: "v_shift_by_register",
    **dict.fromkeys((0b01001, 0b01010, 0b01011), "v_shift_round_by_register"),
    0b01111: "v_abd_acc",
    0b10010: "v_mla",
    0b10011: "v_mul",
    0b10110: "v_mul",
}
"""Integer operations on two vectors of one shape, by opcode."""

_THREE_SAME_FLOAT = {
    0b11000: "fp_minmax",
    0b11001: "fp_fma",
    0b11010: "fp_add",
    0b11011: "fp_mul",
    0b11100: "fp_compare",
    0b11101: "fp_compare",
    0b11110: "fp_minmax",
    0b11111: "fp_fma",  # frecps, frsqrts: a multiplication and an addition
}

_THREE_DIFFERENT = {
    **dict.fromkeys((0, 1, 2, 3, 7), "v_int"),
    **dict.fromkeys((4, 6), "v_narrow"),
    5: "v_abd_acc",
    **dict.fromkeys((8, 9, 10, 11), "v_mla_long"),
    **dict.fromkeys((12, 13, 14), "v_mul_long"),
}
"""Operations whose result is wider or narrower than their sources."""

_ONE_SOURCE = {
    **dict.fromkeys((0, 1, 4, 5), "v_permute"),  # rev, cls, clz, cnt, not, rbit
    2: "v_pair_long",
    6: "v_pair_acc",
    **dict.fromkeys((3, 7), "v_saturating"),
    **dict.fromkeys((8, 9, 10, 11), "v_int"),
    **dict.fromkeys((12, 13, 14), "fp_compare"),
    15: "fp_sign",
    18: "v_narrow",
    19: "v_shift",
    20: "v_narrow_saturating",
    **dict.fromkeys((22, 23), "fp_resize"),
    **dict.fromkeys((24, 25), "fp_round"),
    **dict.fromkeys((26, 27, 28, 29), "fp_convert"),
    **dict.fromkeys((30, 31), "fp_round"),
}

_SHIFTS = {
    **dict.fromkeys((0, 10, 8), "v_shift"),
    **dict.fromkeys((2, 6), "v_shift_acc"),
    **dict.fromkeys((4, 12, 14), "v_shift_round"),
    20: "v_shift",
    **dict.fromkeys((28, 31), "fp_convert"),
}

_ELEMENT = {
    **dict.fromkeys((0, 4), "v_mla"),
    **dict.fromkeys((2, 3, 6, 7), "v_mla_long"),
    **dict.fromkeys((8, 12, 13), "v_mul"),
    **dict.fromkeys((10, 11), "v_mul_long"),
    **dict.fromkeys((1, 5), "fp_fma"),
    9: "fp_mul",
    14: "v_dot",
}
"""Operations of a vector with one element of another."""

_SLOWER_IF_DOUBLE = ("fp_div", "fp_sqrt", "fp_convert", "fp_resize", "fp_round")
"""On vectors too, the time of these depends on the elements: the kind gets `_64` for
those of 64 bits.
"""

_ACCUMULATING = ("fp_fma", "v_mla", "v_mla_long", "v_abd_acc", "v_dot")
_TWO_SOURCES = ("fp_mul", "fp_div", "fp_add", "fp_add", *("fp_minmax",) * 4, "fp_mul")


def _insn(kind: str, q: bool, rd: int, *sources: int, keeps: bool = False) -> Insn:
    """Return the instruction that writes a vector.

    q: whether it is on 128 bits.
    keeps: part of the destination stays, so it is read as well.
    """
    reads = [*sources]
    if keeps:
        reads.append(rd)
    return Insn(_sized_kind(kind, q), vector(*reads), vector(rd))


def _sized_kind(kind: str, q: bool) -> str:
    """Return the kind with `_q` for 128 bits."""
    return f"{kind}_q" if q else kind


def scalar_float(word: int) -> Insn:
    """A word whose bits 30, 28 to 25 are 0 1111: floating point on one number, and
    conversions.
    """
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)

    # fmadd and its like
    if bit(word, 24):
        addend = field(word, 10, 5)
        return Insn("fp_fma", vector(rn, rm), vector(rd), vector(addend))

    # The lowest set bit of the opcode tells the group.
    if not bit(word, 21) or field(word, 10, 6) == 0:
        return _to_or_from_general(word)
    if field(word, 10, 5) == 0b10000:
        return _scalar_one_source(word)
    if field(word, 10, 4) == 0b1000:
        return _scalar_compare(word)
    if field(word, 10, 3) == 0b100:
        return Insn("v_move", (), vector(rd))

    last = field(word, 10, 2)
    if last == 1:  # fccmp
        return Insn("fp_compare_flags", (*vector(rn, rm), FLAGS), (FLAGS,))
    if last == 3:
        return Insn("fp_select", (*vector(rn, rm), FLAGS), vector(rd))
    return _scalar_two_sources(word)


def _scalar_one_source(word: int) -> Insn:
    """Return fmov, fabs, fneg, fsqrt, fcvt or frint on one number."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 15, 6)

    if op < 3:
        kind = "fp_sign"
    elif op == 3:
        kind = "fp_sqrt" + _scalar_width(word)
    elif op < 8:
        kind = "fp_resize"
    else:
        kind = "fp_round"
    return _insn(kind, False, rd, rn)


def _scalar_compare(word: int) -> Insn:
    """Return fcmp, which writes the flags."""
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)

    sources = vector(rn, rm)
    with_zero = bit(word, 3)
    if with_zero:
        sources = vector(rn)
    return Insn("fp_compare_flags", sources, (FLAGS,))


def _scalar_two_sources(word: int) -> Insn:
    """Return an addition, a product, a quotient, or the like, of two numbers."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 12, 4)

    kind = UNKNOWN
    if op < len(_TWO_SOURCES):
        kind = _TWO_SOURCES[op]
    # Of these only the time of a division depends on the width.
    if kind == "fp_div":
        kind += _scalar_width(word)
    return _insn(kind, False, rd, rn, rm)


def _scalar_width(word: int) -> str:
    """Return the suffix of the kinds of double precision."""
    precision = field(word, 22, 2)
    return "_64" if precision == 1 else ""


def _to_or_from_general(word: int) -> Insn:
    """Return a move or conversion between a vector and a general register."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 16, 3)
    fixed_point = not bit(word, 21)

    # fmov
    if op == 7 and not fixed_point:
        return Insn("general_to_v", general(rn), vector(rd))
    if op == 6 and not fixed_point:
        return Insn("v_to_general", vector(rn), general(rd))

    # scvtf, ucvtf
    if op in (2, 3):
        return Insn("convert_from_general", general(rn), vector(rd))
    return Insn("convert_to_general", vector(rn), general(rd))


def vector_op(word: int) -> Insn:
    """A word of the Advanced SIMD group."""
    if bit(word, 31):
        return Insn(UNKNOWN)
    scalar = bit(word, 28)
    q = bit(word, 30) and not scalar

    # Bits 24, 21 and 15, then the lowest ones of the opcode, tell the table.
    low = field(word, 10, 2)
    odd = bool(low & 1)
    if bit(word, 24):
        return _immediate(word, q) if odd else _by_element(word, q)
    if bit(word, 21):
        if odd:
            return _three_same(word, q)
        if low == 0:
            return _three_different(word, q)
        return _one_source(word, q)

    if bit(word, 15):
        return _dot_or_extra(word, q)
    if not odd:
        return _permute(word, q)
    if bit(word, 22):
        return _three_same_half(word, q)
    return _copy(word, q)


def _by_elements(kind: str, word: int) -> str:
    """Return the kind with `_64` where the time depends on the width of elements."""
    double = bit(word, 22)
    if double and kind in _SLOWER_IF_DOUBLE:
        return f"{kind}_64"
    return kind


def _accumulating(kind: str, q: bool, rd: int, *sources: int) -> Insn:
    """Return an instruction that adds to its destination.

    The destination is read late: cores forward an accumulator from one to the next.
    """
    accumulator = vector(rd)
    kind = _sized_kind(kind, q)
    return Insn(kind, vector(*sources), accumulator, accumulator)


def _three_same(word: int, q: bool) -> Insn:
    """Return an operation on two vectors of one shape."""
    op = field(word, 11, 5)
    if op >= 0b11000:
        return _three_same_float(word, q, op)

    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    kind = _THREE_SAME.get(op, UNKNOWN)
    if kind == "v_logic":
        return _logic(word, q)
    if kind in _ACCUMULATING:
        return _accumulating(kind, q, rd, rn, rm)
    return _insn(kind, q, rd, rn, rm)


def _three_same_float(word: int, q: bool, op: int) -> Insn:
    """Return a floating point operation on two vectors of one shape."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    other = bit(word, 29)
    second = bit(word, 23)

    if op == 0b11111 and other:
        kind = _by_elements("fp_div", word)
        return _insn(kind, q, rd, rn, rm)
    if op == 0b11010 and other and not second:
        return _insn("fp_add_pair", q, rd, rn, rm)

    kind = _THREE_SAME_FLOAT[op]
    if op == 0b11001:
        return _accumulating(kind, q, rd, rn, rm)
    return _insn(kind, q, rd, rn, rm)


def _logic(word: int, q: bool) -> Insn:
    """Return a bitwise operation: and, bic, orr, orn, eor, bsl, bit, bif."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    other = bit(word, 29)
    size = field(word, 22, 2)

    # orr of a register with itself is mov.
    if not other and size == 2 and rn == rm:
        return _insn("v_move", q, rd, rn)
    # bsl, bit, bif
    if other and size != 0:
        return _insn("v_select", q, rd, rn, rm, keeps=True)
    return _insn("v_logic", q, rd, rn, rm)


def _three_same_half(word: int, q: bool) -> Insn:
    """Return a half precision operation on two vectors of one shape."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 11, 3)

    # The opcodes are those of the other precisions without the leading ones.
    kind = _THREE_SAME_FLOAT[0b11000 + op]
    if op == 0b111 and bit(word, 29):
        kind = "fp_div"
    if op == 0b001:
        return _accumulating(kind, q, rd, rn, rm)
    return _insn(kind, q, rd, rn, rm)


def _three_different(word: int, upper: bool) -> Insn:
    """upper: the form that takes the upper halves of its sources, or fills the upper
    half of its result.
    """
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 12, 4)

    kind = _THREE_DIFFERENT.get(op, UNKNOWN)
    if kind in _ACCUMULATING:
        return _accumulating(kind, True, rd, rn, rm)

    # The lower half of the result stays.
    keeps = kind == "v_narrow" and upper
    return _insn(kind, kind != UNKNOWN, rd, rn, rm, keeps=keeps)


def _one_source(word: int, q: bool) -> Insn:
    """Return an operation on one vector."""
    table = field(word, 17, 5)
    if table == 0b11000:
        return _over_lanes(word, q)
    if table not in (0b10000, 0b11100):
        return Insn(UNKNOWN)

    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 12, 5)
    kind = _one_source_kind(word, op)
    if kind == "v_pair_acc":
        return _accumulating(kind, q, rd, rn)

    # The other table is of half precision.
    if table == 0b10000:
        kind = _by_elements(kind, word)
    # One side of these has 128 bits in every form.
    narrowing = op in (18, 20, 22)
    wide = narrowing or op in (19, 23)
    return _insn(kind, q or wide, rd, rn, keeps=narrowing and q)


def _one_source_kind(word: int, op: int) -> str:
    """Return the kind of an operation on one vector, without its width."""
    other = bit(word, 29)
    second = bit(word, 23)
    if op == 31 and other and second:
        return "fp_sqrt"
    if op == 18 and other:
        return "v_narrow_saturating"
    return _ONE_SOURCE.get(op, UNKNOWN)


def _over_lanes(word: int, q: bool) -> Insn:
    """Return a reduction over the lanes of a vector; in the scalar form, of two."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 12, 5)
    floating = op in (0b01100, 0b01101, 0b01111)

    scalar = bit(word, 28)
    if scalar:
        kind = "fp_add" if floating else "v_int"
        return _insn(kind, False, rd, rn)
    kind = "fp_reduce" if floating else "v_reduce"
    return _insn(kind, q, rd, rn)


def _dot_or_extra(word: int, q: bool) -> Insn:
    """Return a dot product of bytes, or a later addition to the instruction set."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 10, 6)

    # sdot, udot, usdot
    if op in (0b100101, 0b100111):
        return _accumulating("v_dot", q, rd, rn, rm)
    # sqrdmlah, sqrdmlsh
    if op in (0b100001, 0b100011):
        return _accumulating("v_mla", q, rd, rn, rm)
    return Insn(UNKNOWN)


def _copy(word: int, q: bool) -> Insn:
    """Return a move of one element."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 11, 4)

    # ins, from an element
    if bit(word, 29):
        return _insn("v_insert", True, rd, rn, keeps=True)
    if op == 0:
        return _insn("v_dup", q, rd, rn)
    if op == 1:
        kind = _sized_kind("v_dup_general", q)
        return Insn(kind, general(rn), vector(rd))

    # ins, from a general register: the other elements stay.
    if op == 3:
        sources = (*general(rn), *vector(rd))
        return Insn("v_insert_general", sources, vector(rd))
    if op in (5, 7):
        return Insn("v_element_to_general", vector(rn), general(rd))
    return Insn(UNKNOWN)


def _permute(word: int, q: bool) -> Insn:
    """Return an operation that moves elements within or between vectors."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    if bit(word, 29):
        return _insn("v_ext", q, rd, rn, rm)
    if field(word, 10, 2) == 2:
        return _insn("v_zip", q, rd, rn, rm)

    # tbl, tbx: so many registers are the table
    count = 1 + field(word, 13, 2)
    table = [(rn + i) % 32 for i in range(count)]
    # tbx keeps the elements whose index is outside of the table.
    extends = bit(word, 12)
    kind = f"v_table_{count}"
    return _insn(kind, q, rd, rm, *table, keeps=extends)


def _immediate(word: int, q: bool) -> Insn:
    """Return a shift by a constant, or a constant itself."""
    if field(word, 19, 4) == 0:
        return _constant(word, q)

    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 11, 5)
    other = bit(word, 29)
    # to half the width
    if op in (16, 17, 18, 19):
        plain = op == 16 and not other
        kind = "v_shift" if plain else "v_shift_round"
        return _insn(kind, True, rd, rn, keeps=q)

    kind = _SHIFTS.get(op, UNKNOWN)
    if kind == "v_shift_acc":
        return _accumulating(kind, q, rd, rn)
    # sri, sli
    inserts = op == 8 or (op == 10 and other)
    # sshll, ushll: to double the width
    widens = op == 20
    return _insn(kind, q or widens, rd, rn, keeps=inserts)


def _constant(word: int, q: bool) -> Insn:
    """Return movi, mvni, fmov, or orr and bic with a constant."""
    rd = field(word, 0, 5)
    mode = field(word, 12, 4)

    # An odd cmode below 12 keeps the destination.
    keeps = mode < 12 and mode % 2 == 1
    kind = "v_logic" if keeps else "v_move"
    return _insn(kind, q, rd, keeps=keeps)


def _by_element(word: int, q: bool) -> Insn:
    """Return an operation of a vector with one element of another."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 12, 4)
    size = field(word, 22, 2)
    kind = _ELEMENT.get(op, UNKNOWN)

    # Of half width, the last bit of Rm belongs to the number of the element.
    halves = size == 0 or (size == 1 and kind != "v_dot")
    rm_bits = 4 if halves else 5
    rm = field(word, 16, rm_bits)

    q = q or kind.endswith("_long")
    if kind in _ACCUMULATING:
        return _accumulating(kind, q, rd, rn, rm)
    return _insn(kind, q, rd, rn, rm)
