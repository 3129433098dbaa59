"""The lanes of a session: memory for each run that is under way, made when needed."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Callable, Dict, List, Optional, Sequence, TypeVar

from ..errors import InputError
from ..model.inference import ExecutionContext, Inference
from .locks import alone
from .program import Program, shared_scratch

T = TypeVar("T")


class Lane:
    """The memory of one run at a time.

    Attributes:
        turn: the lock of that run
        busy: whether there is a run; it only serves to choose a lane, since it may be
            wrong after a Ctrl-C
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self.turn = threading.RLock()
        self.busy = False
        self._programs = programs
        self._frames: Dict[Program, Inference] = {}
        self._scratch: Optional[ExecutionContext] = None

    @property
    def scratch(self) -> ExecutionContext:
        """The arena and its threads."""
        if self._scratch is None:
            self._scratch = shared_scratch(self._programs)
        return self._scratch

    def begin(self, program: Program) -> Inference:
        """Return the tensors for a run of a program, which `end` gives back.

        The tensors of a run that failed are not used again, since they may be bound to
        memory only in part.
        """
        frame = self._frames.pop(program, None)
        return program.frame() if frame is None else frame

    def end(self, program: Program, frame: Inference) -> None:
        """Take the tensors of a successful run back."""
        self._frames[program] = frame


class Lanes:
    """The lanes of a session, as many as the cores can run; further runs wait.

    The programs of a lane run one after the other, on the same threads.  The memory of
    the first lane is made at once.

    Attributes:
        last: the tensors of the last run
    """

    def __init__(self, programs: Sequence[Program], threads: int) -> None:
        self._programs = programs
        self._most = max(2, (os.cpu_count() or 1) // threads)
        self._closed = False
        self._begin()
        first = self._lanes[0]
        for program in programs:
            self.last = first.begin(program)
            first.end(program, self.last)
        assert first.scratch is not None, "it is made here, where an error is expected"

    def _begin(self) -> None:
        self._lanes: List[Lane] = [Lane(self._programs) for _ in range(self._most)]
        self._next = itertools.count()

    def run(self, call: Callable[[Lane], T]) -> T:
        """Call a function with a lane that no other run uses; return its result.

        Raises:
            InputError: the session is closed
        """
        lane = self._lane()
        return alone(lane.turn, lambda: self._run(lane, call))

    def _run(self, lane: Lane, call: Callable[[Lane], T]) -> T:
        # The session may have been closed while the run waited.
        if self._closed:
            raise closed()
        lane.busy = True
        try:
            return call(lane)
        finally:
            lane.busy = False

    def _lane(self) -> Lane:
        """Return a free lane, or otherwise one to wait for."""
        lanes = self._lanes
        if self._closed:
            raise closed()
        # The first free lane was probably used last, so that its memory is in the cache.
        for lane in lanes:
            if not lane.busy:
                return lane
        return lanes[next(self._next) % len(lanes)]

    def close(self) -> None:
        """End the threads of each lane, now or at the end of its run."""
        self._closed = True
        self._lanes = []

    def forked(self) -> None:
        """Replace the lanes in the child of a fork, where their threads do not exist."""
        if not self._closed:
            self._begin()


def closed() -> InputError:
    """Return the error for using a closed session."""
    return InputError("this session is closed", hint="make a new Session")
