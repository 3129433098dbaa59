"""Biases: what quantization adds to the mean of each channel is taken away again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Op, Quant, Value
from edgec.ir.types import dequantize
from edgec.quantize.calibration import Sample, chosen
from edgec.quantize.observers import Run
from edgec.quantize.params import quantize_activation
from edgec.quantize.products import Products, products, readers
from edgec.quantize.work import Work


@dataclass(frozen=True)
class BiasCorrection:
    """The mean of every product of rounded weights and rounded inputs becomes that of the float model.

    At first an op's inputs are the float model's, rounded. With `inherited`, the int8 model then runs on at most
    `samples` of the samples, op after op, and each op takes in what those before it still leave: noise in front of a
    relu is no noise of mean zero behind it.
    """

    inherited: bool = True
    samples: int = 16
    name: ClassVar[str] = "bias"
    changes: ClassVar[str] = "biases"

    def run(self, work: Work) -> None:
        """Of convolutions and fully connected layers."""
        int8 = work.int8()
        layers = products(int8.twins)
        quants = {op: int8.twins[op].inputs[0].type.quant for op in layers}
        wanted, rounded = _means(work, layers, quants)
        work.biases = {op: _bias(p, int8.twins[op], wanted[op], rounded[op]) for op, p in layers.items()}
        if self.inherited:
            some = chosen(work.samples, _spread(len(work.samples), self.samples))
            floats = _float_means(work.run(), some, layers)
            for i, (op, p) in enumerate(layers.items(), 1):
                work.say(f"correct biases {i}/{len(layers)}")
                int8 = work.int8()
                twin = int8.twins[op]
                mean = _int8_mean(p, twin, work.runners.int8(int8.graph, len(some) * len(layers)), some)
                work.biases = {**work.biases, op: _bias(p, twin, floats[op], mean)}


def _bias(p: Products, twin: Op, wanted: Array, got: Array) -> Array:
    """The bias of an op by which what its int8 twin makes of the mean window `got` is what it makes of `wanted`."""
    bias = p.op.inputs[2].const if len(p.op.inputs) > 2 else None
    change = _dot(_matrix(p, p.op), wanted) - _dot(_matrix(p, twin), got)
    return change if bias is None else bias.reshape(-1).astype(np.float64) + change


def _spread(total: int, count: int) -> list[int]:
    """At most so many numbers below `total`, evenly."""
    return [i * total // min(total, count) for i in range(min(total, count))]


def _float_means(run: Run, samples: Sequence[Sample], layers: Mapping[Op, Products]) -> Means:
    by_value = readers(layers)
    sums = {op: np.zeros((p.groups, p.depth)) for op, p in layers.items()}

    def observe(v: Value, array: Array) -> None:
        for op in by_value.get(v, ()):
            sums[op] += layers[op].mean(array)

    for sample in samples:
        run(sample, observe)
    return {op: s / len(samples) for op, s in sums.items()}


def _int8_mean(p: Products, twin: Op, run: Run, samples: Sequence[Sample]) -> Array:
    """The mean window that the int8 model gives the twin to read."""
    total = np.zeros((p.groups, p.depth))
    x = twin.inputs[0]

    def observe(v: Value, array: Array) -> None:
        nonlocal total
        if v is x:
            total = total + p.mean(array, v.type.zero_point) * v.type.scale

    for sample in samples:
        run(sample, observe)
    return total / len(samples)


Means = dict[Op, Array]
"""The mean window of each op, [G, D]."""


def _means(work: Work, layers: Mapping[Op, Products], quants: Mapping[Op, Quant | None]) -> tuple[Means, Means]:
    """Of the float model, and of what its int8 form makes of its values."""
    by_value = readers(layers)
    floats = {op: np.zeros((p.groups, p.depth)) for op, p in layers.items()}
    rounded = {op: np.zeros((p.groups, p.depth)) for op, p in layers.items()}

    def observe(v: Value, array: Array) -> None:
        for op in by_value.get(v, ()):
            q = quants[op]
            assert q is not None
            floats[op] += layers[op].mean(array)
            ints = quantize_activation(array, q)
            rounded[op] += layers[op].mean(ints, q.zero_point[0]) * q.scale[0]

    work.watch(lambda i: observe, "measure means")
    for sums in (floats, rounded):
        for total in sums.values():
            total /= len(work.samples)
    return floats, rounded


def _matrix(p: Products, op: Op) -> Array:
    """The weights of the op or of its twin as reals."""
    w = op.inputs[1]
    assert w.const is not None
    return p.matrix(dequantize(w.const, w.type) if w.type.is_quantized else w.const).astype(np.float64)


def _dot(matrix: Array, window: Array) -> Array:
    """[O]; not by BLAS, whose order of summing hangs on the number of cores."""
    return np.asarray((matrix * window[:, None]).sum(2).reshape(-1))


STEP = BiasCorrection
