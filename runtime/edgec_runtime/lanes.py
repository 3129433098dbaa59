"""The runs of a session that are in flight: each has a frame and a scratch, made when they are first needed."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Iterator, List

from .errors import InputError
from .frame import Frame, Scratch
from .program import Program


class Lane:
    """What one run at a time has."""

    def __init__(self, program: Program) -> None:
        self.frame: Frame = program.frame()
        self.scratch: Scratch = program.scratch(program.manifest.segments)


class Lanes:
    """As many as the machine has cores for; who finds none free waits.  The first is made at once."""

    def __init__(self, program: Program, threads: int) -> None:
        self._program = program
        self._most = max(2, (os.cpu_count() or 1) // threads)
        self._turn = threading.Semaphore(self._most)
        self._free: List[Lane] = [Lane(program)]  # the last one used is used next
        self.last = self._free[0]
        self.closed = False

    @contextmanager
    def one(self) -> Iterator[Lane]:
        """A lane until the end of the block.  Raises InputError when closed."""
        turn, free = self._turn, self._free  # a forked child has others
        with turn:
            if self.closed:
                raise closed()
            try:
                lane = free.pop()
            except IndexError:
                lane = Lane(self._program)
            try:
                yield lane
            finally:
                self.last = lane
                free.append(lane)
                if self.closed:
                    self._clear()

    def close(self) -> None:
        """Ends the threads of those that are free now; the others' when their run ends."""
        self.closed = True
        self._clear()

    def _clear(self) -> None:
        while self._free:
            try:
                self._free.pop().scratch.stop()
            except IndexError:  # it was another thread's
                return

    def forked(self) -> None:
        """In the child of a fork: lanes are in use by threads that are not there, or half way."""
        if not self.closed:
            self._turn = threading.Semaphore(self._most)
            self._free = []
            self.last = Lane(self._program)
            self._free.append(self.last)


def closed() -> InputError:
    """To be raised by what was asked of a closed session."""
    return InputError("this session is closed", hint="make a new Session")
