"""Judges a bench by its budgets, throttling and the comparison with an earlier run.

All outputs and the exit code derive from these verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from edgec_devices.intervals import two_digits
from edgec_devices.requirement import amount

from edgec.benching.result import BenchReport, Check, Compared

State = Literal["pass", "fail", "skipped"]
WORDS: dict[State, str] = {"pass": "PASS", "fail": "FAIL", "skipped": "UNKNOWN"}


@dataclass(frozen=True)
class BudgetVerdict:
    """A requirement and its outcome.

    Attributes:
        name: the requirement
        state: the outcome; "skipped" if it is unknown, which fails nothing
        value: the figure with its unit, or ""
        margin: distance to the limit with its unit, or ""
        why: the cause of the outcome in words
    """

    name: str
    state: State
    value: str = ""
    margin: str = ""
    why: str = ""

    def line(self) -> str:
        """Return the line of a log."""
        figures = ", margin ".join(filter(None, (self.value, self.margin)))
        details = "; ".join(filter(None, (figures, self.why)))
        line = f"{WORDS[self.state]:<7} {self.name}"
        if details:
            return f"{line}: {details}"
        return line


def verdicts(r: BenchReport) -> tuple[BudgetVerdict, ...]:
    """Return all verdicts, the budgets first."""
    results = [budget_verdict(check, r.mark) for check in r.budgets]
    results += _throttling(r)
    if r.comparison:
        results.append(_comparison(r.comparison))
    return tuple(results)


def passed(judged: Iterable[BudgetVerdict]) -> bool:
    """Return whether no verdict failed."""
    return not any(verdict.state == "fail" for verdict in judged)


def budget_verdict(c: Check, mark: str) -> BudgetVerdict:
    """Return the verdict of a budget; `mark` is the prefix of estimates."""
    # A measured figure needs no prefix.
    if not c.estimated:
        mark = ""
    value = "none"
    if c.measured is not None:
        value = mark + amount(c.measured, c.unit)
    margin = ""
    if c.margin is not None:
        margin = mark + amount(c.margin, c.unit)
    if c.interval is not None and c.margin is not None:
        value = c.interval.text(c.unit)
        margin = f"{mark}{two_digits(c.margin)} {c.unit}"
    state: State = "pass" if c.holds else "fail"
    return BudgetVerdict(c.what, state, value, margin, c.why)


def _throttling(r: BenchReport) -> Iterator[BudgetVerdict]:
    """Yield the verdict on throttling; an estimate has none, for lack of a device."""
    vitals = r.vitals
    if vitals is None:
        return
    reasons = "; ".join(vitals.reasons)
    state: State
    if vitals.throttled and r.settings.get("accept_throttling"):
        state = "skipped"
        why = f"it throttled, which was accepted: {reasons}"
    elif vitals.throttled:
        state = "fail"
        why = f"{reasons} (--accept-throttling lets it pass)"
    elif vitals.known:
        state = "pass"
        why = ""
    else:
        state = "skipped"
        why = "the device does not tell"
    yield BudgetVerdict("no throttling", state, why=why)


def _comparison(c: Compared) -> BudgetVerdict:
    """Return the verdict of the comparison with an earlier run."""
    states: dict[str, State] = {"regress": "fail", "cannot tell": "skipped"}
    return BudgetVerdict(
        f"{c.figure} against {c.baseline}",
        states.get(c.verdict, "pass"),
        f"x {c.ratio:.3f}",
        why=c.sentence,
    )
