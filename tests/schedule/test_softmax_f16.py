"""The exponentials of softmax in float16: of every half, within the stated bound."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.elements import inclusion
from edgec.ir import Builder, Graph, TensorType, interp
from edgec.ops.softmax import Softmax
from tests.harness import assert_agree, float16_graph
from tests.schedule.on import on
from tests.schedule.runner import BUILDS, build, run_on, start

WIDTHS = ("x86_64_v3", "x86_64_v4_vnni", "cortex_a76")

MAIN = """
#include <stdio.h>
int main(void) {{
    static ek_half x[{n}];
    if (fread(x, sizeof(ek_half), {n}, stdin) != {n}) return 2;
    for (int i = 0; i < {n}; i += EK_VL16)
        ek_vf16_store(x + i, ek_vf16_exp_below(ek_vf16_load(x + i), (ek_half){factor}));
    fwrite(x, sizeof(ek_half), {n}, stdout);
    return 0;
}}
"""


@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.parametrize("factor", [1.0, 0.125])
def test_exponentials_of_all_halves_keep_the_bound(name: str, factor: float) -> None:
    # From -0 to -infinity, and then -infinity again up to whole vectors.
    bits = np.minimum(np.arange(0x8000, 0xFC10), 0xFC00).astype(np.uint16)
    x = bits.view(np.float16)
    text = inclusion("simd/ek_softmax_f16_simd.h") + MAIN.format(
        n=x.size, factor=factor
    )
    done = start(name, build(BUILDS[name][0], text), x.tobytes())
    assert done.returncode == 0, done.stderr

    y = np.frombuffer(done.stdout, np.float16).astype(np.float64)
    exact = np.exp(x.astype(np.float64) * factor)
    assert np.abs(y - exact).max() <= 1.15 * 2.0**-11
    assert (y >= 0).all()
    assert y[0] == 1
    # What a mask takes out has no share at all.
    assert (y[x <= -11 / factor] == 0).all()


def _rows(n: int) -> Graph:
    """The softmax of 40 rows."""
    build = Builder("softmax")
    x = build.input("x", TensorType((40, n)))
    build.graph.outputs = [build.add(Softmax(), [x], "y")]
    graph = float16_graph(build.graph)
    assert graph is not None
    return graph


@pytest.mark.parametrize("name", on(*WIDTHS))
def test_rows_of_any_length_sum_to_one(name: str) -> None:
    """Sums in halves have few terms, so that long rows are as accurate as short ones."""
    graphs = [_rows(n) for n in (3, 16, 17, 49, 197, 513, 3000)]
    rng = np.random.default_rng(5)
    given = []
    for graph in graphs:
        (x,) = graph.inputs
        given.append({x.name: rng.normal(0, 2, x.type.shape).astype(np.float16)})

    for graph, inputs, got in zip(
        graphs, given, run_on(name, graphs, given), strict=True
    ):
        assert_agree(got, interp(graph, inputs), 2.0**-9, of=graph)
        (y,) = got.values()
        sums = y.astype(np.float64).sum(-1)
        assert np.abs(sums - 1).max() < 2.0**-9
