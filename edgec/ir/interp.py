"""The reference interpreter: slow, in numpy. Everything fast is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from edgec.errors import UnsupportedError
from edgec.ir.graph import Graph
from edgec.ir.meaning import ref
from edgec.ir.opdef import Op
from edgec.ir.types import Array
from edgec.ir.value import Value
from edgec.ir.verify import lacks_scale

Observe = Callable[[Value, Array], None]
"""A function of a value and its array.

It must not keep the array: the next op may write over it. What it writes into the array
is what later ops read.
"""
Run = Callable[[Mapping[str, Array], Observe | None], dict[str, Array]]
"""A function that runs one graph on inputs by name.

It shows every input and result in order to the observer, and returns the outputs by
name.
"""


def interp(
    graph: Graph,
    inputs: Mapping[str, Array],
    observe: Observe | None = None,
) -> dict[str, Array]:
    """Run the graph, and return its outputs by name.

    inputs: arrays by name, of exactly the declared shapes and element types; state that
    is missing has its initial value, and is among the outputs. observe: called with
    every input and result (for calibration and bisection). Raises ValueError for an
    input of another shape or type.
    """
    show = observe or _ignore
    env: dict[Value, Array] = {}

    # Callers may give a state of their own.
    arrays = {**initial(graph), **inputs}
    for value in graph.inputs:
        array = np.asarray(arrays[value.name])
        _check_input(value, array)
        env[value] = array
        show(value, array)

    last_use = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    for value in graph.outputs:
        last_use.pop(value, None)
    for i, op in enumerate(graph.ops):
        for value, array in zip(op.outputs, run_op(op, env), strict=True):
            env[value] = array
            show(value, array)
        # Arrays are dropped after their last use, so that large networks fit in memory.
        for value in op.inputs:
            if last_use.get(value) == i:
                env.pop(value, None)

    # An output may be a constant.
    return {v.name: _elements(v, env) for v in graph.outputs}


def _ignore(value: Value, array: Array) -> None:
    """Observe nothing."""


def _elements(value: Value, env: Mapping[Value, Array]) -> Array:
    """Return the elements of a constant, or of a value computed so far."""
    return value.const if value.const is not None else env[value]


def _check_input(value: Value, array: Array) -> None:
    """Raise ValueError unless an array has the declared shape and element type."""
    type_ = value.type
    if array.shape == type_.shape and array.dtype == type_.np_dtype:
        return

    raise ValueError(
        f"input {value.name} must be {type_}, not {array.dtype}{list(array.shape)}"
    )


def initial(graph: Graph) -> dict[str, Array]:
    """Return the state at the first call, by the names of the inputs."""
    return {s.input: s.initial for s in graph.state}


class Calls:
    """Calls of a graph one after the other, with the state kept between them.

    Attributes:
        graph: the graph
        state: arrays of the next call by the names of the inputs
    """

    def __init__(self, graph: Graph, run: Run | None = None) -> None:
        """Call a graph, by the function `run` (None: `interp`)."""
        self.graph = graph
        self._run = run or (lambda inputs, observe: interp(graph, inputs, observe))
        self.reset()

    def reset(self) -> None:
        """Let the next call be the first one."""
        self.state = initial(self.graph)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one call, and return the outputs without state by name."""
        outputs = self._run({**self.state, **inputs}, None)

        # What an output is now, its input is at the next call.
        self.state = {s.input: outputs[s.output] for s in self.graph.state}
        return {v.name: outputs[v.name] for v in self.graph.returned()}

    def inputs(
        self,
        samples: Iterable[Mapping[str, Array]],
    ) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each call, state among them, for samples in turn.

        The graph is called with each sample to get the state of the next.
        """
        for sample in samples:
            inputs_and_state = {**self.state, **sample}
            self(sample)
            yield inputs_and_state


def run_op(op: Op, env: Mapping[Value, Array]) -> list[Array]:
    """Return the outputs of one op, and check that they have the declared types.

    env: arrays of the values that are no constants. Raises UnsupportedError when numpy
    runs out of memory.
    """
    # numpy has no maximum of nothing.
    if op.is_empty:
        return [np.empty(v.type.shape, v.type.np_dtype) for v in op.outputs]

    arrays = [_elements(v, env) for v in op.inputs]
    input_types = [v.type for v in op.inputs]
    output_types = [v.type for v in op.outputs]
    # Infinities and elements that are not a number are values like others.
    with np.errstate(all="ignore"):
        try:
            results = ref(op.spec, arrays, input_types, output_types)
        except MemoryError as e:
            raise _out_of_memory(op) from e

    for type_, result in zip(output_types, results, strict=True):
        assert result.shape == type_.shape, f"{op!r}: ref gives shape {result.shape}"
        assert result.dtype == type_.np_dtype, f"{op!r}: ref gives {result.dtype}"

    return results


def _out_of_memory(op: Op) -> UnsupportedError:
    """Return the error for an op whose results do not fit in memory."""
    types = ", ".join(str(v.type) for v in op.outputs)
    megabytes = sum(v.type.nbytes for v in op.outputs) / 1e6
    message = f"computing {types} ({megabytes:,.0f} MB) takes more memory than there is"
    place = f"{op.kind} {op.source}".strip()

    return UnsupportedError(
        message,
        place,
        "give a smaller --input-shape, or more memory",
    )


def fold(op: Op) -> bool:
    """Turn the results of an op into constants, if all its inputs are constant.

    Returns whether it could; the caller removes the op from its graph. An op that lacks
    a scale stays: a later check reports it.
    """
    if lacks_scale(op) or any(v.const is None for v in op.inputs):
        return False

    # C order, as other constants have.
    for value, array in zip(op.outputs, run_op(op, {}), strict=True):
        value.const = np.asarray(array, order="C")

    return True
