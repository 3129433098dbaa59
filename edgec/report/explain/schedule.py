"""Writes for a terminal which kernels may compute a call, and which one does."""

from __future__ import annotations

from collections.abc import Sequence

from edgec.report.tables import table
from edgec.report.wording import count
from edgec.schedule.alternatives import Alternative, ScheduledCall

_HEAD = ("kernel", "estimated cycles", "parameters", "legal ones", "")


def schedule_text(calls: Sequence[ScheduledCall]) -> str:
    """Return a table of the kernels of each call."""
    parts = []
    for call in calls:
        fused = f", then {', '.join(call.then)}" if call.then else ""
        rows = [_row(alternative) for alternative in call.alternatives]
        head = f"{call.op}: {call.plain}{fused}, on {call.core}"
        parts.append(f"{head}\n{table(_HEAD, rows, 'lrlrl')}")
    return "\n\n".join(part.strip("\n") for part in parts)


def _row(a: Alternative) -> tuple[str, ...]:
    """Return the cells of a kernel."""
    parameters = " ".join(f"{name}={value}" for name, value in a.schedule.items())
    # A kernel that `make cpu-table` has not seen on this core has no figure.
    cycles = "not measured" if a.cycles is None else count(round(a.cycles))
    return (a.kernel, cycles, parameters, str(a.legal), a.reason)
