"""A64 loads and stores to Insn.

Kinds: `load`, `load_signed`, `load_pair` (32-bit), `load_pair_64`, and for vector
registers `load_v` (up to 64 bits), `load_v_q`, `load_pair_v`, `load_pair_v_q`; stores
alike.  `load_1x2_q` is LD1 of two 128-bit registers, `load_2x2_q` is LD2, which takes
the elements apart; `load_lane` fills one element, `load_all_lanes` repeats one.
"""

from __future__ import annotations

from edgec_devices.pipeline.insn import UNKNOWN, Insn, field, general, vector

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
    size = field(word, 30, 2)
    opc = field(word, 22, 2)
    is_vector = bool(word & 1 << 26)
    if is_vector:
        return _one(word, bool(opc & 1), opc >= 2, address, base)
    if opc >= 2 and size == 3:
        return Insn("prefetch", address)
    if opc >= 2:
        return Insn("load_signed", address, general(field(word, 0, 5)), (), base)
    return _one(word, bool(opc), False, address, base)


def _one(
    word: int, load: bool, wide: bool, address: tuple[int, ...], base: int | None
) -> Insn:
    rt = field(word, 0, 5)
    is_vector = bool(word & 1 << 26)
    data = vector(rt) if is_vector else general(rt)
    kind = (
        ("load" if load else "store")
        + ("_v" if is_vector else "")
        + ("_q" if is_vector and wide else "")
    )
    if load:
        return Insn(kind, address, data, (), base)
    return Insn(kind, address, (), data, base)


def _pair(word: int) -> Insn:
    rt = field(word, 0, 5)
    rn = field(word, 5, 5)
    rt2 = field(word, 10, 5)
    opc = field(word, 30, 2)
    is_vector = bool(word & 1 << 26)
    load = bool(word & 1 << 22)
    base = rn if word & 1 << 23 else None
    if is_vector:
        data = vector(rt, rt2)
        suffix = "_v_q" if opc == 2 else "_v"
    else:
        data = general(rt, rt2)
        suffix = "_64" if opc == 2 else ""
    kind = ("load_pair" if load else "store_pair") + suffix
    if load:
        return Insn(kind, (rn,), data, (), base)
    return Insn(kind, (rn,), (), data, base)


def _structures(word: int) -> Insn:
    rt = field(word, 0, 5)
    rn = field(word, 5, 5)
    load = bool(word & 1 << 22)
    base = rn if word & 1 << 23 else None
    verb = "load" if load else "store"
    suffix = "_q" if word & 1 << 30 else ""
    if word & 1 << 24:  # one element of each register
        opcode = field(word, 13, 3)
        n = 1 + (opcode & 1) * 2 + field(word, 21, 1)
        kind, merges = (
            (f"{verb}_all_lanes", False) if opcode >= 6 else (f"{verb}_lane", True)
        )
        kind = kind if n == 1 else f"{verb}_{n}x{n}{suffix}"
    else:
        elements, n = _STRUCTURES.get(field(word, 12, 4), (0, 0))
        if not n:
            return Insn(UNKNOWN)
        kind = f"{verb}_v{suffix}" if n == 1 else f"{verb}_{elements}x{n}{suffix}"
        merges = False
    data = vector(*((rt + i) % 32 for i in range(n)))
    if load:
        return Insn(kind, (rn, *(data if merges else ())), data, (), base)
    return Insn(kind, (rn,), (), data, base)
