"""Makes the table of docs/measured.md of the files in docs/measured/, which people sent.

python tools/measured_table.py        # prints it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "measured"
NONE = "No board was measured yet: every time of a board in these pages is an estimate."
HEAD = (
    "board",
    "memory",
    "system",
    "bundle for",
    "MACs",
    "threads",
    "median, ms",
    "p95, ms",
    "estimate, ms",
    "slowed",
)


def reports(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The benches of boards, in order of their files' names; no estimates."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [report for report in found if is_measured(report)]


def is_measured(report: dict[str, Any]) -> bool:
    """Whether a file has times by the clock of a board."""
    latency = report.get("latency") or {}
    machine = report.get("machine") or {}
    on_board = machine.get("board") is not None and not machine.get("emulated")
    return bool(on_board and latency.get("origin") == "measured")


def table(found: list[dict[str, Any]]) -> str:
    """The table in Markdown, or the sentence in its place."""
    if not found:
        return NONE
    lines = [HEAD, ("---",) * len(HEAD), *map(_row, found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(report: dict[str, Any]) -> tuple[str, ...]:
    machine = report["machine"]
    network = report["network"]
    latency = report["latency"]
    known = "yes" if latency.get("slowed") else "no"
    return (
        machine["board"],
        f"{machine.get('memory_mb') or '?'} MB",
        ", ".join(filter(None, [machine.get("os"), machine.get("kernel")])),
        str(network.get("target")),
        f"{(network.get('macs') or 0) / 1e6:.1f} M",
        str(network.get("threads")),
        _ms(latency.get("p50_ms")),
        _ms(latency.get("p95_ms")),
        _ms(latency.get("estimate_ms")),
        known if latency.get("slowing_known") else "not known",
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    print(table(reports()))
