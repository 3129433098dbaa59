"""Kernels that are one text for the vectors of every CPU: on each core what the plain kernels and `ref` give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import OpDef, Sample, interp
from edgec.schedule.cores import core
from edgec.schedule.kernels import arg, binary, elementwise, resize, rows
from edgec.schedule.variant import legal
from tests.harness import assert_agree, sample_graph
from tests.schedule.batch import QEMU_CPU, SANITIZED, batch, run_on, run_text
from tests.schedule.samples import edges

NAMES = {v.name for family in (arg, binary, elementwise, resize, rows) for v in family.VARIANTS}
WIDE = "avx512_vnni" in Path("/proc/cpuinfo").read_text()
CORES = [
    *(pytest.param(name, marks=pytest.mark.arm) for name in QEMU_CPU),
    "x86_64_v3",
    pytest.param("x86_64_v4_vnni", marks=pytest.mark.skipif(not WIDE, reason="this processor has no AVX-512 VNNI")),
    pytest.param(SANITIZED, marks=pytest.mark.cc),
]


def _replaced(sample: Sample) -> bool:
    """Whether one of these kernels computes a sample."""
    op = sample_graph(sample).ops[0]
    calls = op.spec.calls(op) if op.spec.kind != "opaque" else ()
    return any(v.name in NAMES for call in calls for v, _ in legal(call, core("x86_64_v3"))[:1])


def _samples() -> Iterator[Sample]:
    for kind in sorted(OpDef.registry):
        yield from OpDef.registry[kind].samples()
    yield from edges()


def _replaced_samples() -> Iterator[Sample]:
    return (s for s in _samples() if _replaced(s))


@pytest.mark.parametrize("name", CORES)
def test_vectors_agree_with_the_law(name: str, tmp_path: Path) -> None:
    graph, inputs = batch(_replaced_samples())
    assert len(graph.ops) > 300
    assert_agree(run_on(graph, inputs, name, tmp_path), interp(graph, inputs))


def test_parts_of_a_result_are_the_same_bits(tmp_path: Path) -> None:
    graph, inputs = batch(_replaced_samples())
    whole, parts = (run_on(graph, inputs, SANITIZED, tmp_path, parts) for parts in (1, 3))
    for name, y in whole.items():
        np.testing.assert_array_equal(parts[name].view(np.uint8), y.view(np.uint8), name)


@pytest.mark.parametrize("name", ["cortex_a53", "x86_64_v3"])
def test_no_sum_of_bytes_is_plain(name: str) -> None:
    samples = [s for s in edges() if s.spec.kind in ("add", "sub") and s.label.startswith(s.spec.kind)]
    taken = {}
    for sample in samples:
        op = sample_graph(sample).ops[0]
        (call,) = op.spec.calls(op)
        if op.output.type.shape == (256, 256):
            taken[sample.label] = next((v.name for v, _ in legal(call, core(name))), call.kernel)
    assert set(taken.values()) == {"ek_sum_s8_simd", "ek_law_s8_simd"}, taken
    assert taken["add7none"] == "ek_sum_s8_simd"  # factors of 0.78 and 2.1
    assert taken["add9none"] == "ek_law_s8_simd"


MATH = """
#include "simd/ek_unary_simd.h"
#include <stdio.h>
#define EK_TRIED(NAME, EXPR) \\
    EK_SHARED void NAME(const float *x, float *y, int n) { \\
        for (int i = 0; i < n; i += EK_VL) { const ek_vf v = ek_vf_load(x + i); ek_vf_store(y + i, EXPR); } \\
    }
"""
BOUNDS = {
    "exp": (math.exp, -87.3, 88.7, 2), "expm1": (math.expm1, -87.0, 0.0, 2), "log_near": (math.log, 1.2e-38, 3e38, 1),
    "log1p": (math.log1p, 0.0, 1.0, 2), "logistic": (lambda v: 1 / (1 + math.exp(-v)), -86.0, 1e30, 4),
    "tanh": (math.tanh, -1e30, 1e30, 3), "erf": (math.erf, -1e30, 1e30, 4),
    "softplus": (lambda v: math.log1p(math.exp(-abs(v))) + max(v, 0.0), -86.0, 1e30, 4),
}  # fmt: skip
"""What ek_simd_math.h says: between which arguments, within how many units of the last place."""


@pytest.mark.parametrize("name", [pytest.param("cortex_a72", marks=pytest.mark.arm), "x86_64_v3"])
def test_functions_of_floats_keep_their_bounds(name: str, tmp_path: Path) -> None:
    bits = np.arange(0, 0x7F800000, 9973, dtype=np.uint32).view(np.float32)
    x = np.concatenate([bits, -bits])
    x = x[: len(x) // 16 * 16]
    tried = "".join(f"EK_TRIED(try_{f}, ek_vf_{f}(v))\n" for f in BOUNDS)
    y = run_text(MATH + tried, [f"try_{f}" for f in BOUNDS], x, name, tmp_path)
    for got, (f, (exact, low, high, bound)) in zip(y, BOUNDS.items(), strict=True):
        inside = (x >= np.float32(low)) & (x <= np.float32(high))
        want = np.array([exact(float(v)) for v in x[inside]])
        _, exponent = np.frexp(want)
        # below the least normal number the last place stays where it is there
        units = np.abs(got[inside] - want) / np.ldexp(1.0, np.maximum(exponent, -125) - 24)
        assert units.max() <= bound, f"{f} is off by {units.max():.2f} at {x[inside][units.argmax()]!r}"
