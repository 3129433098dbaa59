"""Shows a person the step that is under way, and at the end where the time went."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from edgec_runtime.device_end.printable import printable

from edgec.report.interval_log import LOG_INTERVAL_S, IntervalLog
from edgec.report.tables import WIDTH
from edgec.steps import COMPILE_C, Step, counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LEFT = " left"
"""The end of the words for the time to go."""
MIN_SUMMARY_SHARE = 0.02
"""Steps with a smaller share of the whole time are not named at the end."""
MIN_SUMMARY_S = 0.05
"""Shorter steps are not named at the end, s."""
_NO_BREAK = "\u00a0"
"""A space at which textwrap does not end a line."""


def left(seconds: float) -> str:
    """Return the time to go, for example "8 s left" or "3 min left"."""
    if seconds < 100:
        return f"{seconds:.0f} s{LEFT}"
    return f"{seconds / 60:.0f} min{LEFT}"


class _Pace:
    """Extrapolates the rest of a counted step from the time it has taken so far."""

    def __init__(self, at: int) -> None:
        self._first = at
        self._start = time.monotonic()

    def progress(self, at: int, total: int) -> str:
        """Return "12/64, 8 s left"; the time is shown from the second count on."""
        # The name of the step may have come before its turns.
        if not self._first:
            self._first = at
            self._start = time.monotonic()
        # The first call may be in the middle of a step.
        turns = at - self._first
        if not turns:
            return f"{at}/{total}"
        seconds_each = (time.monotonic() - self._start) / turns
        # Number `at` is under way, not done.
        remaining = total - at + 1
        return f"{at}/{total}, {left(seconds_each * remaining)}"


class StepDisplay:
    """Shows each step that it is called with on standard error; "" ends the last.

    On a terminal it is a bar, which disappears at the end. Elsewhere it is a line now
    and then about the step that is under way, as long as the job goes on. With `quiet`
    it shows nothing.

    As a context manager it removes the bar, and ends the lines.
    """

    def __init__(self, quiet: bool = False, every: float = LOG_INTERVAL_S) -> None:
        """every: interval between two lines, s."""
        # Standard output may be a pipe for the result, so progress is on standard error.
        self._display: _Bar | _Log | None = None
        if not quiet:
            self._display = _Bar() if sys.stderr.isatty() else _Log(every)

    def __call__(self, text: str) -> None:
        """Show that a step begins, or how far a counted step is."""
        if self._display is not None:
            self._display.show(*counted(printable(text)))

    def __enter__(self) -> StepDisplay:
        """Return the display itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        e: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the display, also after an exception."""
        self("")


class _Log:
    """A line at every interval about the step that is under way."""

    def __init__(self, every: float) -> None:
        self._log = IntervalLog(sys.stderr, every, self._lines)
        self._name = ""
        self._start = 0.0
        self._pace = _Pace(0)
        self._text = ""

    def show(self, name: str, at: int, total: int) -> None:
        """Note a step and how far it is; an empty name ends the lines."""
        if not name:
            self._name = ""
            self._log.stop()
            return

        if name != self._name:
            self._name = name
            self._start = time.monotonic()
            self._pace = _Pace(at)
        self._text = f"{name} {self._pace.progress(at, total)}" if total else name
        self._log.start()

    def _lines(self) -> tuple[str, ...]:
        """Return the step with the time that is left, or that has passed."""
        if self._text.endswith(LEFT):
            return (self._text,)
        return (f"{self._text}, {time.monotonic() - self._start:.0f} s so far",)


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
    columns = (name_column, BarColumn(20), count_column, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def progress(quiet: bool = False) -> StepDisplay:
    """Return a display for the steps of a verb, to pass as its `Progress`."""
    return StepDisplay(quiet)


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
