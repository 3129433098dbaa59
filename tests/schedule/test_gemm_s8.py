"""Every tile of csrc/ek_gemm_s8.h computes the law, bit for bit, however its result is shared among threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.schedule.gemm_s8.dot import DOT
from edgec.schedule.gemm_s8.neon import NEON
from edgec.schedule.gemm_s8.panels import Tiles
from tests.schedule.gemm_cases import cases
from tests.schedule.gemm_runner import FINISH, program, run

ZIG = ("python", "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static")
A76 = ("qemu-aarch64", "-cpu", "cortex-a76")


def check(tiles: Tiles, header: str, compiler: tuple[str, ...], emulator: tuple[str, ...], folder: Path) -> None:
    """All tiles of an ISA agree with the plain kernels."""
    entries = list(dict.fromkeys(tiles.function(t, zero) for zero in (0, 1) for t in tiles.of(zero)))
    todo, want = cases(tiles, 800, 7, folder)
    assert {c.entry for c in todo} == set(entries)
    assert {c.fields["finish"] for c in todo} == set(FINISH)
    got = run([*emulator, str(program(header, entries, folder, compiler))], entries, todo)
    for c, y, right in zip(todo, got, want, strict=True):
        np.testing.assert_array_equal(y, right, err_msg=f"{c.entry} {c.parts} {c.fields}")


@pytest.mark.cc
@pytest.mark.arm
def test_dot(tmp_path: Path) -> None:
    check(DOT, "dot/ek_gemm_s8_dot.h", (*ZIG, "-mcpu=cortex_a76"), A76, tmp_path)


@pytest.mark.cc
@pytest.mark.arm
@pytest.mark.parametrize("core", ["a53", "a72"])
def test_neon(tmp_path: Path, core: str) -> None:
    emulator = ("qemu-aarch64", "-cpu", f"cortex-{core}")
    check(NEON, "neon/ek_gemm_s8_neon.h", (*ZIG, f"-mcpu=cortex_{core}"), emulator, tmp_path)
