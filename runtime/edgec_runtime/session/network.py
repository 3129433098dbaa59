"""A network of a session: its code, and the state that it keeps from run to run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping

from numpy.typing import NDArray

from ..model.inputs import check_inputs
from .lanes import Lane, Lanes
from .meters import Meter
from .program import Program
from .state import StateStore

Array = NDArray[Any]


@dataclass(frozen=True)
class SegmentTime:
    """One segment of one run.  backend: "c", "interpreter" or "delegate"."""

    name: str
    place: str
    backend: str
    ns: int


class LoadedNetwork:
    """A network of a session, which runs in the session's lanes.

    Attributes:
        program: its code
        kept: its state
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kept = StateStore(program.bundle)

    def run(
        self,
        lanes: Lanes,
        arrays: Mapping[str, Array],
        ran: Callable[[SegmentTime], None],
        copy: bool,
    ) -> Dict[str, Array]:
        """Run all segments; return copies of the outputs, by name.

        Args:
            lanes: have the memory of its runs
            arrays: the inputs by name, checked
            ran: is told of each segment
            copy: whether the inputs are copied, since their owner may change them
        """

        def run(lane: Lane) -> Dict[str, Array]:
            frame = lane.begin(self.program)
            # `Session.tensor` reads it, also of a run that fails.
            lanes.last = frame
            try:
                # The Edge TPU may have been lost, or have come back, since the last run.
                self.program.begin(frame)

                # Memory of the frame's own: the caller gets copies.
                frame.renew(keep=True)
                for name in self.program.manifest.inputs:
                    frame.put(name, arrays[name], copy)
                self.kept.begin(frame, arrays)
                for s in self.program.manifest.segments:
                    start = time.perf_counter_ns()

                    # A lost Edge TPU is not an error: the segment then runs as C.
                    backend = self.program.run(s, frame, lane.scratch)
                    ns = time.perf_counter_ns() - start
                    ran(SegmentTime(s.name, s.place, backend, ns))

                # A run that failed leaves the state as it was.
                self.kept.end(frame)
                results = frame.take(copy=True)
            except BaseException:
                # The Edge TPU's process has a part of what is forgotten here.
                frame.let_go()
                raise
            lane.end(self.program, frame)
            return results

        return self.kept.in_turn(lambda: lanes.run(run))

    def infer(
        self, lanes: Lanes, inputs: Mapping[str, Array], meter: Meter
    ) -> Dict[str, Array]:
        """Return the outputs for the inputs of a frame; meter: counts the segments.

        Raises InputError where an input is missing that is no image.
        """
        arrays = check_inputs(self.program.manifest, inputs)
        return self.run(lanes, arrays, lambda t: meter.ran_on(t.backend), copy=False)

    def forked(self) -> None:
        """Give up the parent's threads and Edge TPU in the child of a fork."""
        self.kept.forked()
        self.program.forked()
