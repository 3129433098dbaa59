"""Long graphs: what is kept up to date while places and chains are tried is what
counting all anew gives.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Builder, Graph, TensorType, Value, interp
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.matmul import FullyConnected
from edgec.ops.slice import Slice
from edgec.ops.unary import Logistic, Tanh
from edgec.schedule.liveness import PlacementPeak, lifetimes, peak, tensors
from edgec.schedule.views import Places, is_done, places
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import on
from tests.schedule.runner import run_on

WIDTH = 12


def recurrent(steps: int, seed: int = 0) -> Graph:
    """An LSTM of single operations, as some exporters write it: its first state is a
    constant.
    """
    rng = np.random.default_rng(seed)
    b = Builder("recurrent")
    x = b.input("x", TensorType((steps, WIDTH)))

    def const(*shape: int) -> Value:
        return b.const(
            (rng.normal(size=shape) / 3).astype(np.float32), f"k{rng.integers(1 << 40)}"
        )

    weights = {
        g: (const(WIDTH, WIDTH), const(WIDTH), const(WIDTH, WIDTH), const(WIDTH))
        for g in "ifco"
    }
    h = const(1, WIDTH)
    c = const(1, WIDTH)
    seen = list[Value]()
    for t in range(steps):
        now = b.add(Slice((t, 0), (1, WIDTH), (1, 1)), [x], f"x{t}")
        gates = {}
        for g, (w, wb, r, rb) in weights.items():
            sums = b.add(
                Add(),
                [
                    b.add(FullyConnected(), [now, w, wb]),
                    b.add(FullyConnected(), [h, r, rb]),
                ],
            )
            gates[g] = b.add(Tanh() if g == "c" else Logistic(), [sums])
        c = b.add(
            Add(),
            [b.add(Mul(), [gates["f"], c]), b.add(Mul(), [gates["i"], gates["c"]])],
        )
        h = b.add(Mul(), [gates["o"], b.add(Tanh(), [c])])
        seen.append(h)
    b.graph.outputs = [b.add(Concat(0), seen, "y")]
    return b.graph


@pytest.mark.parametrize("seed", range(3))
def test_the_most_bytes_are_those_of_counting_anew(seed: int) -> None:
    graph = recurrent(6, seed)
    calls = [op.calls() for op in graph.ops]
    border = {*graph.inputs, *graph.outputs}
    tried = list[int]()
    most = PlacementPeak(calls, border)

    def both(where: Places) -> int:
        steps = (tensors(c for c in some if not is_done(c, where)) for some in calls)
        want = peak(lifetimes(steps, where, border))
        assert most(where) == want
        tried.append(want)
        return want

    places(graph, calls, both)
    assert len(tried) > 6


@pytest.mark.parametrize("name", on("cortex_a72", "x86_64_v3"))
def test_a_function_times_a_constant_is_no_gate(name: str) -> None:
    """Of the constant first state: a gate of a convolution is v * logistic(v)."""
    graph = recurrent(3)
    x = random_inputs(graph)
    (got,) = run_on(name, [graph], [x])
    assert_agree(got, interp(graph, x), of=graph)
