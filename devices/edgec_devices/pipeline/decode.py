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
from edgec_devices.pipeline.insn import FLAGS, UNKNOWN, Insn, bit, field, general

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
    insns: list[Insn] = []
    for first in range(0, len(code), 4):
        encoded = code[first : first + 4]
        word = int.from_bytes(encoded, "little")
        insns.append(decode(word))
    return insns


def _with_sp(number: int) -> tuple[int, ...]:
    return (number,)  # 31 is the stack pointer here, not zero


def _immediate(word: int) -> Insn:
    """Return an operation on a general register and a constant."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    op = field(word, 23, 3)
    opc = field(word, 29, 2)

    # adr, adrp
    if op <= 1:
        return Insn("alu", (), general(rd))
    # add, sub
    if op == 2:
        writes = _with_sp(rd)
        if bit(word, 29):
            writes = general(rd) + _FLAGS
        return Insn("alu", _with_sp(rn), writes)
    # and, orr, eor, ands
    if op == 4:
        writes = _with_sp(rd)
        if opc == 3:
            writes = general(rd) + _FLAGS
        return Insn("alu", general(rn), writes)

    # movn, movz, and movk, which keeps the other bits
    if op == 5:
        reads = general(rd) if opc == 3 else ()
        return Insn("alu", reads, general(rd))
    # sbfm, bfm, ubfm: also lsl, lsr, asr, sxtb ...
    if op == 6 and opc == 1:
        return Insn("bit_insert", general(rn, rd), general(rd))
    if op == 6:
        return Insn("shift", general(rn), general(rd))
    # extr; ror when both sources are one register
    if op == 7:
        rm = field(word, 16, 5)
        kind = "shift" if rm == rn else "extract"
        return Insn(kind, general(rn, rm), general(rd))
    return Insn(UNKNOWN)


def _branch(word: int) -> Insn:
    """Return a branch, or an instruction of the system."""
    # b, bl
    if field(word, 26, 5) == 0b00101:
        link = bit(word, 31)
        return Insn("call", (), (30,)) if link else Insn("branch")
    # cbz, cbnz, tbz, tbnz
    if field(word, 25, 6) in (0b011010, 0b011011):
        tested = field(word, 0, 5)
        return Insn("branch", general(tested))
    # b.cond
    if word >> 24 == 0x54:
        return Insn("branch", _FLAGS)
    # br, blr, ret
    if word >> 25 == 0b1101011:
        target = general(field(word, 5, 5))
        link = field(word, 21, 4) == 1
        return Insn("call", target, (30,)) if link else Insn("branch", target)

    # nop and the other hints
    if word & 0xFFFFF01F == 0xD503201F:
        return Insn("nop")
    # mrs
    if word >> 20 == 0xD53:
        rd = field(word, 0, 5)
        return Insn("system", (), general(rd))
    # svc, msr, barriers
    if word >> 24 in (0xD4, 0xD5):
        return Insn("system")
    return Insn(UNKNOWN)


def _registers(word: int) -> Insn:
    """Return an operation on general registers."""
    if not bit(word, 28):
        return _logic_or_sum(word)
    op = field(word, 21, 4)
    if op >= 8:
        return _multiply(word)

    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    # adc, sbc and with flags
    if op == 0:
        writes = general(rd)
        if bit(word, 29):
            writes += _FLAGS
        return Insn("alu", general(rn, rm) + _FLAGS, writes)
    # ccmp, ccmn; bit 11: with a number instead of rm
    if op == 2:
        reads = general(rn, rm)
        if bit(word, 11):
            reads = general(rn)
        return Insn("alu", reads + _FLAGS, _FLAGS)
    # csel, csinc, csinv, csneg
    if op == 4:
        return Insn("alu", general(rn, rm) + _FLAGS, general(rd))

    # rbit, rev, clz, cls
    if op == 6 and bit(word, 30):
        return Insn("alu", general(rn), general(rd))
    if op == 6:
        return Insn(_two_sources_kind(word), general(rn, rm), general(rd))
    return Insn(UNKNOWN)


def _two_sources_kind(word: int) -> str:
    """Return the kind of a division, or of a shift by a register."""
    code = field(word, 10, 6)
    if code in (2, 3):
        return "div_64" if bit(word, 31) else "div"
    if 8 <= code <= 11:
        return "shift_by_register"
    return UNKNOWN


def _logic_or_sum(word: int) -> Insn:
    """Return a bitwise operation, or a sum, of two registers."""
    rd = field(word, 0, 5)
    rn = field(word, 5, 5)
    rm = field(word, 16, 5)
    amount = field(word, 10, 6)
    summed = bit(word, 24)
    flags = bit(word, 29)

    # add, sub with an extended register
    if summed and bit(word, 21):
        target = general(rd) + _FLAGS if flags else _with_sp(rd)
        sources = _with_sp(rn) + general(rm)
        return Insn("alu_shifted", sources, target)

    # ands, bics
    if not summed:
        flags = field(word, 29, 2) == 3
    target = general(rd)
    if flags:
        target += _FLAGS

    # Cores shift left by a little without a delay.
    left = field(word, 22, 2) == 0
    if amount == 0:
        kind = "alu"
    elif left and amount <= _SMALL_SHIFT and not flags:
        kind = "alu_small_shift"
    else:
        kind = "alu_shifted"
    return Insn(kind, general(rn, rm), target)


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
