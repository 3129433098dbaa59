"""The recipes of docs/recipes.md and docs/boards.md, followed in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = (
    "edgec",
    "partitioner",
    "runtime",
    "devices",
    "docs",
    "fixtures",
    "tests",
    "pyproject.toml",
    "README.md",
)
"""What the copy has."""
STEP = re.compile(
    r"^```(?:python|text|c|toml|md)\n(?P<block>.*?)^```$"
    r"|^    (?P<command>(?:cp|pytest|edgec) [^\n]+)$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"`([\w/.-]+\.(?:py|h|toml|md))`")
PLACE = re.compile(r"(above|below) the line\s(?:``(.+?)``|`([^`]+)`)")


@dataclass(frozen=True)
class Step:
    """Lines for a file, or a command line.

    place: "above" or "below" a line of the file; "": at its end.
    """

    block: str = ""
    file: str = ""
    place: str = ""
    line: str = ""
    command: str = ""


def recipes() -> dict[str, list[Step]]:
    """Return the steps of each recipe by its title; sections without steps are none."""
    found: dict[str, list[Step]] = {}
    for page in ("recipes.md", "boards.md"):
        text = (ROOT / "docs" / page).read_text()
        parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            steps = list(_steps(body))
            if steps:
                found[title] = steps
    return found


def _steps(body: str) -> Iterator[Step]:
    before = 0
    file = ""
    for match in STEP.finditer(body):
        if match["command"]:
            yield Step(command=match["command"])
        else:
            # The file is the one that was named last, perhaps for an earlier block.
            said = body[before : match.start()]
            file = [file, *FILE.findall(said)][-1]
            place, *lines = (PLACE.findall(said) or [("", "")])[-1]
            yield Step(match["block"], file, place, "".join(lines))
        before = match.end()


def put(step: Step, file: Path) -> None:
    """Write the lines of a block to their place in a file."""
    text = step.block
    if not file.exists():
        file.write_text(text)
        return
    old = file.read_text()
    is_definition = text.startswith(("@", "def ", "class "))
    gap = "\n\n" if is_definition else ""
    if step.place:
        (at,) = re.findall(rf"^ *{re.escape(step.line)}\n", old, re.MULTILINE)
        new = at + text if step.place == "below" else text + gap + at
        file.write_text(old.replace(at, new, 1))
    elif file.suffix == ".toml":
        for line in filter(None, text.splitlines()):
            key = line.partition(" = ")[0]
            old, count = re.subn(rf"^{key} = .*$", line, old, flags=re.MULTILINE)
            assert count == 1, f"{file.name}: {count} lines of {key}"
        file.write_text(old)
    elif file.suffix == ".h":
        head, _, tail = old.rpartition("#endif")
        file.write_text(f"{head}{text}\n#endif{tail}")
    else:
        # A later recipe replaces the row of an earlier one.
        name, is_row, _ = text.partition(" = ")
        if is_row and name.isidentifier():
            old = re.sub(rf"^{name} = .*\n", "", old, flags=re.MULTILINE)
        file.write_text(f"{old.rstrip()}\n{gap}{text}")


def words(command: str) -> list[str]:
    """Return the words of a command line, for the Python of this test."""
    program, *arguments = shlex.split(command)
    if program == "pytest":
        return [sys.executable, "-m", "pytest", "-q", "-n", "0", *arguments]
    if program == "edgec":
        return [sys.executable, "-m", "edgec", *arguments]
    return [program, *arguments]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, folder)
            continue
        skip = shutil.ignore_patterns("__pycache__", ".pytest_cache", "build")
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    return folder


@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.arm
def test_the_recipes_work_one_after_the_other(copy: Path) -> None:
    assert len(recipes()) == 8
    paths = [copy, copy / "partitioner", copy / "runtime", copy / "devices"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    for title, steps in recipes().items():
        assert steps[-1].command, f"{title} shows nothing that works"
        for step in steps:
            if step.block:
                put(step, copy / step.file)
                continue
            done = subprocess.run(
                words(step.command),
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, (
                f"{title}: {step.command}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
            )
