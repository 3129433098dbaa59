"""Runs a cascade in this process: a Session for each network."""

from __future__ import annotations

import threading
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
)

from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..errors import InputError
from ..model.interpreters import InterpreterFactory, load_edgetpu
from ..session.meters import Meter, StageFigures
from ..session.session import SegmentTime, Session
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
    those of one camera. Any thread may run it; runs wait for each other.

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
        self._turn = threading.Lock()
        self._streams: "weakref.WeakSet[StreamPipeline]" = weakref.WeakSet()
        with ExitStack() as opened:
            if isinstance(bundle, Bundle):
                self.bundle = bundle
            else:
                self.bundle = opened.enter_context(Bundle.open(bundle))
            networks = opened.enter_context(OpenedCascade(self.bundle))
            self.cascade = networks.cascade
            self._sessions: Dict[str, Session] = {}
            for name, inner in networks.bundles.items():
                session = Session(
                    inner,
                    tpu=tpu,
                    interpreter=interpreter,
                    threads=threads,
                    delegate=delegate,
                    timeout=timeout,
                )
                self._sessions[name] = opened.enter_context(session)
            self._networks = networks.networks(self._infer)
            self._opened = opened.pop_all()
        self._runner = CascadeRunner(self.cascade, self._networks)

    def run(self, frame: Any) -> CascadeResult:
        """Return the objects of the next frame.

        Args:
            frame: a CameraFrame, or a photo: uint8 [H, W, 3], [H, W, 4] or [H, W]

        Raises:
            InputError: the frame has no pixels
            DeviceError: a network failed
        """
        given = frame if isinstance(frame, CameraFrame) else CameraFrame.of(frame)
        if 0 in given.size:
            raise InputError("the frame is empty", hint="give one with pixels")
        with self._turn:
            return self._runner.run(given)

    def reset(self) -> None:
        """Forget all objects: the next frame is the first one."""
        with self._turn:
            self._runner.reset()

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
        facts = [session.edgetpu for session in self._sessions.values()]
        return next((f for f in facts if f is not None), None)

    def figures(self) -> Tuple[StageFigures, ...]:
        """Return the times of each network so far, from any thread."""
        return tuple(network.meter.figures(0) for network in self._networks)

    def close(self) -> None:
        """Free what the session has, and the bundle if the session opened it.

        May be called twice. Ends its streams.
        """
        # Streams first, since their threads use all the rest.
        for work in list(self._streams):
            work.stop()
        self._opened.close()

    def __enter__(self) -> CascadeSession:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _infer(self, name: str) -> Infer:
        return partial(_run, self._sessions[name])


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


def _run(
    session: Session, inputs: Mapping[str, Array], meter: Meter
) -> Dict[str, Array]:
    """Return a network's outputs, and count where its segments ran."""
    times: List[SegmentTime] = []
    outputs = session.run(inputs, timings=times)
    for segment in times:
        meter.ran_on(segment.backend)
    return outputs
