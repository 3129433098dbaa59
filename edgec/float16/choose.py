"""Chooses the ops of a float graph that compute with float16.

All do, unless a judged value then loses more than `loss` allows. In that case the ops
whose float16 costs most accuracy for the time that it saves are given back:

1. The noise of its own that each op adds with float16 is the difference of its result
   from float32 on the very same inputs.
2. The noise that a group of ops brings to the judged values is measured by adding the
   noise of its ops to their float32 results. Groups are independent enough that their
   noise powers add up.
3. Groups are given back, those with most noise for their gain first, until the sum of
   the others is small enough.

The graph of the choice is then measured itself, and the goal raised by what is missing.

Before anything is given back, weights are rounded so that their errors cancel
(`weights`), and then Winograd's convolutions compute fewer results together: those of
2 x 2 save less than those of 4 x 4, and round less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgec.float16.convert import (
    can_be_float16,
    computes,
    computing,
    float16_ops,
    to_float16,
)
from edgec.float16.islands import saved
from edgec.float16.loss import (
    MIN_SQNR_DB,
    Loss,
    LossSums,
    judged_values,
    losses,
)
from edgec.float16.weights import rounded_weights
from edgec.ir import Array, Graph, Observe, Op, Run, Value
from edgec.ir.float16 import LARGEST, rounded
from edgec.measure.decibels import power_ratio

Sample = Mapping[str, Array]
Compiled = Callable[[Graph, int], Run]
"""A function that compiles a graph as the board would run it.

Its second argument is the most results in each direction that Winograd's convolutions
compute together.
"""

WINOGRAD_RESULTS = (4, 2)
"""Results of a Winograd tile in each direction: the limits to try, the fastest first.

The transforms of 4 x 4 results cost PP-LiteSeg 1.7 dB, and save 40 % of its time.
"""

MIN_MAGNITUDE = 2.0**-16
"""The least magnitude that some element of a tensor in float16 must have.

Below 2⁻¹⁴ float16 has steps of 2⁻²⁴, whatever the magnitude. A sum that is rounded 32
times on the way is off by some 2⁻²³ then, which is 0.8 % of 2⁻¹⁶; an op may be off by
2 % of its range (edgec/comparing/measure.py).
"""
NOISE_SAMPLES = 4
"""Samples to measure the noise of groups on."""
GROUP_MACS = 30e9
"""Multiply-accumulates of all runs that measure groups: some ten seconds of C."""
MIN_GROUPS = 8
"""The fewest groups of ops, where there are so many ops."""
MAX_GROUPS = 128
"""The most groups of ops."""
ROUNDS = 8
"""Choices to measure before all of the graph stays float32."""
BISECTIONS = 4
"""Choices to measure to give fewer groups back."""
TRIALS = 6
"""Groups to try in float16 again, one by one, and then ops."""
TINY = 1e-300
"""In place of an allowed noise of 0."""
MARGIN_DB = 0.5
"""Decibels by which a goal is raised beyond what is missing."""
AMPLE_DB = 10.0
"""Decibels within the limits at which weights need not be rounded better."""


@dataclass(frozen=True)
class Float16Choice:
    """The widths of the floats of a graph.

    Attributes:
        graph: the graph with them
        kept: ops with kernels for float16 in float32 all the same, by their first
            outputs
        converted: the number of ops that compute with float16
        losses: the loss at each judged value, by its name
        samples: the number of samples that it was measured on
        winograd: the most results in each direction that Winograd's convolutions
            compute together
    """

    graph: Graph
    kept: tuple[str, ...] = ()
    converted: int = 0
    losses: Mapping[str, Loss] = field(default_factory=dict)
    samples: int = 0
    winograd: int = WINOGRAD_RESULTS[0]

    @property
    def is_small(self) -> bool:
        """Whether all losses are within the limits."""
        return all(loss.is_small for loss in self.losses.values())

    @property
    def is_ample(self) -> bool:
        """Whether all losses are so far within them that better weights bring nothing."""
        return all(loss.missing_db <= -AMPLE_DB for loss in self.losses.values())

    def to_json(self) -> dict[str, Any]:
        """Return the choice as the manifest has it."""
        figures: dict[str, Any] = {}
        for name, loss in self.losses.items():
            # JSON has no infinities.
            is_finite = math.isfinite(loss.sqnr_db)
            ratio = round(loss.sqnr_db, 2) if is_finite else None
            figures[name] = {"sqnr_db": ratio, "largest": loss.largest}

        return {
            "operations": self.converted,
            "float32": list(self.kept),
            "samples": self.samples,
            "winograd": self.winograd,
            "losses": figures,
        }


class Float16Chooser:
    """Chooses the widths of the floats of one graph."""

    def __init__(
        self,
        graph: Graph,
        samples: Sequence[Sample],
        compiled: Compiled,
        float32: Collection[str] = (),
    ) -> None:
        """Prepare the choice.

        Args:
            graph: a graph with float32 ops
            samples: inputs that it is for, on which each choice is measured
            compiled: compiles a graph
            float32: the first outputs of ops that stay float32 in any case
        """
        self._graph = graph
        # A sample may be a photo that is read and resized each time it is asked for.
        self._samples = list(samples)
        self._compiled = compiled
        self._judged = [v.name for v in judged_values(graph)]
        self._winograd = WINOGRAD_RESULTS[0]
        self._float32 = self._run(graph)
        self._wanted: list[dict[str, Array]] = []
        # Ops that read or write numbers that float16 has not, and those of the caller
        self._excluded = {*float32, *self._out_of_range()}
        self._able = [op for op in graph.ops if can_be_float16(op)]
        # The nearest numbers, until they do not suffice
        self._halves: Mapping[str, Array] = {}

    def all_float16(self) -> Float16Choice:
        """Return the graph with float16 wherever there are kernels for it."""
        choice = self._measured(self._excluded)
        if not choice.converted or choice.is_ample:
            return choice

        chosen = float16_ops(self._graph, self._excluded)
        in_order = [op for op in self._graph.ops if op in chosen]
        self._halves = rounded_weights(in_order, self._float32, self._samples)
        for results in WINOGRAD_RESULTS:
            self._winograd = results
            choice = self._measured(self._excluded)
            if choice.is_small:
                break

        return choice

    def within_limits(self) -> Float16Choice:
        """Return the graph with as much float16 as the limits of losses allow."""
        choice = self.all_float16()
        if choice.is_small or not choice.converted:
            return choice

        groups = self._groups(self._excluded)
        noises = self._noises(groups, self._excluded)
        allowed = self._allowed_noise()
        given_back: list[int] = []
        for _ in range(ROUNDS):
            # The sum of noises is an estimate, and says nothing of the largest error.
            for name, loss in choice.losses.items():
                if loss.is_small:
                    continue
                estimate = _sum(noises, name, given_back)
                lower = power_ratio(-loss.missing_db - MARGIN_DB)
                allowed[name] = min(allowed[name], lower * estimate)

            before = len(given_back)
            more = self._noisiest(groups, noises, allowed, given_back)
            given_back += more
            choice = self._without(groups, given_back)
            if choice.is_small:
                fewest = self._fewest(groups, given_back, before)
                shares = [_share(noise, allowed) for noise in noises]
                return self._cheapest(groups, fewest, shares)

        return Float16Choice(self._graph)

    def _fewest(
        self, groups: Sequence[Sequence[Op]], given_back: Sequence[int], too_few: int
    ) -> list[int]:
        """Return the first groups that are given back, as few as limits allow.

        Bisection finds them between the last two choices.

        Args:
            groups: the ops of all groups
            given_back: the groups that were given back, in order
            too_few: how many of them were too few
        """
        enough = len(given_back)
        for _ in range(BISECTIONS):
            count = (too_few + enough) // 2
            if count in (too_few, enough):
                break
            if self._without(groups, given_back[:count]).is_small:
                enough = count
            else:
                too_few = count

        return list(given_back[:enough])

    def _cheapest(
        self,
        groups: Sequence[Sequence[Op]],
        given_back: Sequence[int],
        shares: Sequence[float],
    ) -> Float16Choice:
        """Return the choice with ops back in float16, while the limits hold.

        Groups that save most time for their noise are tried first, as those that came
        to float32 after them may have been enough, and then single ops that save most.

        Args:
            groups: the ops of all groups
            given_back: the groups that are float32
            shares: the noise of each group, as a part of what is allowed
        """
        in_float32 = _names(groups, given_back)

        def gain(names: set[str]) -> float:
            return self._saved(in_float32 - names) - self._saved(in_float32)

        def gain_for_noise(g: int) -> float:
            return gain(_names(groups, [g])) / max(shares[g], TINY)

        in_order = sorted(given_back, key=gain_for_noise, reverse=True)
        in_float32 = self._fewer(in_float32, [_names(groups, [g]) for g in in_order])
        singles = [{name} for name in sorted(in_float32)]
        in_float32 = self._fewer(in_float32, sorted(singles, key=gain, reverse=True))
        return self._measured(self._excluded | in_float32)

    def _fewer(self, in_float32: set[str], units: Sequence[set[str]]) -> set[str]:
        """Return the ops that stay float32 where the first units of them need not."""
        for unit in units[:TRIALS]:
            fewer = in_float32 - unit
            if self._measured(self._excluded | fewer).is_small:
                in_float32 = fewer

        return in_float32

    def _macs(self) -> int:
        """Return the multiply-accumulates of one run."""
        return sum(op.spec.macs(op) for op in self._graph.ops)

    def _without(
        self, groups: Sequence[Sequence[Op]], given_back: Collection[int]
    ) -> Float16Choice:
        """Return the choice that gives groups back to float32."""
        return self._measured(self._excluded | _names(groups, given_back))

    def _converted(self, keep: Collection[str]) -> Graph:
        """Return the graph with some ops in float32."""
        return to_float16(self._graph, keep, self._halves)

    def _measured(self, keep: set[str]) -> Float16Choice:
        """Return the graph with some ops in float32, and its losses."""
        graph = self._converted(keep)
        converted = float16_ops(self._graph, keep)
        if not converted:
            return Float16Choice(self._graph)

        run = self._run(graph)
        got: list[dict[str, Array]] = []
        for sample in self._samples:
            have = _values(run, sample, self._judged)
            got.append(have)

        return Float16Choice(
            graph=graph,
            kept=tuple(sorted(keep)),
            converted=len(converted),
            losses=losses(self._judged, self._wanted, got),
            samples=len(self._samples),
            winograd=self._winograd,
        )

    def _run(self, graph: Graph) -> Run:
        """Compile a graph, with Winograd's convolutions as they are now."""
        return self._compiled(graph, self._winograd)

    def _out_of_range(self) -> set[str]:
        """Run the float32 graph on all samples, and name the ops out of float16's range.

        These are the first outputs of ops that read or write numbers beyond the largest
        float16 on any sample, or nothing but numbers below MIN_MAGNITUDE on all.
        """
        largest: dict[str, float] = {}

        for sample in self._samples:
            want: dict[str, Array] = {}
            judged = _collecting(want, self._judged)

            def observe(v: Value, array: Array, judged: Observe = judged) -> None:
                judged(v, array)
                if array.dtype == np.float32:
                    before = largest.get(v.name, 0.0)
                    # Unlike Python's max, it keeps NaN.
                    largest[v.name] = float(np.maximum(_magnitude(array), before))

            self._float32(sample, observe)
            self._wanted.append(want)

        outside = {name for name, size in largest.items() if not _is_in_range(size)}
        # A cast to float16 overflows as the op before it would.
        names: set[str] = set()
        for op in self._graph.ops:
            values = (*op.inputs, *op.outputs)
            if any(v.name in outside for v in values):
                first = op.outputs[0]
                names.add(first.name)

        return names

    def _groups(self, keep: set[str]) -> list[list[Op]]:
        """Return the ops that would be float16 in groups, in the order of the graph.

        The more a run of the graph costs, the fewer groups there are.
        """
        chosen = float16_ops(self._graph, keep)
        # Ops that move elements follow those before and after them.
        ops = [op for op in self._graph.ops if op in chosen and computes(op)]
        # Each group costs a run of the graph for every sample.
        cost = max(1, self._macs() * NOISE_SAMPLES)
        affordable = max(MIN_GROUPS, int(GROUP_MACS / cost))
        count = min(len(ops), MAX_GROUPS, affordable)
        groups: list[list[Op]] = []
        for part in np.array_split(np.arange(len(ops)), count):
            group = [ops[i] for i in part]
            groups.append(group)

        return groups

    def _noises(
        self, groups: Sequence[Sequence[Op]], keep: set[str]
    ) -> list[dict[str, float]]:
        """Return the noise power that each group brings to each judged value.

        keep: the ops that stay float32 in any case
        """
        noises: list[dict[str, float]] = []
        for _ in groups:
            noises.append(dict.fromkeys(self._judged, 0.0))

        half = self._run(self._converted(keep))
        measured = self._samples[:NOISE_SAMPLES]
        for sample, want in zip(measured, self._wanted, strict=False):
            own = self._own_noises(half, sample)
            for group, noise in zip(groups, noises, strict=True):
                # The float32 graph, but for the noise of this group.
                added: dict[str, Array] = {}
                for op in group:
                    for v in op.outputs:
                        added[v.name] = own[v.name]

                got = _values(self._float32, sample, self._judged, added)
                for name in self._judged:
                    noise[name] += _noise(want[name], got[name])

        return noises

    def _noisiest(
        self,
        groups: Sequence[Sequence[Op]],
        noises: Sequence[Mapping[str, float]],
        allowed: Mapping[str, float],
        given_back: Collection[int],
    ) -> list[int]:
        """Return the groups to give back until noises are allowed, in order.

        Args:
            groups: the ops of all groups
            noises: the noise power of each group at each judged value
            allowed: the largest sum of noises at each judged value
            given_back: the groups that are float32 already
        """
        more: list[int] = []
        while len(more) + len(given_back) < len(groups):
            gone = {*given_back, *more}
            beyond: dict[str, float] = {}
            for name, most in allowed.items():
                noise = _sum(noises, name, gone)
                beyond[name] = noise / max(most, TINY)

            # The judged value that is furthest from its limit comes first.
            worst = max(beyond, key=beyond.__getitem__)
            if beyond[worst] <= 1:
                break

            # The group with most noise for the time that its float16 saves.
            before = self._saved(_names(groups, gone))
            rates: dict[int, float] = {}
            for g in range(len(groups)):
                noise = noises[g][worst]
                if g not in gone and noise > 0:
                    after = self._saved(_names(groups, {*gone, g}))
                    rates[g] = noise / max(before - after, 1.0)

            if not rates:
                break
            more.append(max(rates, key=rates.__getitem__))

        return more

    def _saved(self, names: Collection[str]) -> float:
        """Estimate the cycles that float16 saves with some ops in float32."""
        return saved(self._graph, computing(self._able, {*self._excluded, *names}))

    def _own_noises(self, half: Run, sample: Sample) -> dict[str, Array]:
        """Return what each op adds to its float32 result by its own float16."""
        exact: dict[str, Array] = {}
        noises: dict[str, Array] = {}
        inputs = {v.name for v in self._graph.inputs}
        # Moved elements were rounded before.
        moved: set[str] = set()
        for op in self._graph.ops:
            if op.spec.moves():
                moved.update(v.name for v in op.outputs)

        def keep(v: Value, array: Array) -> None:
            # An input is the sample itself, which has no noise and may be read-only.
            if array.dtype != np.float32 or v.name in inputs:
                return
            exact[v.name] = array.copy()
            noises[v.name] = np.zeros_like(array)

        def compare(v: Value, array: Array) -> None:
            # An output of the graph is float32 here too, behind a cast.
            if v.name not in exact:
                return
            want = exact[v.name]
            if v.name not in moved:
                have = array.astype(np.float32)
                noises[v.name] = have - want

            # The ops after it get the inputs that they have in float32.
            is_half = array.dtype == np.float16
            array[...] = rounded(want) if is_half else want

        self._float32(sample, keep)
        half(sample, compare)
        return noises

    def _allowed_noise(self) -> dict[str, float]:
        """Return the noise power that each judged value may have, by its name.

        It is that of all samples, as a part for those that noises are measured on.
        """
        samples = len(self._samples)
        part = min(NOISE_SAMPLES, samples) / samples
        allowed: dict[str, float] = {}
        for name in self._judged:
            sums = LossSums()
            for want in self._wanted:
                sums.add(want[name], want[name])
            allowed[name] = power_ratio(-MIN_SQNR_DB) * part * sums.signal

        return allowed


def _noise(want: Array, actual: Array) -> float:
    """Return the noise power of a value: the sum of squared differences."""
    sums = LossSums()
    sums.add(want, actual)
    return sums.noise


def _share(noise: Mapping[str, float], allowed: Mapping[str, float]) -> float:
    """Return the largest part of what is allowed that a noise takes of any value."""
    return max(noise[name] / max(most, TINY) for name, most in allowed.items())


def _names(groups: Sequence[Sequence[Op]], numbers: Collection[int]) -> set[str]:
    """Return the first outputs of the ops in some groups."""
    names: set[str] = set()
    for g in numbers:
        for op in groups[g]:
            first = op.outputs[0]
            names.add(first.name)

    return names


def _magnitude(array: Array) -> float:
    """Return the largest magnitude of an array's elements."""
    # Both are faster than an absolute value of each element, and need no memory.
    low = float(array.min(initial=0.0))
    high = float(array.max(initial=0.0))
    return max(high, -low)


def _is_in_range(largest: float) -> bool:
    """Return whether float16 has the numbers of a tensor with its usual precision."""
    # Samples do not show the largest results that there can be.
    has_bits = MIN_MAGNITUDE <= largest <= LARGEST / 2
    return has_bits or largest == 0


def _values(
    run: Run, sample: Sample, names: Sequence[str], added: Mapping[str, Array] = {}
) -> dict[str, Array]:
    """Return values of one run by name.

    added: what is added to results while the graph runs, by their names.
    """
    values: dict[str, Array] = {}
    collect = _collecting(values, names)

    def observe(v: Value, array: Array) -> None:
        if v.name in added:
            array += added[v.name]
        collect(v, array)

    run(sample, observe)
    return values


def _collecting(values: dict[str, Array], names: Sequence[str]) -> Observe:
    """Return an observer that copies some values, by their names, into a dict."""

    def observe(v: Value, array: Array) -> None:
        if v.name in names:
            values[v.name] = array.astype(np.float32)

    return observe


def _sum(
    noises: Sequence[Mapping[str, float]], name: str, given_back: Collection[int]
) -> float:
    """Return the noise power at a judged value of the groups that are float16."""
    power = 0.0
    for g, noise in enumerate(noises):
        if g not in given_back:
            power += noise[name]

    return power
