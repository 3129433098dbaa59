"""What a person sees while something takes its time, and where that time went."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import click
from edgec_runtime.device_end.printable import printable

from edgec.steps import COMPILE_C, Step, counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WORTH_A_LINE = 1.0
"""Seconds: what is done sooner is not worth a line in a log."""


_WORTH_WAITING = 30.0
"""Seconds after which a log says how far a step is."""


def left(seconds: float) -> str:
    """For people, who want to know whether to wait: "8 s left", "3 min left"."""
    return f"{seconds:.0f} s left" if seconds < 100 else f"{seconds / 60:.0f} min left"


class _Pace:
    """How long a counted step will still take, by how long it took so far."""

    def __init__(self, at: int) -> None:
        self._first = at
        self._since = time.monotonic()

    def told(self, at: int, of: int) -> str:
        """ "12/64, 8 s left"; the time from the second on."""
        done = at - self._first
        if not done:
            return f"{at}/{of}"
        return f"{at}/{of}, {left((time.monotonic() - self._since) / done * (of - at + 1))}"


class StepDisplay:
    """Shows the steps that it is called with, on standard error: "" ends them.

    As a context, it leaves nothing behind.

    On a terminal a bar, which goes when it is done; elsewhere, if `lines`, a line for
    each step that took more than a second, and for a long one how far it is. Nothing if
    `quiet`.
    """

    def __init__(self, quiet: bool = False, lines: bool = True) -> None:
        self._bar = None if quiet or not sys.stderr.isatty() else _Bar()
        self._lines = lines and not quiet and self._bar is None
        self._name = ""
        self._since = 0.0
        self._said = 0.0
        self._pace = _Pace(0)

    def __call__(self, text: str) -> None:
        """A step begins, or goes on if it is counted."""
        name, at, of = counted(printable(text))
        if self._bar is not None:
            self._bar.show(name, at, of)
        now = time.monotonic()
        if name != self._name:
            if self._lines and self._name and now - self._since > _WORTH_A_LINE:
                click.echo(f"{self._name}: {now - self._since:.1f} s", err=True)
            self._name = name
            self._since = now
            self._said = now
            self._pace = _Pace(at)
        elif self._lines and of and now - self._said > _WORTH_WAITING:
            click.echo(f"{name} {self._pace.told(at, of)}", err=True)
            self._said = now

    def __enter__(self) -> StepDisplay:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        e: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """The bar goes, however the work ended."""
        self("")


class _Bar:
    """One line of a terminal, there while a step is under way."""

    def __init__(self) -> None:
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._pace = _Pace(0)

    def show(self, name: str, at: int, of: int) -> None:
        """The step and how far it is; a bar that runs to and fro where that is not
        known. No name: nothing.
        """
        if not name:
            self._stop()
            return
        if self._live is None:
            self._live = _progress_bar()
            self._live.start()
        if name != self._name or self._task is None:
            if self._task is not None:
                self._live.remove_task(self._task)
            self._task = self._live.add_task(name, total=None, of="")
            self._name = name
            self._pace = _Pace(at)
        if of:
            self._live.update(
                self._task, total=of, completed=at - 1, of=self._pace.told(at, of)
            )

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None
        self._task = None
        self._name = ""


def _progress_bar() -> Progress:
    """Make a bar on standard error. rich is imported here: a verb that shows no bar
    does not wait for it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    name_column = TextColumn("{task.description}", markup=False)
    count_column = TextColumn("{task.fields[of]}", markup=False)
    columns = (name_column, BarColumn(30), count_column, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def progress(quiet: bool = False, lines: bool = True) -> StepDisplay:
    """Who watches the steps of a verb; see Watch."""
    return StepDisplay(quiet, lines)


_NAMED = 0.02
"""Share of the whole from which a step is worth naming."""


def where_the_time_went(steps: Sequence[Step]) -> str:
    """One line: seconds in all, those of the C compiler, and of each other step that is
    worth naming.
    """
    in_c = sum(s.seconds for s in steps if s.name.startswith(COMPILE_C))
    rest = [s for s in steps if not s.name.startswith(COMPILE_C)]
    total = in_c + sum(s.seconds for s in rest)
    named = [
        f"{s.name} {s.seconds:.1f} s"
        for s in rest
        if s.seconds >= max(0.05, _NAMED * total)
    ]
    parts = [*named, *([f"C compiler {in_c:.1f} s"] if in_c else [])]
    return f"where the time went: {total:.1f} s" + (
        f" = {', '.join(parts)}" if parts else ""
    )
