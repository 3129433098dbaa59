"""Every verb once, as a person starts it: what it prints is its own, and with --json
all of it is JSON.

All of these run with the newest versions of all dependencies (`make test-newest`): a
library that prints a banner, or a function that it renamed, is found here. `make test`
has some.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

import edgec
from edgec.cli.main import cli
from tests import builds

FIXTURES = Path(__file__).parents[2] / "fixtures"
DIGITS = FIXTURES / "digits" / "digits.onnx"
CARTOON = FIXTURES / "cartoon" / "cartoon.onnx"
PHOTO = FIXTURES / "photos" / "cup.jpg"

PROGRESS = re.compile(
    r"(([a-z][^\n:]*: (\d+\.\d s|a minute or two, once)"
    # A line about the step that is under way, every 10 s: on a slow machine alone
    r"|[a-z][^\n]*, \d+ (s so far|s left|min left))\n)*"
)
"""What a verb may write to standard error where it is no terminal: a line for each step
that took its time.
"""

pytestmark = [pytest.mark.slow, pytest.mark.cc]


@dataclass(frozen=True)
class Case:
    """A command line. said: what standard error may be beside progress, a pattern.
    needs: a program of Debian's.

    codes: exit codes that are right.
    """

    words: tuple[str, ...]
    said: str = ""
    codes: tuple[int, ...] = (0,)
    needs: str | None = None

    @property
    def verb(self) -> str:
        """The verb, or the group and its verb."""
        return " ".join(
            self.words[
                : 2
                if self.words[:1] == ("devices",) and self.words[1] in ("status",)
                else 1
            ]
        )


TEXT = (
    Case(("compile", str(DIGITS), "-o", "digits.edgec")),
    Case(
        (
            "compile",
            str(CARTOON),
            "--target",
            "pi4+coral",
            "--calibrate",
            str(PHOTO.parent),
            "--quantize",
            "fast",
            "--preprocess",
            "0_1",
            "--task",
            "image",
            "-o",
            "cartoon.edgec",
        )
    ),
    Case(("explain", str(CARTOON), "--target", "pi4+coral")),
    Case(("run", "digits.edgec", "--input", "digit.npy", "--output", "digit.npz")),
    Case(("bench", "digits.edgec", "--runs", "5", "--json", "bench.json")),
    Case(("diff", str(DIGITS), "digits.edgec", "--inputs", "digits.npz")),
    Case(("tune", "digits.edgec", "--ops", "1", "-o", "tuned.json")),
    Case(("inspect", "cartoon.edgec")),
    Case(("export", "cartoon.edgec", "--tflite", "segments", "--c", "c")),
    Case(("package", "cartoon.edgec", "-o", ".")),
    Case(
        ("sign", "--new-key", "new"),
        said=r"new SHA256:\S+; devices trust it by new\.pub\n",
    ),
    Case(
        (
            "webcam",
            "cartoon.edgec",
            "--source",
            str(PHOTO),
            "--no-display",
            "--frames",
            "2",
        )
    ),
    Case(("models",)),
    Case(("demo", "--out", "demo"), needs="qemu-aarch64"),
)
"""Those that print text."""

AS_JSON = (
    Case(
        (
            "explain",
            str(CARTOON),
            "--target",
            "pi4+coral",
            "--calibrate",
            str(PHOTO.parent),
            "--json",
        )
    ),
    Case(
        ("run", "cartoon.edgec", "--input", str(PHOTO), "--output", "cup.png", "--json")
    ),
    Case(
        ("diff", str(DIGITS), "digits.edgec", "--inputs", "digits.npz", "--json", "-")
    ),
    Case(("doctor", "--json"), codes=(0, 1)),
    Case(("inspect", "cartoon.edgec", "--json")),
    Case(("models", "--json")),
    Case(("devices", "--json")),
    Case(("devices", "status", "--json")),
    Case(("flash", "digits.edgec", "--on", "local:", "--json")),
    Case(("status", "--on", "local:", "--json")),
    Case(
        ("rollback", "--on", "local:", "--json"),
        said=r"error: [^\n]*\n(  [^\n]*\n)*",
        codes=(2,),
    ),
    Case(("trust", "key.pub", "--on", "local:", "--json")),
    Case(
        (
            "webcam",
            "cartoon.edgec",
            "--source",
            str(PHOTO),
            "--no-display",
            "--frames",
            "2",
            "--json",
        )
    ),
)
"""Those whose whole standard output is JSON."""

ELSEWHERE = {
    "finish": "needs a folder on which edgetpu_compiler ran: tests/toolchain",
    "models get": "needs the package index: tests/catalogue",
    "serve": "serves until a signal: tests/serve/test_service.py",
    "eval": "needs labelled pictures: tests/house/test_workflow.py",
    "devices boot": "boots a machine: tests/devices/test_machine.py",
    "devices power-cut": "needs a machine: tests/devices/test_machine.py",
    "devices power-on": "needs a machine: tests/devices/test_machine.py",
    "devices stop": "needs a machine: tests/devices/test_machine.py",
}
"""Verbs that no case here starts, and why."""


def _made(folder: Path) -> None:
    """Bundles, inputs and a key, for cases that need what another verb made."""
    digits = np.load(FIXTURES / "digits" / "digits_calibration.npz")
    name = digits.files[0]
    np.save(folder / "digit.npy", digits[name][:1])
    np.savez(folder / "digits.npz", **{name: digits[name][:4]})
    edgec.compile(DIGITS, output=folder / "digits.edgec")
    cartoon = folder / "cartoon.edgec"
    edgec.compile(
        CARTOON,
        "pi4+coral",
        cartoon,
        calibrate=PHOTO.parent,
        quantize="fast",
        preprocess="0_1",
        task="image",
    )
    edgec.sign(new_key=folder / "key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what `_made` made, which is one for each case: they may run in any
    order and beside each other.
    """
    shutil.copytree(builds.once("every verb", _made), tmp_path, dirs_exist_ok=True)
    return tmp_path


def started(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    """The verb in a process of its own; its standard output is a pipe, as in a script."""
    if case.needs is not None and shutil.which(case.needs) is None:
        pytest.skip(f"no {case.needs}")
    env = {**os.environ, "EDGEC_ROOT": str(folder / "device")}
    command = [sys.executable, "-m", "edgec", *case.words]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    "case", [*TEXT, *AS_JSON], ids=lambda c: " ".join(Path(w).name for w in c.words[:4])
)
def test_what_a_verb_prints_is_its_own(case: Case, folder: Path) -> None:
    done = started(case, folder)
    assert done.returncode in case.codes, done.stderr
    assert re.fullmatch(PROGRESS.pattern + case.said, done.stderr), done.stderr
    assert "Copyright" not in done.stdout
    if case in AS_JSON:
        json.loads(done.stdout)
    elif case.verb != "sign":
        assert done.stdout.strip()


def _verbs(group: click.Group, before: Sequence[str] = ()) -> Iterator[str]:
    """The verbs of a group and of the groups in it, with the words before them."""
    for name, command in group.commands.items():
        yield " ".join([*before, name])
        if isinstance(command, click.Group):
            yield from _verbs(command, [*before, name])


def test_every_verb_has_a_case() -> None:
    assert (
        set(_verbs(cli)) == {case.verb for case in (*TEXT, *AS_JSON)} | ELSEWHERE.keys()
    )


def test_every_verb_with_json_on_standard_output_is_tried_with_it() -> None:
    with_json = {
        name
        for name in _verbs(cli)
        if any(p.name == "as_json" for p in _command(name).params)
        and name not in ELSEWHERE
    }
    assert with_json <= {case.verb for case in AS_JSON if "--json" in case.words}


def _command(words: str) -> click.Command:
    found: click.Command = cli
    for word in words.split():
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found
