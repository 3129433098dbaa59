"""The texts of kernels for float16, by compilers that take no warning."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgec.emit.c import CSRC
from edgec.emit.elements import float16_name, float16_text, inclusion
from tests import builds

HEADERS = sorted(p.relative_to(CSRC).as_posix() for p in CSRC.rglob("*_f32*.h"))
GCC = ("gcc", "-mavx2", "-mfma", "-mf16c", "-fsyntax-only")
A76 = (*builds.ZIG, "-target", "aarch64-linux-musl", "-mcpu=cortex_a76")
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")


def _compile(command: Sequence[str], text: str, folder: Path) -> str:
    """What a compiler says of a C text."""
    source = folder / "text.c"
    source.write_text(text)
    whole = [*command, *FLAGS, f"-I{CSRC}", "-c", str(source), "-o", f"{source}.o"]
    done = subprocess.run(whole, capture_output=True, text=True)
    return done.stderr[-3000:]


def _beside(header: str) -> str:
    """A file that includes a header for float32, and has its text for float16."""
    return f'#include "{header}"\n{inclusion(float16_name(header))}'


def test_there_are_headers() -> None:
    assert len(HEADERS) > 12
    assert "simd/ek_gemm_f32_simd.h" in HEADERS


@pytest.mark.cc
@pytest.mark.parametrize("header", HEADERS)
def test_a_text_compiles_beside_that_for_float32(header: str, tmp_path: Path) -> None:
    half = inclusion(float16_name(header))
    assert "f32" not in _after_includes(half)
    assert _compile(GCC, half, tmp_path) == ""
    assert _compile(GCC, _beside(header), tmp_path) == ""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(GCC, marks=pytest.mark.cc, id="avx2"),
        pytest.param(A76, marks=pytest.mark.arm, id="cortex_a76"),
    ],
)
def test_all_texts_are_in_one_file(command: Sequence[str], tmp_path: Path) -> None:
    """As in a graph of which some ops stay float32."""
    halves = [inclusion(float16_name(header)) for header in HEADERS]
    wide = [f'#include "{header}"\n' for header in HEADERS]
    assert _compile(command, "".join([*wide, *halves]), tmp_path) == ""
    assert _compile(command, "".join([*halves, *wide]), tmp_path) == ""


def _after_includes(text: str) -> str:
    """A text without its lines that include another."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith("#include"))


def test_arithmetic_is_that_of_the_elements() -> None:
    text = float16_text("simd/ek_tile_f16_simd.h")
    assert "ek_vf16_fma" in text or "EK_FMA_LANE_F16" in text
    assert "float" not in text.replace("#include", "")


def test_what_is_computed_as_floats_keeps_its_arithmetic() -> None:
    text = float16_text("simd/ek_unary_f16_simd.h")
    assert "const ek_half *x" in text
    assert "ek_vf_load_as(x)" in text
    assert "ek_vf_tanh(v)" in text
    assert "ek_vf16_tanh" not in text


def test_a_header_that_csrc_has_is_included() -> None:
    assert inclusion("ek_unary.h") == '#include "ek_unary.h"\n'
    assert inclusion("simd/ek_simd_f16.h") == '#include "simd/ek_simd_f16.h"\n'


def test_a_text_of_csrc_for_float16_takes_the_place_of_one_for_float32() -> None:
    gates = '#include "simd/ek_gates_f16_simd.h"\n'
    assert inclusion("simd/ek_gates_f16_simd.h") == gates
    text = float16_text("simd/ek_unary_f16_simd.h")
    assert gates in text
    assert "ek_gelu_f16_simd(" not in text
