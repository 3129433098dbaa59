"""Lays out tables for a terminal, by rich."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence

from edgec.report.wording import plain, shortened

WIDTH = 120
"""Columns of text that does not go to a terminal: a log is the same everywhere."""
MIN_WIDTH = 80
"""Columns below which tables are not made narrower."""
MAX_CELL = 60
"""Characters of a cell that is not the last; longer texts lose their middle."""
LONGEST = 400
"""Characters of any other text with names in it."""


def width() -> int:
    """Return the columns of the terminal, or WIDTH if there is none."""
    if sys.stdout.isatty():
        return max(MIN_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return WIDTH


def table(head: Sequence[str], rows: Sequence[Sequence[str]], aligned: str) -> str:
    """Return a table of aligned columns; long texts wrap in the last column.

    Cells are shown without control characters and without rich's markup. The table is
    "" without rows.

    Args:
        head: header of each column
        rows: cells of each row
        aligned: "l" or "r" for each column
    """
    if not rows:
        return ""
    # A verb that shows no table does not wait for the import of rich.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style=""
    )
    # The last column has the longest texts: reasons and names. Only it wraps, so that
    # the others stay in line.
    last = len(head) - 1
    for i, (name, side) in enumerate(zip(head, aligned, strict=True)):
        grid.add_column(
            Text(name),
            justify="right" if side == "r" else "left",
            no_wrap=i < last,
            overflow="fold",
        )

    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            limit = LONGEST if i == last else MAX_CELL
            cells.append(Text(shortened(plain(cell), limit)))
        grid.add_row(*cells)

    out = io.StringIO()
    console = Console(
        file=out,
        width=width(),
        color_system=None,
        force_terminal=False,
        legacy_windows=False,
    )
    console.print(grid)
    # rich fills lines with spaces up to the width.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
