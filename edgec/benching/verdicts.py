"""What must hold of a bench and how it came out: budgets, throttling, the comparison
with an earlier run.

All outputs and the exit code are of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from edgec_devices.requirement import amount

from edgec.benching.result import BenchReport, Check, Compared

State = Literal["pass", "fail", "skipped"]
WORDS: dict[State, str] = {"pass": "PASS", "fail": "FAIL", "skipped": "UNKNOWN"}


@dataclass(frozen=True)
class BudgetVerdict:
    """One thing that must hold. skipped: nobody can tell, which fails nothing. value,
    margin: with their units; empty where there is none. why: what is in the way, or was
    found.
    """

    name: str
    state: State
    value: str = ""
    margin: str = ""
    why: str = ""

    def line(self) -> str:
        """For a log."""
        figures = ", margin ".join(filter(None, (self.value, self.margin)))
        said = "; ".join(filter(None, (figures, self.why)))
        return f"{WORDS[self.state]:<7} {self.name}" + (f": {said}" if said else "")


def verdicts(r: BenchReport) -> tuple[BudgetVerdict, ...]:
    """All of them, the budgets first."""
    return (
        *(_budget(c, r.mark) for c in r.budgets),
        *_throttling(r),
        *([_comparison(r.comparison)] if r.comparison else []),
    )


def passed(r: BenchReport) -> bool:
    """Whether none failed."""
    return not any(v.state == "fail" for v in verdicts(r))


def _budget(c: Check, mark: str) -> BudgetVerdict:
    """mark: of what was not measured."""
    mark = mark if c.estimated else ""
    value = "none" if c.measured is None else mark + amount(c.measured, c.unit)
    margin = "" if c.margin is None else mark + amount(c.margin, c.unit)
    return BudgetVerdict(c.what, "pass" if c.holds else "fail", value, margin, c.why)


def _throttling(r: BenchReport) -> Iterator[BudgetVerdict]:
    """None of an estimate: there was no device to slow down."""
    v = r.vitals
    if v is None:
        return
    reasons = "; ".join(v.reasons)
    if not v.throttled:
        why = "" if v.known else "the device does not tell"
        yield BudgetVerdict("no throttling", "pass" if v.known else "skipped", why=why)
    elif r.settings.get("accept_throttling"):
        yield BudgetVerdict(
            "no throttling",
            "skipped",
            why=f"it throttled, which was accepted: {reasons}",
        )
    else:
        yield BudgetVerdict(
            "no throttling", "fail", why=f"{reasons} (--accept-throttling lets it pass)"
        )


def _comparison(c: Compared) -> BudgetVerdict:
    states: dict[str, State] = {"regress": "fail", "cannot tell": "skipped"}
    return BudgetVerdict(
        f"{c.figure} against {c.baseline}",
        states.get(c.verdict, "pass"),
        f"x {c.ratio:.3f}",
        why=c.sentence,
    )
