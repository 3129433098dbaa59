"""Functions of floats by vectors, of ek_simd_math.h: within the bounds that it states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.schedule.on import on
from tests.schedule.runner import BUILDS, build, start

MATH = """
#include "simd/ek_unary_f32_simd.h"
#include <stdio.h>
#define EK_TRIED(NAME, EXPR) \\
    EK_SHARED void NAME(const float *x, float *y, int n) { \\
        for (int i = 0; i < n; i += EK_VL) { const ek_vf v = ek_vf_load(x + i); ek_vf_store(y + i, EXPR); } \\
    }
"""
BOUNDS = {
    "exp": (math.exp, -87.3, 88.7, 2),
    "expm1": (math.expm1, -87.0, 0.0, 2),
    "log_near": (math.log, 1.2e-38, 3e38, 1),
    "log1p": (math.log1p, 0.0, 1.0, 2),
    "logistic": (lambda v: 1 / (1 + math.exp(-v)), -87.3, 1e30, 4),
    "tanh": (math.tanh, -1e30, 1e30, 3),
    "erf": (math.erf, -1e30, 1e30, 8),
    "softplus": (lambda v: math.log1p(math.exp(-abs(v))) + max(v, 0.0), -86.0, 1e30, 4),
}
"""What ek_simd_math.h says: between which arguments, within how many units of the last
place.
"""


MAIN = """
int main(void) {{
    static float x[{n}], y[{n}];
    if (fread(x, sizeof(float), {n}, stdin) != {n}) return 2;
    void (*const tried[])(const float *, float *, int) = {{{functions}}};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        tried[i](x, y, {n}), fwrite(y, sizeof(float), {n}, stdout);
    return 0;
}}
"""


@pytest.mark.parametrize("name", on("cortex_a72", "x86_64_v3"))
def test_functions_of_floats_keep_their_bounds(name: str) -> None:
    bits = np.arange(0, 0x7F800000, 9973, dtype=np.uint32).view(np.float32)
    x = np.concatenate([bits, -bits])
    x = x[: len(x) // 16 * 16]
    tried = "".join(f"EK_TRIED(try_{f}, ek_vf_{f}(v))\n" for f in BOUNDS)
    main = MAIN.format(n=x.size, functions=", ".join(f"try_{f}" for f in BOUNDS))
    done = start(name, build(BUILDS[name][0], MATH + tried + main), x.tobytes())
    assert done.returncode == 0, done.stderr
    y = np.frombuffer(done.stdout, np.float32).reshape(len(BOUNDS), -1)
    for got, (f, (exact, low, high, bound)) in zip(y, BOUNDS.items(), strict=True):
        inside = (x >= np.float32(low)) & (x <= np.float32(high))
        want = np.array([exact(float(v)) for v in x[inside]])
        _, exponent = np.frexp(want)
        # below the least normal number the last place stays where it is there
        units = np.abs(got[inside] - want) / np.ldexp(
            1.0, np.maximum(exponent, -125) - 24
        )
        assert units.max() <= bound, (
            f"{f} is off by {units.max():.2f} at {x[inside][units.argmax()]!r}"
        )


GELU_MAIN = """
int main(void) {{
    static float x[{n}], y[{n}];
    const ek_coefficients_t none = {{0, 0}};
    if (fread(x, sizeof(float), {n}, stdin) != {n}) return 2;
    ek_gelu_f32_simd(x, y, {n}, &none, 0, 1);
    fwrite(y, sizeof(float), {n}, stdout);
    return 0;
}}
"""


@pytest.mark.parametrize("name", on("cortex_a72", "x86_64_v3"))
def test_gelu_keeps_its_bound_and_ends_exactly(name: str) -> None:
    bits = np.arange(0, 0x7F000000, 99991, dtype=np.uint32).view(np.float32)
    near = np.linspace(-6, 6, 40001, dtype=np.float32)
    # The last vectors are not whole.
    x = np.concatenate([bits, -bits, near])
    main = GELU_MAIN.format(n=x.size)
    done = start(name, build(BUILDS[name][0], MATH + main), x.tobytes())
    assert done.returncode == 0, done.stderr
    y = np.frombuffer(done.stdout, np.float32).astype(np.float64)

    wide = x.astype(np.float64)
    exact = [v / 2 * math.erfc(-v / math.sqrt(2)) for v in wide.tolist()]
    # Half of a number near the least is rounded.
    allowed = 3.5e-7 * np.abs(wide) + 2.0**-149
    assert (np.abs(y - np.array(exact)) <= allowed).all()

    is_far = np.abs(x) > 5.05
    assert (y[is_far] == np.maximum(wide[is_far], 0)).all()
