"""The steps of a job: their times, the lines and the bar of who watches, and where the
time went.
"""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgec.compiler.compile import compile_model
from edgec.options.compile import CompileOptions
from edgec.report import terminal
from edgec.report.interval_log import LOG_INTERVAL_S
from edgec.report.terminal import StepDisplay, progress, where_the_time_went
from edgec.steps import COMPILE_C, Step, Steps, counted, each
from tests.waiting import until

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


def test_steps_of_a_plan_are_counted_and_others_are_parts_of_them() -> None:
    told: list[str] = []
    say = Steps(told.append, plan=("read", "partition", "verify"))
    for text in ("download", "read", "calibrate 1/2", "verify 1/2", "emulate", ""):
        say(text)
    assert told == [
        "download",
        "step 1 of 3: read",
        "step 1 of 3: calibrate 1/2",
        "step 3 of 3: verify 1/2",
        "step 3 of 3: emulate",
        "",
    ]
    assert [step.name for step in say.done()][-1] == "emulate", "not the turn"


def test_off_a_terminal_a_long_job_says_now_and_then_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while a step that has no turns says nothing, and no more after its end."""
    clock = Clock()
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=clock))
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    begin = time.monotonic()
    with StepDisplay(every=0.1) as say:
        say("step 1 of 2: emulate")
        said(log, "step 1 of 2: emulate, 0 s so far\n" * 2)
        clock.now += 3
        said(log, "step 1 of 2: emulate, 3 s so far\n")
        say("step 2 of 2: try")
        for turn in (3, 4):
            say(f"step 2 of 2: try {turn}/9")
            clock.now += 2
        said(log, "step 2 of 2: try 4/9, 12 s left\n")
    lines = log.getvalue().splitlines()
    assert len(lines) <= (time.monotonic() - begin) / 0.1
    time.sleep(0.3)
    assert log.getvalue().splitlines() == lines
    assert capsys.readouterr() == ("", "")
    assert "\033" not in log.getvalue()
    assert "\r" not in log.getvalue()


def said(log: io.StringIO, text: str) -> None:
    """Return when a log has a text."""
    until(lambda: text in log.getvalue(), text)


@pytest.mark.parametrize("every", [LOG_INTERVAL_S, 0.01])
def test_a_short_or_quiet_job_says_nothing(
    capsys: pytest.CaptureFixture[str], every: float
) -> None:
    with StepDisplay(quiet=every < 1, every=every) as say:
        for turn in range(1, 100):
            say(f"calibrate {turn}/99")
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


def test_a_log_whose_reader_has_gone_ends_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    monkeypatch.setattr(sys, "stderr", Gone())
    with StepDisplay(every=0.01) as say:
        say("read")
        time.sleep(0.1)


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
    numbered = [re.fullmatch(r"step (\d) of 6: (.+)", counted(t)[0]) for t in told[:-1]]
    steps = [(int(match[1]), match[2]) for match in numbered if match]
    assert len(steps) == len(told) - 1, "each is counted"
    turns = [turn for turn, _ in steps]
    assert turns == sorted(turns)
    assert {*turns} == {1, 2, 3, 4, 5, 6}, "no step of the plan is left out"
    assert {name for _, name in steps} == {*names}
    assert all(s.seconds >= 0 for s in done.steps)
