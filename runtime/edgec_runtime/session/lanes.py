"""The runs of a session that are in flight: each has a frame and a scratch, made when
they are first needed.
"""

from __future__ import annotations

import os
from typing import List

from ..errors import InputError
from ..model.inference import ExecutionContext, Inference
from .locked import locked
from .program import Program


class Lane:
    """What one run at a time has."""

    def __init__(self, program: Program) -> None:
        self.frame: Inference = program.frame()
        self.scratch: ExecutionContext = program.scratch(program.manifest.segments)


class Lanes:
    """As many as the machine has cores for; who finds none free waits.

    The first is made at once.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self._program = program
        self._most = max(2, (os.cpu_count() or 1) // threads)
        self.closed = False
        self.last = Lane(program)
        self._begin([self.last])

    def _begin(self, free: List[Lane]) -> None:
        self._lock, self._changed = locked()
        self._waiting = 0
        self._made = len(free)
        self._free = free  # the last one used is used next

    def take(self) -> Lane:
        """One that nobody else has until it is given back.

        Raises InputError when closed.
        """
        try:
            return self._free.pop()  # no lock: one step of Python's
        except IndexError:
            pass
        with self._lock:
            # first, so that who gives one back after the next look sees it
            self._waiting += 1
            try:
                while not self.closed:
                    if not self._free and self._made < self._most:
                        made = Lane(self._program)
                        self._made += 1
                        return made
                    try:
                        return self._free.pop()
                    except IndexError:
                        self._changed.wait()
            finally:
                self._waiting -= 1
        raise closed()

    def give(self, lane: Lane) -> None:
        """Back."""
        self.last = lane
        self._free.append(lane)
        if self.closed:
            self._clear()
        elif self._waiting:
            with self._lock:
                self._changed.notify()

    def close(self) -> None:
        """Ends the threads of those that are free now; the others' when their run ends."""
        with self._lock:
            self.closed = True
            self._changed.notify_all()
        self._clear()

    def _clear(self) -> None:
        while self._free:
            try:
                self._free.pop().scratch.stop()
            except IndexError:  # it was another thread's
                return

    def forked(self) -> None:
        """In the child of a fork: lanes are in use by threads that are not there, or
        half way.
        """
        self._begin([])


def closed() -> InputError:
    """To be raised by what was asked of a closed session."""
    return InputError("this session is closed", hint="make a new Session")
