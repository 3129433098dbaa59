"""Which ops to leave in float32: those that buy the most accuracy for their time, one
run of neighbours after another.

The error of a quantized model is distributed: the worst few ops alone gain little. So
whole runs are looked at. What each op adds to the outputs' noise is measured first,
with all others in float; that ranks the runs. The best are measured with all others in
int8 and priced on the target; the best of those is made, corrected and measured as the
int8 model that it is, and becomes the ground for the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from edgec.errors import EdgecError
from edgec.ir import Array, Graph, Op
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate
from edgec.quantize.change.simulate import Simulation, outputs
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.change.steps.precision import Precision
from edgec.quantize.float_ops.limits import Limits, Price, decibels
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs, op_groups
from edgec.quantize.observe.accuracy import Agreement, Tally, tally
from edgec.quantize.observe.calibration import Sample
from edgec.steps import each

Pricer = Callable[[Graph], Price]
Names = tuple[str, ...]

_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.1)
"""Of what is missing: the cheapest runs that should buy so much are measured and
priced, and one of them is taken.
"""
SENSED = 8
"""Samples that the noise of one op alone is measured on."""
_ROUNDS = 4
"""So often others are looked for where none of those kept its promise; then it is all
or nothing.
"""
_SPARED = 8
"""Runs that are measured to find one that may be int8 again."""
_MOST = 32
_LEAST_DB = 0.1
_LEAST_MS = 0.005
"""As a part of the model's time: what costs less costs as much."""
_STEP_DB = 3.0
"""What is bought at a time where it cannot be told how much is wanted."""
_TOP_DB = 100.0
"""What equal outputs count as."""


@dataclass(frozen=True)
class PlanRow:
    """One row of a plan: the ops that were left in float next (or made int8 again,
    where `back`), and what the model was then. db: signal to noise, the mean over
    samples and outputs. outputs: over all samples.
    """

    unit: OpGroup
    db: float
    price: Price | None
    outputs: Mapping[str, Agreement]
    back: bool = False

    @property
    def ops(self) -> Names:
        """Names of their first results."""
        return self.unit.names

    def to_json(self) -> dict[str, Any]:
        """For the bundle's report."""
        price = None if self.price is None else asdict(self.price)
        outputs = {name: a.as_dict() for name, a in self.outputs.items()}
        ops = [*self.ops]
        kinds = [*self.unit.kinds]
        return {
            "ops": ops,
            "kinds": kinds,
            "back": self.back,
            "db": self.db,
            "price": price,
            "outputs": outputs,
        }


@dataclass(frozen=True)
class PrecisionPlan:
    """What was left in float to keep within limits, on `samples` held back; the first
    row is the model without. worth_db: what it had to buy in all, where there was no
    goal (`Recipe.slowdown`).
    """

    limits: Limits
    rows: tuple[PlanRow, ...]
    samples: int
    worth_db: float = 0.0

    @property
    def floats(self) -> Names:
        """The names of all ops that stay float."""
        return _floats(self.rows)

    def to_json(self) -> dict[str, Any]:
        """For the bundle's report."""
        rows = [r.to_json() for r in self.rows]
        return {
            "limits": self.limits.to_json(),
            "samples": self.samples,
            "rows": rows,
            "floats": [*self.floats],
        }


@dataclass(frozen=True)
class Fold:
    """Some samples held back, and the model as it is made of the others: with ops of
    these names in float, all steps done.
    """

    make: Callable[[Names], QuantizationState]
    held: Sequence[Sample]


@dataclass
class Planner:
    """rough: the first fold's model, all int8, without steps that take long. price:
    what a quantized graph costs.
    """

    folds: Sequence[Fold]
    rough: QuantizationState
    limits: Limits
    price: Pricer | None = None

    def plan(self) -> PrecisionPlan:
        """Buy until the goals are reached; without any, while the budget lasts.

        Raises EdgecError where it does not.
        """
        rows = [self.bought((), OpGroup(()))]
        if not self._reached(rows[0]):
            market = FloatCandidates.of(
                self.rough, [s for f in self.folds for s in f.held]
            )
            for _ in range(_MOST):
                found = self._best(market, rows)
                if found is None:
                    break
                row = self.bought((*_floats(rows), *found.names), found)
                if row.db < rows[-1].db + _LEAST_DB and not self._reached(row):
                    market.refused.add(found)  # it promised more than it gave
                    continue
                rows.append(row)
                if self._reached(row):
                    break
            rows += self.not_needed(market, rows)
        if self.limits.goals and not self._reached(rows[-1]):
            raise self._out_of_reach(rows[-1])
        return PrecisionPlan(
            self.limits, tuple(rows), sum(len(f.held) for f in self.folds)
        )

    def _reached(self, row: PlanRow) -> bool:
        return self.limits.goals and not any(self.limits.misses(row.outputs))

    def bought(self, floats: Names, unit: OpGroup, *, back: bool = False) -> PlanRow:
        """The model as it would be with these in float, measured."""
        tallies = dict[str, Tally]()
        ratios = list[float]()
        price = None
        for fold in self.folds:
            work = fold.make(floats)
            int8 = work.int8().graph
            want = work.float_run()
            work.say("measure int8")
            got = work.runners.int8(int8, work.passes * len(fold.held))
            for sample in fold.held:
                ratios += _compare(want(sample, None), got(sample, None), tallies)
            if self.price is not None and price is None:
                price = self.price(int8)
        db = float(np.mean(decibels_of(np.array(ratios))))
        return PlanRow(
            unit, db, price, {n: t.result() for n, t in tallies.items()}, back
        )

    def _best(self, market: FloatCandidates, rows: Sequence[PlanRow]) -> OpGroup | None:
        """The run that buys most for its time, of what the budget has room for."""
        now = rows[-1]
        left = _floats(rows)
        missing = self._missing(rows[-1])
        int8 = {op for op in market.simulation.ops if op.outputs[0].name not in left}
        base = decibels_of(market.noise(int8))
        for rest in (False,) * _ROUNDS + (True,):
            few = market.promising(left, 0.0 if rest else missing)
            best = None
            most = 0.0
            for run in few:
                if self.price:
                    price = self.price(market.simulation.graph(int8 - {*run.ops}))
                else:
                    price = None
                affordable = self.limits.affords(price)
                if affordable:
                    gain = float(
                        np.mean(decibels_of(market.noise(int8 - {*run.ops})) - base)
                    )
                else:
                    gain = 0.0
                if gain < _LEAST_DB:
                    market.refused.add(run)
                    continue
                ms = run.work / market.work
                if price is not None and now.price is not None:
                    ms = max(price.ms / now.price.ms - 1, _LEAST_MS)
                if min(gain, missing) / ms > most:
                    best = run
                    most = min(gain, missing) / ms
            if best is not None:
                return best
        return None

    def _missing(self, row: PlanRow) -> float:
        """How many dB are wanted yet; _STEP_DB where that cannot be told."""
        short = max(
            (self.limits.needed_db(a) - decibels(a) for a in row.outputs.values()),
            default=0.0,
        )
        return short if 0 < short < math.inf else _STEP_DB

    def not_needed(
        self, market: FloatCandidates, rows: Sequence[PlanRow]
    ) -> Iterator[PlanRow]:
        """What the goal is reached without after all, now that others are in float:
        large runs first.
        """
        left = [*rows]
        vain = set[OpGroup]()
        for _ in range(_MOST if self._reached(rows[-1]) else 0):
            found = self._spare(market, left[-1], _floats(left), vain)
            if found is None:
                return
            vain.add(found)
            row = self.bought(
                tuple(n for n in _floats(left) if n not in found.names),
                found,
                back=True,
            )
            if (
                self._reached(row)
                and self.limits.affords(row.price)
                and _cheaper(row, left[-1])
            ):
                left.append(row)
                yield row

    def _spare(
        self, market: FloatCandidates, now: PlanRow, left: Names, vain: set[OpGroup]
    ) -> OpGroup | None:
        """The run of most work that the goal should be reached without. vain: those
        that were tried.
        """
        there = [u for u in market.groups if {*u.names} & {*left}]
        int8 = {op for op in market.simulation.ops if op.outputs[0].name not in left}
        base = market.noise(int8, SENSED).reshape(-1, len(now.outputs)).mean(0)
        ratios = np.array(
            [10 ** (-min(decibels(a), _TOP_DB) / 10) for a in now.outputs.values()]
        )
        allowed = np.array(
            [10 ** (-self.limits.needed_db(a) / 10) for a in now.outputs.values()]
        )
        likely = list[OpGroup]()
        for run in dict.fromkeys(
            OpGroup.of(r) for r in neighbour_runs(market.groups, there)
        ):
            more = sum(market.alone[u] for u in market.groups if {*u.ops} <= {*run.ops})
            grown = np.asarray(more).reshape(-1, len(now.outputs)).mean(0) / np.maximum(
                base, 10 ** (-_TOP_DB / 10)
            )
            if run not in vain and np.all(ratios * (1 + grown) <= allowed):
                likely.append(run)
        for run in sorted(likely, key=lambda u: -u.work)[:_SPARED]:
            tallies = dict[str, Tally]()
            market.noise(int8 | {*run.ops}, tallies=tallies)
            if not any(self.limits.misses({n: t.result() for n, t in tallies.items()})):
                return run
            vain.add(run)
        return None

    def _out_of_reach(self, last: PlanRow) -> EdgecError:
        misses = "; ".join(self.limits.misses(last.outputs))
        if last.price is None:
            cost = ""
        else:
            cost = f" with an estimated {last.price.ms:.2f} ms"
        what = f"the accuracy that was asked for is not reached{cost}: {misses}"
        hint = (
            "ask for less (--max-drop, --min-sqnr), allow more (--max-ms, "
            "--min-tpu-share), "
            "or try --quantize best"
        )
        return EdgecError(what, "on samples held back from calibration", hint)


@dataclass
class FloatCandidates:
    """What there is to buy: units in order, and the noise that each adds to each
    sample's outputs. refused: runs that did not keep their promise.
    """

    simulation: Simulation
    samples: Sequence[Sample]
    want: Sequence[Mapping[str, Array]]
    groups: Sequence[OpGroup]
    alone: Mapping[OpGroup, Array] = field(default_factory=dict)
    refused: set[OpGroup] = field(default_factory=set)

    @classmethod
    def of(cls, work: QuantizationState, samples: Sequence[Sample]) -> FloatCandidates:
        """Measure each unit of a model with all others in float."""
        simulation = Simulation(work)
        run = work.float_run()
        found = op_groups(work.graph, simulation.ops)
        market = cls(simulation, samples, [*outputs(run, samples)], found)
        some = each(found, len(found), "measure sensitivity", work.say)
        market.alone = {u: market.noise(u.ops, SENSED) for u in some}
        return market

    @property
    def work(self) -> int:
        """Of all."""
        return sum(u.work for u in self.groups)

    def noise(
        self,
        int8: Collection[Op],
        samples: int | None = None,
        tallies: dict[str, Tally] | None = None,
    ) -> Array:
        """[samples x outputs]: with these ops in int8, as a part of each output's
        power. tallies: takes all in.
        """
        run = self.simulation.run(int8)
        found = list[float]()
        for want, got in zip(
            self.want[:samples], outputs(run, self.samples[:samples]), strict=True
        ):
            found += _compare(want, got, tallies)
        return np.array(found)

    def promising(self, left: Names, missing: float) -> list[OpGroup]:
        """The runs of least work that should buy all that is missing, half of it, …;
        all that is left for 0.
        """
        there = [u for u in self.groups if not {*u.names} & {*left}]
        everything = OpGroup.of(there)
        if not missing or not there:
            return [everything] if there and everything not in self.refused else []
        whole = np.maximum(sum(self.alone[u] for u in there), 1e-30)
        cheapest: dict[float, OpGroup] = {}
        for run in neighbour_runs(self.groups, there):
            gain = float(
                np.mean(
                    -decibels_of(whole)
                    + decibels_of(whole - sum(self.alone[u] for u in run))
                )
            )
            joined = OpGroup.of(run)
            for part in _PARTS if joined not in self.refused else ():
                if gain >= part * missing and (
                    part not in cheapest or joined.work < cheapest[part].work
                ):
                    cheapest[part] = joined
        return [*dict.fromkeys(cheapest.values())]


def _cheaper(row: PlanRow, old: PlanRow) -> bool:
    return row.price is None or old.price is None or row.price.ms < old.price.ms


def _floats(rows: Sequence[PlanRow]) -> Names:
    """The names of what is in float after them."""
    left: dict[str, None] = {}
    for row in rows[1:]:
        if row.back:
            left = {n: None for n in left if n not in row.ops}
        else:
            left = left | dict.fromkeys(row.ops)
    return tuple(left)


def _compare(
    want: Mapping[str, Array],
    got: Mapping[str, Array],
    tallies: dict[str, Tally] | None = None,
) -> list[float]:
    """The noise of each output of one sample, as a part of its power."""
    found = []
    for name, y in want.items():
        found.append(10 ** (-min(decibels(tally(y, got[name]).result()), _TOP_DB) / 10))
        if tallies is not None:
            tallies.setdefault(name, Tally()).add(y, got[name])
    return found


def decibels_of(ratios: Array) -> Array:
    """Of noise as a part of an output's power; `_TOP_DB` at most."""
    return np.asarray(-10 * np.log10(np.maximum(ratios, 10 ** (-_TOP_DB / 10))))


def leave_in_float(candidate: Candidate, names: Names) -> Candidate:
    """The candidate with these ops in float too."""
    if not names:
        return candidate
    for i, step in enumerate(candidate.steps):
        if isinstance(step, Precision):
            both = Precision(tuple(dict.fromkeys((*step.floats, *names))))
            return replace(
                candidate, steps=(*candidate.steps[:i], both, *candidate.steps[i + 1 :])
            )
    return candidate.with_step(Precision(names))


def plan_within(
    limits: Limits,
    candidate: Candidate,
    parts: Sequence[tuple[QuantizationState, Sequence[Sample]]],
    price: Pricer | None,
) -> PrecisionPlan:
    """What of a candidate to leave in float. parts: the model before its steps, with
    samples to make it of, and others to judge it on. Raises EdgecError where a goal is
    out of reach.
    """

    def fold(work: QuantizationState, held: Sequence[Sample]) -> Fold:
        line = StepPipeline(work)
        return Fold(lambda names: line.of(leave_in_float(candidate, names)), held)

    quick = tuple(
        replace(s, inherited=False) if isinstance(s, BiasCorrection) else s
        for s in candidate.steps
    )
    rough = StepPipeline(parts[0][0]).of(replace(candidate, steps=quick))
    return Planner([fold(*part) for part in parts], rough, limits, price).plan()
