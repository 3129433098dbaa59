"""The structs of the headers of csrc, as frozen dataclasses.

A struct `ek_batch_matmul_t` is the class BatchMatmulParams, if this module knows the
types of all its fields. In the comment behind fields "may be left out", "or null" and
"one of EK_…" say what they take besides values of their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import edgec_runtime

from edgec.ir.c_struct import CField, CStruct, Table
from edgec.ir.kernel import Kernel

CSRC = Path(edgec_runtime.__file__).parent / "csrc"
"""The C that generated code includes."""

_MODULE = "edgec.ir.c_structs"
_STRUCT = re.compile(r"^typedef struct \{(.*?)^\} (\w+);", re.M | re.S)
_DECLARATION = re.compile(r"/\*.*?\*/|([^;/]+);(?: */\*(.*?)\*/)?", re.S)
_BASE = re.compile(r"((?:const )?\w+) (.*)")
_NAME = re.compile(r"(\**)(\w+)(?:\[(\w+)\])?")

_KINDS = {
    "int": "int",
    "int16_t": "int",
    "int32_t": "int",
    # Their extremes have names in C.
    "int64_t": "int | str",
    "uint64_t": "int | str",
    "float": "float",
    "double": "float",
    "const int8_t *": "Table",
    "const uint8_t *": "Table",
    "const int32_t *": "Table",
    "const float *": "Table",
    "const double *": "Table",
    # Packed weights of any type, or the parameters of a layer of a cascade.
    "const void *": "Table | CStruct",
}
"""What a field of each C type takes, as a type of Python."""
_TYPES: dict[str, type] = {
    "int": Integral,
    "float": Real,
    "str": str,
    "Table": Table,
    "CStruct": CStruct,
    "Kernel": Kernel,
}


@cache
def structs() -> dict[str, type[CStruct]]:
    """Return the class of every struct whose types are known, by its name.

    They are in the order of the headers, but a struct comes after those that it holds.
    """
    texts = [path.read_text(encoding="utf-8") for path in sorted(CSRC.rglob("*.h"))]
    text = "".join(texts)
    bodies = {ctype: body for body, ctype in _STRUCT.findall(text)}
    for ctype in bodies:
        _make(ctype, bodies)

    return {struct.__name__: struct for struct in CStruct.registry.values()}


def python_class(ctype: str) -> str:
    """Return the name of a struct's class."""
    words = ctype.removeprefix("ek_").removesuffix("_t").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Params"


def _make(ctype: str, bodies: dict[str, str]) -> None:
    """Make the class of a struct, and those of the structs in it."""
    if ctype in CStruct.registry:
        return

    c_fields: dict[str, CField] = {}
    for name, field_type, length, note in _fields(bodies[ctype]):
        inner = field_type.removeprefix("const ").removesuffix(" *")
        if inner in bodies:
            _make(inner, bodies)

        kinds = _kinds(field_type, inner, note)
        if iskeyword(name) or not all(kind in _TYPES for kind in kinds):
            return

        types = tuple(_TYPES[kind] for kind in kinds)
        left_out = "may be left out" in note
        c_fields[name] = CField(field_type, kinds, types, length, left_out)

    name = python_class(ctype)
    namespace: dict[str, Any] = {
        "__module__": _MODULE,
        "__annotations__": dict.fromkeys(c_fields, object),
        "ctype": ctype,
        "c_fields": c_fields,
    }
    namespace |= {n: None for n, field in c_fields.items() if field.left_out}
    struct = type(name, (CStruct,), namespace)
    _TYPES[name] = dataclass(frozen=True, kw_only=True)(struct)


def _fields(body: str) -> Iterator[tuple[str, str, str | None, str]]:
    """Yield the name, C type and length of each field of a struct, and its comment."""
    for declaration, note in _DECLARATION.findall(body):
        # Comments on lines of their own have no declaration.
        if not declaration:
            continue

        base = _BASE.fullmatch(" ".join(declaration.split()))
        base_type, names = base.groups() if base else (declaration, declaration)
        for part in names.split(", "):
            name = _NAME.fullmatch(part)
            # Matrices, and pointers to functions without a name, are of no known type.
            stars, field, length = name.groups() if name else (part, part, None)
            yield field, f"{base_type} {stars}".rstrip(), length, note


def _kinds(field_type: str, inner: str, note: str) -> tuple[str, ...]:
    """Return the names of the types that a field takes, without None.

    inner: the C type without a pointer. note: the comment behind the field.
    """
    kind = _KINDS.get(field_type, python_class(inner))
    if inner.endswith("_fn"):
        kind = "Kernel | str"
    if "one of EK_" in note:
        kind += " | str"
    if "or null" in note:
        kind += " | int"

    return tuple(kind.split(" | "))
