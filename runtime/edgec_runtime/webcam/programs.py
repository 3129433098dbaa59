"""Runs a bundle and an effect for a show: from a frame to its picture."""

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
"""The kind of a cascade's results; others have the name of a task."""
PREVIEW_WIDTH = 168
"""Width of an effect's preview in pixels."""
_STILL_TPU = "c"
"""The value of `tpu` for pictures beside the stream: it has the stick for itself, and the
C twins have the same results.
"""
_TEST_SIZE = (48, 64)
"""Height and width of the frame that tests a bundle."""


@dataclass(frozen=True)
class ShownFrame:
    """One frame of the show.

    Attributes:
        number: counted from 1
        before: the frame, uint8 [H, W, 3]
        after: the picture with the effect, uint8 [H, W, 3]
        result: the decoded outputs
        at: its time in seconds of a monotonic clock
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
    """The options of a program.

    Attributes:
        effect: the text of the effect (effects.effect)
        uploads: pictures in memory that the effect may name
        smooth: whether results are smoothed over time
        tpu: as for a Session
        rate: frames per second of a file; 0 for a camera, whose frames have the time of
            their capture
    """

    effect: str
    uploads: Uploads
    smooth: bool
    tpu: str
    rate: float


class ShowProgram:
    """An open bundle with its effect; a context manager.

    Attributes:
        path: the path of the bundle
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
        self._effect_text = options.effect
        self._rate = options.rate
        self.effect = self._effect(options.effect)

    def stream(self, frames: Iterator[CameraFrame], live: bool) -> Stream:
        """Return the stream of frames; a shot's value is a DrawnFrame."""
        before = self._session.before
        after = [("result", self._result), ("picture", self._draw)]
        return self._session.stream(frames, before=before, after=after, live=live)

    def close(self) -> None:
        """Close the session and the bundle."""
        # This order is necessary, since the session uses the bundle.
        self._session.close()
        self._bundle.close()

    def _still_result(self, picture: Array) -> Result:
        """Return the result of a picture that is not a frame of the stream.

        It has its own session, since that of the stream may track objects or keep a
        state from frame to frame.
        """
        with Session(self._bundle, tpu=_STILL_TPU) as session:
            return session.result(picture)

    def try_out(self) -> str:
        """Run one gray frame; return the kind of the results.

        Raises InputError if there are none, or the effect is not for them.
        """
        # The frame is small, since only the shapes and the task matter.
        gray = np.full((*_TEST_SIZE, 3), 128, np.uint8)
        self.effect(gray, self._still_result(gray))
        return kind_of(self._bundle)

    def preview(self, text: str) -> Optional[Array]:
        """Return the newest frame with another effect, small, uint8 [H, W, 3].

        None before the first frame.

        Args:
            text: the effect (effects.effect)
        """
        if self.shown is None:
            return None
        if text == self._effect_text:
            picture = self.shown.after
        else:
            # An effect with a state has to be the same object for each preview.
            if text not in self._previews:
                self._previews[text] = self._effect(text)
            frame = self.shown
            picture = self._previews[text](frame.before, frame.result, frame.at)
        height, width = picture.shape[:2]
        size = PREVIEW_WIDTH, max(1, round(height * PREVIEW_WIDTH / width))
        return whole(picture, size, "area")

    def _effect(self, text: str) -> Effect:
        return effect(text, self._painter, self._still_result, self.uploads)

    def _result(self, shot: Shot) -> Result:
        result = self._session.result_of(shot)
        # Smoothing twice would make a face lag behind.
        if self._smoother is None or self.effect.smooths:
            return result
        return self._smoother(result, self._time_of(shot))

    def _time_of(self, shot: Shot) -> float:
        """Return the time of a frame in seconds.

        For a file it is the time in the video. It may be read faster than that, and by
        the time of reading, all movement would be so fast that it were smoothed away.
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
    """Open a bundle with an effect.

    Raises BundleError if the file is not a bundle, InputError for an impossible effect.
    """
    bundle = Bundle.open(path)
    try:
        return ShowProgram(bundle, options)
    except BaseException:
        # The caller gets no object that it could close.
        bundle.close()
        raise


def kind_of(bundle: Bundle) -> str:
    """Return the kind of a bundle's results: its task, "cascade", or "" for neither."""
    if bundle.manifest.cascade is not None:
        return CASCADE
    task = bundle.manifest.task
    return task.kind if task is not None else ""
