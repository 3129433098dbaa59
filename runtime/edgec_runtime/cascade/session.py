"""Runs a cascade in this process: a Session for each network."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import (
    Any,
    Dict,
    Iterable,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
)

from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..model.inference import Inference
from ..model.interpreters import InterpreterFactory, load_edgetpu
from ..model.native import Painting
from ..session.edgetpu import EdgeTpuOptions, open_stick
from ..session.lanes import closed
from ..session.locked import alone, finish
from ..session.meters import Meter, StageFigures
from ..session.program import Program, shared_scratch
from ..session.session import OnceWarned
from ..session.stream import RanOn, Shot, Stage, Stream, StreamPipeline
from ..stick.process import Delegate
from ..stick.stick import StickFacts
from ..vision.camera import CameraFrame
from .opened import OpenedCascade
from .result import CascadeResult
from .runner import CascadeRunner, Infer

Array = NDArray[Any]


class CascadeSession:
    """Runs the networks of a cascade on frames, one after the other.

    Objects are followed from frame to frame, until `reset`: the frames of a session are
    those of one camera. Any thread may run it; runs wait for each other. All networks
    share one set of threads, their scratch memory, and the process of the Edge TPU.
    The child of a fork may use it, without the Edge TPU.

    Args:
        bundle: the .edgec file of a cascade, or an opened one
        tpu: as for a Session
        interpreter: as for a Session
        threads: as for a Session
        delegate: as for a Session
        timeout: as for a Session

    Raises BundleError, InputError or DeviceError.
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
        self._turn = threading.RLock()
        self._streams: "weakref.WeakSet[StreamPipeline]" = weakref.WeakSet()
        with ExitStack() as opened:
            if isinstance(bundle, Bundle):
                self.bundle = bundle
            else:
                self.bundle = opened.enter_context(Bundle.open(bundle))
            networks = opened.enter_context(OpenedCascade(self.bundle))
            self.cascade = networks.cascade
            self._running = _Running(networks.bundles, options, threads)
            # Before the bundles: its frames and threads use them.
            opened.callback(self._running.close)
            self._networks = networks.networks(self._running.infer)
            self._opened = opened.pop_all()
        self._runner = CascadeRunner(self.cascade, self._networks)
        # A forgotten session ends its threads and processes, too.
        self._end = weakref.finalize(
            self, _free, self._streams, self._running, self._opened
        )
        _SESSIONS.add(self)

    def run(self, frame: Any) -> CascadeResult:
        """Return the objects of the next frame.

        Args:
            frame: a CameraFrame, or a photo: uint8 [H, W, 3], [H, W, 4] or [H, W]

        Raises:
            InputError: it is no frame
            DeviceError: a network failed
        """
        given = frame if isinstance(frame, CameraFrame) else CameraFrame.of(frame)
        return alone(self._turn, lambda: self._runner.run(given))

    def reset(self) -> None:
        """Forget all objects: the next frame is the first one."""
        alone(self._turn, self._runner.reset)

    def stream(
        self, frames: Iterable[Any], *, after: Sequence[Stage] = (), live: bool = False
    ) -> Stream:
        """Return the results of many frames in order, as Session.stream does.

        The networks are one stage, since the crops of a frame follow from the frame
        before; its parts are in the figures by the names of the networks. A shot's
        value is the CascadeResult.

        Args:
            frames: what `run` takes, read on a thread of its own
            after: stages that get the result as `shot.value`, the frame as
                `shot.source`
            live: whether the newest frame is always taken, and older ones are dropped
        """
        work = StreamPipeline(_Stages(self), frames, (), after, live)
        self._streams.add(work)
        return Stream(self, work)

    @property
    def edgetpu(self) -> Optional[StickFacts]:
        """How the stick fares; None where the session started without one."""
        stick = self._running.stick
        return stick.facts if stick is not None else None

    @property
    def painting(self) -> Optional[Painting]:
        """The C for effects of a network that has landmarks; None where none has it."""
        found = (network.vision.painting for network in self._networks)
        return next((one for one in found if one is not None), None)

    def figures(self) -> Tuple[StageFigures, ...]:
        """Return the times of each network so far, from any thread."""
        return tuple(network.meter.figures(0) for network in self._networks)

    def close(self) -> None:
        """Free what the session has, and the bundle if the session opened it.

        May be called twice. Ends its streams.
        """
        finish(self._end)

    def __enter__(self) -> CascadeSession:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _forked(self) -> None:
        self._turn = threading.RLock()
        self._running.forked()


class _Running:
    """The models of a cascade in this process, for one thread at a time.

    Attributes:
        stick: the Edge TPU, as the first model on it has it; None without one
    """

    def __init__(
        self, bundles: Mapping[str, Bundle], options: EdgeTpuOptions, threads: int
    ) -> None:
        """Load the models.

        Args:
            bundles: the opened bundles by name
            options: how segments for the Edge TPU run
            threads: of the CPU, for C segments
        """
        # An error before anything is loaded.
        for inner in bundles.values():
            inner.manifest.check_threads(threads, str(inner.path))
        self._closed = False
        self._busy = threading.RLock()
        self._programs: Dict[str, Program] = {}
        self._frames: Dict[str, Inference] = {}
        sticks = open_stick([*bundles.values()], options, OnceWarned())
        self.stick = next((one for one in sticks if one is not None), None)
        try:
            for (name, inner), stick in zip(bundles.items(), sticks):
                program = Program(
                    inner, options.tpu, options.interpreter, threads, stick
                )
                self._programs[name] = program
                self._frames[name] = program.frame()
            self._scratch = shared_scratch([*self._programs.values()])
        except BaseException:
            if self.stick is not None:
                self.stick.close()
            raise

    def infer(self, name: str) -> Infer:
        """Return the function that runs a model."""
        return partial(self._infer, name)

    def close(self) -> None:
        """End the threads, and the process of the Edge TPU."""
        self._closed = True
        # First, since it also ends the wait for an Edge TPU that hangs.
        if self.stick is not None:
            self.stick.close()
        # A model that runs in another thread ends before its threads do.
        alone(self._busy, self._scratch.stop)

    def forked(self) -> None:
        """Give up the parent's threads and Edge TPU in the child of a fork."""
        self._busy = threading.RLock()
        for program in self._programs.values():
            program.forked()
        self._scratch = shared_scratch([*self._programs.values()])

    def _infer(
        self, name: str, inputs: Mapping[str, Array], meter: Meter
    ) -> Dict[str, Array]:
        """Return copies of a model's outputs, and count where its segments ran."""
        return alone(self._busy, lambda: self._run(name, inputs, meter))

    def _run(
        self, name: str, inputs: Mapping[str, Array], meter: Meter
    ) -> Dict[str, Array]:
        """Run a model whose turn it is."""
        if self._closed:
            raise closed()
        program = self._programs[name]
        # Half bound where an exception ends this: the next run makes another one then.
        frame = self._frames.pop(name, None) or program.frame()
        # The Edge TPU may have been lost, or have come back, since the last run.
        program.begin(frame)
        frame.renew(keep=True)
        for one, array in inputs.items():
            frame.put(one, array)
        for segment in program.manifest.segments:
            # A lost Edge TPU is not an error: the segment then runs as C.
            meter.ran_on(program.run(segment, frame, self._scratch))
        results = frame.take(copy=True)
        self._frames[name] = frame
        return results


class _Stages:
    """A cascade in one stream (see StreamWork)."""

    def __init__(self, session: CascadeSession) -> None:
        self._session = session

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the one stage of all networks."""

        def run(shot: Shot) -> CascadeResult:
            return self._session.run(shot.source)

        return [("cascade", run)]

    def admit(self, shot: Shot) -> None:
        """Give a shot nothing: the sessions of the networks have memory."""

    def figures(self) -> Sequence[StageFigures]:
        """Return the times of the networks, which are parts of the stage."""
        return self._session.figures()

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""
        return self._session.edgetpu

    def stop(self, idle: bool) -> None:
        """Free nothing: the session goes on."""


def _free(
    streams: Iterable[StreamPipeline], running: _Running, opened: ExitStack
) -> None:
    # Streams first, since their threads use all the rest.
    for work in list(streams):
        work.stop()
    # A stack forgets what it has begun to close, and this may be called again.
    running.close()
    opened.close()


_SESSIONS: "weakref.WeakSet[CascadeSession]" = weakref.WeakSet()


def _forked() -> None:
    for session in list(_SESSIONS):
        session._forked()


os.register_at_fork(after_in_child=_forked)
