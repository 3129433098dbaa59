"""The stages of a stream that run a model, its inputs and its segments, or all networks
of a cascade.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Deque, List, Mapping, Optional, Sequence, Tuple

from ..bundle.manifest import SegmentInfo
from ..cascade.runner import FrameRunner
from ..model.inference import ExecutionContext, Inference
from ..model.inputs import check_inputs
from ..stick.stick import StickFacts, StickOfModel
from ..vision.camera import CameraFrame
from ..vision.tasks.base import Result
from .meters import StageFigures
from .program import Program
from .state import StateStore
from .stream import RanOn, Shot, Stage


class ModelStages:
    """The model of a session in one stream (see StreamWork).

    in_place: whether the stages before write the inputs where they are.
    """

    def __init__(self, program: Program, kept: StateStore, in_place: bool) -> None:
        self._program = program
        self._kept = kept
        self._in_place = in_place
        self._scratches: List[ExecutionContext] = []
        self._free: Deque[Inference] = deque()

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the stage that takes the inputs, and those of the segments."""
        return [("inputs", self._take_inputs), *self._model(ran_on)]

    def admit(self, shot: Shot) -> None:
        """Give a shot the tensors of one inference."""
        shot.tensors = self._free.pop() if self._free else self._program.frame()
        self._program.begin(shot.tensors)
        shot.tensors.renew()

    def figures(self) -> Sequence[StageFigures]:
        """Return nothing: each segment is in a stage."""
        return ()

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""
        stick = self._program.stick
        return stick.facts if stick is not None else None

    def stop(self, idle: bool) -> None:
        """Free the tensors, and the threads where no stage uses them."""
        if idle:
            for scratch in self._scratches:
                scratch.stop()
        # Another thread may end the stream at the same time.
        with suppress(IndexError):
            while True:
                self._free.pop().let_go()

    def _take_inputs(self, shot: Shot) -> Any:
        """Check the result of the stages before, as Session.run does, with photos
        prepared.
        """
        assert shot.tensors is not None
        m = self._program.manifest
        value = shot.value
        if value is None and self._in_place:
            return None
        if isinstance(value, Mapping) or len(m.inputs) > 1:
            given = value
        else:
            given = {m.inputs[0]: value}
        arrays = check_inputs(m, given)
        for name in m.inputs:
            shot.tensors.put(name, arrays[name])
        return arrays

    def _model(self, ran_on: RanOn) -> List[Stage]:
        """Return the stages: neighbouring segments in one place are one.

        A model with state has a single stage, since each run needs the last one's
        state.
        """
        groups: List[List[SegmentInfo]] = []
        for s in self._program.manifest.segments:
            if not groups or (
                groups[-1][0].place != s.place and not self._program.manifest.state
            ):
                groups.append([])
            groups[-1].append(s)
        return [self._segments(tuple(g), g is groups[-1], ran_on) for g in groups]

    def _segments(
        self, group: Tuple[SegmentInfo, ...], last: bool, ran_on: RanOn
    ) -> Stage:
        if len(group) < 4:
            name = "+".join(s.name for s in group)
        else:
            name = f"{group[0].name}…{group[-1].name}"
        scratch = self._program.scratch(group)
        self._scratches.append(scratch)

        def run(shot: Shot) -> Any:
            frame = shot.tensors
            assert frame is not None

            def run_all() -> None:
                self._kept.begin(frame, shot.value or {})
                for s in group:
                    ran_on(name, self._program.run(s, frame, scratch))
                self._kept.end(frame)

            self._kept.in_turn(run_all)
            if not last:
                return shot.value
            outputs = frame.take()
            shot.tensors = None
            self._free.append(frame)
            return outputs

        return name, run


class CascadeStages:
    """The networks of a cascade in one stream (see StreamWork)."""

    def __init__(self, runner: FrameRunner, sticks: Sequence[StickOfModel]) -> None:
        """Hold the networks; sticks: the Edge TPU, as each network on it has it."""
        self._runner = runner
        self._sticks = sticks

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the one stage of all networks."""

        def run(shot: Shot) -> Result:
            return self._runner.run(CameraFrame.of(shot.value))

        return [("cascade", run)]

    def admit(self, shot: Shot) -> None:
        """Give a shot nothing: the lanes of the session have memory."""

    def figures(self) -> Sequence[StageFigures]:
        """Return the times of the networks, which are parts of the stage."""
        return self._runner.figures()

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""
        return self._sticks[0].facts if self._sticks else None

    def stop(self, idle: bool) -> None:
        """Free nothing: the session goes on."""
