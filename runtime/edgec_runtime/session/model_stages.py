"""The stages of a stream that run the segments of a model, or the networks of a cascade."""

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
    """The stages of a model in one stream (see StreamWork).

    Args:
        program: the model's code
        state: the model's state
        in_place: whether a stage before may write the inputs in place
    """

    def __init__(self, program: Program, state: StateStore, in_place: bool) -> None:
        self._program = program
        self._state = state
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
        """Return no further times, since each segment is in a stage."""
        return ()

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""
        stick = self._program.stick
        return stick.facts if stick is not None else None

    def stop(self, idle: bool) -> None:
        """Free the tensors, and the threads if no stage uses them."""
        if idle:
            for scratch in self._scratches:
                scratch.stop()
        # Another thread may end the stream at the same time.
        with suppress(IndexError):
            while True:
                self._free.pop().let_go()

    def _take_inputs(self, shot: Shot) -> Any:
        """Check the value of the stages before like Session.run, and prepare photos."""
        assert shot.tensors is not None
        m = self._program.manifest
        value = shot.value
        if value is None and self._in_place:
            return None
        if isinstance(value, Mapping) or len(m.inputs) > 1:
            inputs = value
        else:
            inputs = {m.inputs[0]: value}
        arrays = check_inputs(m, inputs)
        for name in m.inputs:
            shot.tensors.put(name, arrays[name])
        return arrays

    def _model(self, ran_on: RanOn) -> List[Stage]:
        """Return the stages of the segments; consecutive ones in one place are a stage.

        A model with state has a single stage, since each run needs the state of the run
        before.
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
                self._state.begin(frame, shot.value or {})
                for s in group:
                    ran_on(name, self._program.run(s, frame, scratch))
                self._state.end(frame)

            self._state.in_turn(run_all)
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
        """Prepare the stage.

        Args:
            runner: runs the networks
            sticks: the Edge TPU for each network that uses it
        """
        self._runner = runner
        self._sticks = sticks

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the one stage of all networks."""

        def run(shot: Shot) -> Result:
            return self._runner.run(CameraFrame.of(shot.value))

        return [("cascade", run)]

    def admit(self, shot: Shot) -> None:
        """Do nothing: the memory is that of the session's lanes."""

    def figures(self) -> Sequence[StageFigures]:
        """Return the times of the networks, which are parts of the stage."""
        return self._runner.figures()

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""
        return self._sticks[0].facts if self._sticks else None

    def stop(self, idle: bool) -> None:
        """Do nothing: the memory is that of the session."""
