"""Tables of results: Markdown for the screen, and JSON for the build folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def names(text: str) -> list[str]:
    """Return the names of an option that takes them with commas between."""
    return [name for name in text.split(",") if name]


def line(cells: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def markdown(
    heads: Sequence[str], rows: Iterable[Iterable[object]], texts: int = 1
) -> Iterator[str]:
    """Yield the lines of a Markdown table.

    Args:
        heads: the titles of the columns
        rows: the cells of each row
        texts: the number of columns, from the left, that are not aligned to the right
    """
    yield line(heads)
    yield line(["---"] * texts + ["--:"] * (len(heads) - texts))
    yield from map(line, rows)


def write_json(path: Path, rows: Iterable[Any]) -> None:
    """Write dataclasses as a JSON list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
