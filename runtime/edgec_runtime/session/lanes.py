"""The runs of a session in flight, with a frame and an arena each, made when needed."""

from __future__ import annotations

import os
from typing import List

from ..errors import InputError
from ..model.inference import ExecutionContext, Inference
from .locked import locked
from .program import Program


class Lane:
    """The memory of one run at a time."""

    def __init__(self, program: Program) -> None:
        self.frame: Inference = program.frame()
        self.scratch: ExecutionContext = program.scratch(program.manifest.segments)


class Lanes:
    """The memory of inferences in flight: as many as the cores can run; others wait.

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
        # A stack: the last lane used is in the cache, and used next.
        self._free = free

    def take(self) -> Lane:
        """Return a lane that nobody else has until it is given back.

        Raises:
            InputError: the session is closed
        """
        try:
            # Without the lock: `pop` is one step of Python's.
            return self._free.pop()
        except IndexError:
            pass
        with self._lock:
            # First, so that a thread that gives one back after the next look sees it.
            self._waiting += 1
            try:
                while not self.closed:
                    if not self._free and self._made < self._most:
                        # Under the lock, so that there are never more than the cores.
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
        """Give a lane back."""

        # `Session.tensor` reads it after the run.
        self.last = lane
        self._free.append(lane)
        if self.closed:
            self._clear()
        elif self._waiting:
            with self._lock:
                self._changed.notify()

    def close(self) -> None:
        """End the threads of free lanes now, and those of the others when their runs
        end.
        """
        with self._lock:
            self.closed = True
            self._changed.notify_all()
        self._clear()

    def _clear(self) -> None:
        while self._free:
            try:
                self._free.pop().scratch.stop()
            except IndexError:
                # Another thread took it.
                return

    def forked(self) -> None:
        """Forget lanes in the child of a fork: their threads do not exist there."""
        self._begin([])


def closed() -> InputError:
    """Return the error for using a closed session."""
    return InputError("this session is closed", hint="make a new Session")
