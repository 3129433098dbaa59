"""How far a flash is: bars on a terminal, a line every few seconds anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from edgec_runtime.device_end.printable import printable

if TYPE_CHECKING:
    from edgec_devices.transfer import Sending
    from rich.progress import Progress, TaskID

EVERY_S = 5.0
Report = Callable[[str, "Sending"], None]


def in_bytes(n: float) -> str:
    """A number of bytes as people say it: 1.4 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f} B"


@contextmanager
def shown(
    quiet: bool = False, to: TextIO | None = None, every: float = EVERY_S
) -> Iterator[Report]:
    """What to call, from any thread, with a device and how far it is.  every: seconds,
    in a log.
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
    )
    text = TextColumn("{task.fields[text]}", markup=False)
    bars: Progress
    with Progress(
        *columns, text, TimeElapsedColumn(), console=Console(file=to), transient=True
    ) as bars:

        def report(url: str, sending: Sending) -> None:
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
    """Of all devices, also while nothing comes: a log that stands still looks like a
    program that does.
    """
    seen: dict[str, Sending] = {}
    end = threading.Event()

    def tick() -> None:
        while not end.wait(every):
            for url, sending in sorted(seen.copy().items()):
                to.write(printable(f"{url}: {_text(sending)}") + "\n")
            to.flush()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield seen.__setitem__
    finally:
        end.set()
        thread.join()


def _text(s: Sending) -> str:
    """ "sending 48 % of 1.4 MB, 512.0 kB/s, 3 s left", or the step that has no such
    figures.
    """
    if s.step != "sending":
        return s.step
    percent = 100 * s.done // s.total if s.total else 100
    left = f", {s.left:.0f} s left" if 0 < s.left < 1e6 else ""
    return f"sending {percent} % of {in_bytes(s.total)}, {in_bytes(s.rate)}/s{left}"
