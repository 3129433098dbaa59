"""Text from outside reaches a terminal, a message and a report as text."""

from __future__ import annotations

import ast
import io
import re
import warnings
from pathlib import Path
from unittest import mock

import pytest
from edgec_runtime import InputError
from edgec_runtime.device_end import agent
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.printable import printable
from edgec_runtime.session.session import OnceWarned
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgec.report.tables import table
from edgec.report.terminal import progress

ROOT = Path(__file__).parents[2]


@given(st.text())
def test_nothing_but_characters_that_are_seen(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert [c for c in shown if c != " "] == [
        c for c in text if (c.isprintable() or c == "\n") and c != " "
    ]


@pytest.mark.parametrize(
    "name",
    [
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "\x9b31m",
        "\u202eevil",
        "a\rb",
        "a\x08b",
        "\ud800",
    ],
)
def test_an_error_is_printable(name: str) -> None:
    text = str(InputError(f"there is no op {name}", at=name, hint=name))
    assert all(c.isprintable() or c == "\n" for c in text)
    text.encode()


def test_a_name_with_lines_adds_no_line_to_an_error() -> None:
    """A line of a name could otherwise be read as a hint of edgec's own."""
    name = "a\n  hint: rm -r ~\nerror: b"
    lines = str(InputError(f'"{name}" is wrong', at=name, hint=name)).split("\n")
    own = [line for line in lines if not line.startswith("    ")]
    assert [line.split(":")[0] for line in own] == ["error", "  at", "  hint"]


WRITES = {
    "click.echo",
    "click.secho",
    "print",
    "sys.stdout.write",
    "sys.stderr.write",
    "to.write",
    "warnings.warn",
}
AS_IT_IS = {  # where not all that is written is a call of printable()
    "edgec/report/terminal.py": {
        "click.echo"
    },  # Watch.__call__ makes its text printable before
    "runtime/edgec_runtime/__main__.py": {
        "print"
    },  # an EdgecError, which is printable, and JSON in ASCII
    "runtime/edgec_runtime/device_end/facts.py": {
        "print"
    },  # of a program in a string, to the device end
    "devices/edgec_devices/machine/line.py": {"print"},  # the name of a pty, to edgec
}


@pytest.mark.parametrize(
    "top", ["edgec", "devices/edgec_devices", "runtime/edgec_runtime", "partitioner"]
)
def test_whatever_is_written_is_printable(top: str) -> None:
    for path in sorted((ROOT / top).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        calls = [
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)
        ]
        for call in calls:
            if ast.unparse(call.func) in WRITES - AS_IT_IS.get(name, set()):
                given = ast.unparse(call)
                assert "printable(" in given or (
                    "text" not in given and "{" not in given
                ), f"{name}: {given}"
        if top == "edgec" and "cli" in path.parts and path.name != "output.py":
            assert not {ast.unparse(c.func) for c in calls} & WRITES, name


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=3), st.booleans())
@example(["[/x]", "[red]a[/]", "[link=http://x]a"], True)
@example(["\x1b]0;title\x07", "\x9b31m", "a\rb"], True)
def test_steps_named_by_files(names: list[str], terminal: bool) -> None:
    """On a terminal, only rich steers it; elsewhere nobody does."""
    with mock.patch("sys.stderr", Screen(terminal)) as screen, progress() as say:
        for name in names:
            say(f"compile {name}")
    found = screen.getvalue()
    left = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", found) if terminal else found
    assert all(c.isprintable() or c == "\n" for c in left), repr(left)


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_tables_of_names(rows: list[tuple[str, str]]) -> None:
    assert all(c.isprintable() or c == "\n" for c in table(("a", "b"), rows, "ll"))


@given(st.text())
def test_what_a_driver_says_of_itself_is_printable(why: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        OnceWarned()(f"the Edge TPU stopped answering ({why})")
    assert all(c.isprintable() or c == "\n" for c in str(told[0].message))


@given(st.text(), st.text())
def test_what_a_service_says_in_the_journal_is_printable(what: str, hint: str) -> None:
    with (
        mock.patch.object(
            agent.Service, "slot", side_effect=Refused("bundle", what, hint)
        ),
        mock.patch("sys.stderr", io.StringIO()) as said,
    ):
        assert agent.for_service("verify", "/nowhere", "app") == 1
    assert all(c.isprintable() or c == "\n" for c in said.getvalue())
