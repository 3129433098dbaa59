"""Depthwise weights with a zero point: windows slide, what int8 does not hold comes
from all weights of a channel.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import Requant
from edgec.schedule.kernels.dwconv2d import (
    BLOCK,
    DOT,
    NEON,
    DepthwiseShape,
    Loops,
    depthwise_call,
)

SHAPE = DepthwiseShape(1, 9, 9, BLOCK, 9, 9, BLOCK, 3, 3, 1, 1, 1, 1, 1, 1)


def function(w: Array, w_zero: int, loops: Loops) -> str:
    """That for a layer with weights [3, 3, BLOCK]."""
    some = np.full(BLOCK, 1 << 30), np.full(BLOCK, -7)
    kernel, p = depthwise_call(
        SHAPE,
        w,
        np.zeros(BLOCK, np.int64),
        Requant(3, w_zero, -128, -128, 127, *some),
        loops,
    )
    assert p.slide == 1 or kernel.name == f"ek_dwconv2d_s8_{loops.suffix}"
    return kernel.name


@pytest.mark.parametrize("loops", [NEON, DOT])
def test_windows_slide_whatever_the_zero_point(loops: Loops) -> None:
    w = np.linspace(-128, 125, 72).round().reshape(3, 3, BLOCK).astype(np.int8)
    for zero in (-128, -60, 100, 127):
        assert (
            function(w, zero, loops)
            == f"ek_dwconv2d_s8_k3s1_saturate_lifted_{loops.suffix}"
        )
    assert function(w // 2, 0, loops) == f"ek_dwconv2d_s8_k3s1_saturate_{loops.suffix}"


def test_lift_and_what_is_left_are_the_weights() -> None:
    v = np.random.default_rng(5).integers(-255, 0, (9, BLOCK))
    for loops in (NEON, DOT):
        lift = loops.lift(v)
        assert lift is not None
        assert np.abs(v - lift).max() <= 127
    # 255 apart: two of -128 side by side do not fit 16 bits, but sdot takes them
    v[:2, 0], v[2, 0] = -255, 0
    assert NEON.lift(v) is None
    assert DOT.lift(v) is not None
