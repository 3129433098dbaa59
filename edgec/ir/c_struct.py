"""Structs of C that kernels take, as frozen dataclasses with typed fields.

A subclass of `CStruct` has the fields of the C struct `ctype`, in the same order; each
annotation names the C type. `tests/emit/test_c_structs.py` compares both with the
declarations in csrc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, get_type_hints

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


Int = Annotated[int, "int"]
Int16 = Annotated[int, "int16_t"]
Int32 = Annotated[int, "int32_t"]
Float = Annotated[float, "float"]
Double = Annotated[float, "double"]
Enumerator = Annotated[int | str, "int"]
"""A number, or the name of a C enumerator."""
Int64Bound = Annotated[int | str, "int64_t"]
UInt64Bound = Annotated[int | str, "uint64_t"]
"""Numbers, or names of the extremes of a C type."""

Ints3 = Annotated[Sequence[int], "int[3]"]
Ints4 = Annotated[Sequence[int], "int[4]"]
Ints6 = Annotated[Sequence[int], "int[6]"]
Floats4 = Annotated[Sequence[float], "float[4]"]

Int8Table = Annotated[Table, "const int8_t *"]
UInt8Table = Annotated[Table, "const uint8_t *"]
Int32Table = Annotated[Table, "const int32_t *"]
FloatTable = Annotated[Table, "const float *"]
DoubleTable = Annotated[Table, "const double *"]


@dataclass(frozen=True)
class CStruct:
    """Base of all structs; a subclass is registered under the name of its C type.

    A field that is None is left out of the C, where it is zero.
    """

    registry: ClassVar[dict[str, type[CStruct]]] = {}
    """Structs by the names of their C types."""
    ctype: ClassVar[str]
    """Name of the C type."""

    def __init_subclass__(cls) -> None:
        """Register a struct; families of structs without a C type are not."""
        if "ctype" in cls.__dict__:
            CStruct.registry[cls.ctype] = cls

    def given(self) -> dict[str, Any]:
        """Return the values of the fields that are not left out, by their C names."""
        values: dict[str, Any] = {}
        for name in c_types(type(self)):
            value = getattr(self, python_name(name))
            if value is not None:
                values[name] = value

        return values

    @property
    def is_complete(self) -> bool:
        """Whether no field is left out."""
        return len(self.given()) == len(c_types(type(self)))


_C_TYPES: dict[str, dict[str, str]] = {}
"""The results of `c_types` so far, by the C name of the struct."""


def c_types(struct: type[CStruct]) -> dict[str, str]:
    """Return the C type of each field by its C name, in order.

    The annotation of a field names it: `Int` is Annotated[int, "int"].
    """
    # Resolving annotations takes far longer than printing a struct.
    if struct.ctype in _C_TYPES:
        return _C_TYPES[struct.ctype]

    hints = get_type_hints(struct, include_extras=True)
    types: dict[str, str] = {}
    for field in fields(struct):
        types[field.name.rstrip("_")] = _c_type(hints[field.name])

    _C_TYPES[struct.ctype] = types
    return types


def python_name(name: str) -> str:
    """Return the name of a field in Python, where `in` is a keyword."""
    return "in_" if name == "in" else name


def _c_type(hint: Any) -> str:
    """Return the C type in an annotation, which may be one of "… | None"."""
    for candidate in (hint, *getattr(hint, "__args__", ())):
        for note in getattr(candidate, "__metadata__", ()):
            return str(note)

    raise TypeError(f"{hint} names no C type")
