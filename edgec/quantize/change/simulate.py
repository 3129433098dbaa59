"""Simulates a partly quantized model by running its float graph.

No C is compiled for each choice of int8 ops. Int8 weights and biases are in the float
graph as the reals that they stand for; what an int8 op reads and writes is rounded in
place, between two ops. The simulation lacks the rounding inside of int8 kernels: a part
of a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgec.executors import cores, in_order
from edgec.ir import Array, Graph, Op, Quant, Run, Value
from edgec.ir.types import dequantize
from edgec.quantize.change.domains import role
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.precision import FLOAT
from edgec.quantize.observe.calibration import Sample

MANY_RUNS = 10**9
"""So many runs are announced, so that the graph is compiled to C."""


class Simulation:
    """All int8 forms of a model that leave some of its ops in float."""

    def __init__(self, state: QuantizationState) -> None:
        self._state = state
        self._twins = state.int8().twins

    @property
    def ops(self) -> Collection[Op]:
        """The ops of the float graph that become int8 if none is left in float."""
        return self._twins.keys()

    def graph(self, int8: Collection[Op]) -> Graph:
        """Return the quantized graph with all ops but these in float."""
        floats = [op for op in self._state.graph.ops if op not in int8]

        # Weights and biases of the other operations stay as the steps rounded them.
        partly = replace(self._state, precision=dict.fromkeys(floats, FLOAT))
        return partly.int8().graph

    def run(self, int8: Collection[Op]) -> Run:
        """Return a runner with these ops in int8 and all others in float."""
        # The copy gets other constants; the values keep their names.
        graph = self._state.graph.copy()
        scales: dict[str, Quant] = {}
        for op, copy in zip(self._state.graph.ops, graph.ops, strict=True):
            if op in int8:
                _put_real_constants(copy, self._twins[op], graph)
                scales |= _scales(op, self._twins[op], scales)

        run = self._state.runners.floats(graph, MANY_RUNS)

        return rounding(run, scales)


def _put_real_constants(op: Op, twin: Op, graph: Graph) -> None:
    """Give a float op the reals that its twin's integer constants stand for."""
    for i, v in enumerate(twin.inputs):
        if v.const is None or not v.type.is_quantized:
            continue
        real = dequantize(v.const, v.type)
        if i < len(op.inputs):
            name = op.inputs[i].name
        else:
            # Bias correction gave the twin a bias that the model does not have.
            name = graph.unique_name(f"{op.output.name}_bias")

        constant = Value(name, v.type.with_quant(None, "float32"), real)
        op.inputs[i : i + 1] = [constant]


def _scales(op: Op, twin: Op, known: Mapping[str, Quant]) -> dict[str, Quant]:
    """Return the scales of what an op's twin reads and writes, by name.

    op: the float op.
    twin: its int8 form.
    known: the scales of values that were written before; those keep them.
    """
    scales: dict[str, Quant] = {}
    for i, v in enumerate(op.inputs):
        quant = twin.inputs[i].type.quant
        if v.const is not None or role(op, i) != "act":
            continue
        if quant is not None and v.name not in known:
            scales[v.name] = quant

    # The consumers of a result read it in the scale in which it was written.
    for v, y in zip(op.outputs, twin.outputs, strict=True):
        if y.type.dtype == "int8" and y.type.quant is not None:
            scales[v.name] = y.type.quant

    return scales


def rounding(run: Run, scales: Mapping[str, Quant]) -> Run:
    """Return a runner of the same float graph that rounds values.

    scales: the int8 scales of the values to round, by name.
    """

    def rounded_run(
        inputs: Mapping[str, Array], observe: object = None
    ) -> dict[str, Array]:
        # Inputs belong to the caller, and results can be views of them: all are copied.
        rounded = {name: x.copy() for name, x in inputs.items()}
        for name in rounded.keys() & scales.keys():
            _round(rounded[name], scales[name])

        def round_result(v: Value, array: Array) -> None:
            # A result of the graph is in its arena: the consumers read it rounded.
            is_computed = v.name not in inputs and array.flags.writeable
            if v.name in scales and is_computed:
                _round(array, scales[v.name])

        return run(rounded, round_result)

    return rounded_run


def outputs(run: Run, samples: Sequence[Sample]) -> Iterator[Mapping[str, Array]]:
    """Yield the outputs of each sample, in order; several run at once."""
    return in_order(lambda s: run(s, None), samples, cores())


def _round(x: Array, q: Quant) -> Array:
    """Round an array to the steps of a scale, in place."""
    scale = np.float32(q.scale[0])
    zero = q.zero_point[0]

    # Each step in place: arrays are large, and several samples run at once.
    np.multiply(x, np.float32(1 / q.scale[0]), out=x)
    np.rint(x, out=x)
    np.clip(x, -128 - zero, 127 - zero, out=x)

    return np.multiply(x, scale, out=x)
