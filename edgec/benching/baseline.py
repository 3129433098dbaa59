"""Compares a report with the report of an earlier run on the same board."""

from __future__ import annotations

from pathlib import Path

from edgec.benching.comparison import Comparison, compare, compare_estimates
from edgec.benching.result import BenchReport, Compared
from edgec.errors import InputError

SAME_FIELDS = ("board", "cpu", "target", "runner", "emulated")
"""Fields in which two devices must agree."""


def compare_with(
    path: Path, old: BenchReport, new: BenchReport, max_regress: float
) -> Compared:
    """Compare two reports; `path` is the file of the old one.

    Raises InputError if they cannot be compared.
    """
    _check_comparable(path, old, new)
    comparison = _compare(old, new, max_regress)
    return Compared(
        baseline=str(path),
        figure=comparison.figure,
        verdict=comparison.verdict,
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
        confidence=comparison.confidence,
        max_regress=max_regress,
        runs_needed=comparison.runs_needed,
        sentence=comparison.sentence(),
    )


def _compare(old: BenchReport, new: BenchReport, max_regress: float) -> Comparison:
    """Compare the latencies; estimates have no noise, and need no statistics."""
    # By launch, since inferences of one launch are more alike than those of several.
    before = old.latency.rounds
    now = new.latency.rounds
    reports = (old, new)
    if all(len(r.latency.samples) == 1 and r.estimated for r in reports):
        return compare_estimates(before, now, max_regress)
    return compare(
        before,
        now,
        max_regress,
        old.yardstick,
        new.yardstick,
        waited=(old.waited, new.waited),
    )


def _check_comparable(path: Path, old: BenchReport, new: BenchReport) -> None:
    """Raise InputError if one of the reports has no latency, or the runs differ."""
    hint = "compare with a run on the same board, or make a new one with --json"
    at = str(path)
    if old.model != new.model:
        what = f"the earlier run is of the model {old.model}, this one of {new.model}"
        raise InputError(what, at=at, hint="compare runs of one model")
    # The two differ by the error of the model, which says nothing about a change.
    if old.estimated != new.estimated:
        what = f"the earlier run was {_kind(old)}, this one is {_kind(new)}"
        raise InputError(what, at=at, hint=hint)

    difference = _device_difference(old, new)
    if difference:
        what = f"the earlier run is of another device: {difference}"
        raise InputError(what, at=at, hint=hint)

    # A segment that ran on the CPU then and on the Edge TPU now is no regression.
    backends_before = [segment.backend for segment in old.segments]
    backends_now = [segment.backend for segment in new.segments]
    if backends_before != backends_now:
        what = (
            f"the segments ran differently: {', '.join(backends_before)} then, "
            f"{', '.join(backends_now)} now"
        )
        raise InputError(what, at=at, hint="see edgec doctor for the Edge TPU")

    if not old.latency.samples or not new.latency.samples:
        raise InputError("one of the runs has no latency of the whole", at, hint)


def _kind(report: BenchReport) -> str:
    return "estimated" if report.estimated else "measured"


def _device_difference(old: BenchReport, new: BenchReport) -> str:
    """Return the first field in which the devices differ, in words; "" if none does."""
    for name in SAME_FIELDS:
        before = getattr(old.device, name)
        now = getattr(new.device, name)
        if before != now:
            return f"{name} was {before or 'unknown'!s}, now {now or 'unknown'!s}"
    return ""
