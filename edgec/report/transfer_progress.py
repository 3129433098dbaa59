"""Shows the progress of a flash: bars on a terminal, lines in a log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from edgec_devices.transfer import SENDING, Sending
from edgec_runtime.device_end.printable import printable

from edgec.report.interval_log import LOG_INTERVAL_S, IntervalLog

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MAX_SHOWN_S = 1e6
"""Longer estimates of the time to go say nothing and are not shown, s."""
Report = Callable[[str, Sending], None]
"""Takes the URL of a device and the state of its transfer; safe from any thread."""


def in_bytes(n: float) -> str:
    """Return a number of bytes with a decimal unit, for example 1.4 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f} B"


@contextmanager
def shown(
    quiet: bool = False, to: TextIO | None = None, every: float = LOG_INTERVAL_S
) -> Iterator[Report]:
    """Provide a function that shows the progress of each device.

    `every` is the interval between two lines in a log (s).
    """
    to = to or sys.stderr
    if quiet:
        yield lambda url, sending: None
    elif to.isatty():
        with _bars(to) as report:
            yield report
    else:
        with _lines(to, every) as report:
            yield report


@contextmanager
def _bars(to: TextIO) -> Iterator[Report]:
    """Show a bar for each device while the context lasts."""
    # A flash that shows no bar does not wait for the import of rich.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    tasks: dict[str, TaskID] = {}
    lock = threading.Lock()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    bars: Progress
    with Progress(*columns, console=Console(file=to), transient=True) as bars:

        def report(url: str, sending: Sending) -> None:
            # Each device has a thread, and two must not add a bar for one URL.
            with lock:
                if url not in tasks:
                    tasks[url] = bars.add_task(printable(url), total=None, text="")
                bars.update(
                    tasks[url],
                    total=sending.total or None,
                    completed=sending.done,
                    text=_text(sending),
                )

        yield report


@contextmanager
def _lines(to: TextIO, every: float) -> Iterator[Report]:
    """Write a line about each device at every interval while the context lasts."""
    states: dict[str, Sending] = {}

    def lines() -> list[str]:
        # A copy, because other threads add devices meanwhile.
        return [f"{url}: {_text(sent)}" for url, sent in sorted(states.copy().items())]

    log = IntervalLog(to, every, lines)
    log.start()
    try:
        yield states.__setitem__
    finally:
        log.stop()


def _text(sending: Sending) -> str:
    """Return the state of a transfer in words.

    An example is "step 3 of 5: sending 48 % of 1.4 MB, 512.0 kB/s, 3 s left". Other
    steps have a name only.
    """
    turn = f"step {sending.turn} of {sending.steps}: " if sending.steps else ""
    if sending.step != SENDING:
        return turn + sending.step
    # Nothing to send is done already.
    percent = 100
    if sending.total:
        percent = 100 * sending.done // sending.total
    left = ""
    if 0 < sending.left < MAX_SHOWN_S:
        left = f", {sending.left:.0f} s left"
    total = in_bytes(sending.total)
    rate = in_bytes(sending.rate)
    return f"{turn}sending {percent} % of {total}, {rate}/s{left}"
