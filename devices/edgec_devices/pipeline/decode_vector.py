"""A64 floating point and Advanced SIMD to Insn.

A kind ends in `_q` when the operation is on 128 bits.  Scalar forms count as 64-bit
vectors.
"""

from __future__ import annotations

from edgec_devices.pipeline.insn import FLAGS, UNKNOWN, Insn, field, general, vector

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
    """keeps: part of the destination stays, so it is read as well."""
    kind = kind + "_q" if q else kind
    return Insn(kind, vector(*sources, *((rd,) if keeps else ())), vector(rd))


def scalar_float(word: int) -> Insn:
    """A word whose bits 30, 28 to 25 are 0 1111: floating point on one number, and
    conversions.
    """
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    wide = "_64" if field(word, 22, 2) == 1 else ""
    if word & 1 << 24:  # fmadd and its like
        return Insn("fp_fma", vector(rn, rm), vector(rd), vector(field(word, 10, 5)))
    if not word & 1 << 21 or not field(word, 10, 6):
        return _to_or_from_general(word)
    if field(word, 10, 5) == 0b10000:
        op = field(word, 15, 6)
        if op == 3:
            kind = f"fp_sqrt{wide}"
        else:
            kind = "fp_sign" if op < 3 else "fp_resize" if op < 8 else "fp_round"
        return _insn(kind, False, rd, rn)
    if field(word, 10, 4) == 0b1000:  # fcmp; bit 3: with zero
        return Insn(
            "fp_compare_flags", vector(rn, *(() if word & 1 << 3 else (rm,))), (FLAGS,)
        )
    if field(word, 10, 3) == 0b100:
        return Insn("v_move", (), vector(rd))
    last = field(word, 10, 2)
    if last == 1:  # fccmp
        return Insn("fp_compare_flags", (*vector(rn, rm), FLAGS), (FLAGS,))
    if last == 3:
        return Insn("fp_select", (*vector(rn, rm), FLAGS), vector(rd))
    op = field(word, 12, 4)
    kind = _TWO_SOURCES[op] if op < len(_TWO_SOURCES) else UNKNOWN
    return _insn(kind + wide if kind == "fp_div" else kind, False, rd, rn, rm)


def _to_or_from_general(word: int) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 16, 3)
    fixed_point = not word & 1 << 21
    if op in (6, 7) and not fixed_point:  # fmov
        if op == 7:
            return Insn("general_to_v", general(rn), vector(rd))
        return Insn("v_to_general", vector(rn), general(rd))
    if op in (2, 3):  # scvtf, ucvtf
        return Insn("convert_from_general", general(rn), vector(rd))
    return Insn("convert_to_general", vector(rn), general(rd))


def vector_op(word: int) -> Insn:
    """A word of the Advanced SIMD group."""
    if word >> 31:
        return Insn(UNKNOWN)
    scalar = bool(word & 1 << 28)
    q = bool(word & 1 << 30) and not scalar
    if word & 1 << 24:
        return _by_element(word, q) if not word & 1 << 10 else _immediate(word, q)
    if word & 1 << 21:
        low = field(word, 10, 2)
        if low & 1:
            return _three_same(word, q)
        return _three_different(word, q) if low == 0 else _one_source(word, q)
    if word & 1 << 15:
        return _dot_or_extra(word, q)
    if word & 1 << 10:
        return _three_same_half(word, q) if word & 1 << 22 else _copy(word, q)
    return _permute(word, q)


def _by_elements(kind: str, word: int) -> str:
    return f"{kind}_64" if kind in _SLOWER_IF_DOUBLE and word & 1 << 22 else kind


def _accumulating(kind: str, q: bool, rd: int, rn: int, rm: int) -> Insn:
    return Insn(kind + "_q" if q else kind, vector(rn, rm), vector(rd), vector(rd))


def _three_same(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 11, 5)
    other = bool(word & 1 << 29)
    second = bool(word & 1 << 23)
    if op >= 0b11000:
        kind = _THREE_SAME_FLOAT[op]
        if op == 0b11111 and other:
            return _insn(_by_elements("fp_div", word), q, rd, rn, rm)
        if op == 0b11010 and other and not second:
            return _insn("fp_add_pair", q, rd, rn, rm)
        if op == 0b11001:
            return _accumulating(kind, q, rd, rn, rm)
        return _insn(kind, q, rd, rn, rm)
    kind = _THREE_SAME.get(op, UNKNOWN)
    if kind == "v_logic" and not other and field(word, 22, 2) == 2 and rn == rm:
        return _insn("v_move", q, rd, rn)
    if kind in _ACCUMULATING:
        return _accumulating(kind, q, rd, rn, rm)
    select = kind == "v_logic" and other and field(word, 22, 2) != 0  # bsl, bit, bif
    return _insn("v_select" if select else kind, q, rd, rn, rm, keeps=select)


def _three_same_half(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 11, 3)
    kind = _THREE_SAME_FLOAT[0b11000 + op]
    if op == 0b111 and word & 1 << 29:
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
    return _insn(kind, kind != UNKNOWN, rd, rn, rm, keeps=kind == "v_narrow" and upper)


def _one_source(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 12, 5)
    table = field(word, 17, 5)
    if table == 0b11000:  # over the lanes; in the scalar form, of two lanes
        floating = op in (0b01100, 0b01101, 0b01111)
        if word & 1 << 28:
            return _insn("fp_add" if floating else "v_int", False, rd, rn)
        return _insn("fp_reduce" if floating else "v_reduce", q, rd, rn)
    if table not in (0b10000, 0b11100):
        return Insn(UNKNOWN)
    kind = _ONE_SOURCE.get(op, UNKNOWN)
    if kind == "v_pair_acc":
        return Insn(kind + "_q" if q else kind, vector(rn), vector(rd), vector(rd))
    if op == 31 and word & 1 << 29 and word & 1 << 23:
        kind = "fp_sqrt"
    if op == 18 and word & 1 << 29:
        kind = "v_narrow_saturating"
    narrowing = op in (18, 20, 22)
    wide = narrowing or op in (19, 23)
    # the other table is of half precision
    kind = _by_elements(kind, word) if table == 0b10000 else kind
    return _insn(kind, q or wide, rd, rn, keeps=narrowing and q)


def _dot_or_extra(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    if field(word, 10, 6) in (0b100101, 0b100111):  # sdot, udot, usdot
        return _accumulating("v_dot", q, rd, rn, rm)
    if field(word, 10, 6) in (0b100001, 0b100011):  # sqrdmlah, sqrdmlsh
        return _accumulating("v_mla", q, rd, rn, rm)
    return Insn(UNKNOWN)


def _copy(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 11, 4)
    if word & 1 << 29:  # ins, from an element
        return _insn("v_insert", True, rd, rn, keeps=True)
    if op == 0:
        return _insn("v_dup", q, rd, rn)
    if op == 1:
        return Insn(
            "v_dup_general_q" if q else "v_dup_general", general(rn), vector(rd)
        )
    if op == 3:
        return Insn("v_insert_general", (*general(rn), *vector(rd)), vector(rd))
    if op in (5, 7):
        return Insn("v_element_to_general", vector(rn), general(rd))
    return Insn(UNKNOWN)


def _permute(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    if word & 1 << 29:
        return _insn("v_ext", q, rd, rn, rm)
    if field(word, 10, 2) == 2:
        return _insn("v_zip", q, rd, rn, rm)
    n = 1 + field(word, 13, 2)  # tbl, tbx: so many registers are the table
    table = ((rn + i) % 32 for i in range(n))
    return _insn(f"v_table_{n}", q, rd, rm, *table, keeps=bool(word & 1 << 12))


def _immediate(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 11, 5)
    # movi, mvni, fmov; an odd cmode below 12 keeps the destination
    if not field(word, 19, 4):
        mode = field(word, 12, 4)
        return _insn(
            "v_logic" if mode < 12 and mode & 1 else "v_move",
            q,
            rd,
            keeps=mode < 12 and bool(mode & 1),
        )
    if op in (16, 17, 18, 19):  # to half the width
        plain = op == 16 and not word & 1 << 29
        return _insn("v_shift" if plain else "v_shift_round", True, rd, rn, keeps=q)
    kind = _SHIFTS.get(op, UNKNOWN)
    if kind == "v_shift_acc":
        return Insn(kind + "_q" if q else kind, vector(rn), vector(rd), vector(rd))
    inserts = op == 8 or (op == 10 and bool(word & 1 << 29))  # sri, sli
    return _insn(kind, q or op == 20, rd, rn, keeps=inserts)


def _by_element(word: int, q: bool) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 12, 4)
    size = field(word, 22, 2)
    kind = _ELEMENT.get(op, UNKNOWN)
    halves = (size == 1 and kind != "v_dot") or size == 0
    rm = field(word, 16, 4 if halves else 5)
    q = q or kind.endswith("_long")
    if kind in _ACCUMULATING:
        return _accumulating(kind, q, rd, rn, rm)
    return _insn(kind, q, rd, rn, rm)
