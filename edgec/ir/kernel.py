"""Kernel calls: what an op asks of the C back-end, as data.

`OpDef.c` returns the call of a plain kernel, which says completely what is to be
computed; edgec/schedule chooses a variant of the kernel, and edgec/emit prints the C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgec.ir.types import Array
from edgec.ir.value import Value


@dataclass(frozen=True, eq=False)
class Pointer:
    """A pointer to the elements of a tensor.

    A constant tensor is written to the C file like a `Table`.

    Attributes:
        value: the tensor
        offset: first element
    """

    value: Value
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Table:
    """A constant array of any element type of the IR, or float64.

    Attributes:
        array: the elements
        hint: beginning of the array's name in the C
    """

    array: Array
    hint: str


@dataclass(frozen=True)
class Scratch:
    """Memory without content before and after the call.

    Attributes:
        nbytes: bytes for each thread that shares the call
    """

    nbytes: int


@dataclass(frozen=True, eq=False)
class Struct:
    """The address of a constant C struct.

    Attributes:
        ctype: name of the struct's type
        fields: numbers, names of C enumerators, sequences of them, tables and pointers
    """

    ctype: str
    fields: Mapping[str, object]

    def __init__(self, ctype: str, **fields: object) -> None:
        """Hold a struct of a type with the given fields."""
        # The dataclass is frozen, and its fields come as keywords.
        object.__setattr__(self, "ctype", ctype)
        object.__setattr__(self, "fields", fields)

    def number(self, name: str) -> int:
        """Return a field that is an integer."""
        value = self.fields[name]
        assert isinstance(value, int), f"{self.ctype}.{name} is {value!r}"
        return value

    def numbers(self) -> dict[str, int]:
        """Return all fields, which are integers."""
        return {name: self.number(name) for name in self.fields}

    def real(self, name: str) -> float:
        """Return a field that is a number, as a float."""
        value = self.fields[name]
        assert isinstance(value, (int, float)), f"{self.ctype}.{name} is {value!r}"
        return float(value)

    def table(self, name: str) -> Array:
        """Return the array of a field that is a table."""
        value = self.fields[name]
        assert isinstance(value, Table), f"{self.ctype}.{name} is {value!r}"
        return value.array


@dataclass(frozen=True)
class Share:
    """An operand that names the part of its result that a call computes.

    Attributes:
        alone: C expression where one call computes all
        shared: C expression where threads share the call
    """

    alone: str
    shared: str


PART = Share("0", "part")
"""Number of the thread's part."""
PARTS = Share("1", "parts")
"""Number of parts."""


def constant(x: object) -> Array | None:
    """Return the elements of a constant operand; None for computed ones."""
    if isinstance(x, Pointer):
        return x.value.const
    return x.array if isinstance(x, Table) else None


Operand = Pointer | Table | Scratch | Struct | Share | int | str
"""An operand of a kernel; numbers and names of C enumerators stand for themselves."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a C kernel.

    Attributes:
        kernel: name of the C function
        operands: its arguments
        then: elementwise calls that follow on its result; a fused variant may do all at
            once
    """

    kernel: str
    operands: tuple[Operand, ...]
    then: tuple[KernelCall, ...] = field(default=())

    @classmethod
    def of(cls, kernel: str, *operands: Operand | Value) -> KernelCall:
        """Return a call with these operands; a value is a pointer to its elements."""
        # A value stands for all of its elements.
        pointers = (Pointer(x) if isinstance(x, Value) else x for x in operands)
        return cls(kernel, tuple(pointers))

    @property
    def divisible(self) -> bool:
        """Whether several threads may share it."""
        return PARTS in self.operands

    def struct(self, ctype: str) -> Struct:
        """Return the operand that is a struct of this type."""
        structs = (x for x in self.operands if isinstance(x, Struct))
        return next(x for x in structs if x.ctype == ctype)

    def pointers(self) -> Iterator[Pointer]:
        """Yield the pointers to all tensors that it reads or writes.

        They include those in structs and those of the calls that follow.
        """
        for operand in self.operands:
            if isinstance(operand, Pointer):
                yield operand
            elif isinstance(operand, Struct):
                fields = operand.fields.values()
                yield from (field for field in fields if isinstance(field, Pointer))

        # Fused calls read tensors of their own.
        for call in self.then:
            yield from call.pointers()
