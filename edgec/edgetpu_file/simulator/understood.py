"""Which instructions, and which values in them, have a meaning that is simulated.

A bit without a known meaning is 0, or has one of the values here: those of programs whose
results were compared with the arithmetic of the networks that they were made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec.edgetpu_file.fields import Kind
from edgec.edgetpu_file.simulator.chip import NotUnderstoodError
from edgec.edgetpu_file.stream import Instruction

_ANY = None
_POP_BITS = (121, 124, 136, 140, 157, 174, 177, 178, 183, 199, 215)
_INFEED_BITS = (157, 160, 172, 176, 203, 311, 314, 336, 352, 392)
_Allowed = frozenset[int] | None
_VALUES: dict[str, Mapping[str, _Allowed]] = {
    "tile_fence": {"?43": frozenset({1}), "?109": frozenset({3})},
    # How much space a buffer has for what comes: here it always has it.
    "pop": {**{f"?{bit}": frozenset({1}) for bit in _POP_BITS}, "?184": _ANY},
    "infeed": {f"?{bit}": frozenset({1}) for bit in _INFEED_BITS}
    | {"?161": frozenset({0x80}), "?219": frozenset({3 << 89}), "?315": frozenset({3})},
    "outfeed": {
        "?120": frozenset({0x809}),
        "?175": frozenset({0x88}),
        "?183": _ANY,
        "?198": frozenset({0x10001}),
        "?222": frozenset({0x3F, 0x7F}),
    },
    "halt": {"?14": frozenset({4})},
    "receive_a": {
        "?319": frozenset({1}),
        "?335": frozenset({1, 3}),
        "?379": frozenset({1}),
    },
    "receive_b": {"?335": frozenset({3}), "?379": frozenset({1})},
    "send": {"?335": frozenset({3}), "?337": frozenset({0x4, 0xC, 0x14})},
    "wide_to_narrow": {f"?{bit}": frozenset({1}) for bit in (543, 656, 698, 870, 871)},
    "narrow_to_wide": {f"?{bit}": frozenset({1}) for bit in (588,)},
    "compute": {"?1898": frozenset({1})},
    "curve": {"?1566": frozenset({3})},
}


@dataclass(frozen=True)
class Arithmetic:
    """What a computing instruction does in a step, for each channel.

    Attributes:
        name: of it
        numbers: how many products are added
        input_bytes: bytes of each input; 0 where all are 1
        parameter_bytes: bytes of each parameter of a channel
        packs: whether it sums over the innermost loop, which `sum_over` does not say
        most: whether it takes the largest product of the steps, and not their sum
        keeps_sums: whether it writes the sums to wide memory too
    """

    name: str
    numbers: int = 1
    input_bytes: int = 1
    parameter_bytes: int = 1
    packs: bool = False
    most: bool = False
    keeps_sums: bool = False


_ARITHMETIC = {
    ("compute", 0x65, 0x7, 0): Arithmetic("fully connected layer", 4),
    ("compute", 0x65, 0x6, 0): Arithmetic("fully connected layer of one step", 4),
    ("compute", 0xA5, 0x7, 0): Arithmetic("convolution", 4),
    ("compute", 0x07, 0x6, 7): Arithmetic("copy of a byte to a word of channels"),
    ("compute", 0x127, 0xE, 6): Arithmetic("average of a window", 1, 2),
    ("compute", 0x60, 0x6, 7): Arithmetic("product of bytes, each in a word"),
    ("compute", 0x00, 0x6, 7): Arithmetic("copy of words' first bytes", packs=True),
    ("compute", 0x00, 0x6, 0): Arithmetic("copy of words", 4),
    ("compute", 0x09, 0x16, 0): Arithmetic("weighted sum of two inputs", 2, 1, 2),
    ("compute", 0x07, 0x16, 0): Arithmetic("weighted sum of bytes", 2, 1, 2),
    ("compute", 0x00, 0x12, 6): Arithmetic("negation", 1, 1, 2, keeps_sums=True),
    ("compute", 0x25, 0x6, 0): Arithmetic("curve of words", 4),
    ("compute", 0x60, 0x1E, 0): Arithmetic("product of 16 bits", 1, 2, 2),
    ("compute", 0x00, 0xE, 6): Arithmetic("copy of words' halves", 1, 2, packs=True),
    ("compute_most", 0x60, 0x6, 0): Arithmetic("largest byte", 1, 0, most=True),
    ("compute_sum", 0x60, 0x16, 0): Arithmetic("sum of 16 bits", 2, 0, 2),
}
"""By the mnemonic, bits 1563 to 1571 and 1843 to 1847, and `bytewise`."""
_COMPUTING = frozenset(kind[0] for kind in _ARITHMETIC)
_SKIPS = frozenset({"if", "predicate", "is"})
_NO_SLOTS = frozenset({"load", "function"})
"""Slots of a word of the scalar core that are not simulated."""
_NOT_SIMULATED = frozenset({"branch", "repeat", "compute_5"})


def check(i: Instruction) -> None:
    """Check that an instruction is understood.

    Raises:
        NotUnderstoodError: it is not, or a value in it
    """
    if i.layout is None or i.name in _NOT_SIMULATED:
        raise NotUnderstoodError(i, "it is not simulated")
    values = _VALUES.get(i.name, {})
    for field in i.layout.fields:
        value = field.of(i.bits)
        if field.name in (_NO_SLOTS if i.name == "scalar" else _SKIPS):
            allowed: _Allowed = frozenset()
        elif field.name in ("?1563", "?1843"):
            continue
        elif field.kind is Kind.UNKNOWN:
            allowed = values.get(field.name, frozenset())
        else:
            continue
        if value and allowed is not _ANY and value not in allowed:
            raise NotUnderstoodError(i, f"its field {field.name} is {value:#x}")
    if i.name in _COMPUTING:
        arithmetic_of(i)


def arithmetic_of(i: Instruction) -> Arithmetic:
    """Return what a computing instruction does.

    Raises:
        NotUnderstoodError: it is not understood
    """
    kind = i.value("?1563"), i.value("?1843"), i.value("bytewise")
    found = _ARITHMETIC.get((i.name, *kind))
    if found is None:
        parts = ", ".join(f"{part:#x}" for part in kind)
        why = f"its fields ?1563, ?1843 and bytewise are {parts}"
        raise NotUnderstoodError(i, why)
    return found
