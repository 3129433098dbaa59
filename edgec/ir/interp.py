"""The numpy interpreter: slow, and the law. Everything fast is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from edgec.errors import UnsupportedError
from edgec.ir.graph import Graph
from edgec.ir.opdef import Op
from edgec.ir.types import Array
from edgec.ir.value import Value
from edgec.ir.verify import lacks_scale

Observe = Callable[[Value, Array], None]
"""Is given a value and its array, which it must not keep: the next op may write over
it. What it writes into the array is what later ops read.
"""
Run = Callable[[Mapping[str, Array], Observe | None], dict[str, Array]]
"""Runs one graph on inputs by name, shows every input and result in order, and returns
the outputs by name.
"""


def interp(
    graph: Graph, inputs: Mapping[str, Array], observe: Observe | None = None
) -> dict[str, Array]:
    """Run the graph.

    `inputs` by name, of exactly the declared shapes and dtypes; returns the outputs by
    name.

    State that is not among them has its initial value, and is among the outputs.
    `observe` is called with every computed value and its array (calibration,
    bisection).
    """
    env: dict[Value, Array] = {}
    inputs = {**initial(graph), **inputs}
    for v in graph.inputs:
        array = np.asarray(inputs[v.name])
        if array.shape != v.type.shape or array.dtype != v.type.np_dtype:
            raise ValueError(
                f"input {v.name} must be {v.type}, not {array.dtype}{list(array.shape)}"
            )
        env[v] = array
        if observe is not None:
            observe(v, array)
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    for i, op in enumerate(graph.ops):
        for v, array in zip(op.outputs, run_op(op, env), strict=True):
            env[v] = array
            if observe is not None:
                observe(v, array)
        for v in op.inputs:
            if last.get(v) == i and v not in graph.outputs:
                env.pop(v, None)
    return {v.name: v.const if v.const is not None else env[v] for v in graph.outputs}


def initial(graph: Graph) -> dict[str, Array]:
    """The state at the first call, by the names of inputs."""
    return {s.input: s.initial for s in graph.state}


class Calls:
    """Calls of a graph one after the other: it keeps the state between them.

    run: what computes them, `interp` by default.
    """

    def __init__(self, graph: Graph, run: Run | None = None) -> None:
        self.graph = graph
        self._run = run or (lambda inputs, observe: interp(graph, inputs, observe))
        self.reset()

    def reset(self) -> None:
        """Let the next call be the first one."""
        self.state = initial(self.graph)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs that are no state, by name."""
        outputs = self._run({**self.state, **inputs}, None)
        self.state = {s.input: outputs[s.output] for s in self.graph.state}
        return {v.name: outputs[v.name] for v in self.graph.returned()}

    def inputs(
        self, samples: Iterable[Mapping[str, Array]]
    ) -> Iterator[dict[str, Array]]:
        """What the graph is called with when these are given in turn: the state as
        well.
        """
        for sample in samples:
            whole = {**self.state, **sample}
            self(sample)
            yield whole


def run_op(op: Op, env: Mapping[Value, Array]) -> list[Array]:
    """The outputs of one op; checks that the reference keeps the declared types."""
    if op.is_empty:
        return [np.empty(v.type.shape, v.type.np_dtype) for v in op.outputs]
    args = [v.const if v.const is not None else env[v] for v in op.inputs]
    with np.errstate(all="ignore"):  # what is not finite is a value like others
        try:
            results = op.spec.ref(
                args, [v.type for v in op.inputs], [v.type for v in op.outputs]
            )
        except MemoryError as e:
            raise _too_large(op) from e
    for v, y in zip(op.outputs, results, strict=True):
        assert y.shape == v.type.shape, f"{op!r}: ref gives shape {y.shape}"
        assert y.dtype == v.type.np_dtype, f"{op!r}: ref gives {y.dtype}"
    return results


def _too_large(op: Op) -> UnsupportedError:
    """The error where numpy has no room for what an op computes."""
    types = ", ".join(str(v.type) for v in op.outputs)
    megabytes = sum(v.type.nbytes for v in op.outputs) / 1e6
    what = f"computing {types} ({megabytes:,.0f} MB) takes more memory than there is"
    return UnsupportedError(
        what,
        f"{op.kind} {op.source}".strip(),
        "give a smaller --input-shape, or more memory",
    )


def fold(op: Op) -> bool:
    """Turn the results of an op whose inputs are all constant into constants; tells
    whether it could.

    The caller takes the op out of its graph. One that lacks a scale stays: a later
    check tells of it.
    """
    if lacks_scale(op) or any(v.const is None for v in op.inputs):
        return False
    for v, array in zip(op.outputs, run_op(op, {}), strict=True):
        v.const = np.asarray(array, order="C")
    return True
