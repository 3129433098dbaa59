"""Weights: GPTQ (Frantar et al. 2022, arXiv:2210.17323).

The integers q of a layer's weights w (in steps) minimize the error of its products on
sampled inputs x:

    |W X - Q X|² = tr (W - Q) H (W - Q)ᵀ,   H = X Xᵀ

Weights are rounded column by column. The error of a column moves to the columns that
are not rounded yet, by the Cholesky factor U of H⁻¹ = Uᵀ U:

    w_j -= (w_i - q_i) / U_ii * U_ij   for j > i
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Observe, Op, Quant, Value
from edgec.ops.fixed_point import round_half_away
from edgec.quantize.change.params import quantize_activation
from edgec.quantize.change.products import LinearLayer, consumers, linear_layers
from edgec.quantize.change.state import QuantizationState

BATCH_BYTES = 256 << 20
"""The most bytes of second moments that are summed up at a time."""
BLOCK_COLUMNS = 64
"""The error of so many columns moves to the columns behind them in one product."""
EXACT_WINDOWS = 256
"""A sum of so many products of two integers below 256 is exact in float32, in any order:
256 * 255² < 2^24.
"""

Layers = Mapping[Op, LinearLayer]


@dataclass(frozen=True)
class Gptq:
    """Round the weights of each layer for the least error on calibration windows.

    Attributes:
        damping: added to the diagonal of H, as a part of its mean: the less, the more
            few windows are believed.
        rows: the number of windows of a layer over all samples; at least twice as many
            as a window has elements.
        centred: whether the mean of the windows is left out of H. Its error is a
            constant, which bias correction takes away.
    """

    damping: float = 0.1
    rows: int = 2048
    centred: bool = True
    name: ClassVar[str] = "gptq"
    changes: ClassVar[str] = "weights"

    def run(self, state: QuantizationState) -> None:
        """Round the weights of convolutions and fully connected layers."""
        int8 = state.int8()
        layers = {}
        for op, layer in linear_layers(int8.twins).items():
            # The matrix of a layer that does not fit would not leave room for the model.
            if _moment_bytes(layer) <= BATCH_BYTES:
                layers[op] = layer

        weights: dict[Op, Array] = {}
        for batch in _batches(layers):
            quants = {op: int8.twins[op].inputs[0].type.quant for op in batch}
            moments = self._moments(state, batch, quants)
            for op, layer in batch.items():
                # The scales stay those of the nearest integers: GPTQ moves integers.
                w = layer.op.inputs[1].const
                scales = int8.twins[op].inputs[1].type.quant
                assert w is not None
                assert scales is not None
                steps = w.astype(np.float64) / scales.broadcast(w.ndim)[0]
                integers = rounded(layer.matrix(steps), moments[op], self.damping)
                weights[op] = layer.weights(integers).astype(np.int8)

        state.weights = weights

    def _moments(
        self,
        state: QuantizationState,
        batch: Layers,
        quants: Mapping[Op, Quant | None],
    ) -> dict[Op, Array]:
        """Return H of each layer, [G, D, D].

        quants: the scales of the layers' inputs. H is in their steps: the sums are of
        integers, hence exact in any order of the samples.
        """
        by_value = consumers(batch)
        sums = {op: _MomentSums(layer) for op, layer in batch.items()}

        numbers = {op: i for i, op in enumerate(state.graph.ops)}
        samples = len(state.samples)

        def of_sample(i: int) -> tuple[None, Observe]:
            def observe(v: Value, array: Array) -> None:
                """Add windows of the layers that read a value to their sums."""
                for op in by_value.get(v, ()):
                    layer = batch[op]
                    q = quants[op]
                    assert q is not None

                    # The draws of a layer depend on the sample alone, not on threads.
                    rng = np.random.default_rng((state.seed, i, numbers[op]))
                    count = -(-max(self.rows, 2 * layer.depth) // samples)
                    windows = layer.windows(array, count, rng)
                    steps = quantize_activation(windows, q).astype(np.float32)
                    sums[op].add(steps - np.float32(q.zero_point[0]))

            return None, observe

        for _ in state.observe_samples(of_sample, "sample windows"):
            pass

        return {op: sums[op].moments(self.centred) for op in batch}


class _MomentSums:
    """Sums of windows x of one layer: Σ x xᵀ and Σ x. Threads add to them."""

    def __init__(self, layer: LinearLayer) -> None:
        groups = layer.groups
        depth = layer.depth
        self._second = np.zeros((groups, depth, depth))
        self._first = np.zeros((groups, depth))
        self._count = 0
        self._lock = Lock()

    def add(self, windows: Array) -> None:
        """Add windows of integers, [n, G, D] in float32."""
        for start in range(0, len(windows), EXACT_WINDOWS):
            block = windows[start : start + EXACT_WINDOWS].transpose(1, 2, 0)
            second = block @ block.transpose(0, 2, 1)
            first = block.sum(2)

            # The product is outside of the lock: it is nearly all of the time.
            with self._lock:
                self._second += second
                self._first += first

        with self._lock:
            self._count += len(windows)

    def moments(self, centred: bool) -> Array:
        """Return Σ x xᵀ, [G, D, D].

        centred: whether n times the square of the mean is subtracted.
        """
        # The second moment about the mean: Σ x xᵀ - (Σ x)(Σ x)ᵀ / n.
        if centred:
            outer = self._first[:, :, None] * self._first[:, None, :]
            self._second -= outer / self._count
        return self._second


def rounded(w: Array, moments: Array, damping: float) -> Array:
    """Round weights [G, O, D] in steps to integers in [-127, 127].

    Columns are rounded from the largest moment to the smallest, as GPTQ's `act_order`
    does: most columns can still make up for the error of those that matter most.

    moments: H of each group, [G, D, D].
    damping: see `Gptq`.
    """
    result = np.empty_like(w)
    for g in range(len(w)):
        h = moments[g]
        mean = float(np.diag(h).mean())
        if not mean:
            # All windows are the same: no rounding is better than the nearest.
            result[g] = _nearest(w[g])
            continue

        # Damping makes H invertible where some inputs are always zero.
        order = np.argsort(-np.diag(h), kind="stable")
        h = h[order][:, order] + np.eye(len(h)) * damping * mean
        factor = np.linalg.cholesky(np.linalg.inv(h)).T
        result[g][:, order] = _round_columns(w[g][:, order], factor)

    return result


def _round_columns(w: Array, factor: Array) -> Array:
    """Round weights [O, D] from the first column to the last.

    factor: the upper Cholesky factor of H⁻¹, [D, D].
    """
    w = w.copy()
    q = np.empty_like(w)
    depth = w.shape[1]

    for start in range(0, depth, BLOCK_COLUMNS):
        end = min(start + BLOCK_COLUMNS, depth)
        errors = np.empty((len(w), end - start))

        # Inside a block every error moves at once to the columns behind it.
        for i in range(start, end):
            q[:, i] = _nearest(w[:, i])
            error = (w[:, i] - q[:, i]) / factor[i, i]
            errors[:, i - start] = error
            w[:, i + 1 : end] -= error[:, None] * factor[i, i + 1 : end]
        # Columns behind the block take its error at once, in a matrix product.
        w[:, end:] -= errors @ factor[start:end, end:]

    return q


def _nearest(w: Array) -> Array:
    return np.clip(round_half_away(w), -127, 127)


def _moment_bytes(layer: LinearLayer) -> int:
    """Return the bytes of a layer's H in float64."""
    return layer.groups * layer.depth * layer.depth * 8


def _batches(layers: Layers) -> Iterator[Layers]:
    """Yield the layers in batches of at most `BATCH_BYTES` of moments.

    A pass over the samples takes long, and serves all layers of a batch.
    """
    # In the graph's order; a layer that does not fit begins the next batch.
    batch: dict[Op, LinearLayer] = {}
    total = 0
    for op, layer in layers.items():
        if batch and total + _moment_bytes(layer) > BATCH_BYTES:
            yield batch
            batch = {}
            total = 0
        batch[op] = layer
        total += _moment_bytes(layer)
    if batch:
        yield batch


STEP = Gptq
