"""Writes lines into a log at an interval, as long as a job goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TextIO

from edgec_runtime.device_end.printable import printable

LOG_INTERVAL_S = 10.0
"""Interval between two lines about one job, s."""


class IntervalLog:
    """Writes lines at every interval, even if nothing has changed.

    A log that stands still looks like a program that has stopped.
    """

    def __init__(
        self, to: TextIO, every: float, lines: Callable[[], Iterable[str]]
    ) -> None:
        """Prepare a log; nothing is written before `start`.

        Args:
            to: receives the lines
            every: the interval, s
            lines: returns the lines; it is called from another thread
        """
        self._to = to
        self._every = every
        self._lines = lines
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write, unless that has begun."""
        if self._thread is None:
            self._end.clear()
            # A daemon: a program that ends does not wait for it.
            self._thread = threading.Thread(target=self._write, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write no more lines."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _write(self) -> None:
        while not self._end.wait(self._every):
            try:
                for line in self._lines():
                    self._to.write(printable(line) + "\n")
                self._to.flush()
            except (OSError, ValueError):
                # Nobody reads the log any more, which is no fault of the job.
                return
