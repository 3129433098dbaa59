"""Writes the result of `edgec tune` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgec.benching.tuning import TunedCall, Tuning
from edgec.report.tables import table

WORTH_SHOWING = 1.03
"""Calls that are faster than the default by this factor are in the table."""
MAX_ROWS = 12


def to_text(tuning: Tuning) -> str:
    """Return plain text of at most 120 columns."""
    return "\n".join(_lines(tuning))


def _lines(tuning: Tuning) -> Iterator[str]:
    """Yield the lines of the result; a table counts as one."""
    # Calls of the database were not tried again, so they have no part in the count.
    new = [call for call in tuning.choices if call.new]
    variants = sum(call.tried for call in new)
    cached = len(tuning.choices) - len(new)
    known = f", {cached} were known" if cached else ""
    yield (
        f"{tuning.core} on {tuning.on}: {variants} ways tried for {len(new)} "
        f"kinds of calls{known}"
    )

    # Small gains are within the noise of a measurement.
    faster = [call for call in tuning.choices if call.gain > WORTH_SHOWING]
    faster.sort(key=_saved_ms, reverse=True)
    est = "est. " if tuning.estimated else ""
    yield (
        f"those calls take {est}{tuning.default_ms:.3f} ms of an inference by default, "
        f"{est}{tuning.ms:.3f} ms as found; "
        f"{len(faster)} are more than {WORTH_SHOWING - 1:.0%} faster"
    )

    if faster:
        yield ""
        header = ("function", "", "default", "found", "faster", "how")
        rows = [_row(call) for call in faster[:MAX_ROWS]]
        yield table(header, rows, "lrrrrl")
    if len(faster) > MAX_ROWS:
        yield f"and {len(faster) - MAX_ROWS} more"

    path = tuning.path
    yield f"\n{path} has them all; edgec compile --tuned {path} uses it"


def _saved_ms(call: TunedCall) -> float:
    """Return the time that an inference saves by a choice, ms."""
    return (call.default_ms - call.ms) * len(call.functions)


def _row(call: TunedCall) -> Sequence[str]:
    """Return a row of the table, named by the first of equal functions."""
    count = len(call.functions)
    schedule = " ".join(f"{name}={value}" for name, value in call.schedule.items())
    return (
        call.functions[0],
        f"x{count}" if count > 1 else "",
        f"{1e3 * call.default_ms:.1f} us",
        f"{1e3 * call.ms:.1f} us",
        f"{call.gain:.2f}x",
        f"{call.what}: {call.variant} {schedule}",
    )
