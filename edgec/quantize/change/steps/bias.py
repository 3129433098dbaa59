"""Biases: what quantization adds to the mean of each channel is taken away again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Observe, Op, Quant, Value
from edgec.ir.types import dequantize
from edgec.quantize.change.params import quantize_activation
from edgec.quantize.change.products import (
    LinearLayer,
    consumers,
    linear_layers,
    product,
)
from edgec.quantize.change.rewrite import RoundedParameters, renew
from edgec.quantize.change.shifts import shiftable_values
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.calibration import chosen, spread
from edgec.quantize.observe.lockstep import living, run_together

_AT_ONCE_BYTES = 512 << 20
"""Of the values of the int8 model that are alive at once, of all samples that run
through it.
"""


@dataclass(frozen=True)
class BiasCorrection:
    """The mean of every product of rounded weights and rounded inputs becomes that of
    the float model.

    It does so as far as samples agree on how far it is off: what one of them alone
    would have changed is noise to the others, which all layers behind would inherit
    (yolox_nano, ranges that clip little: 9 dB without biases, 2 with the whole mean, 8
    with this). An op's inputs are the float model's, rounded; or, with `inherited`, the
    int8 model runs on at most `samples` of the samples, op after op, and each op takes
    in what those before it still leave: noise in front of a relu is no noise of mean
    zero behind it.

    whole: biases of ops whose readers can make up for it (`shiftable_values`) are rounded to steps
    of what they write: where an op reads zeros, as behind a relu most are, its result
    is its bias, and is then exact in all such places, where else it would be off by the
    same part of a step in all of them.
    """

    inherited: bool = True
    samples: int = 32
    whole: bool = True
    name: ClassVar[str] = "bias"
    changes: ClassVar[str] = "biases"

    def run(self, work: QuantizationState) -> None:
        """Of convolutions and fully connected layers."""
        layers = linear_layers(work.int8().twins)
        if layers:
            work.biases = {op: _bias(op) for op in layers}
            if self.inherited:
                work.biases = self._one_by_one(work, layers)
            else:
                work.biases = _alone(work, layers)

    def _one_by_one(
        self, work: QuantizationState, layers: Mapping[Op, LinearLayer]
    ) -> dict[Op, Array]:
        """Each from what the int8 model reads there that has those before it."""
        int8 = work.int8()
        biases = dict(work.biases)
        count = min(self.samples, max(1, _AT_ONCE_BYTES // living(int8.graph)))
        numbers = spread(len(work.samples), count)
        some = chosen(work.samples, numbers)
        floats = _float_means(work, numbers)
        run = work.runners.int8(int8.graph, len(some))
        floats_of = {int8.twins[op]: op for op in layers}
        by_value = consumers(floats_of)
        moved = _Moved(work.graph, layers if self.whole else {})

        def correct(x: Value, arrays: Sequence[Array]) -> None:
            for twin in by_value[x]:
                op = floats_of[twin]
                matrices = _matrices(layers[op], twin)
                more = moved.window(layers[op])
                off = _Off()
                for wanted, array in zip(floats, arrays, strict=True):
                    got = layers[op].mean(array, x.type.zero_point) * x.type.scale
                    off.add(_off(matrices, wanted[op], got - more))
                bias = _bias(op) + off.agreed() - product(matrices[1], more)
                biases[op] = moved.to_whole_steps(op, bias, twin.output.type.quant)
                renew(op, twin, RoundedParameters(work.weights, biases))
                work.runners.renew(run, twin)

        work.say("correct biases")
        run_together(run, some, by_value, correct)
        return biases


class _Moved:
    """What was added to values to bring them to whole steps, and must be taken from the
    biases of their readers.
    """

    def __init__(self, graph: Graph, layers: Mapping[Op, LinearLayer]) -> None:
        self._by = dict[Value, Array]()
        self._free = {
            v
            for v, link in shiftable_values(graph).items()
            if link.maker.op in layers and all(p.op in layers for p in link.readers)
        }

    def window(self, p: LinearLayer) -> Array:
        """Of what an op reads, [G, D]."""
        by = self._by.get(p.op.inputs[0])
        return np.zeros((p.groups, p.depth)) if by is None else p.everywhere(by)

    def to_whole_steps(self, op: Op, bias: Array, quant: Quant | None) -> Array:
        """The bias as near to `bias` as it makes an integer of nothing at all; itself
        where it must be what it is.
        """
        if op.output not in self._free or quant is None:
            return bias
        whole: Array = np.rint(bias / quant.scale[0]) * quant.scale[0]
        self._by[op.output] = whole - bias
        return whole


class _Off:
    """How far the means of an op's products are off, sample by sample."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = np.zeros(1)
        self._squares = np.zeros(1)

    def add(self, off: Array) -> None:
        """Of one more sample, [O]."""
        self._count = self._count + 1
        self._sum = self._sum + off
        self._squares = self._squares + off * off

    def agreed(self) -> Array:
        """Their mean, by the share of its square in the mean square, [O]: 1 where all
        samples say the same.
        """
        mean = self._sum / self._count
        square = self._squares / self._count
        return np.asarray(
            mean
            * np.divide(mean * mean, square, out=np.zeros_like(mean), where=square > 0)
        )


def _bias(op: Op) -> Array:
    """The model's own, [O]."""
    if len(op.inputs) < 3:
        return np.zeros(op.output.type.shape[-1])
    assert op.inputs[2].const is not None
    return op.inputs[2].const.reshape(-1).astype(np.float64)


ByOp = dict[Op, Array]
"""Of one sample."""


def _float_means(work: QuantizationState, numbers: Sequence[int]) -> list[ByOp]:
    """The mean window of each op, [G, D], in the float model, of the samples of these
    numbers.
    """

    def find() -> list[ByOp]:
        layers = linear_layers(work.graph.ops)
        by_value = consumers(layers)

        def of_sample(i: int) -> tuple[ByOp, Observe]:
            means = ByOp()

            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    means[op] = layers[op].mean(array)

            return means, observe

        return list(work.watch(of_sample, "measure means", numbers))

    return work.keep(("means", tuple(numbers)), find)


def _alone(
    work: QuantizationState, layers: Mapping[Op, LinearLayer]
) -> dict[Op, Array]:
    """Each from the float model's values, rounded to int8."""
    int8 = work.int8()
    by_value = consumers(layers)
    offs = {op: _Off() for op in layers}

    def of_sample(i: int) -> tuple[ByOp, Observe]:
        found = ByOp()

        def observe(v: Value, array: Array) -> None:
            known: dict[Quant, Array] = {}
            for op in by_value.get(v, ()):
                q = int8.twins[op].inputs[0].type.quant
                assert q is not None
                if q not in known:
                    known[q] = quantize_activation(array, q)
                got = layers[op].mean(known[q], q.zero_point[0]) * q.scale[0]
                found[op] = _off(
                    _matrices(layers[op], int8.twins[op]), layers[op].mean(array), got
                )

        return found, observe

    for found in work.watch(of_sample, "measure rounded means"):
        for op, off in found.items():
            offs[op].add(off)
    return {op: _bias(op) + off.agreed() for op, off in offs.items()}


def _matrices(p: LinearLayer, twin: Op) -> tuple[Array, Array]:
    """The weights of the op and of its twin as reals."""

    def matrix(w: Value) -> Array:
        assert w.const is not None
        return p.matrix(
            dequantize(w.const, w.type) if w.type.is_quantized else w.const
        ).astype(np.float64)

    return matrix(p.op.inputs[1]), matrix(twin.inputs[1])


def _off(matrices: tuple[Array, Array], wanted: Array, got: Array) -> Array:
    """[O]: by how much the products of one sample's mean windows, [G, D], are less in
    the int8 model.
    """
    one, two = (
        product(m, window) for m, window in zip(matrices, (wanted, got), strict=True)
    )
    return np.asarray(one - two)


STEP = BiasCorrection
