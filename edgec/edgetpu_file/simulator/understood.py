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
    "wide_to_narrow": {
        f"?{bit}": frozenset({1}) for bit in (543, 611, 613, 656, 698, 870, 871)
    },
    "narrow_to_wide": {f"?{bit}": frozenset({1}) for bit in (543, 544, 588)},
    "compute": {"?1898": frozenset({1})},
}


@dataclass(frozen=True)
class Operation:
    """What a computing instruction does.

    Attributes:
        name: of it
        packs: whether it sums over the innermost loop, which `sum_over` does not say
        halves: whether inputs are two bytes, each of which is multiplied by 16 bits
    """

    name: str
    packs: bool = False
    halves: bool = False


_OPERATIONS = {
    (0x65, 0x7, 0): Operation("fully connected layer"),
    (0xA5, 0x7, 0): Operation("convolution"),
    (0x07, 0x6, 7): Operation("copy of an input's bytes to words of channels"),
    (0x127, 0xE, 6): Operation("average of a window"),
    (0x60, 0x6, 7): Operation("products of two inputs' bytes, each in a word"),
    (0x00, 0x6, 7): Operation("copy of words' first bytes, packed", packs=True),
    (0x00, 0x6, 0): Operation("copy of words"),
    (0x09, 0x16, 0): Operation("sum of two inputs", halves=True),
}
"""By bits 1563 to 1571 and 1843 to 1847 and `bytewise`."""
_NOT_SIMULATED = frozenset(
    {"branch", "repeat", "curve", "compute_most", "compute_sum", "compute_5"}
)


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
        if field.name in ("if", "predicate", "is"):
            allowed: _Allowed = frozenset()
        elif field.name in ("?1563", "?1843") and i.name == "compute":
            continue
        elif field.kind is Kind.UNKNOWN:
            allowed = values.get(field.name, frozenset())
        else:
            continue
        if value and allowed is not _ANY and value not in allowed:
            raise NotUnderstoodError(i, f"its field {field.name} is {value:#x}")
    if i.name == "compute":
        operation_of(i)


def operation_of(i: Instruction) -> Operation:
    """Return what a computing instruction does.

    Raises:
        NotUnderstoodError: it is not understood
    """
    kind = i.value("?1563"), i.value("?1843"), i.value("bytewise")
    if kind not in _OPERATIONS:
        parts = ", ".join(f"{part:#x}" for part in kind)
        why = f"its fields ?1563, ?1843 and bytewise are {parts}"
        raise NotUnderstoodError(i, why)
    return _OPERATIONS[kind]
