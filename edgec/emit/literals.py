"""Numbers and arrays as C writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from edgec.ir import Array

CTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "ek_half",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
"""The C type of each element type."""

INTEGERS_PER_LINE = 16
FLOATS_PER_LINE = 8
"""Elements of a line of an initialiser."""


def literal(value: object) -> str:
    """Return a number, or the name of a C enumerator or function, as C."""
    if isinstance(value, (float, np.floating)):
        return float_literal(float(value))
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))

    return str(value)


def float_literal(value: float) -> str:
    """Return a float32 constant that reads back exactly."""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"

    # Nine significant digits tell all float32 apart.
    text = f"{value:.9g}"
    is_float = any(character in text for character in ".en")
    return f"{text}f" if is_float else f"{text}.0f"


def commented(text: str) -> str:
    """Return text from a file for a comment, which it can neither end nor leave."""
    # A slash neither begins nor ends a comment where a space is before it.
    return json.dumps(text).replace("*/", "* /").replace("/*", "/ *")


def initialiser(array: Array) -> str:
    """Return the elements of an array, separated by commas, on lines of some width."""
    # C has no arrays without elements.
    if array.size == 0:
        return "    0,\n"

    items = _items(array)
    width = FLOATS_PER_LINE if array.dtype.kind == "f" else INTEGERS_PER_LINE
    lines: list[str] = []
    for first in range(0, len(items), width):
        lines.append(f"    {', '.join(items[first : first + width])},\n")

    return "".join(lines)


def _items(array: Array) -> list[str]:
    """Return each element of an array as C."""
    flat = array.reshape(-1)

    to_text = _writer_of(flat.dtype)
    return [to_text(v) for v in flat.tolist()]


def _writer_of(dtype: np.dtype[Any]) -> Callable[[Any], str]:
    """Return the function that writes an element of a type."""
    if dtype in (np.float32, np.float16):
        return float_literal
    if dtype == np.float64:
        return repr
    if dtype.kind == "u" and dtype.itemsize > 2:
        return lambda v: f"{v}u"
    if dtype in (np.int32, np.int64):
        # -2147483648 is the negative of a number that int32 does not have.
        lowest = int(np.iinfo(dtype).min)
        return lambda v: str(v) if v != lowest else f"{lowest + 1} - 1"

    # Bools are bytes in C.
    return lambda v: str(int(v))


def string_literal(text: str) -> str:
    """Return a C string literal.

    Characters that are not plain ASCII become octal escapes of their UTF-8, and so do
    question marks, which could begin a trigraph.
    """
    characters: list[str] = []
    for byte in text.encode():
        is_plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        characters.append(chr(byte) if is_plain else f"\\{byte:03o}")

    return f'"{"".join(characters)}"'
