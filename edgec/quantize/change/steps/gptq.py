"""Weights: each rounded up or down so that later ones make up for the error of earlier
ones (GPTQ).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Observe, Op, Quant, Value
from edgec.ops.fixed_point import round_half_away
from edgec.quantize.change.params import quantize_activation
from edgec.quantize.change.products import LinearLayer, consumers, linear_layers
from edgec.quantize.change.state import QuantizationState

_BATCH_BYTES = 256 << 20
"""Of the second moments that are summed up at a time."""
_BLOCK = 64
_EXACT = 256
"""Products of integers of 255 at most, of which the sum is exact in float32, in any
order.
"""


@dataclass(frozen=True)
class Gptq:
    """Layer by layer, the error of the products on calibration windows is least
    (Frantar et al., 2022).

    damping: of the windows' second moments, as a part of their mean diagonal: how
    little few windows are believed. rows: windows of a layer, over all samples, at
    least twice as many as a window has elements. The mean of the windows is left out:
    what it makes of rounding is a constant, which belongs to the bias.
    """

    damping: float = 0.1
    rows: int = 2048
    centred: bool = True
    name: ClassVar[str] = "gptq"
    changes: ClassVar[str] = "weights"

    def run(self, work: QuantizationState) -> None:
        """Of convolutions and fully connected layers."""
        int8 = work.int8()
        layers = {
            op: p
            for op, p in linear_layers(int8.twins).items()
            if _bytes(p) <= _BATCH_BYTES
        }
        found: dict[Op, Array] = {}
        for batch in _batches(layers):
            moments = self._moments(
                work, batch, {op: int8.twins[op].inputs[0].type.quant for op in batch}
            )
            for op, p in batch.items():
                twin = int8.twins[op]
                w = p.op.inputs[1].const
                scales = twin.inputs[1].type.quant
                assert w is not None
                assert scales is not None
                steps = w.astype(np.float64) / scales.broadcast(w.ndim)[0]
                found[op] = p.weights(
                    rounded(p.matrix(steps), moments[op], self.damping)
                ).astype(np.int8)
        work.weights = found

    def _moments(
        self,
        work: QuantizationState,
        batch: Mapping[Op, LinearLayer],
        quants: Mapping[Op, Quant | None],
    ) -> dict[Op, Array]:
        """[G, D, D] of each op's windows, in steps of its input: integers, whose sums
        are exact in any order.
        """
        by_value = consumers(batch)
        seconds = {
            op: np.zeros((p.groups, p.depth, p.depth)) for op, p in batch.items()
        }
        firsts = {op: np.zeros((p.groups, p.depth)) for op, p in batch.items()}
        counts = dict.fromkeys(batch, 0)
        numbers = {op: i for i, op in enumerate(work.graph.ops)}

        locks = {op: Lock() for op in batch}

        def of_sample(i: int) -> tuple[None, Observe]:
            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    p = batch[op]
                    q = quants[op]
                    assert q is not None
                    rng = np.random.default_rng((work.seed, i, numbers[op]))
                    rows = -(-max(self.rows, 2 * p.depth) // len(work.samples))
                    some = p.windows(array, rows, rng)
                    ints = quantize_activation(some, q).astype(np.float32) - np.float32(
                        q.zero_point[0]
                    )
                    for start in range(0, len(ints), _EXACT):
                        part = ints[start : start + _EXACT].transpose(1, 2, 0)
                        second = part @ part.transpose(0, 2, 1)
                        first = part.sum(2)
                        with locks[op]:  # sums are exact: any order will do
                            seconds[op] += second
                            firsts[op] += first
                    with locks[op]:
                        counts[op] += len(ints)

            return None, observe

        for _ in work.watch(of_sample, "sample windows"):
            pass
        if self.centred:
            for op in batch:
                seconds[op] -= (
                    firsts[op][:, :, None] * firsts[op][:, None, :] / counts[op]
                )
        return seconds


def rounded(w: Array, moments: Array, damping: float) -> Array:
    """Weights [G, O, D] in steps to integers in [-127, 127]; moments: [G, D, D].

    Columns are rounded from the one with the largest moment to the smallest, in blocks;
    what is left of a column's error goes to those that are not yet rounded, by the
    Cholesky factor of the inverse.
    """
    result = np.empty_like(w)
    for g in range(len(w)):
        h = moments[g]
        mean = float(np.diag(h).mean())
        if not mean:
            result[g] = _nearest(w[g])
            continue
        order = np.argsort(-np.diag(h), kind="stable")
        h = h[order][:, order] + np.eye(len(h)) * damping * mean
        factor = np.linalg.cholesky(np.linalg.inv(h)).T
        result[g][:, order] = _by_columns(w[g][:, order], factor)
    return result


def _by_columns(w: Array, factor: Array) -> Array:
    w, q = w.copy(), np.empty_like(w)
    depth = w.shape[1]
    for start in range(0, depth, _BLOCK):
        end = min(start + _BLOCK, depth)
        errors = np.empty((len(w), end - start))
        for i in range(start, end):
            q[:, i] = _nearest(w[:, i])
            errors[:, i - start] = (w[:, i] - q[:, i]) / factor[i, i]
            w[:, i + 1 : end] -= errors[:, i - start, None] * factor[i, i + 1 : end]
        w[:, end:] -= errors @ factor[start:end, end:]
    return q


def _nearest(w: Array) -> Array:
    return np.clip(round_half_away(w), -127, 127)


def _bytes(p: LinearLayer) -> int:
    return p.groups * p.depth * p.depth * 8


def _batches(layers: Mapping[Op, LinearLayer]) -> Iterator[Mapping[Op, LinearLayer]]:
    """As many layers at a time as memory is meant for."""
    waiting: Sequence[tuple[Op, LinearLayer]] = [*layers.items()]
    while waiting:
        taken = 0
        total = 0
        while taken < len(waiting) and (
            not taken or total + _bytes(waiting[taken][1]) <= _BATCH_BYTES
        ):
            total += _bytes(waiting[taken][1])
            taken += 1
        yield dict(waiting[:taken])
        waiting = waiting[taken:]


STEP = Gptq
