"""Text from outside reaches a terminal, a message and a report as text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from edgec_runtime import InputError
from edgec_runtime.printable import printable
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


@given(st.text())
def test_nothing_but_characters_that_are_seen(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert [c for c in shown if c != " "] == [c for c in text if (c.isprintable() or c == "\n") and c != " "]


@pytest.mark.parametrize(
    "name", ["\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "\u202eevil", "a\rb", "a\x08b", "\ud800"]
)
def test_an_error_is_printable(name: str) -> None:
    text = str(InputError(f"there is no op {name}", at=name, hint=name))
    assert all(c.isprintable() or c == "\n" for c in text)
    text.encode()


def test_the_command_line_writes_in_one_place() -> None:
    for path in sorted((ROOT / "edgec" / "cli").glob("*.py")):
        if path.name == "echo.py":
            continue
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {ast.unparse(c.func) for c in calls}
        assert not names & {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write"}, path.name
