"""Comparison of a report with that of an earlier run on the same board."""

from __future__ import annotations

from pathlib import Path

from edgec.benching.comparison import compare
from edgec.benching.result import BenchReport, Compared
from edgec.errors import InputError

_SAME = ("board", "cpu", "target", "runner", "emulated")
"""What two devices must have in common."""


def compare_with(
    path: Path, old: BenchReport, new: BenchReport, max_regress: float
) -> Compared:
    """path: of the old one. Raises InputError where the two cannot be compared."""
    _check_comparable(path, old, new)
    found = compare(
        old.latency.rounds,
        new.latency.rounds,
        max_regress,
        old.yardstick,
        new.yardstick,
        old_waited=old.waited,
        new_waited=new.waited,
        exact=all(len(r.latency.samples) == 1 and r.estimated for r in (old, new)),
    )
    return Compared(
        baseline=str(path),
        figure=found.figure,
        verdict=found.verdict,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        max_regress=max_regress,
        runs_needed=found.runs_needed,
        sentence=found.sentence(),
    )


def _check_comparable(path: Path, old: BenchReport, new: BenchReport) -> None:
    hint = "compare with a run on the same board, or make a new one with --json"
    if old.model != new.model:
        what = f"the earlier run is of the model {old.model}, this one of {new.model}"
        raise InputError(what, at=str(path), hint="compare runs of one model")
    if old.estimated != new.estimated:
        kinds = [("measured", "estimated")[r.estimated] for r in (old, new)]
        raise InputError(
            f"the earlier run was {kinds[0]}, this one is {kinds[1]}",
            at=str(path),
            hint=hint,
        )
    for name in _SAME:
        before = getattr(old.device, name)
        now = getattr(new.device, name)
        if before != now:
            what = (
                "the earlier run is of another device: "
                f"{name} was "
                f"{before or 'unknown'!s}, "
                f"now {now or 'unknown'!s}"
            )
            raise InputError(what, at=str(path), hint=hint)
    backends = [[s.backend for s in r.segments] for r in (old, new)]
    if backends[0] != backends[1]:
        what = (
            f"the segments ran differently: {', '.join(backends[0])} then, "
            f"{', '.join(backends[1])} now"
        )
        raise InputError(what, at=str(path), hint="see edgec doctor for the Edge TPU")
    if not old.latency.samples or not new.latency.samples:
        raise InputError(
            "one of the runs has no latency of the whole", at=str(path), hint=hint
        )
