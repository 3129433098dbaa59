"""One fluent chain per test of a pass: what it changes, and that the numbers stay."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    Graph,
    Quant,
    TensorType,
    Value,
    interp,
    parse,
    print_graph,
    verify,
)
from edgec.passes.pipeline import available
from tests.harness import random_inputs


class Chain(Builder):
    """A graph under construction: `x()` is an input, `done()` ends it."""

    def __init__(self) -> None:
        super().__init__("test")
        self.rng = np.random.default_rng(0)

    def x(self, *shape: int, name: str = "x", quant: Quant | None = None) -> Value:
        return self.input(
            name, TensorType(shape, "int8" if quant else "float32", quant)
        )

    def weights(self, *shape: int) -> Value:
        return self.const(self.rng.normal(size=shape).astype(np.float32), "w")

    def number(self, value: float) -> Value:
        return self.const(np.array(value, np.float32), "k")

    def done(self, *outputs: Value) -> Check:
        self.graph.outputs = list(outputs)
        verify(self.graph, "canonical")
        return Check(self.graph)


class Check:
    """Runs passes on a graph and compares with what it was."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before = graph.copy()

    def run(self, *names: str) -> Check:
        """Each pass changes the graph, says so, and leaves it legal."""
        for name in names:
            text = print_graph(self.graph)
            assert available()[name].run(self.graph), f"{name} found nothing"
            assert print_graph(self.graph) != text, f"{name} says it changed the graph"
            verify(self.graph, available()[name].ensures)
        return self

    def settles(self, *names: str) -> Check:
        """None of these passes finds anything (more)."""
        for name in names:
            text = print_graph(self.graph)
            assert not available()[name].run(self.graph), (
                f"{name} changes the graph:\n{print_graph(self.graph, False)}"
            )
            assert print_graph(self.graph) == text, (
                f"{name} changed the graph and denies it"
            )
        return self

    def delta(self, **kinds: int) -> Check:
        """How many ops of each kind came or went; of kinds that are not named, none."""
        after, before = (
            Counter(op.kind for op in g.ops) for g in (self.graph, self.before)
        )
        changed = {
            k: after[k] - before[k] for k in after | before if after[k] != before[k]
        }
        assert changed == {k: n for k, n in kinds.items() if n}, print_graph(
            self.graph, False
        )
        return self

    def kinds(self, *kinds: str) -> Check:
        """All ops in order."""
        assert [op.kind for op in self.graph.ops] == list(kinds), print_graph(
            self.graph, False
        )
        return self

    def same(self, tolerance: float = 1e-5, copies: int = 3) -> Check:
        """The same names and types of inputs and outputs; integers bit for bit, floats
        within the tolerance.
        """
        for border in ("inputs", "outputs"):
            was, now = (
                [(v.name, v.type) for v in getattr(g, border)]
                for g in (self.before, self.graph)
            )
            assert now == was
        assert parse(print_graph(self.graph)) == self.graph
        for seed in range(copies):
            inputs = random_inputs(self.graph, seed)
            for name, want in interp(self.before, inputs).items():
                close(interp(self.graph, inputs)[name], want, tolerance)
        return self


def close(got: Array, want: Array, tolerance: float) -> None:
    if want.dtype.kind == "f" and tolerance:
        np.testing.assert_allclose(
            got,
            want,
            rtol=tolerance,
            atol=tolerance * float(np.abs(want).max(initial=1e-6)),
        )
    else:
        np.testing.assert_array_equal(got, want)
