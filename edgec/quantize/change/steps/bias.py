"""Biases: bias correction (Nagel et al. 2019, arXiv:1906.04721, section 4.2).

Rounding adds an error to the mean of each output channel of a layer y = W x + b. The
mean over calibration windows is taken away again in the bias:

    b' = b + E[W x] - E[W' x']

with rounded weights W' and inputs x'. Nagel et al. correct by the whole mean; here it is
weighted by how far the samples agree on it. With e_s the error of sample s:

    b' = b + m * m² / mean over s of e_s²,   m = mean over s of e_s
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Semaphore
from typing import ClassVar

import numpy as np

from edgec.executors import cores
from edgec.ir import Array, Graph, Observe, Op, Quant, Run, Value
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
from edgec.quantize.observe.calibration import Sample, chosen, spread

MAX_LOCKSTEP_BYTES = 512 << 20
"""The most bytes of values of the int8 model that are alive at once, over all samples
that run in lockstep.
"""

Layers = Mapping[Op, LinearLayer]
ByOp = dict[Op, Array]


@dataclass(frozen=True)
class BiasCorrection:
    """Make the mean of every int8 product that of the float model.

    An error that one sample alone has is noise for the others, which all layers behind
    would inherit (yolox_nano, ranges that clip little: 9 dB without corrections, 2 with
    the whole mean, 8 with the weighted one).

    Attributes:
        inherited: whether the int8 model runs, op after op, so that each correction
            includes what the corrections before it leave: noise in front of a relu is
            no noise of mean zero behind it. Otherwise an op's inputs are the float
            model's, rounded.
        samples: the most samples that run through the int8 model.
        whole: whether biases of ops whose consumers can make up for it
            (`shiftable_values`) are rounded to steps of the result's scale. Where an op
            reads zeros, as it mostly does behind a relu, its result is its bias: it is
            exact in all these places then, and else off by the same part of a step in
            all of them.
    """

    inherited: bool = True
    samples: int = 32
    whole: bool = True
    name: ClassVar[str] = "bias"
    changes: ClassVar[str] = "biases"

    def run(self, state: QuantizationState) -> None:
        """Correct the biases of convolutions and fully connected layers."""
        layers = linear_layers(state.int8().twins)
        if not layers:
            return
        # Every layer has a bias from now on, so that the int8 graph has one to renew.
        state.biases = {op: _bias(op) for op in layers}
        if self.inherited:
            state.biases = self._corrected_in_order(state, layers)
        else:
            state.biases = _corrected_alone(state, layers)

    def _corrected_in_order(self, state: QuantizationState, layers: Layers) -> ByOp:
        """Correct each op by the values of the int8 model with the ops before it corrected.

        The samples run in lockstep: at the input of an op all of them wait until its
        bias is corrected.
        """
        int8 = state.int8()
        biases = dict(state.biases)

        # Every sample in lockstep needs an arena of its own.
        room = max(1, MAX_LOCKSTEP_BYTES // living(int8.graph))
        numbers = spread(len(state.samples), min(self.samples, room))
        samples = chosen(state.samples, numbers)
        float_means = _float_means(state, numbers)

        run = state.runners.int8(int8.graph, len(samples))
        float_ops = {int8.twins[op]: op for op in layers}
        by_value = consumers(float_ops)
        steps = _WholeSteps(state.graph, layers if self.whole else {})

        def correct(x: Value, arrays: Sequence[Array]) -> None:
            """Correct the ops that read `x`, by its arrays on all samples."""
            for twin in by_value[x]:
                op = float_ops[twin]
                layer = layers[op]
                matrices = _matrices(layer, twin)

                # The error of each sample, without the known shift of the input.
                shift = steps.shift_of_window(layer)
                error = _MeanError()
                for means, array in zip(float_means, arrays, strict=True):
                    mean = layer.mean(array, x.type.zero_point) * x.type.scale
                    error.add(_product_error(matrices, means[op], mean - shift))

                # The shift of the input is known exactly: all of it is taken away.
                bias = _bias(op) + error.weighted() - product(matrices[1], shift)
                biases[op] = steps.to_whole_steps(op, bias, twin.output.type.quant)
                renew(op, twin, RoundedParameters(state.weights, biases))
                state.runners.renew(run, twin)

        state.say("correct biases")
        run_together(run, samples, by_value, correct)

        return biases


class _WholeSteps:
    """Shifts of values whose biases were rounded to whole steps of their scale.

    The biases of the consumers take the shifts away.
    """

    def __init__(self, graph: Graph, layers: Layers) -> None:
        self._shifts: dict[Value, Array] = {}
        self._shiftable: set[Value] = set()

        for v, link in shiftable_values(graph).items():
            # Only the biases of these layers are corrected.
            ops = [link.maker.op, *(reader.op for reader in link.readers)]
            if all(op in layers for op in ops):
                self._shiftable.add(v)

    def shift_of_window(self, layer: LinearLayer) -> Array:
        """Return the shift of every window that a layer reads, [G, D]."""
        # The producer was corrected before its consumers.
        shift = self._shifts.get(layer.op.inputs[0])
        if shift is None:
            return np.zeros((layer.groups, layer.depth))
        return layer.uniform_window(shift)

    def to_whole_steps(self, op: Op, bias: Array, quant: Quant | None) -> Array:
        """Return the bias in whole steps of the result's scale.

        It is unchanged where the consumers cannot take the shift away.
        """
        if op.output not in self._shiftable or quant is None:
            return bias

        whole: Array = np.rint(bias / quant.scale[0]) * quant.scale[0]
        self._shifts[op.output] = whole - bias

        return whole


class _MeanError:
    """The error of an op's mean products, over samples."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = np.zeros(1)
        self._squares = np.zeros(1)

    def add(self, error: Array) -> None:
        """Add the error of one more sample.

        error: of the mean output of each channel, [O].
        """
        self._count += 1
        self._sum = self._sum + error
        self._squares = self._squares + error * error

    def weighted(self) -> Array:
        """Return the mean m times m² / mean square, [O].

        The weight is 1 where all samples have the same error.
        """
        mean = self._sum / self._count
        square = self._squares / self._count
        weight = np.divide(
            mean * mean, square, out=np.zeros_like(mean), where=square > 0
        )
        return np.asarray(mean * weight)


def _bias(op: Op) -> Array:
    """Return the model's own bias, [O]; zeros without one."""
    if len(op.inputs) < 3:
        return np.zeros(op.output.type.shape[-1])
    assert op.inputs[2].const is not None
    return op.inputs[2].const.reshape(-1).astype(np.float64)


def _float_means(state: QuantizationState, numbers: Sequence[int]) -> list[ByOp]:
    """Return the mean window of each op in the float model, [G, D], for each sample.

    numbers: the numbers of the samples.
    """

    def make() -> list[ByOp]:
        layers = linear_layers(state.graph.ops)
        by_value = consumers(layers)

        def of_sample(i: int) -> tuple[ByOp, Observe]:
            means: ByOp = {}

            # A window mean is small: no array of the sample is kept.
            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    means[op] = layers[op].mean(array)

            return means, observe

        return list(state.observe_samples(of_sample, "measure means", numbers))

    return state.cached(("means", tuple(numbers)), make)


def _corrected_alone(state: QuantizationState, layers: Layers) -> ByOp:
    """Correct each op by the float model's values, rounded to int8."""
    int8 = state.int8()
    by_value = consumers(layers)
    errors = {op: _MeanError() for op in layers}

    def of_sample(i: int) -> tuple[ByOp, Observe]:
        sample_errors: ByOp = {}

        def observe(v: Value, array: Array) -> None:
            # Several ops may read a value in one scale: it is rounded once.
            by_quant: dict[Quant, Array] = {}
            for op in by_value.get(v, ()):
                layer = layers[op]
                q = int8.twins[op].inputs[0].type.quant
                assert q is not None
                if q not in by_quant:
                    by_quant[q] = quantize_activation(array, q)

                # The mean of the products is the product with the mean window.
                mean = layer.mean(by_quant[q], q.zero_point[0]) * q.scale[0]
                matrices = _matrices(layer, int8.twins[op])
                sample_errors[op] = _product_error(matrices, layer.mean(array), mean)

        return sample_errors, observe

    for sample_errors in state.observe_samples(of_sample, "measure rounded means"):
        for op, error in sample_errors.items():
            errors[op].add(error)

    return {op: _bias(op) + error.weighted() for op, error in errors.items()}


def _matrices(layer: LinearLayer, twin: Op) -> tuple[Array, Array]:
    """Return the weights of a float op and of its int8 twin, both as reals."""

    def matrix(w: Value) -> Array:
        """Return the weight matrices of a constant, [G, O/G, D]."""
        assert w.const is not None
        real = dequantize(w.const, w.type) if w.type.is_quantized else w.const
        return layer.matrix(real).astype(np.float64)

    return matrix(layer.op.inputs[1]), matrix(twin.inputs[1])


def _product_error(
    matrices: tuple[Array, Array], float_mean: Array, int8_mean: Array
) -> Array:
    """Return E[W x] - E[W' x'] of one sample, [O].

    matrices: W and W'.
    float_mean: the mean window x, [G, D].
    int8_mean: the mean window x'.
    """
    float_matrix, int8_matrix = matrices
    error = product(float_matrix, float_mean) - product(int8_matrix, int8_mean)
    return np.asarray(error)


STEP = BiasCorrection


def run_together(
    run: Run,
    samples: Sequence[Sample],
    at: Container[Value],
    meet: Callable[[Value, Sequence[Array]], None],
) -> None:
    """Run every sample in a thread of its own; the threads meet at the values of `at`.

    Memory: an arena for each sample, and the scratch of the kernels for each core.

    meet: called with a value and its arrays, in the order of the samples. No consumer
        of the value has run yet on any sample, so that changes of the graph count for
        all samples.

    Raises what a run or `meet` raises.
    """
    arrays: list[Array] = [np.empty(0)] * len(samples)
    # The value where the threads meet.
    meeting: list[Value] = []
    barrier = Barrier(len(samples), lambda: meet(meeting[0], arrays))
    computing = Semaphore(cores())

    def run_sample(i: int) -> None:
        def observe(v: Value, array: Array) -> None:
            if v not in at:
                return
            arrays[i] = array
            meeting[:] = [v]
            # A thread that waits leaves its core to another one.
            computing.release()
            try:
                barrier.wait()
            finally:
                computing.acquire()

        try:
            with computing:
                run(samples[i], observe)
        except BaseException:
            # Without that the other threads would wait for ever.
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(samples)) as pool:
        futures = [pool.submit(run_sample, i) for i in range(len(samples))]
    _raise_first(futures)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    """Raise the error of a thread, if there is one.

    The threads that only met a broken barrier do not know the reason.
    """
    errors = [error for future in futures if (error := future.exception())]
    reasons = [e for e in errors if not isinstance(e, BrokenBarrierError)]
    for error in (*reasons, *errors):
        raise error


def living(graph: Graph) -> int:
    """Return the largest number of bytes of values that are alive at once."""
    # Outputs live until the end.
    last_use = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    last_use |= dict.fromkeys(graph.outputs, len(graph.ops))
    alive = sum(v.type.nbytes for v in graph.inputs)
    peak = alive
    for i, op in enumerate(graph.ops):
        # Results live beside the inputs that they are computed from.
        alive += sum(v.type.nbytes for v in op.outputs)
        peak = max(peak, alive)
        # A result that nothing reads dies at once.
        for v in {*op.inputs, *op.outputs}:
            if v.const is None and last_use.get(v, i) == i:
                alive -= v.type.nbytes

    return peak
