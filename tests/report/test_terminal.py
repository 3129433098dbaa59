"""The steps of a job: their times, the lines and the bar of who watches, and where the
time went.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from edgec.compiler.compile import compile_model
from edgec.compiler.options import CompileOptions
from edgec.report.terminal import progress, where_the_time_went
from edgec.steps import COMPILE_C, Step, Steps, counted, each

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


class Clock:
    """A clock that is put forward by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_steps_are_timed_and_told() -> None:
    clock = Clock()
    told = list[str]()
    say = Steps(told.append, clock)
    for text, seconds in [
        ("read", 1.0),
        ("calibrate 1/2", 2.0),
        ("calibrate 2/2", 3.0),
        ("quantize", 4.0),
        ("read", 5),
    ]:
        say(text)
        clock.now += seconds
    # the last has not ended
    assert [s.name for s in say.done()] == ["read", "calibrate", "quantize"]
    say("")
    clock.now += 100
    say("")
    assert say.done() == (
        Step("read", 6.0),
        Step("calibrate", 5.0),
        Step("quantize", 4.0),
    )
    assert told == [
        "read",
        "calibrate 1/2",
        "calibrate 2/2",
        "quantize",
        "read",
        "",
        "",
    ]


def test_items_are_counted() -> None:
    told: list[str] = []
    assert list(each("ab", 2, "verify", told.append)) == ["a", "b"]
    assert told == ["verify 1/2", "verify 2/2"]
    assert [counted(t) for t in ("verify 1/2", "compile C for pi4", "")] == [
        ("verify", 1, 2),
        ("compile C for pi4", 0, 0),
        ("", 0, 0),
    ]


def test_a_long_step_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most every half a minute, with what is left by its pace so far; a search that
    goes on begins in the middle.
    """
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    with progress() as say:
        for i in range(3, 10):
            say(f"try {i}/9")
            clock.now += 20
        for i in range(1, 5):
            say(f"calibrate {i}/100")
            clock.now += 16
    assert capsys.readouterr().err.splitlines() == [
        "try 5/9, 2 min left",
        "try 7/9, 60 s left",
        "try 9/9, 20 s left",
        "try: 140.0 s",
        "calibrate 3/100, 26 min left",
        "calibrate: 64.0 s",
    ]


@pytest.mark.parametrize("quiet", [True, False])
def test_off_a_terminal_there_is_a_line_for_what_took_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    with progress(quiet) as say:
        for text, seconds in [
            ("read", 0.4),
            ("calibrate 1/2", 0.7),
            ("calibrate 2/2", 0.7),
            ("emit", 0.3),
            ("pack", 2),
        ]:
            say(text)
            clock.now += seconds
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("" if quiet else "calibrate: 1.4 s\npack: 2.0 s\n")


def test_the_bar_shows_each_step_and_leaves_the_screen_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")

    def fails() -> None:
        with progress() as say:
            say("read")
            say("calibrate 3/7")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    shown = screen.getvalue()
    assert "calibrate" in shown
    assert "3/7" in shown
    # the cursor is back
    assert shown.count("\033[?25l") == shown.count("\033[?25h") == 1
    assert shown.endswith("\033[2K")  # and the line is empty


def test_where_the_time_went_tells_the_c_compiler_apart() -> None:
    steps = (
        Step("read", 0.01),
        Step("verify", 1.25),
        Step(f"{COMPILE_C} for a", 3.0),
        Step(f"{COMPILE_C} for b", 1.0),
    )
    assert (
        where_the_time_went(steps)
        == "where the time went: 5.3 s = verify 1.2 s, C compiler 4.0 s"
    )
    assert "emit" not in where_the_time_went([*steps, Step("emit", 0.1)]), "2 % of it"
    assert where_the_time_went(()) == "where the time went: 0.0 s"


def test_where_the_time_went_has_no_line_too_long_for_a_log() -> None:
    steps = [Step(f"a long name of step {n}", 0.1) for n in range(9)]
    text = where_the_time_went(steps)
    lines = text.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 120 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    for n in range(9):
        assert f"a long name of step {n} 0.1 s" in text, "each step is in one line"


@pytest.mark.cc
def test_a_compile_names_its_steps(tmp_path: Path) -> None:
    told: list[str] = []
    options = CompileOptions(
        output=tmp_path / "d.edgec",
        calibrate=DIGITS.with_name("digits_calibration.npz"),
        quantize="fast",
    )
    done = compile_model(DIGITS, options, told.append)
    names = [s.name for s in done.steps]
    for name in (
        "read",
        "optimise",
        "calibrate",
        "quantize",
        "partition",
        "emit",
        "compile C for linux-x86_64",
        "verify",
        "pack",
    ):
        assert name in names, names
    assert told[-1] == ""
    assert {counted(t)[0] for t in told} - {""} == set(names)
    assert all(s.seconds >= 0 for s in done.steps)
