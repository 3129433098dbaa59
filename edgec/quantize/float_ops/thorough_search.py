"""The thorough search for operations to leave in float32.

The noise that each group of operations adds alone ranks runs of neighbours. The best
runs are measured with all other operations in int8, and priced on the target. The run
with the largest

    gain in dB / share of the model's time

is made, corrected and measured as the int8 model that it becomes, and the search goes on
from there. Where the goal is reached, runs that it does not need become int8 again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgec.errors import EdgecError
from edgec.ir import Array, Op
from edgec.measure.agreement import Tally
from edgec.measure.decibels import (
    LEAST_NOISE,
    decibels_of_parts,
    part_of_decibels,
)
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.float_ops.limits import (
    AccuracyGoal,
    CostBudget,
    Price,
    Pricer,
)
from edgec.quantize.float_ops.noise import (
    LEAST_TIME_SHARE,
    SENSITIVITY_SAMPLES,
    TINY_NOISE,
    FloatCandidates,
    compare_outputs,
)
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs
from edgec.quantize.float_ops.plan import Names, Plan, PlanRow, float_names
from edgec.quantize.observe.calibration import Sample
from edgec.quantize.observe.judgement import Judge

MAX_ROWS = 32
"""The most runs that are left in float."""
PROMISED_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.1)
"""Parts of the missing dB. For each the cheapest run that should gain so much is
measured and priced.
"""
MAX_ROUNDS = 4
"""How often other runs are looked for where none of these kept its promise; after that
all remaining groups are tried together.
"""
MIN_GAIN_DB = 0.1
"""The least gain of a run."""
UNKNOWN_GAIN_DB = 3.0
"""The dB that count as missing where the goal does not tell how many are."""
MAX_MEASURED_RETURNS = 8
"""The runs that are measured to find one that may be int8 again."""


@dataclass(frozen=True)
class HeldOutFold:
    """Held-back samples, and the model as it is made of the others.

    Attributes:
        make: returns the model after all steps, with operations of these names in float.
        held: the samples that were held back.
    """

    make: Callable[[Names], QuantizationState]
    held: Sequence[Sample]


@dataclass
class ThoroughSearch:
    """Leaves runs in float until the goal is reached or the budget is spent.

    Attributes:
        folds: the models to measure, and the samples to measure them on.
        rough: the first fold's model, all int8, without steps that take long.
        goal: the accuracy that is wanted.
        budget: the cost that is allowed.
        price: estimates the cost of a quantized graph.
        judge: judges models on labelled pictures, where there are some.
    """

    folds: Sequence[HeldOutFold]
    rough: QuantizationState
    goal: AccuracyGoal = field(default=AccuracyGoal())
    budget: CostBudget = field(default=CostBudget())
    price: Pricer | None = None
    judge: Judge | None = None

    def plan(self) -> Plan:
        """Return the plan; without a goal it spends the budget.

        Raises EdgecError where the budget does not reach the goal.
        """
        rows = [self.measured((), OpGroup(()))]
        # A slowdown is relative to int8 alone, whose cost is known from now on.
        self.budget = self.budget.relative_to(rows[0].price)
        # Most models need nothing in float: then no noise of groups is measured.
        if not self._is_reached(rows[0]):
            held = [sample for fold in self.folds for sample in fold.held]
            candidates = FloatCandidates.of(self.rough, held)
            self._leave_in_float(candidates, rows)
            rows += self.returned(candidates, rows)

        if self.goal and not self._is_reached(rows[-1]):
            raise self._out_of_reach(rows[-1])

        count = sum(len(fold.held) for fold in self.folds)

        return Plan(self.goal, self.budget, tuple(rows), count)

    def _leave_in_float(self, candidates: FloatCandidates, rows: list[PlanRow]) -> None:
        """Append a row for each run that stays in float."""
        for _ in range(MAX_ROWS):
            run = self._best(candidates, rows)
            if run is None:
                return
            row = self.measured((*float_names(rows), *run.names), run)
            falls_short = self._falls_short(row, rows[-1])
            if falls_short and not self._is_reached(row):
                # It promised more in the simulation than the int8 model kept.
                candidates.refused.add(run)
                continue
            rows.append(row)
            if self._is_reached(row):
                return

    def _is_reached(self, row: PlanRow) -> bool:
        missed = any(self.goal.misses(row.outputs, row.judged))
        return bool(self.goal) and not missed

    def _falls_short(self, row: PlanRow, before: PlanRow) -> bool:
        """Return whether a row gains too little over the one before."""
        if row.db < before.db + MIN_GAIN_DB:
            return True
        # A goal of accuracy says what is enough; a budget is spent on what can be seen.
        if self.goal or row.judged is None or before.judged is None:
            return False
        return not row.judged.is_better_than(before.judged)

    @property
    def _noise_goal(self) -> AccuracyGoal:
        """The part of the goal that the noise of outputs decides."""
        return self.goal if self.judge is None else self.goal.without_drop()

    def measured(self, floats: Names, group: OpGroup, *, back: bool = False) -> PlanRow:
        """Make the model with operations of these names in float, and measure it.

        group: the operations that the row is about.
        back: whether they become int8 again.
        """
        tallies: dict[str, Tally] = {}
        noises: list[float] = []
        price = None
        judged = None
        for fold in self.folds:
            state = fold.make(floats)
            int8 = state.int8().graph
            float_run = state.float_run()
            state.say("measure int8")
            int8_run = state.runners.int8(int8, state.passes * len(fold.held))
            # Labelled pictures are held back from every fold: one judgement is enough.
            if self.judge is not None and judged is None:
                judged = self.judge(int8_run)
            for sample in fold.held:
                want = float_run(sample, None)
                got = int8_run(sample, None)
                noises += compare_outputs(want, got, tallies)
            # The folds differ in their integers alone: one price is that of all.
            if self.price is not None and price is None:
                price = self.price(int8)

        # The mean of ratios in dB: no single sample or output decides.
        db = float(np.mean(decibels_of_parts(np.array(noises))))
        outputs = {name: t.result() for name, t in tallies.items()}

        return PlanRow(group, db, price, outputs, back, judged)

    def _best(
        self, candidates: FloatCandidates, rows: Sequence[PlanRow]
    ) -> OpGroup | None:
        """Return the run within the budget with the largest gain for its time."""
        floats = float_names(rows)
        missing = self._missing_db(rows[-1])
        int8 = _int8_ops(candidates, floats)

        # Runs that promise most may fail together: others are looked for a few times.
        base = decibels_of_parts(candidates.noise(int8))
        for attempt in range(MAX_ROUNDS + 1):
            is_last = attempt == MAX_ROUNDS
            runs = promising(candidates, floats, 0.0 if is_last else missing)
            best = None
            best_value = 0.0
            for run in runs:
                remaining = int8 - {*run.ops}
                price = self._price(candidates, remaining)
                gain = 0.0
                if self.budget.affords(price):
                    noise = candidates.noise(remaining)
                    gain = float(np.mean(decibels_of_parts(noise) - base))
                if gain < MIN_GAIN_DB:
                    candidates.refused.add(run)
                    continue
                # More than is missing is worth nothing.
                time_share = self._time_share(candidates, run, price, rows[-1])
                value = min(gain, missing) / time_share
                if value > best_value:
                    best = run
                    best_value = value
            if best is not None:
                return best

        return None

    def _price(self, candidates: FloatCandidates, int8: Collection[Op]) -> Price | None:
        if self.price is None:
            return None
        return self.price(candidates.simulation.graph(int8))

    def _time_share(
        self,
        candidates: FloatCandidates,
        run: OpGroup,
        price: Price | None,
        now: PlanRow,
    ) -> float:
        """Return the time that a run costs, as a share of the model's.

        Without prices its share of the work stands for it.
        """
        if price is None or now.price is None:
            return run.work / candidates.work
        return max(price.ms / now.price.ms - 1, LEAST_TIME_SHARE)

    def _missing_db(self, row: PlanRow) -> float:
        """Return the dB that the worst output lacks.

        It is `UNKNOWN_GAIN_DB` where the goal is about classes, or there is none.
        """
        goal = self._noise_goal
        lacks = [goal.needed_db(a) - a.judged_db for a in row.outputs.values()]
        largest = max(lacks, default=0.0)

        return largest if 0 < largest < math.inf else UNKNOWN_GAIN_DB

    def returned(
        self, candidates: FloatCandidates, rows: Sequence[PlanRow]
    ) -> Iterator[PlanRow]:
        """Yield a row for each run that the goal does not need in float after all.

        Now that later runs are in float, an earlier one may be superfluous. Runs of much
        work are tried first.
        """
        if not self._is_reached(rows[-1]):
            return

        all_rows = [*rows]
        tried: set[OpGroup] = set()
        for _ in range(MAX_ROWS):
            floats = float_names(all_rows)
            run = self._superfluous(candidates, all_rows[-1], floats, tried)
            if run is None:
                return
            tried.add(run)
            remaining = tuple(name for name in floats if name not in run.names)
            row = self.measured(remaining, run, back=True)
            is_allowed = self._is_reached(row) and self.budget.affords(row.price)
            if is_allowed and _is_cheaper(row, all_rows[-1]):
                all_rows.append(row)
                yield row

    def _superfluous(
        self,
        candidates: FloatCandidates,
        now: PlanRow,
        floats: Names,
        tried: set[OpGroup],
    ) -> OpGroup | None:
        """Return the run of most work without which the goal should be reached.

        tried: runs that are not looked at again; those that fail are added.
        """
        int8 = _int8_ops(candidates, floats)
        likely = self._likely_superfluous(candidates, now, floats, int8)
        runs = [run for run in likely if run not in tried]
        runs.sort(key=lambda run: -run.work)

        for run in runs[:MAX_MEASURED_RETURNS]:
            tallies: dict[str, Tally] = {}
            candidates.noise(int8 | {*run.ops}, tallies=tallies)
            agreements = {name: t.result() for name, t in tallies.items()}
            if not any(self._noise_goal.misses(agreements)):
                return run
            tried.add(run)

        return None

    def _likely_superfluous(
        self,
        candidates: FloatCandidates,
        now: PlanRow,
        floats: Names,
        int8: Collection[Op],
    ) -> list[OpGroup]:
        """Return the runs in float whose noise alone leaves the goal in reach.

        now: the model with `floats` in float, and the operations `int8` in int8.

        The noise of the model is taken to grow as the sum of the groups' noise does.
        """
        count = len(now.outputs)

        # What each output has, and what it may have.
        agreements = now.outputs.values()
        noises = np.array([part_of_decibels(a.judged_db) for a in agreements])
        goal = self._noise_goal
        allowed = np.array([10 ** (-goal.needed_db(a) / 10) for a in agreements])
        base = candidates.noise(int8, SENSITIVITY_SAMPLES)
        base = np.maximum(_mean_by_output(base, count), LEAST_NOISE)

        # Runs of what is in float now.
        present = [g for g in candidates.groups if {*g.names} & {*floats}]
        likely: dict[OpGroup, None] = {}
        for groups in neighbour_runs(candidates.groups, present):
            run = OpGroup.of(groups)
            added = candidates.alone_sum(groups)
            growth = _mean_by_output(added, count) / base
            if np.all(noises * (1 + growth) <= allowed):
                likely[run] = None

        return [*likely]

    def _out_of_reach(self, last: PlanRow) -> EdgecError:
        misses = "; ".join(self.goal.misses(last.outputs, last.judged))
        cost = ""
        if last.price is not None:
            cost = f" with an estimated {last.price.ms:.2f} ms"
        what = f"the accuracy that was asked for is not reached{cost}: {misses}"
        hint = (
            "ask for less (--accuracy), allow more (--budget), or try --quantize best"
        )
        return EdgecError(what, "on samples held back from calibration", hint)


def promising(
    candidates: FloatCandidates, floats: Names, missing: float
) -> list[OpGroup]:
    """Return the runs of least work that should gain all missing dB, 0.7 of them, …

    For 0 missing dB it is all groups that are left together.

    floats: the names of the operations that are float already.
    """
    present = [g for g in candidates.groups if not {*g.names} & {*floats}]
    if not present:
        return []

    if not missing:
        everything = OpGroup.of(present)
        return [] if everything in candidates.refused else [everything]

    # The gain of a run is estimated as if the noise of groups added up.
    whole = np.maximum(candidates.alone_sum(present), TINY_NOISE)
    before = decibels_of_parts(whole)
    gains: dict[OpGroup, float] = {}
    for groups in neighbour_runs(candidates.groups, present):
        run = OpGroup.of(groups)
        if run not in candidates.refused:
            after = decibels_of_parts(whole - candidates.alone_sum(groups))
            gains[run] = float(np.mean(-before + after))

    return _cheapest_by_part(gains, missing)


def _cheapest_by_part(gains: Mapping[OpGroup, float], missing: float) -> list[OpGroup]:
    """Return the run of least work for each of `PROMISED_PARTS`, without repetitions.

    gains: the estimated gain of each run, in dB.
    missing: the dB of which the parts are.
    """
    cheapest: dict[float, OpGroup] = {}
    for run, gain in gains.items():
        for part in PROMISED_PARTS:
            is_cheaper = part not in cheapest or run.work < cheapest[part].work
            if gain >= part * missing and is_cheaper:
                cheapest[part] = run

    return [*dict.fromkeys(cheapest.values())]


def _int8_ops(candidates: FloatCandidates, floats: Names) -> set[Op]:
    """Return the operations that are int8 with these names in float."""
    ops = candidates.simulation.ops
    return {op for op in ops if op.outputs[0].name not in floats}


def _mean_by_output(noise: Array, outputs: int) -> Array:
    """Return the mean over samples of [samples x outputs], [outputs]."""
    return np.asarray(noise.reshape(-1, outputs).mean(0))


def _is_cheaper(row: PlanRow, old: PlanRow) -> bool:
    if row.price is None or old.price is None:
        return True
    return row.price.ms < old.price.ms
