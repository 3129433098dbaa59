"""Runs a bundle in this process: C segments through ctypes, Edge TPU segments on the
stick or on their C twin.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
)

from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..device_end.bundles import machine_target as machine_target
from ..device_end.printable import printable
from ..errors import InputError
from ..model.inference import ExecutionContext, Inference
from ..model.inputs import check_inputs, noise_inputs
from ..model.interpreters import InterpreterFactory, load_edgetpu
from ..model.timing import Times, time_calls
from ..stick.process import Delegate
from ..stick.stick import StickFacts
from ..tensors import TensorInfo
from .edgetpu import TPU_MODES as TPU_MODES
from .edgetpu import EdgeTpuOptions, open_stick
from .lanes import Lane, Lanes, closed
from .locked import finish
from .model_stages import ModelStages
from .program import Program
from .state import StateStore
from .stream import Stage, Stream, StreamPipeline
from .vision import Vision

Array = NDArray[Any]


@dataclass(frozen=True)
class SegmentTime:
    """One segment of one run.  backend: "c", "interpreter" or "delegate"."""

    name: str
    place: str
    backend: str
    ns: int


class Session:
    """Runs the bundle's segments in order.

    Any thread may run it, several at a time: what is loaded is shared, each run has
    tensors of its own; those who exceed the machine's cores wait, and so does who finds
    a run of a model with state (manifest.state) on its way: a run goes on where the
    last one left it, until `reset`.  The child of a fork may use it, without the Edge
    TPU. Raises BundleError, InputError or DeviceError.

    Args:
        bundle: the .edgec file, or an opened one.
        tpu: "auto" uses the stick when there is one and the segment was compiled for
            it, else the segment's C twin; "delegate" insists on the stick;
            "interpreter" runs the .tflite on LiteRT's or tflite-runtime's reference
            kernels; "c" never looks for a stick.
        interpreter: "litert", "tflite-runtime", or a function that makes one. For the
            stick, one of a module: the stick is run by a process of its own.
        threads: of the CPU, for C segments; at most manifest.threads.  The results are
            the same.
        delegate: the function of a module that opens the stick, given the interpreter's
            name.
        timeout: seconds after which a stick that does not answer is given up (ten times
            as long as its first timed inference, where that is more). As with a stick
            that fails or vanishes, its segments run as their C twins until it can be
            opened again, which is tried all the time.
    """

    def __init__(
        self,
        bundle: Union[PathLike, Bundle],
        *,
        tpu: str = "auto",
        interpreter: Union[str, InterpreterFactory, None] = None,
        threads: int = 1,
        delegate: Delegate = load_edgetpu,
        timeout: float = 1.0,
    ) -> None:
        options = EdgeTpuOptions(tpu, interpreter, delegate, timeout)
        options.check()
        self._owns_bundle = not isinstance(bundle, Bundle)
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        self.manifest = self.bundle.manifest
        self.tpu = tpu
        self.threads = threads
        self._streams: "weakref.WeakSet[StreamPipeline]" = weakref.WeakSet()
        self._program: Optional[Program] = None
        self._lanes: Optional[Lanes] = None
        self._vision: Optional[Vision] = None
        try:
            self.manifest.check_alone(
                str(self.bundle.path), hint="run it with a CascadeSession"
            )
            self.manifest.check_threads(threads, str(self.bundle.path))
            (stick,) = open_stick([self.bundle], options, OnceWarned())
            try:
                self._program = Program(self.bundle, tpu, interpreter, threads, stick)
            except BaseException:
                if stick is not None:
                    stick.close()
                raise
            self._lanes = Lanes(self._program, threads)
            self._kept = StateStore(self.bundle)
        except BaseException:
            _free(
                self._streams,
                self._lanes,
                self._program,
                self.bundle if self._owns_bundle else None,
            )
            raise
        owned = self.bundle if self._owns_bundle else None
        self._end = weakref.finalize(
            self, _free, self._streams, self._lanes, self._program, owned
        )
        _SESSIONS.add(self)

    # ---- what callers use
    # ----------------------------------------------------------------------------------

    @property
    def inputs(self) -> Tuple[TensorInfo, ...]:
        """The model's inputs, in order."""
        return self.manifest.input_infos()

    @property
    def outputs(self) -> Tuple[TensorInfo, ...]:
        """The model's outputs, in order."""
        return self.manifest.output_infos()

    @property
    def backends(self) -> Dict[str, str]:
        """Segment name → "c", "interpreter" or "delegate", as they run now."""
        program = self._loaded()[0]
        return {s.name: program.backend(s) for s in self.manifest.segments}

    @property
    def edgetpu(self) -> Optional[StickFacts]:
        """How the stick fares; None where the session started without one."""
        stick = self._loaded()[0].stick
        return stick.facts if stick is not None else None

    def run(
        self, inputs: Mapping[str, Any], *, timings: Optional[List[SegmentTime]] = None
    ) -> Dict[str, Array]:
        """One inference; returns copies of the outputs, by name.

        Args:
            inputs: by name, of exactly the type and shape of `self.inputs`. An image
                input takes a photo as well: uint8 [H,W,3] of any size, red first
                ([H,W,4]: alpha is dropped; [H,W]: grey), which `manifest.preprocess`
                makes into the input. All state may be among them: then it is not what
                the last run left.
            timings: a list that gets one SegmentTime per segment.
        """
        arrays = check_inputs(self.manifest, inputs, self._photo)
        program, lanes = self._loaded()

        def run(lane: Lane) -> Dict[str, Array]:
            frame = lane.begin()
            # `tensor` reads it, also of a run that fails.
            lanes.last = frame
            try:
                results = self._run(program, frame, lane.scratch, arrays, timings)
            except BaseException:
                # The Edge TPU's process has a part of what is forgotten here.
                frame.let_go()
                raise
            lane.end(frame)
            return results

        return self._kept.in_turn(lambda: lanes.run(run))

    def reset(self) -> None:
        """Let the next run be the first one, with the model's initial state."""
        self._loaded()
        self._kept.reset()

    @property
    def vision(self) -> Vision:
        """Makes inputs of a camera's frames, and results of outputs."""
        if self._vision is None:
            self._vision = Vision(self.bundle)
        return self._vision

    def _photo(self, name: str, photo: Array) -> Array:
        return self.vision.input(name, photo)

    def stream(
        self,
        frames: Iterable[Any],
        *,
        before: Sequence[Stage] = (),
        after: Sequence[Stage] = (),
        live: bool = False,
    ) -> Stream:
        """Inferences of many frames, overlapped: while one is in a segment, the next is
        prepared; in order.

            after = [("draw", draw)]
            with Session("net.edgec") as session:
                with session.stream(camera(), after=after, live=True) as stream:
                    for shot in stream:
                        show(shot.value)

        A stage is a name and a function that is given a Shot and returns its next
        value; each has a thread.  Frames in flight are as many as keep the slowest
        stage busy, so no frame waits long.

        Args:
            frames: an iterable, read on a thread of its own; what it gives must not be
                changed afterwards. Items are what `run` takes (for a model of one input
                also the array or photo alone), or the first stage does.
            before: stages that make the model's inputs. The last one returns what `run`
                takes, or writes `shot.inputs` and returns None, which saves a copy.
            after: stages that get the outputs, as `shot.value`, and what the source
                gave, as `shot.source`.
            live: the source does not wait, like a camera: always the newest frame is
                taken, and older ones are dropped and counted. Else every frame is kept,
                and the source is read when there is room.
        """
        program = self._loaded()[0]
        model = ModelStages(program, self._kept, in_place=len(before) > 0)
        work = StreamPipeline(model, frames, before, after, live)
        self._streams.add(work)
        return Stream(self, work)

    def prepare(self, inputs: Mapping[str, Any]) -> Dict[str, Array]:
        """Return the tensors for `run`, with photos prepared, by name.

        Raises:
            InputError: as `run` does
        """
        return check_inputs(self.manifest, inputs, self._photo)

    def tensor(self, name: str) -> Array:
        """Return a copy of any tensor at a segment's border after the last run.

        It serves to verify a bundle and to find a fault.
        """
        frame = self._loaded()[1].last
        if name not in self.manifest.tensors:
            raise InputError(
                f'no tensor "{name}" crosses a segment border',
                hint="see manifest.tensors",
            )
        if name not in frame.arrays:
            raise InputError(
                f'there was no run that made "{name}"', hint="run the session first"
            )
        return frame.arrays[name].copy()

    def time(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        *,
        runs: int = 50,
        seconds: Optional[float] = None,
        warmup: float = 0.0,
    ) -> Times:
        """Times inferences, see timing.time_calls; parts are ns by segment.  inputs:
        default is reproducible noise.

        Photos are prepared once, before the clock runs.  State is the same for each:
        what was given, or the first.
        """
        given = noise_inputs(self.manifest) if inputs is None else self.prepare(inputs)

        def call() -> List[int]:
            self.reset()
            times: List[SegmentTime] = []
            self.run(given, timings=times)
            return [t.ns for t in times]

        return time_calls(call, runs, seconds, warmup)

    def close(self) -> None:
        """Frees what the session has, and the bundle if the session opened it.

        May be called twice, from any thread.

        Ends its streams.  Does not wait for runs in other threads; they end as they
        would.
        """
        finish(self._end)
        self._program = self._lanes = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    # ---- within
    # ----------------------------------------------------------------------------------

    def _run(
        self,
        program: Program,
        frame: Inference,
        scratch: ExecutionContext,
        arrays: Mapping[str, Array],
        timings: Optional[List[SegmentTime]],
    ) -> Dict[str, Array]:
        program.begin(frame)

        # Memory of the frame's own: the caller gets copies.
        frame.renew(keep=True)
        for name in self.manifest.inputs:
            frame.put(name, arrays[name], copy=True)
        self._kept.begin(frame, arrays)
        for s in self.manifest.segments:
            start = time.perf_counter_ns()

            # A lost Edge TPU is not an error: the segment then runs as C.
            backend = program.run(s, frame, scratch)
            if timings is not None:
                timings.append(
                    SegmentTime(
                        s.name, s.place, backend, time.perf_counter_ns() - start
                    )
                )

        # A run that failed leaves the state as it was.
        self._kept.end(frame)
        return frame.take(copy=True)

    def _loaded(self) -> Tuple[Program, Lanes]:
        program = self._program
        lanes = self._lanes
        if program is None or lanes is None:
            raise closed()
        return program, lanes

    def _forked(self) -> None:
        if self._program is not None and self._lanes is not None:
            self._kept.forked()
            self._program.forked()
            self._lanes.forked()


class OnceWarned:
    """A warning that is given once."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self, text: str) -> None:
        """Give the warning."""
        if not self._done:
            self._done = True
            # drivers and names in files said it
            warnings.warn(printable(text), RuntimeWarning, stacklevel=2)


def _free(
    streams: Iterable[StreamPipeline],
    lanes: Optional[Lanes],
    program: Optional[Program],
    bundle: Optional[Bundle],
) -> None:
    # Streams first, since their threads use all the rest.
    for work in list(streams):
        work.stop()
    if lanes is not None:
        lanes.close()
    if program is not None and program.stick is not None:
        # A frame that runs goes on, on the CPU.
        program.stick.close()
    if bundle is not None:
        bundle.close()


_SESSIONS: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forked() -> None:
    for session in list(_SESSIONS):
        session._forked()


os.register_at_fork(after_in_child=_forked)
