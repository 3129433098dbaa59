"""Biases: what quantization adds to the mean of each channel is taken away again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Observe, Op, Quant, Value
from edgec.ir.types import dequantize
from edgec.quantize.calibration import chosen
from edgec.quantize.lockstep import living, together
from edgec.quantize.params import quantize_activation
from edgec.quantize.products import Products, products, readers
from edgec.quantize.rewrite import Int8, Rounded, renew
from edgec.quantize.work import Work

_AT_ONCE_BYTES = 512 << 20
"""Of the values of the int8 model that are alive at once, of all samples that run through it."""


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
        everything = range(len(work.samples))
        wanted, rounded = _float_means(work, everything), _rounded_means(work, layers, int8)
        work.biases = {op: _bias(p, int8.twins[op], wanted[op], rounded[op]) for op, p in layers.items()}
        if self.inherited and layers:
            work.biases = self._one_by_one(work, layers)

    def _one_by_one(self, work: Work, layers: Mapping[Op, Products]) -> dict[Op, Array]:
        """Each from what the int8 model reads there that has those before it."""
        int8, biases = work.int8(), dict(work.biases)
        count = min(self.samples, max(1, _AT_ONCE_BYTES // living(int8.graph)))
        numbers = _spread(len(work.samples), count)
        some, floats = chosen(work.samples, numbers), _float_means(work, numbers)
        run = work.runners.int8(int8.graph, len(some))
        floats_of = {int8.twins[op]: op for op in layers}
        by_value = readers(floats_of)

        def correct(x: Value, arrays: Sequence[Array]) -> None:
            for twin in by_value[x]:
                op = floats_of[twin]
                mean = _mean(layers[op], x, arrays)
                biases[op] = _bias(layers[op], twin, floats[op], mean)
                renew(op, twin, Rounded(work.weights, biases))
                work.runners.renew(run, twin)

        work.say("correct biases")
        together(run, some, by_value, correct)
        return biases


def _bias(p: Products, twin: Op, wanted: Array, got: Array) -> Array:
    """The bias of an op by which what its int8 twin makes of the mean window `got` is what it makes of `wanted`."""
    bias = p.op.inputs[2].const if len(p.op.inputs) > 2 else None
    change = _dot(_matrix(p, p.op), wanted) - _dot(_matrix(p, twin), got)
    return change if bias is None else bias.reshape(-1).astype(np.float64) + change


def _spread(total: int, count: int) -> list[int]:
    """At most so many numbers below `total`, evenly."""
    return [i * total // min(total, count) for i in range(min(total, count))]


Means = dict[Op, Array]
"""The mean window of each op, [G, D]."""


def _float_means(work: Work, numbers: Sequence[int]) -> Means:
    """Of the float model, over the samples of these numbers."""

    def find() -> Means:
        layers = products(work.graph.ops)
        by_value = readers(layers)

        def of_sample(i: int) -> tuple[Means, Observe]:
            means = Means()

            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    means[op] = layers[op].mean(array)

            return means, observe

        return _mean_of(layers, work.watch(of_sample, "measure means", numbers))

    return work.keep(("means", tuple(numbers)), find)


def _rounded_means(work: Work, layers: Mapping[Op, Products], int8: Int8) -> Means:
    """Of the float model's values, each rounded to int8."""
    by_value = readers(layers)

    def of_sample(i: int) -> tuple[Means, Observe]:
        means = Means()

        def observe(v: Value, array: Array) -> None:
            known: dict[Quant, Array] = {}
            for op in by_value.get(v, ()):
                q = int8.twins[op].inputs[0].type.quant
                assert q is not None
                if q not in known:
                    known[q] = quantize_activation(array, q)
                means[op] = layers[op].mean(known[q], q.zero_point[0]) * q.scale[0]

        return means, observe

    return _mean_of(layers, work.watch(of_sample, "measure rounded means"))


def _mean_of(layers: Mapping[Op, Products], samples: Iterable[Means]) -> Means:
    """Of all samples."""
    sums, count = {op: np.zeros((p.groups, p.depth)) for op, p in layers.items()}, 0
    for means in samples:
        count += 1
        for op, mean in means.items():
            sums[op] += mean
    return {op: s / count for op, s in sums.items()}


def _mean(p: Products, x: Value, arrays: Sequence[Array]) -> Array:
    """The mean window of what an int8 op reads."""
    total = np.zeros((p.groups, p.depth))
    for array in arrays:
        total += p.mean(array, x.type.zero_point) * x.type.scale
    return total / len(arrays)


def _matrix(p: Products, op: Op) -> Array:
    """The weights of the op or of its twin as reals."""
    w = op.inputs[1]
    assert w.const is not None
    return p.matrix(dequantize(w.const, w.type) if w.type.is_quantized else w.const).astype(np.float64)


def _dot(matrix: Array, window: Array) -> Array:
    """[O]; not by BLAS, whose order of summing hangs on the number of cores."""
    return np.asarray((matrix * window[:, None]).sum(2).reshape(-1))


STEP = BiasCorrection
