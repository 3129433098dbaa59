"""Ranges: those that are wider than the outputs of the model need end earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from edgec.analysis.channels import scale_groups
from edgec.ir import Array, QuantRule, Value
from edgec.quantize.change.domains import int8_ops
from edgec.quantize.change.params import activation_quant
from edgec.quantize.change.simulate import outputs, rounding
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.choose import FEW, shared, union
from edgec.quantize.observe.accuracy import tally
from edgec.quantize.observe.calibration import chosen, spread
from edgec.quantize.observe.ranges import Range, vectors

_SHARPER = 0.97
"""One more cut leaves at most so much of the noise, or it is not worth it."""
_TINY = 1e-30


@dataclass(frozen=True)
class Narrow:
    """What int8 makes of a value is judged by the outputs of the model, with all other
    values in float.

    Layers that read a value cannot know what is flat far behind them: the last sums of
    a network that draws masks (prisma) reach 3,500 where the sigmoid behind them says 0
    or 1 of all beyond 600. Both ends are cut by `cut` as long as the noise at the
    outputs of `samples` samples falls; the last cut is taken back, since other samples
    reach further. Values that make up less than `least` of the noise stay as they are,
    and those that two cuts do not help on `few` samples: most, and they would take most
    of the time.
    """

    samples: int = 8
    few: int = 2
    least: float = 0.006
    cut: float = 0.7
    cuts: int = 5
    name: ClassVar[str] = "narrow"
    changes: ClassVar[str] = "ranges"

    def run(self, work: QuantizationState) -> None:
        """Of values that share a scale together, one set after the other."""
        work.say("narrow ranges")
        few, many = (
            _Noise(work, spread(len(work.samples), n)) for n in (self.few, self.samples)
        )
        ranges = dict(work.ranges)
        groups = _groups(work)
        seen = [union(ranges[v] for v in values) for values in groups]
        first = [few.of(values, r) for values, r in zip(groups, seen, strict=True)]
        total = np.maximum(np.sum(first, 0), _TINY)

        def cost(noise: _Noise, values: Sequence[Value], r: Range) -> float:
            return _part(noise.of(values, r), total)

        for values, r, before in zip(groups, seen, first, strict=True):
            part = _part(before, total)
            if (
                part >= self.least
                and len(self._cuts(r, part, partial(cost, few, values), 2)) == 2
            ):
                of_many = partial(cost, many, values)
                worth = [r, *self._cuts(r, of_many(r), of_many, self.cuts)]
                ranges.update(dict.fromkeys(values, worth[max(0, len(worth) - 2)]))
        work.ranges = ranges

    def _cuts(
        self, r: Range, part: float, cost: Callable[[Range], float], most: int
    ) -> list[Range]:
        """Ever narrower ranges, each better than the one before. part: what `r` costs."""
        found = list[Range]()
        for _ in range(most):
            r = r[0] * self.cut, r[1] * self.cut
            then = cost(r)
            if then > _SHARPER * part:
                break
            found.append(r)
            part = then
        return found


def _groups(work: QuantizationState) -> list[Sequence[Value]]:
    """Values that become int8 in a scale that is theirs to choose, and of which many
    vectors were seen.
    """
    ops = int8_ops(work.graph, work.extremes())
    groups = scale_groups(
        work.graph, {op for op in ops if op.spec.quant is QuantRule.SAME}
    )
    there = {v for op in ops for v in (*op.inputs, *op.outputs)}
    fixed = {v for op in ops if op.spec.quant is QuantRule.FIXED for v in op.outputs}
    every = shared((v for v in work.ranges if v in there), groups)
    count = len(work.samples)
    return [
        values
        for values in every
        if not fixed & {*values} and max(map(vectors, values)) * count >= FEW
    ]


def _part(noise: Array, total: Array) -> float:
    return float((noise / total).mean())


class _Noise:
    """At the outputs of the float model, where values are rounded."""

    def __init__(self, work: QuantizationState, numbers: Sequence[int]) -> None:
        self._samples = chosen(work.samples, numbers)
        self._run = work.run()
        self._want = [*outputs(self._run, self._samples)]

    def of(self, values: Sequence[Value], r: Range) -> Array:
        """[outputs]: the mean power over samples; more where few have all of it, as
        others may have several times that.
        """
        q = activation_quant(r)
        got = outputs(rounding(self._run, {v.name: q for v in values}), self._samples)
        each = [
            [tally(y, g[name]).powers()[1] for name, y in w.items()]
            for w, g in zip(self._want, got, strict=True)
        ]
        return np.asarray(np.sqrt(np.square(each).mean(0)))


STEP = Narrow
