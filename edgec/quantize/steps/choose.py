"""Ranges: for each value the method that serves the layers which read it best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Op, Value
from edgec.quantize.histograms import METHODS, Histogram, histograms, noise
from edgec.quantize.observers import Observe, Range
from edgec.quantize.params import activation_quant, quantize_activation
from edgec.quantize.products import Products, apply, products, readers
from edgec.quantize.work import Work


@dataclass(frozen=True)
class Choose:
    """A method for each value: the one with the least error in the products of the layers that read it.

    windows: of each layer, over all samples, that the error is measured on. A value that another op reads, or that is
    an output of the model, is judged by its own error there. than: a method must be so much better than min/max.
    """

    windows: int = 1024
    than: float = 0.95
    methods: tuple[str, ...] = tuple(METHODS)
    name: ClassVar[str] = "choose"
    changes: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        if unknown := [m for m in self.methods if m not in METHODS]:
            raise ValueError(f'step choose has no method "{unknown[0]}"; it has {", ".join(METHODS)}')

    def run(self, work: Work) -> None:
        """Of every value."""
        found, layers = histograms(work), products(work.graph.ops)
        windows = work.keep(("windows", self.windows), lambda: self._windows(work, layers))
        users = work.graph.users()
        ranges: dict[Value, Range] = {}
        for v, h in found.items():
            tries = dict.fromkeys(METHODS[m](h) for m in self.methods)
            used = users.get(v, [])
            errors = np.zeros(1 + len(tries))
            for op in (op for op in used if op in windows and op.inputs[0] is v):
                errors += _errors(layers[op], windows[op], [h.range, *tries])
            if v in work.graph.outputs or any(op not in windows for op in used):
                errors += _own(h, [h.range, *tries])
            best = int(np.argmin(errors[1:]))
            ranges[v] = [*tries][best] if errors[1 + best] < self.than * errors[0] else h.range
        work.ranges = ranges

    def _windows(self, work: Work, layers: Mapping[Op, Products]) -> dict[Op, Array]:
        """Some of each layer, [n, G, D]."""
        parts: dict[Op, list[Array]] = {op: [] for op in layers}
        by_value = readers(layers)
        numbers = {op: i for i, op in enumerate(work.graph.ops)}
        rows = -(-self.windows // len(work.samples))

        def of_sample(i: int) -> Observe:
            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    rng = np.random.default_rng((work.seed, i, numbers[op]))
                    parts[op].append(layers[op].windows(array, rows, rng))

            return observe

        work.watch(of_sample, "sample windows")
        return {op: np.concatenate(some) for op, some in parts.items() if some}


def _errors(p: Products, windows: Array, ranges: list[Range]) -> Array:
    """What each range adds to the products, as a part of their power."""
    w = p.op.inputs[1].const
    assert w is not None
    matrix = p.matrix(w)
    power = float(np.square(apply(matrix, windows)).sum()) or 1.0
    found: dict[Range, float] = {}
    for r in dict.fromkeys(ranges):
        q = activation_quant(r)
        real = (quantize_activation(windows, q).astype(np.float32) - q.zero_point[0]) * np.float32(q.scale[0])
        error = apply(matrix, real - windows)
        # what is the same for all windows belongs to the bias
        found[r] = float(np.square(error - error.mean(0)).sum()) / power
    return np.array([found[r] for r in ranges])


def _own(h: Histogram, ranges: list[Range]) -> Array:
    power = float((h.counts * h.centres**2).sum() / max(1, h.counts.sum())) or 1.0
    return np.array([noise(h, r) / power for r in ranges])


STEP = Choose
