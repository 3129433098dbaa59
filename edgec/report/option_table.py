"""Writes the table of a verb's options for the manual."""

from __future__ import annotations

from edgec.declared import declared, flags_of, python_help


def option_table(options: type) -> str:
    """Return a Markdown table of the options that a dataclass declares.

    Each row has the name in Python, the name on the command line, and what it does.
    """
    lines = ["| Python | command line | |", "| --- | --- | --- |"]
    for one in declared(options):
        flags = " ".join(f"`{flag}`" for flag in flags_of(one))
        # A bar would end the cell.
        text = python_help(one).replace("|", "\\|")
        lines.append(
            f"| `{one.name}` | {'' if one.text.python_only else flags} | {text} |"
        )
    return "\n".join(lines)
