"""Ranges: for each value the method that serves the layers which read it best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.analysis.channels import scale_groups
from edgec.ir import Array, Observe, Op, QuantRule, Value
from edgec.quantize.change.domains import int8_ops
from edgec.quantize.change.functions import softmax
from edgec.quantize.change.histograms import METHODS, histograms, mse, search
from edgec.quantize.change.products import LinearLayer, consumers, linear_layers
from edgec.quantize.change.range_costs import (
    RangeCost,
    SampledWindows,
    range_costs,
    total,
)
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.ranges import Range, vectors

FEW = 256
"""Vectors of channels: those of samples that were not seen may need less than so few,
or more. Nothing is clipped.
"""
_GROUPED = 1 << 20
"""Elements of one layer's windows, where it has groups: 4 MB."""
_ROWS = 256
"""Of a softmax: each has many elements."""


@dataclass(frozen=True)
class Choose:
    """A method for each value: the one with the least error in what is computed from
    it.

    That is the products of the layers that read it, measured on `windows` of each; what
    an activation function makes of it, which may be flat where the value is large;
    elsewhere the value itself. Values that share a scale are judged together. than: a
    method must be so much better than min/max: what it clips is judged on few samples,
    of which others may have several times as much, and in all layers at once. clipping:
    how many times what is clipped counts. room: how many times as far as what was seen
    the range goes of a value that has one vector in each sample, logits say: those of
    mobilenet_v1 0.25 reached 17 in 21 photos and 23 in others, whose best classes would
    become equal.
    """

    windows: int = 1024
    than: float = 0.6
    clipping: float = 1.0
    room: float = 1.5
    methods: tuple[str, ...] = tuple(m for m in METHODS if m != "entropy")
    name: ClassVar[str] = "choose"
    changes: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        if unknown := [m for m in self.methods if m not in METHODS]:
            raise ValueError(
                f'step choose has no method "{unknown[0]}"; it has {", ".join(METHODS)}'
            )

    def run(self, work: QuantizationState) -> None:
        """Of every value."""
        found = histograms(work)
        layers = linear_layers(work.graph.ops)
        windows = work.keep(
            ("windows", self.windows), lambda: self._windows(work, layers)
        )
        chosen = int8_ops(work.graph, work.extremes())
        users = work.graph.users()
        same = {op for op in chosen if op.spec.quant is QuantRule.SAME}
        ranges: dict[Value, Range] = {}
        for values in shared(found, scale_groups(work.graph, same)):
            seen = union(found[v].range for v in values)
            if (most := max(map(vectors, values))) * len(work.samples) < FEW:
                room = self.room if most == 1 else 1.0
                ranges.update(dict.fromkeys(values, (room * seen[0], room * seen[1])))
                continue
            told = [
                range_costs(
                    work.graph, users, v, found[v], windows, same, self.clipping
                )
                for v in values
            ]
            tries = [union(METHODS[m](found[v]) for v in values) for m in self.methods]
            if self.clipping != 1:
                tries.append(union(mse(found[v], self.clipping) for v in values))
            # where functions are flat, a range may end
            flat = [
                (found[v], total(some))
                for v, t in zip(values, told, strict=True)
                if (some := t.of_functions)
            ]
            flat += [
                (found[v], total(some))
                for v, t in zip(values, told, strict=True)
                if (some := t.of_rows)
            ]
            tries += [search(h, cost) for h, cost in flat]
            best = self._best(seen, tries, [judge for t in told for judge in t])
            ranges.update(dict.fromkeys(values, best))
        work.ranges = ranges

    def _best(
        self, seen: Range, tries: Sequence[Range], every: Sequence[RangeCost]
    ) -> Range:
        cost = total(every)
        totals = {r: cost(r) for r in (seen, *tries)}
        best = min(totals, key=lambda r: totals[r])
        return best if totals[best] < self.than * totals[seen] else seen

    def _count(self, p: LinearLayer) -> int:
        """Of windows.

        Fewer where each has many groups: a wide depthwise layer has as many of its own
        in one place.
        """
        if p.groups == 1:
            return self.windows
        return max(1, min(self.windows, _GROUPED // (p.groups * p.depth)))

    def _windows(
        self, work: QuantizationState, layers: Mapping[Op, LinearLayer]
    ) -> dict[Op, SampledWindows]:
        """Some of each layer, [n, G, D]; of a softmax some rows, [n, C]."""
        soft = [op for op in work.graph.ops if softmax(op) is not None]
        parts: dict[Op, list[tuple[Array, Array]]] = {op: [] for op in (*layers, *soft)}
        by_value = consumers(parts)
        numbers = {op: i for i, op in enumerate(work.graph.ops)}

        def of_sample(i: int) -> tuple[dict[Op, tuple[Array, Array]], Observe]:
            found = dict[Op, tuple[Array, Array]]()

            def observe(v: Value, array: Array) -> None:
                for op in by_value.get(v, ()):
                    rng = np.random.default_rng((work.seed, i, numbers[op]))
                    if op in layers:
                        count = -(-self._count(layers[op]) // len(work.samples))
                        found[op] = layers[op].weighed(array, count, rng)
                    else:
                        every = array.reshape(-1, array.shape[-1])
                        count = min(len(every), -(-_ROWS // len(work.samples)))
                        some = every[rng.choice(len(every), count, replace=False)]
                        found[op] = some, np.ones(count, np.float32)

            return found, observe

        for found in work.watch(of_sample, "sample windows"):
            for op, drawn in found.items():
                parts[op].append(drawn)
        # each freed when it is joined: no second copy of all
        return {
            op: SampledWindows.of(some) for op in [*parts] if (some := parts.pop(op))
        }


def shared(
    found: Iterable[Value], number: Mapping[Value, int]
) -> Iterable[Sequence[Value]]:
    """Values in lists of those with the same number."""
    groups: dict[int, list[Value]] = {}
    for v in found:
        groups.setdefault(number[v], []).append(v)
    return groups.values()


def union(ranges: Iterable[Range]) -> Range:
    """The range that holds all."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


STEP = Choose
