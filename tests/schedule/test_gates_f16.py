"""Gates of float16 by vectors (ek_gates_f16_simd.h), for every half: within the bounds
that the header states.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from edgec.ops.unary import ERF
from tests.schedule.on import on
from tests.schedule.runner import BUILDS, build, start

Doubles = NDArray[np.float64]

BOUNDS = {
    "gelu": 2.0**-10.8,
    "gelu_tanh": 2.0**-10.8,
    "silu": 2.0**-10,
    "hard_swish": 2.0**-10,
    "logistic": 2.0**-9.8,
}
"""The largest error for results up to 1; beyond, the largest part of x."""

ENDS = {"gelu": 4.4, "gelu_tanh": 4.2, "silu": 10.0, "hard_swish": 3.0}
"""From here on the result is x, or 0 for negative x."""

MAIN = """
#include "simd/ek_gates_f16_simd.h"
#include <stdio.h>
int main(void) {{
    static ek_half x[{n}], y[{n}];
    const ek_coefficients_t none = {{0, 0}};
    if (fread(x, sizeof(ek_half), {n}, stdin) != {n}) return 2;
    {calls}
    return 0;
}}
"""
CALL = """
    ek_{name}_f16_simd(x, y, {n}, &none, 0, 1);
    fwrite(y, sizeof(ek_half), {n}, stdout);
"""


@cache
def _halves() -> NDArray[np.float16]:
    """Return all finite halves."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves[np.isfinite(halves)]


def _exact(name: str, x: Doubles) -> Doubles:
    """Return a function of doubles, to the last places of a half and more."""
    near = np.clip(x, -40, 40)
    sigma = 1 / (1 + np.exp(-near))
    bend = np.sqrt(2 / np.pi) * (near + 0.044715 * near**3)
    gates = {
        "gelu": np.asarray(1 + ERF(near / np.sqrt(2))) / 2,
        "gelu_tanh": (1 + np.tanh(bend)) / 2,
        "silu": sigma,
        "hard_swish": np.clip(x + 3, 0, 6) / 6,
    }
    if name == "logistic":
        return sigma

    # The tails of SiLU beyond -40 are less than a half can be.
    return np.where(x < -40, 0, x * gates[name])


@pytest.mark.parametrize("name", on("cortex_a76", "x86_64_v3", "x86_64_v4_vnni"))
def test_gates_keep_their_bounds_for_every_half(name: str) -> None:
    x = _halves()
    calls = "".join(CALL.format(name=gate, n=x.size) for gate in BOUNDS)
    main = MAIN.format(n=x.size, calls=calls)
    done = start(name, build(BUILDS[name][0], main), x.tobytes())
    assert done.returncode == 0, done.stderr
    results = np.frombuffer(done.stdout, np.float16).reshape(len(BOUNDS), -1)

    wide = x.astype(np.float64)
    for (gate, bound), got in zip(BOUNDS.items(), results, strict=True):
        y = got.astype(np.float64)
        error = np.abs(y - _exact(gate, wide)) / np.maximum(wide, 1)
        worst = error.argmax()
        assert error[worst] <= bound, f"{gate} is off by {error[worst]} at {x[worst]}"

        is_far = np.abs(wide) > ENDS.get(gate, np.inf)
        assert (y[is_far] == np.maximum(wide[is_far], 0)).all(), gate


@pytest.mark.parametrize("name", on("cortex_a76", "x86_64_v3"))
def test_infinities_and_nan_go_through(name: str) -> None:
    x = np.array([np.inf, np.nan, -np.inf], np.float16)
    gates = ("gelu", "gelu_tanh", "silu", "logistic")
    calls = "".join(CALL.format(name=gate, n=x.size) for gate in gates)
    main = MAIN.format(n=x.size, calls=calls)
    done = start(name, build(BUILDS[name][0], main), x.tobytes())
    results = np.frombuffer(done.stdout, np.float16).reshape(len(gates), -1)
    want = {"logistic": (1.0, np.nan, 0.0)}
    for gate, got in zip(gates, results, strict=True):
        np.testing.assert_array_equal(got, want.get(gate, (np.inf, np.nan, 0.0)))
