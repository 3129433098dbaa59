"""A bundle and an effect as the show runs them: from a frame to its picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..session.session import Session
from ..session.stream import Shot, Stream
from ..vision.camera import CameraFrame
from ..vision.resample import whole
from ..vision.smoothing import Smoother
from ..vision.tasks.base import Result
from .effects import Effect, Painter, Uploads, effect

Array = NDArray[Any]

CASCADE = "cascade"
"""The kind of a cascade's results, in place of a task."""
PREVIEW_WIDTH = 168
"""Pixels of an effect's preview."""
_STILL_TPU = "c"
"""How pictures run that are no frames: the stick is the stream's, and its C twins have
the same results.
"""
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
        at: its time in seconds, of a clock that only runs forward
    """

    number: int
    before: Array
    after: Array
    result: Result
    at: float


class DrawnFrame(NamedTuple):
    """The last value of a shot.

    Attributes:
        before: the frame, uint8 [H, W, 3]
        after: the picture with the effect, uint8 [H, W, 3]
        result: the decoded outputs
        at: its time, seconds
    """

    before: Array
    after: Array
    result: Result
    at: float


class ProgramOptions(NamedTuple):
    """What a program does besides running its bundle.

    Attributes:
        effect: the text of the effect (effects.effect)
        uploads: pictures of effects that are in memory
        smooth: whether results are smoothed over time
        tpu: as for a Session
        rate: frames a second of a file; 0: a camera's, whose time is their capture's
    """

    effect: str
    uploads: Uploads
    smooth: bool
    tpu: str
    rate: float


class ShowProgram:
    """An opened bundle with its effect; a context manager.

    Attributes:
        path: the bundle's
        effect: its effect
        uploads: pictures in memory that effects may name
        shown: the newest frame; None before the first
    """

    def __init__(self, bundle: Bundle, options: ProgramOptions) -> None:
        self._session = Session(bundle, tpu=options.tpu)
        self.path = str(bundle.path)
        self.shown: Optional[ShownFrame] = None
        self._bundle = bundle
        self._painter = Painter(self._session.painting)
        self.uploads = options.uploads
        self._previews: Dict[str, Effect] = {}
        self._smoother = Smoother() if options.smooth else None
        self._how = options.effect
        self._rate = options.rate
        self.effect = self._effect(options.effect)

    def stream(self, frames: Iterator[CameraFrame], live: bool) -> Stream:
        """Return the stream of frames; a shot's value is a DrawnFrame."""
        before = self._session.before
        after = [("result", self._result), ("picture", self._draw)]
        return self._session.stream(frames, before=before, after=after, live=live)

    def close(self) -> None:
        """Close the session and the bundle."""
        # In the reverse order of opening, since the session uses the bundle.
        self._session.close()
        self._bundle.close()

    def _found(self, picture: Array) -> Result:
        """Return the result of a picture that is no frame of the stream.

        It has a session of its own: the stream's may follow objects, or keep a state,
        from frame to frame.
        """
        with Session(self._bundle, tpu=_STILL_TPU) as session:
            return session.result(picture)

    def try_out(self) -> str:
        """Return the kind of the results, after one gray frame.

        Raises InputError where there is none, or one that the effect is not for.
        """
        # Small, since only the shapes and the task matter here, not what it shows.
        gray = np.full((*_TRIED, 3), 128, np.uint8)
        self.effect(gray, self._found(gray))
        return kind_of(self._bundle)

    def preview(self, how: str) -> Optional[Array]:
        """Return the newest frame with another effect, small, uint8 [H, W, 3]; None
        before the first frame.
        """
        if self.shown is None:
            return None
        if how == self._how:
            picture = self.shown.after
        else:
            picture = self._previewed(how, self.shown)
        height, width = picture.shape[:2]
        size = PREVIEW_WIDTH, max(1, round(height * PREVIEW_WIDTH / width))
        return whole(picture, size, "area")

    def _previewed(self, how: str, shown: ShownFrame) -> Array:
        # An effect with a state needs to be the same one from preview to preview.
        if how not in self._previews:
            self._previews[how] = self._effect(how)
        return self._previews[how](shown.before, shown.result, shown.at)

    def _effect(self, how: str) -> Effect:
        return effect(how, self._painter, self._found, self.uploads)

    def _result(self, shot: Shot) -> Result:
        result = self._session.result_of(shot)
        # Smoothed twice, a face would be late.
        if self._smoother is None or self.effect.smooths:
            return result
        return self._smoother(result, self._time_of(shot))

    def _time_of(self, shot: Shot) -> float:
        """Return the time of a frame in seconds.

        A file that is read as fast as it goes moves no faster for that: in the time of
        its reading everything in it would be smoothed away.
        """
        return shot.index / self._rate if self._rate else shot.captured

    def _draw(self, shot: Shot) -> DrawnFrame:
        before = self._painter.rgb(shot.source)
        at = self._time_of(shot)
        after = self.effect(before, shot.value, at)
        return DrawnFrame(before, after, shot.value, at)

    def __enter__(self) -> ShowProgram:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def program_of(path: str, options: ProgramOptions) -> ShowProgram:
    """Return a bundle, opened with an effect.

    Raises BundleError for what is no bundle, InputError for an impossible effect.
    """
    bundle = Bundle.open(path)
    try:
        return ShowProgram(bundle, options)
    except BaseException:
        # The caller gets no object that it could close.
        bundle.close()
        raise


def kind_of(bundle: Bundle) -> str:
    """Return the kind of a bundle's results: its task, or "cascade"; "" without."""
    if bundle.manifest.cascade is not None:
        return CASCADE
    task = bundle.manifest.task
    return task.kind if task is not None else ""
