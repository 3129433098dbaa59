"""Tables of results: Markdown for the screen, and JSON for the build folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- {} -->\n", "<!-- end of {} -->\n"
"""A table of a page stands between these lines, with its name in them."""


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


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """Return the text of a page with its tables made anew; raise ValueError where it has
    no place for one.

    Args:
        page: the text
        tables: the text of each table by its name
    """
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, begun, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not begun or not ended:
            raise ValueError(f"there is no place for the table {name}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def write_json(path: Path, rows: Iterable[Any]) -> None:
    """Write dataclasses as a JSON list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
