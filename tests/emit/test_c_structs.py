"""Structs and kernels are what csrc declares: fields, types, order, and functions."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import edgec.ops  # noqa: F401 (registers the kernels)
from edgec.emit.elements import inclusion
from edgec.ir import Elementwise, Kernel, KernelFamily, KernelRounding, c_headers
from edgec.ir.c_headers import CSRC, structs
from edgec.ir.c_struct import CStruct
from edgec.ir.c_structs import ArgParams, CoefficientsParams, GatherParams
from edgec.ops.common import SUFFIX
from edgec.schedule.simd import on_vectors, vectorized

SUFFIXES = ("", "i8", *dict.fromkeys(SUFFIX.values()))
"""The types of kernels."""

STUB = Path(c_headers.__file__).with_name("c_structs.pyi")
"""The types of the fields, for mypy."""

_STUB_HEAD = '''"""What edgec.ir.c_headers makes of csrc; pytest --update-golden tests/emit writes it."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgec.ir.c_struct import CStruct, Table
from edgec.ir.kernel import Kernel
'''


def stub() -> str:
    """The classes as mypy reads them."""
    text = _STUB_HEAD
    for name, struct in structs().items():
        text += f"\n@dataclass(frozen=True, kw_only=True)\nclass {name}(CStruct):\n"
        for field, c_field in struct.c_fields.items():
            default = " = None" if c_field.left_out else ""
            text += f"    {field}: {c_field.annotation}{default}\n"

    return text


def test_mypy_knows_the_fields(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        STUB.write_text(stub())
    assert STUB.read_text() == stub(), "run pytest --update-golden tests/emit"


def declared(name: str, struct: type[CStruct]) -> str:
    """C that declares a struct's fields anew, under another name."""
    fields = ""
    for field, c_field in struct.c_fields.items():
        length = "" if c_field.length is None else f"[{c_field.length}]"
        fields += f"    {c_field.ctype} {field}{length};\n"
    return f"typedef struct {{\n{fields}}} {name};\n"


@pytest.mark.cc
def test_a_struct_has_the_fields_that_csrc_declares() -> None:
    """The same types at the same places, and no more of them."""
    text = ""
    known: set[str] = set()
    ctypes = {struct.ctype for struct in structs().values()}
    for header in sorted(CSRC.glob("*.h")) + sorted(CSRC.glob("simd/*_simd.h")):
        names = re.findall(r"^} (\w+);", header.read_text(encoding="utf-8"), re.M)
        if ctypes & set(names):
            text += f'#include "{header.relative_to(CSRC)}"\n'
            known |= set(names)
    for name, struct in structs().items():
        if struct.ctype not in known:
            continue
        text += declared(name, struct)
        text += f'_Static_assert(sizeof({name}) == sizeof({struct.ctype}), "");\n'
        for field in struct.c_fields:
            types = (f"__typeof__((({s} *)0)->{field})" for s in (name, struct.ctype))
            text += (
                f"_Static_assert(__builtin_types_compatible_p({', '.join(types)}) && "
                f"offsetof({name}, {field}) == offsetof({struct.ctype}, {field}), "
                f'"{name}.{field}");\n'
            )
    assert text.count("typedef") > 75

    command = ["cc", "-march=native", "-fsyntax-only", "-w", "-xc", f"-I{CSRC}", "-"]
    subprocess.run(command, input=text, text=True, check=True)


RUN = {"outer": 1, "n": 2, "inner": 3, "sign": 1, "last": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outer": 1.5}, "ek_arg_t.outer is int, not 1.5"),
        ({"outer": None}, "ek_arg_t.outer is int, not None"),
        ({"outer": "EK_MAX"}, "ek_arg_t.outer is int, not 'EK_MAX'"),
        ({"width": 1}, "unexpected keyword argument 'width'"),
    ],
)
def test_a_wrong_value_is_no_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ArgParams(**RUN | change)


def test_a_field_that_is_needed_must_be_given() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required .* argument: 'last'"):
        ArgParams(outer=1, n=2, inner=3, sign=1)  # type: ignore[call-arg]


def test_an_array_has_no_more_elements_than_in_c() -> None:
    six = (1, 1, 1, 1, 2, 3)
    assert GatherParams(dim=six, stride=six).dim == six
    with pytest.raises(TypeError, match=r"ek_gather_t.dim is Sequence\[int\], not"):
        GatherParams(dim=(*six, 1), stride=six)
    with pytest.raises(TypeError, match=r"ek_gather_t.stride is Sequence"):
        GatherParams(dim=six, stride=(*six[1:], 0.5))  # type: ignore[arg-type]


def test_only_a_field_whose_comment_says_so_may_be_left_out() -> None:
    assert list(CoefficientsParams(a=1.0).given()) == ["a"]
    with pytest.raises(TypeError, match=r"required .* argument: 'a'"):
        CoefficientsParams(b=1.0)  # type: ignore[call-arg]


@cache
def preprocessed(header: str) -> str:
    """A header after its macros are expanded, without what it includes of libc."""
    command = ["cc", "-E", "-P", "-xc", f"-I{CSRC}", "-"]
    return subprocess.run(
        command, input=inclusion(header), capture_output=True, text=True, check=True
    ).stdout


def parameters(text: str, function: str) -> str | None:
    """What a function is declared to take; None where it is not declared."""
    found = re.search(rf"\bvoid {function}\(([^)]*)\)", text)
    return found[1] if found else None


def all_kernels() -> list[Kernel]:
    """Every plain kernel."""
    return [k for family in KernelFamily.registry.values() for k in family.kernels()]


@pytest.mark.cc
def test_every_plain_kernel_is_in_its_header() -> None:
    missing = [
        kernel.name
        for kernel in all_kernels()
        if parameters(preprocessed(kernel.header), kernel.name) is None
    ]
    assert missing == []
    assert len(all_kernels()) > 500


@pytest.mark.cc
def test_no_plain_kernel_is_forgotten() -> None:
    """A header has no function of a family for another type or rounding."""
    known = {kernel.name for kernel in all_kernels()}
    pairs = [(s, d) for d in SUFFIXES for s in SUFFIXES if not s or d]
    for family in KernelFamily.registry.values():
        text = preprocessed(family.template.header)
        names = {
            family.of(dtype, rounding, source).name
            for source, dtype in pairs
            for rounding in KernelRounding
        }
        found = {
            n for n in re.findall(r"\bvoid (ek_\w+)\(", text) if n in names
        } - known
        assert found == set(), family.template.family


@pytest.mark.cc
def test_a_kernel_takes_structs_that_are_known() -> None:
    for kernel in all_kernels():
        taken = parameters(preprocessed(kernel.header), kernel.name) or ""
        for struct in re.findall(r"const (ek_\w+_t) \*", taken):
            assert struct in CStruct.registry, kernel


@pytest.mark.parametrize("elementwise", [Elementwise.UNARY, Elementwise.BINARY])
def test_what_is_vectorized_is_in_simd(elementwise: Elementwise) -> None:
    """Both ways: a function on vectors whose plain kernel does not say so is unused."""
    kernels = vectorized(elementwise)
    (header,) = {on_vectors(kernel).header for kernel in kernels}
    macro = r"EK_MAP_F32" if elementwise is Elementwise.UNARY else r"EK_ROWS(?:_F32)?"
    text = (CSRC / header).read_text(encoding="utf-8")
    for included in re.findall(r'^#include "(ek_\w+_f32_simd\.h)"', text, re.M):
        text += (CSRC / "simd" / included).read_text(encoding="utf-8")
    by_macro = re.findall(rf"^{macro}\((ek_\w+_f32_simd),", text, re.M)
    by_hand = re.findall(r"^EK_SHARED void (ek_\w+_f32_simd)\(", text, re.M)
    found = {*by_macro, *by_hand}
    plain = {kernel.name for kernel in all_kernels()}
    assert {on_vectors(kernel).name for kernel in kernels} == {
        name for name in found if name.removesuffix("_simd") in plain
    }
