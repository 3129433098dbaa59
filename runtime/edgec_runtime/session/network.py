"""A network of a session: its code, and its state from run to run."""

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
    """The time of a segment in one run.

    Attributes:
        name: name of the segment
        place: "cpu" or "edgetpu"
        backend: "c", "interpreter" or "delegate"
        ns: its time in nanoseconds
    """

    name: str
    place: str
    backend: str
    ns: int


class LoadedNetwork:
    """A network of a session, which runs in the session's lanes.

    Attributes:
        program: its code
        state: its state
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.state = StateStore(program.bundle)

    def run(
        self,
        lanes: Lanes,
        arrays: Mapping[str, Array],
        ran: Callable[[SegmentTime], None],
        copy: bool,
    ) -> Dict[str, Array]:
        """Run all segments; return copies of the outputs, by name.

        Args:
            lanes: the memory of runs
            arrays: the checked inputs, by name
            ran: is called with the time of each segment
            copy: whether to copy the inputs, which their owner may change later
        """

        def run(lane: Lane) -> Dict[str, Array]:
            frame = lane.begin(self.program)
            # `Session.tensor` reads this frame, also if the run fails.
            lanes.last = frame
            try:
                # The Edge TPU may have been lost, or have come back, since the last run.
                self.program.begin(frame)

                # The outputs stay in the frame's memory, since the caller gets copies.
                frame.renew(keep=True)
                for name in self.program.manifest.inputs:
                    frame.put(name, arrays[name], copy)
                self.state.begin(frame, arrays)
                for s in self.program.manifest.segments:
                    start = time.perf_counter_ns()

                    # A lost Edge TPU is not an error: the segment then runs as C.
                    backend = self.program.run(s, frame, lane.scratch)
                    ns = time.perf_counter_ns() - start
                    ran(SegmentTime(s.name, s.place, backend, ns))

                # A run that failed leaves the state as it was.
                self.state.end(frame)
                results = frame.take(copy=True)
            except BaseException:
                # The frame is not used again, so its shared memory is returned to the
                # Edge TPU's process.
                frame.let_go()
                raise
            lane.end(self.program, frame)
            return results

        return self.state.in_turn(lambda: lanes.run(run))

    def infer(
        self, lanes: Lanes, inputs: Mapping[str, Array], meter: Meter
    ) -> Dict[str, Array]:
        """Return the outputs for the inputs of a frame, by name.

        Raises InputError if an input that is not an image is missing.

        Args:
            lanes: the memory of runs
            inputs: the inputs, by name
            meter: counts the segments of each backend
        """
        arrays = check_inputs(self.program.manifest, inputs)
        return self.run(lanes, arrays, lambda t: meter.ran_on(t.backend), copy=False)

    def forked(self) -> None:
        """Give up the parent's threads and Edge TPU in the child of a fork."""
        self.state.forked()
        self.program.forked()
