"""Kernel calls: what an op asks of the C back-end, as data.

`OpDef.c` returns the call of a plain kernel, which says completely what is to be
computed; edgec/schedule chooses how, and edgec/emit prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgec.ir.types import Array
from edgec.ir.value import Value


@dataclass(frozen=True, eq=False)
class Pointer:
    """The elements of a tensor, from element `offset` on.

    A constant tensor is written like a `Table`.
    """

    value: Value
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Table:
    """A constant array of any dtype of the IR, or float64. hint: what its name in the C
    begins with.
    """

    array: Array
    hint: str


@dataclass(frozen=True)
class Scratch:
    """Memory that holds nothing before and after the call; each part has so much of its
    own.
    """

    nbytes: int


@dataclass(frozen=True, eq=False)
class Struct:
    """The address of a constant C struct.

    fields: numbers, names of C enums, sequences of them, tables and pointers.
    """

    ctype: str
    fields: Mapping[str, object]

    def __init__(self, ctype: str, **fields: object) -> None:
        object.__setattr__(self, "ctype", ctype)
        object.__setattr__(self, "fields", fields)

    def number(self, name: str) -> int:
        """A field that is an integer."""
        value = self.fields[name]
        assert isinstance(value, int), f"{self.ctype}.{name} is {value!r}"
        return value

    def numbers(self) -> dict[str, int]:
        """All fields, which are integers."""
        return {name: self.number(name) for name in self.fields}

    def real(self, name: str) -> float:
        """A field that is a number."""
        value = self.fields[name]
        assert isinstance(value, (int, float)), f"{self.ctype}.{name} is {value!r}"
        return float(value)

    def table(self, name: str) -> Array:
        """A field that is a table."""
        value = self.fields[name]
        assert isinstance(value, Table), f"{self.ctype}.{name} is {value!r}"
        return value.array


@dataclass(frozen=True)
class Share:
    """Which part of its result a call computes: as C has it where it computes all, and
    where it is one of several.
    """

    alone: str
    shared: str


PART = Share("0", "part")
PARTS = Share("1", "parts")


def constant(x: object) -> Array | None:
    """The elements that an operand points to; None where they are computed."""
    if isinstance(x, Pointer):
        return x.value.const
    return x.array if isinstance(x, Table) else None


Operand = Pointer | Table | Scratch | Struct | Share | int | str
"""A number or the name of a C enum stands for itself."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a C kernel. then: elementwise calls that follow it on its result, which
    one variant may do at once.
    """

    kernel: str
    operands: tuple[Operand, ...]
    then: tuple[KernelCall, ...] = field(default=())

    @classmethod
    def of(cls, kernel: str, *operands: Operand | Value) -> KernelCall:
        """A call with these operands; a value is a pointer to its elements."""
        return cls(
            kernel, tuple(Pointer(x) if isinstance(x, Value) else x for x in operands)
        )

    @property
    def divisible(self) -> bool:
        """Whether several threads may share it."""
        return PARTS in self.operands

    def struct(self, ctype: str) -> Struct:
        """The operand that is a struct of this type."""
        return next(
            x for x in self.operands if isinstance(x, Struct) and x.ctype == ctype
        )

    def pointers(self) -> Iterator[Pointer]:
        """All tensors that it reads or writes, those in structs and of the calls that
        follow among them.
        """
        for x in self.operands:
            if isinstance(x, Pointer):
                yield x
            elif isinstance(x, Struct):
                yield from (v for v in x.fields.values() if isinstance(v, Pointer))
        for call in self.then:
            yield from call.pointers()
