"""Ranges: those wider than the outputs of the model need are narrowed."""

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
from edgec.quantize.change.steps.choose import MIN_VECTORS, by_scale_group, union
from edgec.quantize.observe.accuracy import tally
from edgec.quantize.observe.calibration import chosen, spread
from edgec.quantize.observe.ranges import Range, vectors

MAX_NOISE_RATIO = 0.97
"""One more cut must leave at most this part of the noise."""
CUTS_THAT_MUST_HELP = 2
"""The cuts that must lower the noise on few samples before many are tried."""
TINY_POWER = 1e-30
"""The least power of noise: a model without noise would be divided by 0."""


@dataclass(frozen=True)
class Narrow:
    """Cut both ends of ranges while the noise at the model's outputs falls.

    All other values are float meanwhile. The consumers of a value cannot know what is
    flat far behind them: the last sums of a network that draws masks (prisma) reach
    3,500 where the sigmoid behind them is 0 or 1 for everything beyond 600.

    The last cut that helps is taken back, since unseen samples reach further. Values
    with less than `least` of the noise stay as they are, and values that two cuts on
    `few` samples do not help: they are most, and would take most of the time.

    Attributes:
        samples: the number of samples for the noise at the outputs.
        few: the number of samples for the first two cuts.
        least: the share of the noise of all values that is worth the time.
        cut: the factor of both ends at each cut.
        cuts: the most cuts.
    """

    samples: int = 8
    few: int = 2
    least: float = 0.006
    cut: float = 0.7
    cuts: int = 5
    name: ClassVar[str] = "narrow"
    changes: ClassVar[str] = "ranges"

    def run(self, state: QuantizationState) -> None:
        """Narrow the ranges of values that share a scale together, group by group."""
        state.say("narrow ranges")

        # Most groups are settled by the few samples.
        few = _OutputNoise(state, spread(len(state.samples), self.few))
        many = _OutputNoise(state, spread(len(state.samples), self.samples))
        groups = _groups(state)
        whole_ranges = [union(state.ranges[v] for v in values) for values in groups]
        first_noise = []
        for values, r in zip(groups, whole_ranges, strict=True):
            first_noise.append(few.of(values, r))

        # The noise of all values, each rounded alone, stands for that of the model.
        total = np.maximum(np.sum(first_noise, 0), TINY_POWER)

        def cost(noise: _OutputNoise, values: Sequence[Value], r: Range) -> float:
            return _share(noise.of(values, r), total)

        ranges = dict(state.ranges)
        for values, r, noise in zip(groups, whole_ranges, first_noise, strict=True):
            share = _share(noise, total)
            # NaN, the noise of outputs that are not finite, is skipped too.
            if not share >= self.least:
                continue

            on_few = partial(cost, few, values)
            helping = self._cuts(r, share, on_few, CUTS_THAT_MUST_HELP)
            if len(helping) < CUTS_THAT_MUST_HELP:
                continue

            on_many = partial(cost, many, values)
            tried = [r, *self._cuts(r, on_many(r), on_many, self.cuts)]

            # The last one that helped is taken back.
            narrowed = tried[max(0, len(tried) - 2)]
            ranges.update(dict.fromkeys(values, narrowed))

        state.ranges = ranges

    def _cuts(
        self, r: Range, share: float, cost: Callable[[Range], float], limit: int
    ) -> list[Range]:
        """Return ever narrower ranges, each with less cost than the one before.

        share: the cost of `r`.
        limit: the most ranges.
        """
        ranges: list[Range] = []
        for _ in range(limit):
            r = (r[0] * self.cut, r[1] * self.cut)
            narrower = cost(r)
            if narrower > MAX_NOISE_RATIO * share:
                break
            ranges.append(r)
            share = narrower
        return ranges


def _groups(state: QuantizationState) -> list[Sequence[Value]]:
    """Return the values that become int8, in groups that share a scale.

    Groups with a prescribed scale or few observed vectors are left out.
    """
    # The scales that the model will have, as far as the observed ranges tell.
    ops = int8_ops(state.graph, state.observed_ranges())
    same = {op for op in ops if op.spec.quant is QuantRule.SAME}
    numbers = scale_groups(state.graph, same)

    int8_values: set[Value] = set()
    prescribed: set[Value] = set()
    for op in ops:
        int8_values.update(op.inputs, op.outputs)
        if op.spec.quant is QuantRule.FIXED:
            prescribed.update(op.outputs)
    count = len(state.samples)
    groups = []
    for values in by_scale_group(
        (v for v in state.ranges if v in int8_values), numbers
    ):
        is_prescribed = bool(prescribed & {*values})
        if not is_prescribed and max(map(vectors, values)) * count >= MIN_VECTORS:
            groups.append(values)

    return groups


def _share(noise: Array, total: Array) -> float:
    """Return the share of the noise of all values, the mean over the outputs."""
    return float((noise / total).mean())


class _OutputNoise:
    """The noise at the outputs of the float model where values are rounded."""

    def __init__(self, state: QuantizationState, numbers: Sequence[int]) -> None:
        self._samples = chosen(state.samples, numbers)
        self._run = state.float_run()
        self._want = [*outputs(self._run, self._samples)]

    def of(self, values: Sequence[Value], r: Range) -> Array:
        """Return the noise at each output with these values in int8, [outputs].

        It is the root mean square over the samples of the noise's power, which counts
        samples with much noise more: unseen samples may have several times as much.

        values: those that share a scale.
        """
        q = activation_quant(r)
        rounded_run = rounding(self._run, {v.name: q for v in values})

        powers = []
        for want, got in zip(
            self._want, outputs(rounded_run, self._samples), strict=True
        ):
            powers.append([tally(y, got[name]).powers()[1] for name, y in want.items()])

        return np.asarray(np.sqrt(np.square(powers).mean(0)))


STEP = Narrow
