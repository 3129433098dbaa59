"""Structs of C that kernels take: frozen dataclasses whose values are checked.

Their classes, which edgec.ir.c_headers makes from the headers of csrc, are in
edgec.ir.c_structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgec.ir.types import Array


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
class CField:
    """A field of a struct.

    Attributes:
        ctype: its type in C, of an array that of its elements
        kinds: the names of the types of Python that it takes, of an array its elements
        types: the types themselves
        length: number of elements of an array, or the C name of their most; None: no
            array
        left_out: whether it may be left out of the C, where it is zero then
    """

    ctype: str
    kinds: tuple[str, ...]
    types: tuple[type, ...]
    length: str | None
    left_out: bool

    @property
    def annotation(self) -> str:
        """The type of the field in Python."""
        kind = " | ".join(self.kinds)
        kind = kind if self.length is None else f"Sequence[{kind}]"
        return f"{kind} | None" if self.left_out else kind

    def takes(self, value: object) -> bool:
        """Return whether a value is of the field's type."""
        if value is None:
            return self.left_out
        if self.length is None:
            return isinstance(value, self.types)

        # As in C, elements at the end may be missing.
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        if self.length.isdecimal() and len(value) > int(self.length):
            return False

        return all(isinstance(v, self.types) for v in value)


@dataclass(frozen=True)
class CStruct:
    """Base of all structs; a subclass is registered under the name of its C type.

    A field that is None is left out of the C, where it is zero. A value that is not of
    its field's type raises TypeError.
    """

    registry: ClassVar[dict[str, type[CStruct]]] = {}
    """Structs by the names of their C types."""
    ctype: ClassVar[str]
    """Name of the C type."""
    c_fields: ClassVar[dict[str, CField]]
    """The fields by their names, in the order of the C."""

    def __init_subclass__(cls) -> None:
        """Register a struct."""
        CStruct.registry[cls.ctype] = cls

    def __post_init__(self) -> None:
        """Check the values."""
        for name, field in self.c_fields.items():
            value = getattr(self, name)
            if not field.takes(value):
                raise TypeError(
                    f"{self.ctype}.{name} is {field.annotation}, not {value!r}"
                )

    def given(self) -> dict[str, Any]:
        """Return the values of the fields that are not left out."""
        values = {name: getattr(self, name) for name in self.c_fields}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def is_complete(self) -> bool:
        """Whether no field is left out."""
        return len(self.given()) == len(self.c_fields)
