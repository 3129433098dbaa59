"""Every tile of csrc/ek_gemm_s8.h computes the law, bit for bit, however its result is shared among threads."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgec.ir import Array, Sample, Struct, Table, interp
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.cores import Core, core
from edgec.schedule.gemm_s8.avx2 import AVX2
from edgec.schedule.gemm_s8.dot import DOT
from edgec.schedule.gemm_s8.neon import LANES, NEON
from edgec.schedule.gemm_s8.panels import FAST, Requant, Tiles, pack
from edgec.schedule.gemm_s8.vnni import VNNI
from edgec.schedule.gemm_s8.windows import Windows
from edgec.schedule.steps import chosen
from tests.harness import has, random_inputs, sample_graph
from tests.schedule.gemm_cases import cases
from tests.schedule.gemm_runner import FINISH, Case, program, run

ZIG = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static")
ZIG_X86 = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", "-static")
A76 = ("qemu-aarch64", "-cpu", "cortex-a76")


def check(tiles: Tiles, header: str, compiler: tuple[str, ...], emulator: tuple[str, ...], folder: Path) -> None:
    """All tiles of an ISA agree with the plain kernels."""
    every = [(t, 0) for t in tiles.tiles] + [(t, 1) for t in tiles.zero or tiles.tiles]
    entries = list(dict.fromkeys(tiles.function(t, zero) for t, zero in every))
    todo, want = cases(tiles, 800, 7, folder)
    assert {c.entry for c in todo} == set(entries)
    assert {c.fields["finish"] for c in todo} == set(FINISH)
    got = run([*emulator, str(program(header, entries, folder, compiler))], entries, todo)
    for c, y, right in zip(todo, got, want, strict=True):
        np.testing.assert_array_equal(y, right, err_msg=f"{c.entry} {c.parts} {c.fields}")


def call_case(sample: Sample) -> tuple[Case, Array]:
    """What a Cortex-A76 is given for an op, random data, and what the op means."""
    graph = sample_graph(sample)
    inputs = random_inputs(graph)
    (op,) = graph.ops
    (call,) = op.spec.calls(op)
    fast = chosen(call, core("cortex_a76"))
    (x,), (table, struct) = inputs.values(), (fast.operands[1], fast.operands[3])
    assert isinstance(table, Table)
    assert isinstance(struct, Struct)
    (want,) = interp(graph, inputs).values()
    return Case(fast.kernel, struct.fields, x, table.array, want.shape), want


@pytest.mark.cc
@pytest.mark.arm
def test_calls(tmp_path: Path) -> None:
    """Every int8 convolution, transposed one and fully connected layer is taken, and means what it meant."""
    samples = [s for op in (Conv2D, TransposeConv2D, FullyConnected) for s in op.samples()]
    todo = [call_case(s) for s in samples if s.args[0].type.dtype == "int8"]
    assert len(todo) > 30
    entries = sorted({case.entry for case, _ in todo})
    exe = program("dot/ek_gemm_s8_dot.h", entries, tmp_path, (*ZIG, "-mcpu=cortex_a76"))
    for y, (case, want) in zip(run([*A76, str(exe)], entries, [case for case, _ in todo]), todo, strict=True):
        np.testing.assert_array_equal(y, want, err_msg=f"{case.entry} {case.fields}")


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


@pytest.mark.cc
@pytest.mark.arm
def test_lanes(tmp_path: Path) -> None:
    emulator = ("qemu-aarch64", "-cpu", "cortex-a53")
    check(LANES, "neon/ek_gemm_s8_lanes_neon.h", (*ZIG, "-mcpu=cortex_a53"), emulator, tmp_path)


def test_short_windows_have_channels_along_lanes() -> None:
    """Those that pieces of 16 elements fit badly, the more so with a zero point."""
    plain = Requant(0, 0, -128, -128, 127)
    a53, a72 = core("cortex_a53"), core("cortex_a72")

    def takes(depth: int, on: Core, q: Requant = plain) -> bool:
        return LANES.takes(Windows(1, 8, 8, depth, 8, 8, 16), q, on)

    assert [k for k in (8, 16, 24, 32, 64, 96, 128) if takes(k, a53)] == [8, 24, 32, 64, 96]
    assert [k for k in (8, 16, 24, 32, 64, 96) if takes(k, a53, replace(plain, w_zero=3))] == [8, 16, 24, 32, 64]
    assert not takes(8, a72)
    assert takes(8, a72, replace(plain, w_zero=3))
    first = Windows(1, 9, 9, 3, 4, 4, 8, 3, 3, 2, 2)
    assert LANES.takes(first, plain, a53)  # its windows are gathered
    assert not LANES.takes(replace(first, ic=16), plain, a53)


@pytest.mark.cc
@pytest.mark.skipif(not has("avx512_vnni"), reason="this processor has no AVX-512 VNNI")
def test_vnni(tmp_path: Path) -> None:
    check(VNNI, "vnni/ek_gemm_s8_vnni.h", (*ZIG_X86, "-mcpu=x86_64_v4+avx512vnni"), (), tmp_path)


@pytest.mark.cc
@pytest.mark.skipif(not has("avx2"), reason="this processor has no AVX2")
def test_avx2(tmp_path: Path) -> None:
    check(AVX2, "avx2/ek_gemm_s8_avx2.h", (*ZIG_X86, "-mcpu=x86_64_v3"), (), tmp_path)


def test_a_channel_that_no_input_changes_leaves_the_others_the_fast_way() -> None:
    """One whose bias of 2^30 drowns its sums: vww96_i8 has layers with many of them."""
    windows, w = Windows(1, 1, 4, 8, 1, 4, 2), np.full((2, 1, 1, 8), 3, np.int8)
    q = Requant(-128, 0, -128, -128, 127, np.array([1 << 30, 1 << 30]), np.array([-7, -27]))
    bias = np.array([100, -(1 << 30)])
    for tiles in (DOT, VNNI, AVX2):
        assert pack(windows, w, bias, q, tiles, tiles.tiles[-1]).finish == FAST
