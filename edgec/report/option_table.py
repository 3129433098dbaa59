"""Writes the verbs and their options for the manual."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from edgec.options.declaration import declared, flags_of, python_help


def verb_section(verb: Callable[..., Any]) -> str:
    """Return a verb in Markdown: what it does, and a table of its options.

    Each row has the name in Python, the name on the command line, and what it does.
    """
    lines = [
        f"### {verb.__name__}",
        "",
        inspect.getdoc(inspect.unwrap(verb)) or "",
        "",
        "| Python | command line | |",
        "| --- | --- | --- |",
    ]
    for one in declared(verb.options):  # type: ignore[attr-defined]
        flags = " ".join(f"`{flag}`" for flag in flags_of(one))
        if one.text.is_argument:
            flags = f"`{one.text.metavar or one.name.upper()}`"
        # A bar would end the cell.
        text = python_help(one).replace("|", "\\|")
        lines.append(
            f"| `{one.name}` | {'' if one.text.python_only else flags} | {text} |"
        )
    return "\n".join([*lines, ""])
