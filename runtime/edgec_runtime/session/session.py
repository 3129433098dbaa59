"""Runs the networks of a bundle in this process: C segments through ctypes, Edge TPU
segments on the stick or as their C twins.
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
from ..errors import EdgecWarning, InputError
from ..model.inputs import check_inputs, noise_inputs
from ..model.interpreters import InterpreterFactory
from ..model.native import Painting
from ..model.timing import Times, time_calls
from ..stick.process import Delegate
from ..stick.stick import StickFacts, StickOfModel
from ..tensors import TensorInfo
from ..vision.camera import CameraFrame
from ..vision.tasks.base import Result
from .edgetpu import DRIVERS as DRIVERS
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
    """Runs the networks of a bundle.

    `run` runs the only network on tensors, `result` runs a bundle with a task on a
    frame.

    Several threads may use a session at the same time. They share code and weights, and
    each run has its own tensors; runs beyond the number of cores wait.  Runs of a model
    with state (manifest.state) wait for each other: each continues with the state of the
    last one, until `reset`.  A cascade follows its objects from frame to frame, so that
    all frames have to be from one camera.  The networks share one set of threads and the
    process of the Edge TPU.  The child of a fork may use the session, without the Edge
    TPU.

    Raises BundleError, InputError or DeviceError.

    Args:
        bundle: the .edgec file, or an open Bundle.
        tpu: "auto" uses the stick if there is one and the segment was compiled for it,
            otherwise the segment's C twin; "delegate" insists on the stick;
            "interpreter" runs the .tflite on the reference kernels of LiteRT or
            tflite-runtime; "c" never looks for a stick.
        interpreter: "litert", "tflite-runtime", or a function that makes an interpreter.
            For the stick it has to be a function of a module, since the stick is run by
            another process.
        threads: number of CPU threads for C segments, at most manifest.threads. The
            results do not depend on it.
        driver: "own" drives a stick on USB without libedgetpu and interpreter,
            "libedgetpu" needs both; "auto" takes the own one for a stick on USB and
            libedgetpu for an Edge TPU on PCIe. `edgetpu.driver` says which. Or the
            function of a module that opens the stick, given the interpreter's name.
        timeout: seconds after which a stick that does not answer is given up (at least
            ten times its first timed inference). The segments of a stick that hangs,
            fails or is unplugged run as their C twins until it can be opened again,
            which is tried all the time.
    """

    def __init__(
        self,
        bundle: Union[PathLike, Bundle],
        *,
        tpu: str = "auto",
        interpreter: Union[str, InterpreterFactory, None] = None,
        threads: int = 1,
        driver: Union[str, Delegate] = "auto",
        timeout: float = 1.0,
    ) -> None:
        options = EdgeTpuOptions(tpu, interpreter, driver, timeout)
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
        # Errors come before anything is loaded.
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
            # Any fault of its networks is an error now, not at the first frame.
            self._runner()

    # ---- for callers
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
        """The present backend of each segment: "c", "interpreter" or "delegate"."""
        program = self._network().program
        return {s.name: program.backend(s) for s in self.manifest.segments}

    @property
    def edgetpu(self) -> Optional[StickFacts]:
        """The state of the stick; None if the session started without one."""
        self._loaded()
        return self._sticks[0].facts if self._sticks else None

    def run(
        self, inputs: Mapping[str, Any], *, timings: Optional[List[SegmentTime]] = None
    ) -> Dict[str, Array]:
        """Run the only network once; return copies of the outputs, by name.

        Args:
            inputs: arrays by name, exactly of the types and shapes of `self.inputs`. An
                image input may also be a photo, uint8 [H,W,3] of any size, red first
                ([H,W,4]: alpha is dropped; [H,W]: grey), from which
                `manifest.preprocess` makes the input. They may include all state, which
                then replaces that of the last run.
            timings: a list to which a SegmentTime is added for each segment.

        Raises:
            InputError: a name, type or shape is wrong
            DeviceError: a segment failed
        """
        self._check_one()
        arrays = check_inputs(self.manifest, inputs, self._photo)
        network = self._network()
        times: List[SegmentTime] = [] if timings is None else timings
        return network.run(self._loaded(), arrays, times.append, copy=True)

    def result(self, frame: Any) -> Result:
        """Return the result for a frame: a CascadeResult, or the result of the task.

        Args:
            frame: a CameraFrame, or a photo: uint8 [H, W, 3], [H, W, 4] or [H, W]

        Raises:
            InputError: it is not a frame, or the bundle has no task
            DeviceError: a network failed
        """
        return self._runner().run(CameraFrame.of(frame))

    def reset(self) -> None:
        """Return to the initial state of a model, and forget the objects of a cascade."""
        self._loaded()
        for network in self._networks.values():
            network.state.reset()
        if self._made_runner is not None:
            self._made_runner.reset()

    @property
    def vision(self) -> Vision:
        """The pre- and post-processing of the only network."""
        self._check_one()
        return self._opened.vision(self.manifest.name)

    @property
    def painting(self) -> Optional[Painting]:
        """The C for effects, which a network of landmarks has; None if none has it."""
        return self._opened.painting

    def figures(self) -> Tuple[StageFigures, ...]:
        """Return the times of each network in `result` so far, in any thread."""
        return tuple(self._runner().figures())

    def stream(
        self,
        frames: Iterable[Any],
        *,
        before: Sequence[Stage] = (),
        after: Sequence[Stage] = (),
        live: bool = False,
    ) -> Stream:
        """Run many frames in order and overlapped: the next one is prepared meanwhile.

            after = [("draw", draw)]
            with Session("net.edgec") as session:
                with session.stream(camera(), after=after, live=True) as stream:
                    for shot in stream:
                        show(shot.value)

        A stage is a name, and a function that takes a Shot and returns its next value;
        each stage has its own thread.  The number of frames in flight is just enough to
        keep the slowest stage busy, so that no frame waits long.

        Args:
            frames: an iterable, which is read on its own thread; its items must not be
                changed afterwards. An item is the argument of `run` (for a model with
                one input also the array or photo alone), for a cascade that of `result`,
                or whatever the first stage takes.
            before: stages that make the model's inputs. The last one returns the
                argument of `run`, or writes `shot.inputs` and returns None, which saves
                a copy.
            after: stages that get the outputs (for a cascade the result) as `shot.value`
                and the item of the source as `shot.source`.
            live: whether the source does not wait, like a camera: then always the newest
                frame is taken, and older ones are dropped and counted. Otherwise no
                frame is dropped, and the source is read when the stages are ready.
        """
        self._loaded()
        stages: StreamWork
        if self.manifest.cascade is not None:
            # The crops of a frame depend on the results of the frame before.
            stages = CascadeStages(self._runner(), self._sticks)
        else:
            network = self._network()
            in_place = len(before) > 0
            stages = ModelStages(network.program, network.state, in_place)
        work = StreamPipeline(stages, frames, before, after, live)
        self._streams.add(work)
        return Stream(self, work)

    @property
    def before(self) -> Tuple[Stage, ...]:
        """The stages for `stream` that make the networks' inputs of frames."""
        return () if self.manifest.cascade is not None else (self.vision.before,)

    def result_of(self, shot: Shot) -> Result:
        """Return the result for the frame of a shot after the networks."""
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
        """Return a copy of a tensor at a segment's border, as the last run left it.

        It is for the verification of a bundle and the search for a fault.

        Raises InputError for a tensor that is inside a segment, or was not computed.
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
        """Measure the time of inferences, see timing.time_calls.

        Photos are prepared once, before the measurement.  All runs have the same state.

        Args:
            inputs: as for `run`; None for reproducible noise
            runs: number of inferences
            seconds: limit of the total time; None for none
            warmup: seconds of inferences before those that count

        Returns:
            the times; the parts are nanoseconds of the segments
        """
        self._check_one()
        arrays = noise_inputs(self.manifest) if inputs is None else self.prepare(inputs)

        def call() -> List[int]:
            self.reset()
            times: List[SegmentTime] = []
            self.run(arrays, timings=times)
            return [t.ns for t in times]

        return time_calls(call, runs, seconds, warmup)

    def close(self) -> None:
        """End the streams, and free the memory and the bundle if the session opened it.

        It may be called twice, from any thread.  It does not wait for runs in other
        threads, which end regularly.
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
        """Raise InputError for a cascade, which only takes frames."""
        hint = "give its `result` a frame"
        self.manifest.check_alone(str(self.bundle.path), hint)

    def _network(self) -> LoadedNetwork:
        """Return the only network; raises InputError for a cascade."""
        self._check_one()
        # They are read before the lanes, since `close` in another thread resets these
        # first.
        networks = self._networks
        self._loaded()
        return networks[self.manifest.name]

    def _runner(self) -> FrameRunner:
        """Return the runner of frames.

        It is made at its first use, since a model without images has no results.
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
    """Issues a warning the first time that it is called."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self, text: str) -> None:
        """Give the warning."""
        if not self._done:
            self._done = True
            # The text may come from drivers and from names in files.
            warnings.warn(printable(text), EdgecWarning, stacklevel=2)


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
        # A frame that is running continues on the CPU.
        stick.close()
    bundles.close()


_SESSIONS: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forked() -> None:
    for session in list(_SESSIONS):
        session._forked()


os.register_at_fork(after_in_child=_forked)
