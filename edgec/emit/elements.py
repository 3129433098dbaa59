"""Kernels for float16: the texts of those for float32, with other elements.

csrc has each kernel for floats once, as a text for float32. The text of a header named
`…_f32…` becomes that of `…_f16…` by the names in it:

- kernels and macros: f32 becomes f16, and F32 becomes F16
- elements: `float` becomes `ek_half`
- vectors of ek_simd.h: ek_vf becomes ek_vf16, EK_VL becomes EK_VL16, and so on, which
  ek_simd_f16.h defines

A header whose first comment says "computed as floats" keeps its arithmetic: only its
pointers are to float16, which its loads and stores convert. A header that csrc has
for float16 itself takes the place of a text.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import fields, replace
from functools import cache
from typing import Any

from edgec.ir import CStruct, Kernel, KernelCall, Table
from edgec.ir.c_headers import CSRC
from edgec.ir.float16 import rounded

AS_FLOATS = "computed as floats"
"""The words of a header whose arithmetic stays that of float32."""

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

_NAMES = ((r"f32", "f16"), (r"F32", "F16"))
"""The parts of names that stand for the element type."""

_VECTORS = (
    (r"\bfloat\b", "ek_half"),
    (r"\bek_(vf|vi|vmask)(?=_|\b)", r"ek_\g<1>16"),
    (r"\bEK_(VL|MASKS)\b", r"EK_\g<1>16"),
)
"""The other names of a text that computes with vectors of its elements."""

_FLOATS = (
    (r"\bfloat \*", "ek_half *"),
    (r"\bek_vf_(load|store|load_rest|store_n|row)\b", r"ek_vf_\g<1>_as"),
)
"""The other names of a text that is computed as floats."""


def float16_name(name: str) -> str:
    """Return the name for float16 of a kernel, a header or a struct for float32."""
    return name.replace("f32", "f16")


def float16_call(call: KernelCall) -> KernelCall:
    """Return the call of the kernel for float16, for a call of that for float32."""
    operands = tuple(map(_float16_operand, call.operands))
    return KernelCall(_float16_kernel(call.kernel), operands)


def _float16_kernel(kernel: Kernel) -> Kernel:
    """Return the kernel for float16 of one for float32."""
    return replace(
        kernel,
        dtype=float16_name(kernel.dtype),
        header=float16_name(kernel.header),
        symbol=float16_name(kernel.symbol),
    )


def _float16_operand(x: Any, of_elements: bool = True) -> Any:
    """Return an operand, or a field of a struct, of a kernel for float16.

    of_elements: whether tables hold elements; those of other structs, as the weights of
    a resize, are floats for every kernel.
    """
    match x:
        case Table():
            return Table(rounded(x.array), x.hint) if of_elements else x
        case Kernel():
            return _float16_kernel(x)
        case str():
            return float16_name(x)
        case CStruct():
            return _float16_struct(x)
        case list() | tuple():
            return [_float16_operand(v, of_elements) for v in x]

    return x


def _float16_struct(x: CStruct) -> CStruct:
    """Return a struct of the kernels for float16, from that for float32."""
    of_elements = "f32" in x.ctype
    values: dict[str, Any] = {}
    for field in fields(x):
        value = getattr(x, field.name)
        values[field.name] = _float16_operand(value, of_elements)

    # Python has one class for both structs of C.
    struct = replace(x, **values)
    object.__setattr__(struct, "ctype", float16_name(x.ctype))
    return struct


def inclusion(header: str) -> str:
    """Return the lines of C by which a file has what a header of csrc defines.

    header: the path in csrc. One for float16 that csrc does not have is written out.
    """
    if (CSRC / header).is_file():
        return f'#include "{header}"\n'

    return float16_text(header)


@cache
def float16_text(header: str) -> str:
    """Return the text of a header for float16, from that for float32.

    The headers for float32 that it includes are written out in it too.
    """
    text = (CSRC / header.replace("f16", "f32")).read_text(encoding="utf-8")
    comment = _COMMENT.match(text)
    keeps_floats = comment is not None and AS_FLOATS in comment[0]
    folder = posixpath.dirname(header)

    parts: list[str] = []
    for i, part in enumerate(_INCLUDE.split(text)):
        # Every second part is the name of an included header.
        if i % 2 == 0:
            parts.append(_renamed(part, keeps_floats))
            continue

        path = posixpath.normpath(posixpath.join(folder, part))
        if not (CSRC / path).is_file():
            path = part
        parts.append(inclusion(float16_name(path)))

    # The vectors of float16 are wanted by every text with vectors.
    vectors = '#include "simd/ek_simd_f16.h"\n' if folder else ""
    return vectors + "".join(parts)


def _renamed(text: str, keeps_floats: bool) -> str:
    """Return a piece of text for float16."""
    code = _COMMENT.sub("", text)
    for pattern, name in (*_NAMES, *(_FLOATS if keeps_floats else _VECTORS)):
        code = re.sub(pattern, name, code)

    return re.sub(r"\n{3,}", "\n\n", code)
