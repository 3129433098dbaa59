"""A64 machine code to Insn: the integer instructions and branches, and the way to the
other groups.

The encodings are those of the Arm Architecture Reference Manual for A-profile (DDI
0487), chapter C4, whose tables are followed from the top: bits 28 to 25 choose the
group.  What no table here knows is `unknown`, with no registers.
"""

from __future__ import annotations

from functools import cache

from edgec_devices.pipeline.decode_memory import memory
from edgec_devices.pipeline.decode_vector import scalar_float, vector_op
from edgec_devices.pipeline.insn import FLAGS, UNKNOWN, Insn, field, general

_FLAGS = (FLAGS,)
_SMALL_SHIFT = 4
"""An addition shifts its operand left by up to this for free on newer cores, hence a
kind of its own.
"""


@cache
def decode(word: int) -> Insn:
    """The instruction of a 32-bit word.

    Never fails: what it does not know is of kind `unknown`.
    """
    group = field(word, 25, 4)
    if group & 0b1110 == 0b1000:
        return _immediate(word)
    if group & 0b1110 == 0b1010:
        return _branch(word)
    if group & 0b0101 == 0b0100:
        return memory(word)
    if group & 0b0111 == 0b0101:
        return _registers(word)
    if group & 0b0111 == 0b0111:
        if word & 0x5E000000 == 0x1E000000:
            return scalar_float(word)
        return vector_op(word)
    return Insn(UNKNOWN)


def block(code: bytes) -> list[Insn]:
    """The instructions of a block's machine code."""
    return [
        decode(int.from_bytes(code[i : i + 4], "little"))
        for i in range(0, len(code), 4)
    ]


def _with_sp(number: int) -> tuple[int, ...]:
    return (number,)  # 31 is the stack pointer here, not zero


def _immediate(word: int) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 23, 3)
    if op <= 1:  # adr, adrp
        return Insn("alu", (), general(rd))
    if op == 2:  # add, sub
        flags = bool(word & 1 << 29)
        return Insn(
            "alu", _with_sp(rn), general(rd) + _FLAGS if flags else _with_sp(rd)
        )
    opc = field(word, 29, 2)
    if op == 4:  # and, orr, eor, ands
        return Insn(
            "alu", general(rn), general(rd) + _FLAGS if opc == 3 else _with_sp(rd)
        )
    if op == 5:  # movn, movz, movk
        return Insn("alu", general(rd) if opc == 3 else (), general(rd))
    if op == 6:  # sbfm, bfm, ubfm: also lsl, lsr, asr, sxtb ...
        if opc == 1:
            return Insn("bit_insert", general(rn, rd), general(rd))
        return Insn("shift", general(rn), general(rd))
    if op == 7:  # extr; ror when both sources are one register
        rm = field(word, 16, 5)
        return Insn("shift" if rm == rn else "extract", general(rn, rm), general(rd))
    return Insn(UNKNOWN)


def _branch(word: int) -> Insn:
    if field(word, 26, 5) == 0b00101:  # b, bl
        return Insn("call", (), (30,)) if word >> 31 else Insn("branch")
    if field(word, 25, 6) in (0b011010, 0b011011):  # cbz, cbnz, tbz, tbnz
        return Insn("branch", general(field(word, 0, 5)))
    if word >> 24 == 0x54:  # b.cond
        return Insn("branch", _FLAGS)
    if word >> 25 == 0b1101011:  # br, blr, ret
        target = general(field(word, 5, 5))
        if field(word, 21, 4) == 1:
            return Insn("call", target, (30,))
        return Insn("branch", target)
    if word & 0xFFFFF01F == 0xD503201F:  # nop and the other hints
        return Insn("nop")
    if word >> 20 == 0xD53:  # mrs
        return Insn("system", (), general(field(word, 0, 5)))
    if word >> 24 in (0xD4, 0xD5):  # svc, msr, barriers
        return Insn("system")
    return Insn(UNKNOWN)


def _registers(word: int) -> Insn:
    if not word & 1 << 28:
        return _logic_or_sum(word)
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    op = field(word, 21, 4)
    if op >= 8:
        return _multiply(word)
    if op == 0:  # adc, sbc and with flags
        return Insn(
            "alu",
            general(rn, rm) + _FLAGS,
            general(rd) + (_FLAGS if word & 1 << 29 else ()),
        )
    if op == 2:  # ccmp, ccmn; bit 11: with a number instead of rm
        return Insn(
            "alu", general(rn, *(() if word & 1 << 11 else (rm,))) + _FLAGS, _FLAGS
        )
    if op == 4:  # csel, csinc, csinv, csneg
        return Insn("alu", general(rn, rm) + _FLAGS, general(rd))
    if op == 6 and word & 1 << 30:  # rbit, rev, clz, cls
        return Insn("alu", general(rn), general(rd))
    if op == 6:
        code = field(word, 10, 6)
        wide = "_64" if word >> 31 else ""
        if code in (2, 3):
            kind = f"div{wide}"
        else:
            kind = "shift_by_register" if 8 <= code <= 11 else UNKNOWN
        return Insn(kind, general(rn, rm), general(rd))
    return Insn(UNKNOWN)


def _logic_or_sum(word: int) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    amount = field(word, 10, 6)
    summed = bool(word & 1 << 24)
    flags = bool(word & 1 << 29)
    if summed and word & 1 << 21:  # add, sub with an extended register
        target = general(rd) + _FLAGS if flags else _with_sp(rd)
        return Insn("alu_shifted", _with_sp(rn) + general(rm), target)
    if not summed:
        flags = field(word, 29, 2) == 3  # ands, bics
    left = field(word, 22, 2) == 0
    if amount == 0:
        kind = "alu"
    elif left and amount <= _SMALL_SHIFT and not flags:
        kind = "alu_small_shift"
    else:
        kind = "alu_shifted"
    return Insn(kind, general(rn, rm), general(rd) + (_FLAGS if flags else ()))


def _multiply(word: int) -> Insn:
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    ra = field(word, 10, 5)
    rm = field(word, 16, 5)
    op = field(word, 21, 3)
    if op in (2, 6):  # smulh, umulh
        return Insn("mul_high", general(rn, rm), general(rd))
    if op in (1, 5):
        kind = "mul_long"
    elif op == 0:
        kind = "mul_64" if word >> 31 else "mul"
    else:
        return Insn(UNKNOWN)
    return Insn(kind, general(rn, rm), general(rd), general(ra))
