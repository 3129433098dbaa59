"""Tables for a terminal, laid out by rich."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence

from edgec.report.wording import plain, shortened

WIDTH = 120
"""Columns where nobody looks at a terminal: a log is the same everywhere."""
_CELL = 60
"""Characters of a cell that is not the last; longer ones lose their middle."""
LONGEST = 400
"""Characters of any other text with names in it."""


def width() -> int:
    """Of the terminal, or WIDTH."""
    if sys.stdout.isatty():
        return max(80, shutil.get_terminal_size((WIDTH, 24)).columns)
    return WIDTH


def table(head: Sequence[str], rows: Sequence[Sequence[str]], aligned: str) -> str:
    """Aligned columns; what does not fit wraps in the last one.

    "" without rows.

    aligned: "l" or "r" for each column. Texts are shown as they are, without what is no
    character to be seen.
    """
    if not rows:
        return ""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = Table(
        box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style=""
    )
    last = len(head) - 1
    for i, (name, side) in enumerate(zip(head, aligned, strict=True)):
        justify = "right" if side == "r" else "left"
        found.add_column(Text(name), justify=justify, no_wrap=i < last, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        cells = [
            shortened(plain(c), LONGEST if i == last else _CELL)
            for i, c in enumerate(row)
        ]
        found.add_row(*map(Text, cells))
    out = io.StringIO()
    Console(
        file=out,
        width=width(),
        color_system=None,
        force_terminal=False,
        legacy_windows=False,
    ).print(found)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
