"""Shows a person the step that is under way, and at the end where the time went."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import click
from edgec_runtime.device_end.printable import printable

from edgec.report.tables import WIDTH
from edgec.steps import COMPILE_C, Step, counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MIN_LOGGED_S = 1.0
"""Shorter steps have no line in a log, s."""
LOG_INTERVAL_S = 30.0
"""Interval between two lines of a log about one long step, s."""
MIN_SUMMARY_SHARE = 0.02
"""Steps with a smaller share of the whole time are not named at the end."""
MIN_SUMMARY_S = 0.05
"""Shorter steps are not named at the end, s."""
_NO_BREAK = "\u00a0"
"""A space at which textwrap does not end a line."""


def left(seconds: float) -> str:
    """Return the time to go, for example "8 s left" or "3 min left"."""
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left"


class _Pace:
    """Extrapolates the rest of a counted step from the time it has taken so far."""

    def __init__(self, at: int) -> None:
        self._first = at
        self._start = time.monotonic()

    def progress(self, at: int, total: int) -> str:
        """Return "12/64, 8 s left"; the time is shown from the second count on."""
        # The first call may be in the middle of a step.
        done = at - self._first
        if not done:
            return f"{at}/{total}"
        seconds_each = (time.monotonic() - self._start) / done
        # Number `at` is under way, not done.
        remaining = total - at + 1
        return f"{at}/{total}, {left(seconds_each * remaining)}"


class StepDisplay:
    """Shows each step that it is called with on standard error; "" ends the last.

    On a terminal it is a bar, which disappears at the end. Elsewhere, with `lines`, it
    is a line for each step of more than a second, and a line now and then for a long
    step. With `quiet` it shows nothing.

    As a context manager it removes the bar.
    """

    def __init__(self, quiet: bool = False, lines: bool = True) -> None:
        # Standard output may be a pipe for the result, so progress is on standard error.
        self._bar: _Bar | None = None
        if not quiet and sys.stderr.isatty():
            self._bar = _Bar()
        self._lines = lines and not quiet and self._bar is None
        self._name = ""
        self._start = 0.0
        self._last_line = 0.0
        self._pace = _Pace(0)

    def __call__(self, text: str) -> None:
        """Show that a step begins, or how far a counted step is."""
        name, at, total = counted(printable(text))
        if self._bar is not None:
            self._bar.show(name, at, total)

        now = time.monotonic()
        if name != self._name:
            self._log_end(now)
            self._name = name
            self._start = now
            self._last_line = now
            self._pace = _Pace(at)
        elif self._lines and total and now - self._last_line > LOG_INTERVAL_S:
            click.echo(f"{name} {self._pace.progress(at, total)}", err=True)
            self._last_line = now

    def _log_end(self, now: float) -> None:
        """Write a line about the step that ends, if it took long."""
        seconds = now - self._start
        if self._lines and self._name and seconds > MIN_LOGGED_S:
            click.echo(f"{self._name}: {seconds:.1f} s", err=True)

    def __enter__(self) -> StepDisplay:
        """Return the display itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        e: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Remove the bar, also after an exception."""
        self("")


class _Bar:
    """One line of a terminal, shown while a step is under way."""

    def __init__(self) -> None:
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._pace = _Pace(0)

    def show(self, name: str, at: int, total: int) -> None:
        """Show a step and how far it is; an empty name removes the bar.

        Without a total, the bar runs to and fro.
        """
        if not name:
            self._stop()
            return

        if self._live is None:
            self._live = _progress_bar()
            self._live.start()
        if name != self._name or self._task is None:
            # Each step has a bar of its own, with its own time.
            if self._task is not None:
                self._live.remove_task(self._task)
            self._task = self._live.add_task(name, total=None, of="")
            self._name = name
            self._pace = _Pace(at)

        if total:
            text = self._pace.progress(at, total)
            self._live.update(self._task, total=total, completed=at - 1, of=text)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None
        self._task = None
        self._name = ""


def _progress_bar() -> Progress:
    """Make a bar on standard error.

    rich is imported here: a verb that shows no bar does not wait for it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    name_column = TextColumn("{task.description}", markup=False)
    count_column = TextColumn("{task.fields[of]}", markup=False)
    columns = (name_column, BarColumn(30), count_column, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def progress(quiet: bool = False, lines: bool = True) -> StepDisplay:
    """Return a display for the steps of a verb, to pass as its `Watch`."""
    return StepDisplay(quiet, lines)


def where_the_time_went(steps: Sequence[Step]) -> str:
    """Return seconds in all, of each long step, and of the C compiler.

    It is one line, or several where the steps do not fit into one.
    """
    compiler_s = 0.0
    other_steps = []
    for step in steps:
        if step.name.startswith(COMPILE_C):
            compiler_s += step.seconds
        else:
            other_steps.append(step)
    total = compiler_s + sum(step.seconds for step in other_steps)

    threshold = max(MIN_SUMMARY_S, MIN_SUMMARY_SHARE * total)
    parts = []
    for step in other_steps:
        if step.seconds >= threshold:
            parts.append(f"{step.name} {step.seconds:.1f} s")
    if compiler_s:
        parts.append(f"C compiler {compiler_s:.1f} s")

    line = f"where the time went: {total:.1f} s"
    if parts:
        # A line may end after a step, not between its name and its time.
        unbroken = ", ".join(part.replace(" ", _NO_BREAK) for part in parts)
        line += f" = {unbroken}"
    return textwrap.fill(line, WIDTH, subsequent_indent="  ").replace(_NO_BREAK, " ")
