"""The runs of a session in flight, with a frame and an arena each, made when needed."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Callable, List, Optional, TypeVar

from ..errors import InputError
from ..model.inference import ExecutionContext, Inference
from .locked import alone
from .program import Program

T = TypeVar("T")


class Lane:
    """The memory of one run at a time.

    Attributes:
        turn: of that run
        busy: whether there is one; only for the choice of a lane, since a Ctrl-C may
            leave it as it was
    """

    def __init__(self, program: Program) -> None:
        self.turn = threading.RLock()
        self.busy = False
        self._program = program
        self._frame: Optional[Inference] = None
        self._scratch: Optional[ExecutionContext] = None

    @property
    def scratch(self) -> ExecutionContext:
        """The arena and its threads."""
        if self._scratch is None:
            segments = self._program.manifest.segments
            self._scratch = self._program.scratch(segments)
        return self._scratch

    def begin(self) -> Inference:
        """Return the tensors of a run, which the lane has again after `end`.

        Those of a run that an exception ended may be half bound: the next run has
        others.
        """
        frame = self._frame
        self._frame = None
        return self._program.frame() if frame is None else frame

    def end(self, frame: Inference) -> None:
        """Take the tensors of a run that has ended well."""
        self._frame = frame


class Lanes:
    """The memory of inferences in flight: as many as the cores can run; others wait.

    The first is made at once.

    Attributes:
        last: the tensors of the last run
    """

    def __init__(self, program: Program, threads: int) -> None:
        self._program = program
        self._most = max(2, (os.cpu_count() or 1) // threads)
        self._closed = False
        self._begin()
        first = self._lanes[0]
        self.last = first.begin()
        first.end(self.last)
        assert first.scratch is not None, "it is made here, where an error is expected"

    def _begin(self) -> None:
        self._lanes: List[Lane] = [Lane(self._program) for _ in range(self._most)]
        self._next = itertools.count()

    def run(self, call: Callable[[Lane], T]) -> T:
        """Return what a function returns for a lane that nobody else has meanwhile.

        Raises:
            InputError: the session is closed
        """
        lane = self._lane()
        return alone(lane.turn, lambda: self._run(lane, call))

    def _run(self, lane: Lane, call: Callable[[Lane], T]) -> T:
        # It may have been closed while a run waited.
        if self._closed:
            raise closed()
        lane.busy = True
        try:
            return call(lane)
        finally:
            lane.busy = False

    def _lane(self) -> Lane:
        """Return a free lane, or else one to wait for."""
        lanes = self._lanes
        if self._closed:
            raise closed()
        # The first free one: what it used last is in the cache.
        for lane in lanes:
            if not lane.busy:
                return lane
        return lanes[next(self._next) % len(lanes)]

    def close(self) -> None:
        """End the threads of free lanes now, and those of the others when their runs
        end: a lane's threads end with it.
        """
        self._closed = True
        self._lanes = []

    def forked(self) -> None:
        """Forget lanes in the child of a fork: their threads do not exist there."""
        if not self._closed:
            self._begin()


def closed() -> InputError:
    """Return the error for using a closed session."""
    return InputError("this session is closed", hint="make a new Session")
