"""A64 loads and stores to Insn.

Kinds: `load`, `load_signed`, `load_pair` (32-bit), `load_pair_64`, and for vector
registers `load_v` (up to 64 bits), `load_v_q`, `load_pair_v`, `load_pair_v_q`; stores
alike.  `load_1x2_q` is LD1 of two 128-bit registers, `load_2x2_q` is LD2, which takes
the elements apart; `load_lane` fills one element, `load_all_lanes` repeats one.
"""

from __future__ import annotations

from edgec_devices.pipeline.insn import UNKNOWN, Insn, bit, field, general, vector

_STRUCTURES = {
    0: (4, 4),
    2: (1, 4),
    4: (3, 3),
    6: (1, 3),
    7: (1, 1),
    8: (2, 2),
    10: (1, 2),
}
"""LD1-LD4 of whole registers, by opcode: elements of a structure, registers."""


def memory(word: int) -> Insn:
    """A word of the group of loads and stores."""
    kind = word & 0x3B000000
    if word & 0xBF000000 in (0x0C000000, 0x0D000000):
        return _structures(word)
    if kind == 0x18000000:  # from near the program counter
        return _one(word, True, field(word, 30, 2) == 2, (), None)
    if word & 0x3A000000 == 0x28000000:
        return _pair(word)
    base = field(word, 5, 5)
    if kind == 0x39000000:  # an unsigned offset
        return _sized(word, (base,), None)
    # a signed offset; or the base moves on
    if kind == 0x38000000 and not word & 1 << 21:
        return _sized(word, (base,), base if word & 1 << 10 else None)
    if word & 0x3B200C00 == 0x38200800:  # an offset in a register
        return _sized(word, (base, *general(field(word, 16, 5))), None)
    if word & 0x3F000000 == 0x08000000:  # exclusive and ordered
        return _one(word, bool(word & 1 << 22), False, (base,), None)
    return Insn(UNKNOWN)


def _sized(word: int, address: tuple[int, ...], base: int | None) -> Insn:
    """Return a load or store of one register with a size field.

    address: the registers of the address.
    base: the register that moves on, if one does.
    """
    size = field(word, 30, 2)
    opc = field(word, 22, 2)
    load = bool(opc & 1)
    if bit(word, 26):
        wide = opc >= 2
        return _one(word, load, wide, address, base)

    if opc < 2:
        return _one(word, load, False, address, base)
    if size == 3:
        return Insn("prefetch", address)
    # ldrsb, ldrsh, ldrsw
    target = general(field(word, 0, 5))
    return Insn("load_signed", address, target, (), base)


def _one(
    word: int, load: bool, wide: bool, address: tuple[int, ...], base: int | None
) -> Insn:
    """Return a load or store of one register.

    wide: whether a vector register has 128 bits.
    """
    rt = field(word, 0, 5)
    kind = "load" if load else "store"
    data = general(rt)
    if bit(word, 26):
        data = vector(rt)
        kind += "_v_q" if wide else "_v"

    if load:
        return Insn(kind, address, data, (), base)
    return Insn(kind, address, (), data, base)


def _pair(word: int) -> Insn:
    """Return a load or store of two registers."""
    rt = field(word, 0, 5)
    rn = field(word, 5, 5)
    rt2 = field(word, 10, 5)
    wide = field(word, 30, 2) == 2
    load = bit(word, 22)
    base = rn if bit(word, 23) else None

    kind = "load_pair" if load else "store_pair"
    if bit(word, 26):
        data = vector(rt, rt2)
        kind += "_v_q" if wide else "_v"
    else:
        data = general(rt, rt2)
        kind += "_64" if wide else ""

    if load:
        return Insn(kind, (rn,), data, (), base)
    return Insn(kind, (rn,), (), data, base)


def _structures(word: int) -> Insn:
    """Return a load or store of structures: LD1 to LD4, ST1 to ST4."""
    rt = field(word, 0, 5)
    rn = field(word, 5, 5)
    load = bit(word, 22)
    base = rn if bit(word, 23) else None

    # One element of each register, or whole registers.
    if bit(word, 24):
        kind, count = _lane_kind(word)
    else:
        kind, count = _registers_kind(word)
    if count == 0:
        return Insn(UNKNOWN)

    data = vector(*((rt + i) % 32 for i in range(count)))
    if not load:
        return Insn(kind, (rn,), (), data, base)
    # A load of one element keeps the others of its register.
    sources: tuple[int, ...] = (rn,)
    if _merges(word):
        sources = (rn, *data)
    return Insn(kind, sources, data, (), base)


def _lane_kind(word: int) -> tuple[str, int]:
    """Return the kind of a structure of one element a register, and the registers."""
    verb = "load" if bit(word, 22) else "store"
    opcode = field(word, 13, 3)
    count = 1 + (opcode & 1) * 2 + field(word, 21, 1)
    if count > 1:
        suffix = "_q" if bit(word, 30) else ""
        return f"{verb}_{count}x{count}{suffix}", count
    if opcode >= 6:
        return f"{verb}_all_lanes", count
    return f"{verb}_lane", count


def _registers_kind(word: int) -> tuple[str, int]:
    """Return the kind of a structure of whole registers, and the registers.

    No registers for an opcode that does not exist.
    """
    verb = "load" if bit(word, 22) else "store"
    suffix = "_q" if bit(word, 30) else ""
    opcode = field(word, 12, 4)
    elements, count = _STRUCTURES.get(opcode, (0, 0))
    if count == 1:
        return f"{verb}_v{suffix}", count
    return f"{verb}_{elements}x{count}{suffix}", count


def _merges(word: int) -> bool:
    """Return whether a structure leaves the other elements of its registers.

    The opcodes from 6 on fill all elements.
    """
    one_element = bit(word, 24)
    opcode = field(word, 13, 3)
    return one_element and opcode < 6
