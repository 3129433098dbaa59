"""Structs and kernels are what csrc declares: fields, types, order, and functions."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

import edgec.ops
import edgec.schedule.c_structs_fused  # noqa: F401 (registers its structs)
from edgec.emit.c import CSRC
from edgec.emit.elements import inclusion
from edgec.ir import Elementwise, Kernel, KernelFamily, KernelRounding
from edgec.ir.c_struct import CStruct, c_types
from edgec.ops.common import SUFFIX
from edgec.schedule.simd import on_vectors, vectorized

SUFFIXES = ("", "i8", *dict.fromkeys(SUFFIX.values()))
"""The types of kernels."""

_DECLARATION = re.compile(r"((?:const )?\w+) (.*)")
_FIELD = re.compile(r"(\**)\s*(\w+)((?:\[\w+\])?)")


@cache
def bodies() -> dict[str, str]:
    """What is between the braces of every struct of csrc, by the struct's name."""
    found = {}
    for path in CSRC.rglob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        for body, name in re.findall(r"typedef struct \{(.*?)\}\s*(\w+);", text, re.S):
            found[name] = body
    return found


def declared(name: str) -> list[tuple[str, str]]:
    """The fields of a struct, in order, with their C types."""
    fields = []
    for line in bodies()[name].split(";")[:-1]:
        declaration = _DECLARATION.fullmatch(" ".join(line.split()))
        assert declaration is not None, line
        base, names = declaration.groups()
        for part in names.split(","):
            field = _FIELD.fullmatch(part.strip())
            assert field is not None, part
            star, name, array = field.groups()
            fields.append((name, f"{base}{' ' if star else ''}{star}{array}"))
    return fields


@pytest.mark.parametrize("name", sorted(CStruct.registry))
def test_a_struct_is_as_csrc_declares_it(name: str) -> None:
    fields = c_types(CStruct.registry[name])
    assert list(fields.items()) == declared(name)


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
