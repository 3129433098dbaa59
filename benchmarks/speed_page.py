"""Writes the table of docs/speed.md of speed on the CPU, and what it says before it, from
build/bench-arm.json, the results of `make bench-arm`: for each network and board the
best peer's cycles by edgec's, and who that is.

    python -m benchmarks.speed_page [--json FILE] [--check]

With --check nothing is written: 1 if the page has another table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.bench_arm import BOARDS
from benchmarks.data_folder import ROOT

PAGE = ROOT / "docs" / "speed.md"
HEADING = "## Speed on the CPU\n"
"""What is written comes after it; it ends with a table."""

INTRODUCTION = """
The table divides the estimated cycles of the fastest other runtime by those of edgec's code, with one thread, on the cores of the boards:
above 1, edgec is faster. The others are LiteRT with XNNPACK, ncnn (in float16 where the core has it, as ncnn chooses), MNN (low: in
float16), and onnxruntime, each as its own converter takes the file, and only where its outputs are those of onnxruntime. edgec writes
the C for one kind of core; on each, int8 equals plain kernels bit for bit.

"""

TITLES = ("Pi 3", "Pi 4", "Pi 5")
"""The titles of the columns, one for each of bench_arm's boards."""

Rows = Mapping[tuple[str, str], Mapping[str, Any]]
"""Results by network and board."""


def table(rows: Rows) -> Iterator[str]:
    """Yield the lines of the table."""
    yield _line("model", TITLES)
    yield _line("---", ["---"] * len(TITLES))
    models = [*dict.fromkeys(model for model, _ in rows)]
    for model in models:
        cells = [_cell(rows.get((model, board))) for board in BOARDS]
        yield _line(model, cells)
    means = [_mean(rows, board) for board in BOARDS]
    yield _line("geometric mean", means)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |\n"


def _cell(row: Mapping[str, Any] | None) -> str:
    """The ratio to the best peer, and its name."""
    if row is None or not row["peers"]:
        return "–"
    best = min(row["peers"], key=row["peers"].__getitem__)
    return f"{row['ratio']:.2f} {best}"


def _mean(rows: Rows, board: str) -> str:
    """Of a board's networks that a peer runs."""
    ratios: list[float] = []
    for (_, name), row in rows.items():
        if name == board and row["ratio"] is not None:
            ratios.append(row["ratio"])

    if not ratios:
        return "–"
    return f"{geometric_mean(ratios):.2f} of {len(ratios)}"


def replaced(text: str, lines: Sequence[str]) -> str:
    """Return the PAGE's text with another table.

    Raises ValueError where it has none.
    """
    before, heading, rest = text.partition(HEADING)
    _, bar, table_and_after = rest.partition("\n|")
    if not heading or not bar:
        raise ValueError(f"there is no table below {HEADING.strip()!r}")
    after = ("|" + table_and_after).splitlines(keepends=True)
    while after and after[0].startswith("|"):
        after.pop(0)
    return before + HEADING + INTRODUCTION + "".join(lines) + "".join(after)


def main() -> int:
    """Writes the table, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench-arm.json")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    found = json.loads(given.json.read_text())
    rows = {(row["model"], row["board"]): row for row in found}
    old = PAGE.read_text()
    new = replaced(old, list(table(rows)))
    if given.check:
        return int(new != old)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
