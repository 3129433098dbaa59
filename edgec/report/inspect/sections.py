"""Lays out titles, named rows and sentences of the pages of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from edgec.report.tables import WIDTH
from edgec.report.wording import shortened

NAME_WIDTH = 15
"""Columns of the names in front of texts."""

Row = tuple[str, str]
"""A name, and the text behind it."""


def section(title: str, lines: Iterable[str]) -> str:
    """Return a title with the lines below it, indented; "" without lines."""
    body = "\n".join(lines)
    if not body:
        return ""
    return f"{title}\n{textwrap.indent(body, '  ')}"


def named(rows: Iterable[Row], width: int = NAME_WIDTH) -> list[str]:
    """Return rows as lines, the texts behind `width` columns for the names."""
    return [
        textwrap.fill(
            text,
            WIDTH - 2,
            initial_indent=f"{shortened(name, width - 1):{width}}",
            subsequent_indent=" " * width,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, text in rows
    ]


def folded(text: str) -> list[str]:
    """Return a sentence as lines."""
    return textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False)
