"""The thorough search for operations to leave in float32.

The error of a quantized model is spread: the worst few operations alone gain little, so
whole runs of neighbours are looked at. The noise that each group of operations adds alone
ranks runs. The best ones are measured with all other operations in int8, and priced on
the target. The run with the largest

    gain in dB / share of the model's time

is made, corrected and measured as the int8 model that it becomes, and the search goes on
from there. Where the goal is reached, runs that it does not need become int8 again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from edgec.errors import EdgecError
from edgec.ir import Array, Op
from edgec.measure.agreement import Tally
from edgec.measure.decibels import (
    LEAST_NOISE,
    decibels_of_parts,
    part_of_decibels,
)
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.float_ops.limits import AccuracyGoal, PlanLimits, Price
from edgec.quantize.float_ops.noise import (
    LEAST_TIME_SHARE,
    SENSITIVITY_SAMPLES,
    TINY_NOISE,
    Sensitivity,
    compare_outputs,
)
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs
from edgec.quantize.float_ops.plan import (
    Names,
    Plan,
    PlanRow,
    float_names,
    leave_in_float,
)
from edgec.quantize.observe.calibration import Sample

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


@dataclass
class ThoroughSearch:
    """Leaves runs in float until the goal is reached or the budget is spent.

    Attributes:
        candidate: the steps that quantize the model.
        folds: the model before any step with the samples to make it of, and the samples
            to measure it on.
        limits: the accuracy that is wanted, and the cost that is allowed.
    """

    candidate: Candidate
    folds: Sequence[tuple[StepPipeline, Sequence[Sample]]]
    limits: PlanLimits

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The noise of each group, by the first fold's model."""
        # A rough model is enough to rank runs: corrections in order take long.
        rough = self.folds[0][0].of(_without_lockstep(self.candidate))
        held = [sample for _, samples in self.folds for sample in samples]
        return Sensitivity.of(rough, held)

    def plan(self) -> Plan:
        """Return the plan; without a goal it spends the budget.

        Raises EdgecError where the budget does not reach the goal.
        """
        rows = [self.measured((), OpGroup(()))]
        # A slowdown is relative to int8 alone, whose cost is known from now on.
        budget = self.limits.budget.relative_to(rows[0].price)
        self.limits = replace(self.limits, budget=budget)
        # Most models need nothing in float: then no noise of groups is measured.
        if not self._is_reached(rows[0]):
            self._leave_in_float(rows)
            rows += self.returned(rows)

        goal = self.limits.goal
        if goal and not self._is_reached(rows[-1]):
            raise self._out_of_reach(rows[-1])

        count = sum(len(samples) for _, samples in self.folds)
        return Plan(goal, budget, tuple(rows), count)

    def _leave_in_float(self, rows: list[PlanRow]) -> None:
        """Append a row for each run that stays in float."""
        for _ in range(MAX_ROWS):
            run = self._best(rows)
            if run is None:
                return
            row = self.measured((*float_names(rows), *run.names), run)
            falls_short = self._falls_short(row, rows[-1])
            if falls_short and not self._is_reached(row):
                # It promised more in the simulation than the int8 model kept.
                self.sensitivity.refused.add(run)
                continue
            rows.append(row)
            if self._is_reached(row):
                return

    def _is_reached(self, row: PlanRow) -> bool:
        missed = any(self.limits.goal.misses(row.outputs, row.judged))
        return bool(self.limits.goal) and not missed

    def _falls_short(self, row: PlanRow, before: PlanRow) -> bool:
        """Return whether a row gains too little over the one before."""
        if row.db < before.db + MIN_GAIN_DB:
            return True
        # A goal of accuracy says what is enough; a budget is spent on what can be seen.
        if self.limits.goal or row.judged is None or before.judged is None:
            return False
        return not row.judged.is_better_than(before.judged)

    @property
    def _noise_goal(self) -> AccuracyGoal:
        """The part of the goal that the noise of outputs decides."""
        return (
            self.limits.goal
            if self.limits.judge is None
            else self.limits.goal.without_drop()
        )

    def measured(self, floats: Names, group: OpGroup, *, back: bool = False) -> PlanRow:
        """Make the model with operations of these names in float, and measure it.

        group: the operations that the row is about.
        back: whether they become int8 again.
        """
        tallies: dict[str, Tally] = {}
        noises: list[float] = []
        price = None
        judged = None
        candidate = leave_in_float(self.candidate, floats)
        for pipeline, samples in self.folds:
            state = pipeline.of(candidate)
            int8 = state.int8().graph
            float_run = state.float_run()
            state.say("measure int8")
            int8_run = state.runners.int8(int8, state.passes * len(samples))
            # Labelled pictures are held back from every fold: one judgement is enough.
            if self.limits.judge is not None and judged is None:
                judged = self.limits.judge(int8_run)
            for sample in samples:
                want = float_run(sample, None)
                got = int8_run(sample, None)
                noises += compare_outputs(want, got, tallies)
            # The folds differ in their integers alone: one price is that of all.
            if self.limits.price is not None and price is None:
                price = self.limits.price(int8)

        # The mean of ratios in dB: no single sample or output decides.
        db = float(np.mean(decibels_of_parts(np.array(noises))))
        outputs = {name: t.result() for name, t in tallies.items()}

        return PlanRow(group, db, price, outputs, back, judged)

    def _best(self, rows: Sequence[PlanRow]) -> OpGroup | None:
        """Return the run within the budget with the largest gain for its time."""
        sensitivity = self.sensitivity
        floats = float_names(rows)
        missing = self._missing_db(rows[-1])
        int8 = self._int8_ops(floats)

        # Runs that promise most may fail together: others are looked for a few times.
        base = decibels_of_parts(sensitivity.noise(int8))
        for attempt in range(MAX_ROUNDS + 1):
            is_last = attempt == MAX_ROUNDS
            runs = promising(sensitivity, floats, 0.0 if is_last else missing)
            best = None
            best_value = 0.0
            for run in runs:
                remaining = int8 - {*run.ops}
                price = self._price(remaining)
                gain = 0.0
                if self.limits.budget.affords(price):
                    noise = sensitivity.noise(remaining)
                    gain = float(np.mean(decibels_of_parts(noise) - base))
                if gain < MIN_GAIN_DB:
                    sensitivity.refused.add(run)
                    continue
                # More than is missing is worth nothing.
                time_share = self._time_share(run, price, rows[-1])
                value = min(gain, missing) / time_share
                if value > best_value:
                    best = run
                    best_value = value
            if best is not None:
                return best

        return None

    def _int8_ops(self, floats: Names) -> set[Op]:
        """Return the operations that are int8 with these names in float."""
        ops = self.sensitivity.simulation.ops
        return {op for op in ops if op.outputs[0].name not in floats}

    def _price(self, int8: Collection[Op]) -> Price | None:
        if self.limits.price is None:
            return None
        return self.limits.price(self.sensitivity.simulation.graph(int8))

    def _time_share(self, run: OpGroup, price: Price | None, now: PlanRow) -> float:
        """Return the time that a run costs, as a share of the model's.

        Without prices its share of the work stands for it.
        """
        if price is None or now.price is None:
            return run.work / self.sensitivity.work
        return max(price.ms / now.price.ms - 1, LEAST_TIME_SHARE)

    def _missing_db(self, row: PlanRow) -> float:
        """Return the dB that the worst output lacks.

        It is `UNKNOWN_GAIN_DB` where the goal is about classes, or there is none.
        """
        goal = self._noise_goal
        lacks = [goal.needed_db(a) - a.judged_db for a in row.outputs.values()]
        largest = max(lacks, default=0.0)

        return largest if 0 < largest < math.inf else UNKNOWN_GAIN_DB

    def returned(self, rows: Sequence[PlanRow]) -> Iterator[PlanRow]:
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
            run = self._superfluous(all_rows[-1], floats, tried)
            if run is None:
                return
            tried.add(run)
            remaining = tuple(name for name in floats if name not in run.names)
            row = self.measured(remaining, run, back=True)
            is_allowed = self._is_reached(row) and self.limits.budget.affords(row.price)
            if is_allowed and _is_cheaper(row, all_rows[-1]):
                all_rows.append(row)
                yield row

    def _superfluous(
        self, now: PlanRow, floats: Names, tried: set[OpGroup]
    ) -> OpGroup | None:
        """Return the run of most work without which the goal should be reached.

        tried: runs that are not looked at again; those that fail are added.
        """
        int8 = self._int8_ops(floats)
        likely = self._likely_superfluous(now, floats, int8)
        runs = [run for run in likely if run not in tried]
        runs.sort(key=lambda run: -run.work)

        for run in runs[:MAX_MEASURED_RETURNS]:
            tallies: dict[str, Tally] = {}
            self.sensitivity.noise(int8 | {*run.ops}, tallies=tallies)
            agreements = {name: t.result() for name, t in tallies.items()}
            if not any(self._noise_goal.misses(agreements)):
                return run
            tried.add(run)

        return None

    def _likely_superfluous(
        self, now: PlanRow, floats: Names, int8: Collection[Op]
    ) -> list[OpGroup]:
        """Return the runs in float whose noise alone leaves the goal in reach.

        now: the model with `floats` in float, and the operations `int8` in int8.

        The noise of the model is taken to grow as the sum of the groups' noise does.
        """
        sensitivity = self.sensitivity
        count = len(now.outputs)

        # What each output has, and what it may have.
        agreements = now.outputs.values()
        noises = np.array([part_of_decibels(a.judged_db) for a in agreements])
        goal = self._noise_goal
        allowed = np.array([10 ** (-goal.needed_db(a) / 10) for a in agreements])
        base = sensitivity.noise(int8, SENSITIVITY_SAMPLES)
        base = np.maximum(_mean_by_output(base, count), LEAST_NOISE)

        # Runs of what is in float now.
        present = [g for g in sensitivity.groups if {*g.names} & {*floats}]
        likely: dict[OpGroup, None] = {}
        for groups in neighbour_runs(sensitivity.groups, present):
            run = OpGroup.of(groups)
            added = sensitivity.alone_sum(groups)
            growth = _mean_by_output(added, count) / base
            if np.all(noises * (1 + growth) <= allowed):
                likely[run] = None

        return [*likely]

    def _out_of_reach(self, last: PlanRow) -> EdgecError:
        misses = "; ".join(self.limits.goal.misses(last.outputs, last.judged))
        cost = ""
        if last.price is not None:
            cost = f" with an estimated {last.price.ms:.2f} ms"
        what = f"the accuracy that was asked for is not reached{cost}: {misses}"
        hint = (
            "ask for less (--accuracy), allow more (--budget), or try --quantize best"
        )
        return EdgecError(what, "on samples held back from calibration", hint)


def promising(sensitivity: Sensitivity, floats: Names, missing: float) -> list[OpGroup]:
    """Return the runs of least work that should gain all missing dB, 0.7 of them, …

    For 0 missing dB it is all groups that are left together.

    floats: the names of the operations that are float already.
    """
    present = [g for g in sensitivity.groups if not {*g.names} & {*floats}]
    if not present:
        return []

    if not missing:
        everything = OpGroup.of(present)
        return [] if everything in sensitivity.refused else [everything]

    # The gain of a run is estimated as if the noise of groups added up.
    whole = np.maximum(sensitivity.alone_sum(present), TINY_NOISE)
    before = decibels_of_parts(whole)
    gains: dict[OpGroup, float] = {}
    for groups in neighbour_runs(sensitivity.groups, present):
        run = OpGroup.of(groups)
        if run not in sensitivity.refused:
            after = decibels_of_parts(whole - sensitivity.alone_sum(groups))
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


def _without_lockstep(candidate: Candidate) -> Candidate:
    """Return the candidate with biases that are corrected each for itself."""
    steps = tuple(
        replace(s, inherited=False) if isinstance(s, BiasCorrection) else s
        for s in candidate.steps
    )
    return replace(candidate, steps=steps)


def _mean_by_output(noise: Array, outputs: int) -> Array:
    """Return the mean over samples of [samples x outputs], [outputs]."""
    return np.asarray(noise.reshape(-1, outputs).mean(0))


def _is_cheaper(row: PlanRow, old: PlanRow) -> bool:
    if row.price is None or old.price is None:
        return True
    return row.price.ms < old.price.ms
