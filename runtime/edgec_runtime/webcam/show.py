"""A source through a bundle: prepared, computed, made a result and a picture, each on a
thread of its own.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..errors import InputError, did_you_mean
from ..session.locked import locked
from ..session.meters import StreamFigures
from ..session.session import Session
from ..session.stream import Shot, Stream
from ..session.vision import Vision
from ..vision.camera import CameraFrame
from ..vision.smoothing import Smoother
from ..vision.tasks.base import Result
from .effects import OVERLAY, Painter, effect, effects_for, wants_value
from .sources import Source

Array = NDArray[Any]

_TRIED = (48, 64)
"""Height and width of the frame that tests a bundle."""


@dataclass(frozen=True)
class ShownFrame:
    """One frame of the show.

    Attributes:
        number: counted from 1
        before: the frame, uint8 [H, W, 3]
        after: the picture with the effect, uint8 [H, W, 3]
        result: the decoded outputs
    """

    number: int
    before: Array
    after: Array
    result: Result


class Choice(NamedTuple):
    """The subject of a show: a bundle's name, the effect, and the bundle's task."""

    bundle: str
    effect: str
    task: str


class Show:
    """Frames of a source, changed by one of several bundles; which, and how, may change
    while it runs.

    bundles: by name, paths.  The first is on at the start.  effect: see effects.effect.
    smooth: results over time. loop: a file begins anew at its end.  pace: a file is
    shown at its own rate, not as fast as it can be.
    """

    def __init__(
        self,
        source: Source,
        bundles: Mapping[str, str],
        effect: str = OVERLAY,
        smooth: bool = True,
        loop: bool = False,
        pace: bool = False,
        tpu: str = "auto",
    ) -> None:
        self.source = source
        self.bundles = dict(bundles)
        self.smooth = smooth
        self.tpu = tpu
        self._pace = pace and not source.live
        self._loop = loop and not source.live
        self._lock, self._changed = locked()
        self._picture: Optional[ShownFrame] = None
        self._stream: Optional[Stream] = None
        self._program: Optional[_Program] = None
        self._stopped = False
        self._count = 0
        self._frames = _Held(self._source_frames())
        self._given = effect
        self._switching = threading.Lock()
        # what cannot be shown is refused at the start
        self.choice = self._tried_out(next(iter(self.bundles)), effect)

    def __iter__(self) -> Iterator[ShownFrame]:
        """All pictures until the source ends, or `stop`."""
        while not self._stopped:
            # A switch ends the stream of the old bundle, and the source goes on.
            choice = self.choice
            program = _Program(
                self.bundles[choice.bundle], choice.effect, self.smooth, self.tpu
            )
            with program, program.stream(self._frames, self.source.live) as stream:
                self._stream = stream
                self._program = program
                for shot in stream:
                    yield self._shown(shot)
                    if self._stopped or choice != self.choice:
                        break
                else:
                    break
        self.stop()

    def _shown(self, shot: Shot) -> ShownFrame:
        self._count += 1

        result, after = shot.value
        with self._lock:
            self._picture = ShownFrame(self._count, shot.source.rgb(), after, result)
            self._changed.notify_all()
            return self._picture

    def _source_frames(self) -> Iterator[CameraFrame]:
        """Yield the frames of a file again and again, at its pace if wanted."""
        due = time.monotonic()
        while not self._stopped:
            for frame in self.source.frames():
                if self._pace:
                    # After a pause it is at most a second late, and does not race to catch up.
                    due = max(due + 1 / self.source.fps, time.monotonic() - 1)
                    time.sleep(max(0.0, due - time.monotonic()))
                yield frame
                if self._stopped:
                    return
            if not self._loop:
                return

    def newer(self, seen: int, timeout: float) -> Optional[ShownFrame]:
        """The last picture, once its number is another one than `seen`; None if there
        is none in time.
        """
        with self._lock:
            there = self._changed.wait_for(
                lambda: self._stopped or self._number() != seen, timeout
            )
            return self._picture if there and self._number() != seen else None

    def _number(self) -> int:
        return self._picture.number if self._picture is not None else 0

    def effects(self, task: str) -> List[str]:
        """Return the effects for a task.

        One that wants a picture is among them with the one that was given at the start.
        """
        # A page names no files, so it can offer no picture but the one from the start.
        given = self._given.partition("=")[0]
        found: List[str] = []
        for name in effects_for(task):
            if not wants_value(name):
                found.append(name)
            elif name == given:
                found.append(self._given)
        return found

    def switch(
        self, bundle: Optional[str] = None, effect: Optional[str] = None
    ) -> None:
        """Another bundle, another effect, from the next frame on; overlay, where a
        bundle cannot be shown as the last.

        Of several at the same time each begins with what the one before it left. Raises
        InputError for what cannot be shown, and for a file: who looks at a page names
        none.
        """
        if bundle is not None and bundle not in self.bundles:
            raise InputError(
                f'no bundle "{bundle}" was given{did_you_mean(bundle, self.bundles)}',
                hint="start it with it",
            )
        if effect is not None and "=" in effect and effect != self._given:
            raise InputError("a page names no files", hint="start it with that effect")
        # Trying out takes a while: the second of two requests must start from the
        # first's choice, or it would undo it.
        with self._switching:
            last = self.choice
            to = bundle or last.bundle
            if effect is None and last.effect.partition("=")[0] not in effects_for(
                self._task_of(to)
            ):
                effect = OVERLAY
            self.choice = self._tried_out(to, effect or last.effect)

    def renew(self) -> None:
        """Take the neutral pose of the effect anew, from the next frames."""
        if self._program is not None:
            self._program.renew()

    def _task_of(self, bundle: str) -> str:
        with Bundle.open(self.bundles[bundle]) as opened:
            task = opened.manifest.task
            return task.kind if task is not None else ""

    def _tried_out(self, bundle: str, how: str) -> Choice:
        """Return the choice of a bundle and an effect after a test of both."""
        with _Program(self.bundles[bundle], how, False, self.tpu) as program:
            return Choice(bundle, how, program.try_out())

    def figures(self) -> Optional[StreamFigures]:
        """Return the figures of the present or the last stream."""
        return self._stream.figures() if self._stream is not None else None

    def found(self) -> Tuple[List[str], Dict[str, Any]]:
        """The last result, as lines and as JSON."""
        picture = self._picture
        if picture is not None:
            return (picture.result.lines(), picture.result.to_json())
        return ([], {})

    def stop(self) -> None:
        """End the show after the present frame."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()


class _Held:
    """An iterator that outlives a stream: it goes on with the next."""

    def __init__(self, frames: Iterator[CameraFrame]) -> None:
        self._frames = frames
        self._lock = threading.Lock()

    def __iter__(self) -> _Held:
        return self

    def __next__(self) -> CameraFrame:
        with self._lock:  # the thread of a stream that was closed may still be reading
            return next(self._frames)


class _Program:
    """An opened bundle with its painter."""

    def __init__(self, path: str, how: str, smooth: bool, tpu: str) -> None:
        # Where one of them fails, the caller gets no object that it could close.
        with ExitStack() as opened:
            self._bundle = opened.enter_context(Bundle.open(path))
            self._vision = Vision(self._bundle)
            self._session = opened.enter_context(Session(self._bundle, tpu=tpu))
            self._paint = effect(how, Painter(self._vision.painting), self._found)
            self._smoother: Optional[Callable[[Result, float], Result]] = (
                Smoother() if smooth else None
            )
            self._opened = opened.pop_all()

    def stream(self, frames: Iterator[CameraFrame], live: bool) -> Stream:
        """Return the stream of frames, each with its result and its picture."""
        before = [("prepare", self._prepare)]
        after: Sequence[Tuple[str, Callable[[Shot], Any]]] = [
            ("result", self._result),
            ("picture", self._draw),
        ]
        return self._session.stream(frames, before=before, after=after, live=live)

    def try_out(self) -> str:
        """The task, after one gray frame.

        Raises InputError where there is none, or one that the effect is not for.
        """
        # Small, since only the shapes and the task matter here, not what it shows.
        gray = CameraFrame.of(np.full((*_TRIED, 3), 128, np.uint8))
        result = self._found(gray.rgb())
        self._paint(gray.rgb(), result)
        task = self._bundle.manifest.task
        assert task is not None, "there was a result"
        return task.kind

    def _found(self, picture: Array) -> Result:
        """Return the result of a picture that is no frame of the stream."""
        outputs = self._session.run(self._vision.prepare(picture))
        return self._vision.result(outputs, (picture.shape[1], picture.shape[0]))

    def renew(self) -> None:
        """Take the neutral pose of the effect anew."""
        self._paint.renew()

    def _prepare(self, shot: Shot) -> None:
        self._vision.prepare(shot.source, shot.inputs)

    def _result(self, shot: Shot) -> Result:
        result = self._vision.result(shot.value, shot.source.size)
        if self._smoother is None:
            return result
        return self._smoother(result, shot.captured)

    def _draw(self, shot: Shot) -> Tuple[Result, Array]:
        picture = self._paint(shot.source.rgb(), shot.value, shot.captured)
        return shot.value, picture

    def close(self) -> None:
        """Close the session and the bundle."""
        self._opened.close()

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
