"""Runs a bundle in this process, of one network or of several: C segments through ctypes,
Edge TPU segments on the stick or on their C twin.
"""

from __future__ import annotations

import os
import warnings
import weakref
from contextlib import ExitStack
from functools import partial
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
    cast,
)

from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..cascade.networks import OpenedNetworks
from ..cascade.runner import FrameRunner, Infer
from ..device_end.bundles import machine_target as machine_target
from ..device_end.printable import printable
from ..errors import InputError
from ..model.inputs import check_inputs, noise_inputs
from ..model.interpreters import InterpreterFactory, load_edgetpu
from ..model.native import Painting
from ..model.timing import Times, time_calls
from ..stick.process import Delegate
from ..stick.stick import StickFacts, StickOfModel
from ..tensors import TensorInfo
from ..vision.camera import CameraFrame
from ..vision.tasks.base import Result
from .edgetpu import TPU_MODES as TPU_MODES
from .edgetpu import EdgeTpuOptions, open_stick
from .lanes import Lanes, closed
from .locks import finish
from .meters import StageFigures
from .model_stages import CascadeStages, ModelStages
from .network import LoadedNetwork
from .network import SegmentTime as SegmentTime
from .program import Program
from .stream import Shot, Stage, Stream, StreamPipeline, StreamWork
from .vision import Vision

Array = NDArray[Any]


class Session:
    """Runs the networks of a bundle: the only one on tensors (`run`), and each bundle with
    a task on frames (`result`).

    Any thread may run it, several at a time: what is loaded is shared, each run has
    tensors of its own; those who exceed the machine's cores wait, and so does who finds
    a run of a model with state (manifest.state) on its way: a run goes on where the
    last one left it, until `reset`.  So it is with the objects of a cascade, which are
    followed from frame to frame: the frames of a session are those of one camera.  All
    its networks share one set of threads, and the process of the Edge TPU.  The child
    of a fork may use it, without the Edge TPU. Raises BundleError, InputError or
    DeviceError.

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
        self.tpu = tpu
        self.threads = threads
        self._streams: "weakref.WeakSet[StreamPipeline]" = weakref.WeakSet()
        self._lanes: Optional[Lanes] = None
        self._sticks: Tuple[StickOfModel, ...] = ()
        self._networks: Dict[str, LoadedNetwork] = {}
        self._made_runner: Optional[FrameRunner] = None
        bundles = ExitStack()
        try:
            if isinstance(bundle, Bundle):
                self.bundle = bundle
            else:
                self.bundle = bundles.enter_context(Bundle.open(bundle))
            self.manifest = self.bundle.manifest
            self._opened = bundles.enter_context(OpenedNetworks(self.bundle))
            self._load(options)
        except BaseException:
            _free(self._streams, self._lanes, self._sticks, bundles)
            raise
        self._end = weakref.finalize(
            self, _free, self._streams, self._lanes, self._sticks, bundles
        )
        _SESSIONS.add(self)

    def _load(self, options: EdgeTpuOptions) -> None:
        """Load the networks, which share the lanes and the Edge TPU."""
        opened = self._opened.bundles
        # An error before anything is loaded.
        for inner in opened.values():
            inner.manifest.check_threads(self.threads, str(inner.path))
        sticks = open_stick([*opened.values()], options, OnceWarned())
        self._sticks = tuple(stick for stick in sticks if stick is not None)
        for (name, inner), stick in zip(opened.items(), sticks):
            program = Program(
                inner, options.tpu, options.interpreter, self.threads, stick
            )
            self._networks[name] = LoadedNetwork(program)
        programs = [network.program for network in self._networks.values()]
        self._lanes = Lanes(programs, self.threads)
        if self.manifest.cascade is not None:
            # Whatever is wrong with one of them is an error now.
            self._runner()

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
        program = self._network().program
        return {s.name: program.backend(s) for s in self.manifest.segments}

    @property
    def edgetpu(self) -> Optional[StickFacts]:
        """How the stick fares; None where the session started without one."""
        self._loaded()
        return self._sticks[0].facts if self._sticks else None

    def run(
        self, inputs: Mapping[str, Any], *, timings: Optional[List[SegmentTime]] = None
    ) -> Dict[str, Array]:
        """One inference of the only network; returns copies of the outputs, by name.

        Args:
            inputs: by name, of exactly the type and shape of `self.inputs`. An image
                input takes a photo as well: uint8 [H,W,3] of any size, red first
                ([H,W,4]: alpha is dropped; [H,W]: grey), which `manifest.preprocess`
                makes into the input. All state may be among them: then it is not what
                the last run left.
            timings: a list that gets one SegmentTime per segment.
        """
        self._check_one()
        arrays = check_inputs(self.manifest, inputs, self._photo)
        network = self._network()
        times: List[SegmentTime] = [] if timings is None else timings
        return network.run(self._loaded(), arrays, times.append, copy=True)

    def result(self, frame: Any) -> Result:
        """Return what is in a frame: of a cascade a CascadeResult, else what the task
        gives.

        Args:
            frame: a CameraFrame, or a photo: uint8 [H, W, 3], [H, W, 4] or [H, W]

        Raises:
            InputError: it is no frame, or the bundle has no task
            DeviceError: a network failed
        """
        return self._runner().run(CameraFrame.of(frame))

    def reset(self) -> None:
        """Let the next run be the first one: with the initial state of a model, and
        without an object of a cascade.
        """
        self._loaded()
        for network in self._networks.values():
            network.kept.reset()
        if self._made_runner is not None:
            self._made_runner.reset()

    @property
    def vision(self) -> Vision:
        """Makes inputs of a camera's frames, and results of outputs, of the only
        network.
        """
        self._check_one()
        return self._opened.vision(self.manifest.name)

    @property
    def painting(self) -> Optional[Painting]:
        """The C for effects of a network that has landmarks; None where none has it."""
        return self._opened.painting

    def figures(self) -> Tuple[StageFigures, ...]:
        """Return the times of each network in results so far, from any thread."""
        return tuple(self._runner().figures())

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
                also the array or photo alone), of a cascade what `result` takes, or
                what the first stage does.
            before: stages that make the model's inputs. The last one returns what `run`
                takes, or writes `shot.inputs` and returns None, which saves a copy.
            after: stages that get the outputs, of a cascade the result, as
                `shot.value`, and what the source gave, as `shot.source`.
            live: the source does not wait, like a camera: always the newest frame is
                taken, and older ones are dropped and counted. Else every frame is kept,
                and the source is read when there is room.
        """
        self._loaded()
        stages: StreamWork
        if self.manifest.cascade is not None:
            # The crops of a frame follow from the frame before.
            stages = CascadeStages(self._runner(), self._sticks)
        else:
            network = self._network()
            in_place = len(before) > 0
            stages = ModelStages(network.program, network.kept, in_place)
        work = StreamPipeline(stages, frames, before, after, live)
        self._streams.add(work)
        return Stream(self, work)

    @property
    def before(self) -> Tuple[Stage, ...]:
        """The stages for `stream` that make what the networks take of frames."""
        return () if self.manifest.cascade is not None else (self.vision.before,)

    def result_of(self, shot: Shot) -> Result:
        """Return what is in the frame of a shot that has left the networks."""
        if self.manifest.cascade is not None:
            return cast(Result, shot.value)
        return self.vision.result(shot.value, CameraFrame.of(shot.source).size)

    def prepare(self, inputs: Mapping[str, Any]) -> Dict[str, Array]:
        """Return the tensors for `run`, with photos prepared, by name.

        Raises:
            InputError: as `run` does
        """
        self._check_one()
        return check_inputs(self.manifest, inputs, self._photo)

    def tensor(self, name: str) -> Array:
        """Return a copy of any tensor at a segment's border after the last run.

        It serves to verify a bundle and to find a fault.
        """
        self._check_one()
        frame = self._loaded().last
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
        self._check_one()
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
        self._lanes = self._made_runner = None
        self._networks = {}

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

    def _photo(self, name: str, photo: Array) -> Array:
        return self.vision.input(name, photo)

    def _check_one(self) -> None:
        """Raise InputError for a cascade, whose networks see frames."""
        hint = "give its `result` a frame"
        self.manifest.check_alone(str(self.bundle.path), hint)

    def _network(self) -> LoadedNetwork:
        """Return the only network; raises InputError for a cascade."""
        self._check_one()
        # Before the lanes, after which another thread's `close` forgets them.
        networks = self._networks
        self._loaded()
        return networks[self.manifest.name]

    def _runner(self) -> FrameRunner:
        """Return the networks as frames go through them.

        Made when it is first used: a model of arrays alone has no result.
        """
        runner = self._made_runner
        networks = self._networks
        lanes = self._loaded()
        if runner is None:
            runner = self._opened.runner(partial(_infer, networks, lanes))
            self._made_runner = runner
        return runner

    def _loaded(self) -> Lanes:
        """Return the memory of runs; raises InputError for a closed session."""
        if self._lanes is None:
            raise closed()
        return self._lanes

    def _forked(self) -> None:
        if self._lanes is None:
            return
        for network in self._networks.values():
            network.forked()
        self._lanes.forked()
        if self._made_runner is not None:
            self._made_runner.forked()


def _infer(networks: Mapping[str, LoadedNetwork], lanes: Lanes, name: str) -> Infer:
    """Return the function that runs a network; it does not keep the session alive."""
    return partial(networks[name].infer, lanes)


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
    sticks: Sequence[StickOfModel],
    bundles: ExitStack,
) -> None:
    # Streams first, since their threads use all the rest.
    for work in list(streams):
        work.stop()
    if lanes is not None:
        lanes.close()
    for stick in sticks:
        # A frame that runs goes on, on the CPU.
        stick.close()
    bundles.close()


_SESSIONS: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forked() -> None:
    for session in list(_SESSIONS):
        session._forked()


os.register_at_fork(after_in_child=_forked)
