"""Cores that choose anew more often than the kernel makes them, while more stages of a
stream compute than there are.

The kernel takes a core from one thread for another at a tick, and not at each (250 a
second, on Debian and Raspberry Pi OS), so that a stage that polls a device until its
time has come may come too late by some of them.  Whoever wakes on a core makes it
choose anew: three stages that poll for 20 ms on two cores make 47 frames/s instead of
44.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import List, Sequence

from .locked import locked
from .meters import Meter

BEAT_S = 0.002
LOOK = 16
"""Frames from one look at the meters to the next."""
_COMPUTES = 0.2
"""Of its time that a stage has a core at least, unless it waits for something."""
_MORE = 0.5
"""Stages more than cores; short ones beside as many as there are cores are none."""


class Beat:
    """Of one stream, whose stages have these meters."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters
        if hasattr(os, "sched_getaffinity"):
            self._cores = sorted(os.sched_getaffinity(0))
        else:
            self._cores = []
        self._frames = 0
        self._lock, _ = locked()
        self._threads: List[threading.Thread] = []
        self._over = threading.Event()

    def look(self) -> None:
        """At each frame: cores are woken from now on, or no more, by what the stages
        did lately.
        """
        self._frames += 1
        if self._frames % LOOK == 0 and self._cores:
            means = [m.mean for m in self._meters if m.cpu >= _COMPUTES * m.mean]
            self._set(
                sum(means)
                > (len(self._cores) + _MORE) * max(m.mean for m in self._meters)
            )

    def stop(self) -> None:
        """For good."""
        self._over.set()
        self._set(False)

    def _set(self, on: bool) -> None:
        with self._lock:
            if on and not self._threads and not self._over.is_set():
                self._threads = [
                    threading.Thread(
                        target=self._wake, args=(core,), name="edgec-beat", daemon=True
                    )
                    for core in self._cores
                ]
                # no more threads: it goes without
                with contextlib.suppress(RuntimeError):
                    for t in self._threads:
                        t.start()
            elif not on and self._threads:
                ended = self._threads
                self._threads = []
                for t in ended:
                    # which may free what nobody holds
                    if t.is_alive() and t is not threading.current_thread():
                        t.join()

    def _wake(self, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # of this thread
        except OSError:
            return  # it went offline
        while threading.current_thread() in self._threads:
            time.sleep(BEAT_S)
