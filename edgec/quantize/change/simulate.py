"""What a partly quantized model computes, nearly, by running its float graph: no C is
made for each choice of ops.

Int8 weights and biases stand in the float graph as the reals that they are; what an
int8 op reads and writes is rounded in place, between two ops. What it leaves out is the
rounding inside of int8 kernels: a part of a step.
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

_ALWAYS = 10**9
"""Samples: that many are worth C."""


class Simulation:
    """Of all int8 forms of a model that leave some of its ops in float."""

    def __init__(self, work: QuantizationState) -> None:
        self._work = work
        self._twins = work.int8().twins

    @property
    def ops(self) -> Collection[Op]:
        """Those that become int8, of `work.graph`."""
        return self._twins.keys()

    def graph(self, int8: Collection[Op]) -> Graph:
        """The quantized graph in which no others are int8."""
        left = [op for op in self._work.graph.ops if op not in int8]
        return replace(self._work, precision=dict.fromkeys(left, FLOAT)).int8().graph

    def run(self, int8: Collection[Op]) -> Run:
        """With these ops in int8 and all others in float."""
        graph = self._work.graph.copy()
        scales: dict[str, Quant] = {}
        for op, copy in zip(self._work.graph.ops, graph.ops, strict=True):
            if op in int8:
                _put_reals(copy, self._twins[op], graph)
                scales |= _scales(op, self._twins[op], scales)
        run = self._work.runners.floats(graph, _ALWAYS)
        return rounding(run, scales)


def _put_reals(op: Op, twin: Op, graph: Graph) -> None:
    """What the integer constants of its twin stand for."""
    for i, v in enumerate(twin.inputs):
        if v.const is None or not v.type.is_quantized:
            continue
        real = dequantize(v.const, v.type)
        if i < len(op.inputs):
            name = op.inputs[i].name
        else:
            name = graph.unique_name(f"{op.output.name}_bias")
        made = Value(name, v.type.with_quant(None, "float32"), real)
        op.inputs[i : i + 1] = [made]


def _scales(op: Op, twin: Op, known: Mapping[str, Quant]) -> dict[str, Quant]:
    """Of what the twin reads and writes, by name.

    One that was written in another scale keeps it.
    """
    found: dict[str, Quant] = {}
    for i, v in enumerate(op.inputs):
        t = twin.inputs[i].type
        if (
            v.const is None
            and role(op, i) == "act"
            and t.quant is not None
            and v.name not in known
        ):
            found[v.name] = t.quant
    for v, y in zip(op.outputs, twin.outputs, strict=True):
        if y.type.dtype == "int8" and y.type.quant is not None:
            found[v.name] = y.type.quant
    return found


def rounding(run: Run, scales: Mapping[str, Quant]) -> Run:
    """A run of a float graph in which values of these names are rounded to the steps of
    their scales.
    """

    def rounded(
        inputs: Mapping[str, Array], observe: object = None
    ) -> dict[str, Array]:
        given = {
            name: _rounded(x.copy(), scales[name]) if name in scales else x
            for name, x in inputs.items()
        }

        def at(v: Value, array: Array) -> None:
            if v.name in scales and v.name not in inputs and array.flags.writeable:
                _rounded(array, scales[v.name])

        return run(given, at)

    return rounded


def outputs(run: Run, samples: Sequence[Sample]) -> Iterator[Mapping[str, Array]]:
    """Of each sample, in order; several run at once."""
    return in_order(lambda s: run(s, None), samples, cores())


def _rounded(x: Array, q: Quant) -> Array:
    """To the steps of a scale, in place."""
    scale = np.float32(q.scale[0])
    zero = q.zero_point[0]
    np.multiply(x, np.float32(1 / q.scale[0]), out=x)
    np.rint(x, out=x)
    np.clip(x, -128 - zero, 127 - zero, out=x)
    return np.multiply(x, scale, out=x)
