"""Generated documents are fresh."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import edgec
from edgec.cli.main import cli
from edgec.emit.c import CSRC
from edgec.report.option_table import verb_section
from edgec.report.supported_ops import supported_ops
from tests.house.test_arrows import TABLE, _files

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
DOCUMENT = Path(__file__).parents[2] / "docs" / "supported-ops.md"


def test_supported_ops_is_fresh(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(supported_ops())
    assert DOCUMENT.read_text() == supported_ops(), (
        "run pytest --update-golden tests/house/test_docs.py"
    )


def test_the_verbs_of_the_manual_are_fresh(request: pytest.FixtureRequest) -> None:
    page = ARCHITECTURE.parent / "api.md"
    head, rest = page.read_text().split("<!-- verbs -->\n")
    tail = rest.split("<!-- /verbs -->")[1]
    names = [name for name in edgec.__all__ if name != "__version__"]
    verbs = "\n".join(verb_section(getattr(edgec, name)) for name in names)
    fresh = f"{head}<!-- verbs -->\n\n{verbs}\n<!-- /verbs -->{tail}"
    if request.config.getoption("--update-golden"):
        page.write_text(fresh)
    assert page.read_text() == fresh, (
        "run pytest --update-golden tests/house/test_docs.py"
    )


def test_the_pages_for_programs_are_fresh(request: pytest.FixtureRequest) -> None:
    script = runpy.run_path(str(ARCHITECTURE.parents[1] / "tools" / "llms.py"))
    for path, text in ((script["LLMS"], "llms"), (script["AGENTS"], "for_agents")):
        fresh = script[text]()
        if request.config.getoption("--update-golden"):
            path.write_text(fresh)
        assert path.read_text() == fresh, "run python tools/llms.py"


def test_the_picture_of_the_rooms_is_fresh(request: pytest.FixtureRequest) -> None:
    script = runpy.run_path(str(ARCHITECTURE.parents[1] / "tools" / "draw_rooms.py"))
    drawn = script["picture"](script["rooms"]())
    picture = ARCHITECTURE.with_name("rooms.svg")
    if request.config.getoption("--update-golden"):
        picture.write_text(drawn)
    assert picture.read_text() == drawn, "run python tools/draw_rooms.py"


def test_links_into_the_repository_lead_somewhere() -> None:
    links = re.findall(r"\]\((\.\./[^)#]+)", ARCHITECTURE.read_text())
    assert len(links) > 20
    for link in links:
        assert (ARCHITECTURE.parent / link).exists(), link


def test_every_room_has_a_row() -> None:
    page = ARCHITECTURE.with_name("rooms.md").read_text()
    rooms = page.split("## The rooms")[1].split("## Who may import whom")[0]
    for room in TABLE:
        package = room.split(".")[0]
        home = {
            "edgec_partitioner": "partitioner/",
            "edgec_devices": "devices/",
            "edgec_runtime": "runtime/",
        }
        path = home.get(package, "") + room.replace(".", "/")
        named = (f"`{path}/`", f"`{path}.py`", f"`{path}/__init__.py`")
        assert any(n in rooms for n in named), f"{room} has no row"


def test_messages_in_troubleshooting_are_those_of_the_program() -> None:
    """Each **`message`** that a paragraph begins with is in the code, letter by letter."""
    page = (ARCHITECTURE.parent / "troubleshooting.md").read_text()
    quoted = [
        m
        for line in re.findall(r"^\*\*(`.+?)\*\*", page, re.M)
        for m in re.findall(r"`([^`]+)`", line)
    ]
    code = "".join(text for path in _files() for text in _texts(path))
    code += "".join(p.read_text() for p in sorted(CSRC.glob("*.[ch]")))
    assert len(quoted) > 10
    for message in quoted:
        assert message.removesuffix(" emulated") in code, message


def _texts(path: Path) -> Iterator[str]:
    """The string literals of a file; of an f-string, its text without the fields."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            constants = [v.value for v in node.values if isinstance(v, ast.Constant)]
            yield "".join(map(str, constants))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def command_lines() -> list[str]:
    """Each `$ edgec …` of the pages, and of README; without its comment and what is
    left out.
    """
    pages = [
        *sorted(ARCHITECTURE.parent.glob("*.md")),
        ARCHITECTURE.parents[1] / "README.md",
    ]
    lines = [
        m
        for page in pages
        for m in re.findall(r"^    \$ (edgec .*)$", page.read_text(), re.M)
    ]
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("line", command_lines())
def test_command_lines_of_the_pages_parse(line: str) -> None:
    parse_command_line(line)


def parse_command_line(line: str) -> None:
    """Raise unless the verb and its options are there, and their values are taken;
    nothing is run.
    """
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="edgec")
    while (
        isinstance(command, click.Group)
        and words
        and (found := command.get_command(context, words[0]))
    ):
        command = found
        context = click.Context(command, info_name=words.pop(0), parent=context)
    assert command is not cli, line
    command.make_context(context.info_name, words, parent=context.parent)


def test_the_tutorial_goes_all_the_way() -> None:
    verbs = re.findall(
        r"^    \$ edgec (\w+)", (ARCHITECTURE.parent / "tutorial.md").read_text(), re.M
    )
    steps = [
        "doctor",
        "explain",
        "compile",
        "run",
        "bench",
        "devices",
        "flash",
        "status",
        "rollback",
        "package",
    ]
    assert list(dict.fromkeys(verbs)) == steps


def test_pages_fetch_nothing_and_are_strict() -> None:
    config = (ARCHITECTURE.parents[1] / "mkdocs.yml").read_text()
    assert "font: false" in config
    assert "strict: true" in config
    named = set(re.findall(r"[\w-]+\.md", config))
    assert named == {page.name for page in ARCHITECTURE.parent.glob("*.md")}, (
        "every page is in nav, once"
    )
