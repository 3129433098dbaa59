"""Goals of accuracy and budgets of cost for operations that stay in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgec.errors import InputError
from edgec.ir import Graph
from edgec.measure.agreement import Agreement
from edgec.measure.decibels import decibels
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.observe.judgement import Judge, Judgement

ROUNDING_ERROR = 1e-9
"""A share that differs from its limit by less is at the limit."""


@dataclass(frozen=True)
class Price:
    """The estimated cost of a quantized graph on the target.

    Attributes:
        ms: the time of one inference.
        tpu_share: the share of the multiply-accumulates on the Edge TPU, 0 to 1; None
            where the target has no Edge TPU.
    """

    ms: float
    tpu_share: float | None = None


Pricer = Callable[[Graph], Price]
"""Estimates the cost of a quantized graph."""


@dataclass(frozen=True)
class AccuracyGoal:
    """The accuracy that every output should have; None: no such goal.

    Attributes:
        max_drop: for an output that ranks classes, the share of the samples whose first
            class may differ from the float model's; for any other, the power of the
            noise as a part of the output's power.
        min_sqnr: the least signal-to-noise ratio, in dB.
    """

    max_drop: float | None = None
    min_sqnr: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> AccuracyGoal:
        """Return the goal of a text such as "20dB", "1%" or "20dB,1%"; None has none.

        A percentage is the greatest drop. Raises InputError for any other text.
        """
        return cls() if text is None else cls(**_parsed("--accuracy", text, cls._term))

    @staticmethod
    def _term(term: str) -> tuple[str, float | None]:
        """Return the field of one term, and its value."""
        number = _without_unit(term, "db")
        if number is not None:
            return "min_sqnr", _number("--accuracy", term, number)
        return "max_drop", share("--accuracy", term)

    def __bool__(self) -> bool:
        return self.max_drop is not None or self.min_sqnr is not None

    def needed_db(self, a: Agreement) -> float:
        """Return the signal-to-noise ratio that an output needs, -inf if it needs none.

        A drop of d of the power is 10 log10(1 / d) dB.
        """
        needed = -math.inf if self.min_sqnr is None else self.min_sqnr
        if self.max_drop is not None and a.top1 is None:
            needed = max(needed, decibels(1.0, self.max_drop))

        return needed

    def without_drop(self) -> AccuracyGoal:
        """Return the goal for a model whose drop is judged on labelled pictures."""
        return AccuracyGoal(min_sqnr=self.min_sqnr)

    def misses(
        self, outputs: Mapping[str, Agreement], judged: Judgement | None = None
    ) -> Iterator[str]:
        """Yield the outputs that do not reach the goal, as text for people.

        judged: the model on labelled pictures, where there are some; the drop is
            theirs then.
        """
        if judged is None:
            yield from self._misses_of_outputs(outputs)
            return
        yield from self.without_drop()._misses_of_outputs(outputs)
        if self.max_drop is not None and judged.drop > self.max_drop + ROUNDING_ERROR:
            yield f"{judged.text()}: a drop of {judged.drop:.2%}, {self.max_drop:.4g} allowed"

    def _misses_of_outputs(self, outputs: Mapping[str, Agreement]) -> Iterator[str]:
        """Yield the outputs that are too far from the float model's."""
        for name, a in outputs.items():
            # An output that ranks classes is judged by the first one alone.
            if self.max_drop is not None and a.top1 is not None:
                drop = 1 - a.top1
                if drop > self.max_drop + ROUNDING_ERROR:
                    yield (
                        f"{name} has another first class on {drop:.1%} of the "
                        f"samples, {self.max_drop:.4g} allowed"
                    )
            needed = self.needed_db(a)
            if a.judged_db < needed:
                yield f"{name} has {a.judged_db:.1f} dB, {needed:.1f} needed"

    def to_json(self) -> dict[str, Any]:
        """Return the goals that were given, for the bundle's report."""
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class CostBudget:
    """The cost that the model may have with operations in float; None: any.

    Attributes:
        max_ms: the most time of one inference.
        min_tpu_share: the least share of the multiply-accumulates on the Edge TPU.
        max_slowdown: the most time more than int8 alone takes, as a part of it. The
            share on the Edge TPU must not shrink then.
    """

    max_ms: float | None = None
    min_tpu_share: float | None = None
    max_slowdown: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> CostBudget:
        """Return the budget of a text such as "12.5ms", "10%" or "12.5ms,tpu=90%".

        None has none.

        A percentage is the greatest slowdown, one after "tpu=" the least share on the
        Edge TPU. Raises InputError for any other text.
        """
        return cls() if text is None else cls(**_parsed("--budget", text, cls._term))

    @staticmethod
    def _term(term: str) -> tuple[str, float | None]:
        """Return the field of one term, and its value."""
        number = _without_unit(term, "ms")
        if number is not None:
            max_ms = _number("--budget", term, number)
            if max_ms <= 0:
                what = f"no inference can take {max_ms:g} ms"
                raise InputError(what, "--budget", HINTS["--budget"])
            return "max_ms", max_ms

        name, equals, percentage = term.partition("=")
        if equals and name.strip() == "tpu":
            return "min_tpu_share", share("--budget", percentage.strip())
        return "max_slowdown", share("--budget", term)

    def __bool__(self) -> bool:
        return any(v is not None for v in asdict(self).values())

    @property
    def is_relative(self) -> bool:
        """Whether it is a slowdown alone."""
        return self == CostBudget(max_slowdown=self.max_slowdown) and bool(self)

    def relative_to(self, int8: Price | None) -> CostBudget:
        """Return the budget with its slowdown in milliseconds.

        int8: the cost of int8 alone.
        """
        if self.max_slowdown is None or int8 is None:
            return self

        # Beside other limits the narrower one counts.
        max_ms = int8.ms * (1 + self.max_slowdown)
        if self.max_ms is not None:
            max_ms = min(max_ms, self.max_ms)

        shares = [s for s in (self.min_tpu_share, int8.tpu_share) if s is not None]

        return CostBudget(max_ms, max(shares, default=None))

    def affords(self, price: Price | None) -> bool:
        """Return whether a cost is within the budget; an unknown one is."""
        if price is None:
            return True

        if self.max_ms is not None and price.ms > self.max_ms:
            return False

        if self.min_tpu_share is None:
            return True

        return (price.tpu_share or 0.0) >= self.min_tpu_share - ROUNDING_ERROR

    def to_json(self) -> dict[str, Any]:
        """Return the budgets that were given, for the bundle's report."""
        return {k: v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class PlanLimits:
    """What decides which operations stay in float.

    With a goal it is as few as the goal needs. Without one the budget is spent.

    Attributes:
        goal: the accuracy that is wanted.
        budget: the cost that is allowed.
        price: estimates the cost of a quantized graph on the target; None: unknown.
        judge: judges on labelled pictures, by which models are chosen instead of by the
            noise of their outputs; None: there are none.
    """

    goal: AccuracyGoal = field(default=AccuracyGoal())
    budget: CostBudget = field(default=CostBudget())
    price: Pricer | None = None
    judge: Judge | None = None

    def with_default(self, recipe: Recipe) -> PlanLimits:
        """Return the limits with the recipe's slowdown where there are none at all."""
        if self.goal or self.budget or not recipe.slowdown:
            return self
        return replace(self, budget=CostBudget(max_slowdown=recipe.slowdown))

    @property
    def is_quick(self) -> bool:
        """Whether the quick search is enough: only a slowdown is limited."""
        # A slowdown without prices buys nothing.
        return not self.goal and self.budget.is_relative and self.price is not None

    @property
    def is_thorough(self) -> bool:
        """Whether the thorough search is needed."""
        is_limited = bool(self.budget) and not self.budget.is_relative
        return bool(self.goal) or is_limited


HINTS: Mapping[str, str] = {
    "--accuracy": "give dB, a percentage, or both: 20dB,1%",
    "--budget": "give a time, a percentage of it, or tpu=PERCENT: 12.5ms,tpu=90%",
}
"""Examples of the texts that the options take."""


def _parsed(
    option: str, text: str, parse: Callable[[str], tuple[str, float | None]]
) -> dict[str, float | None]:
    """Return the fields of a text of terms with commas.

    parse: returns the field of one term, and its value.

    Raises InputError where a field is given twice, and what `parse` raises.
    """
    values: dict[str, float | None] = {}
    for term in text.split(","):
        name, value = parse(term.strip())
        if name in values:
            raise InputError(f"{option} cannot be {text}", option, HINTS[option])
        values[name] = value
    return values


def _without_unit(term: str, unit: str) -> str | None:
    """Return the number of a term with a unit, in any case; None without that unit."""
    has_unit = term.lower().endswith(unit)
    return term[: -len(unit)].strip() if has_unit else None


def _number(option: str, term: str, number: str) -> float:
    """Return a finite number. Raises InputError for any other text, by its whole term."""
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{option} cannot be {term}", option, HINTS[option])
    return value


def share(option: str, text: str | None) -> float | None:
    """Return a percentage ("0.5%") as a part of 1.

    Raises InputError for any other text. option: the option that has it, for messages.
    """
    if text is None:
        return None
    number, sign, rest = text.partition("%")
    try:
        part = float(number) / 100
    except ValueError:
        part = math.nan
    # NaN is refused by the comparison.
    if not sign or rest.strip() or not 0 <= part <= 1:
        hint = HINTS.get(option, "give a percentage: 0.5%")
        raise InputError(f"{text} is not a percentage from 0% to 100%", option, hint)
    return part
