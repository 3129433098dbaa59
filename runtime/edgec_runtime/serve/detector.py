"""One network that detects objects in the pictures of all clients, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Deque, List, NamedTuple, Tuple

from ..bundle.archive import Bundle
from ..errors import DeviceError, InputError
from ..session.locks import locked
from ..session.session import Session
from ..vision.tasks.detection import Detection
from ..vision.tasks.instances import Box, Boxes
from .figures import Figures

MOST_PIXELS = 24_000_000
"""Largest number of pixels of a picture."""
MOST_WAITING_PIXELS = 2 * MOST_PIXELS
"""Largest number of pixels of all pictures that wait, three bytes each."""


class Picture(NamedTuple):
    """A picture that waits.

    Attributes:
        pixels: uint8 [height, width, 3], red first
        answer: gets the boxes
        since: when it arrived, by time.monotonic
    """

    pixels: Any
    answer: "Future[Tuple[Box, ...]]"
    since: float


class DroppedError(DeviceError):
    """A picture is not looked at: newer ones took its place, or the service ends."""


def check_detector(bundle: Bundle) -> None:
    """Raise InputError for a bundle of another task than detection."""
    task = bundle.manifest.task
    if not isinstance(task, Detection):
        kind = "no task" if task is None else f"the task {task.kind}"
        raise InputError(
            f"the network has {kind}, and a detector needs that of detection",
            at=str(bundle.path),
            hint="compile it again with --task, see docs/tasks.md",
        )


class Detector:
    """Detects objects in pictures, in a thread of its own; a context manager.

    Args:
        session: a session of one network with the task of detection
        places: largest number of pictures that wait; the oldest is dropped for a newer,
            and where they are large, already for fewer

    Attributes:
        figures: counts and times so far
        watchers: are called with the boxes of each picture

    Raises InputError if the network has another task.
    """

    def __init__(self, session: Session, places: int) -> None:
        check_detector(session.bundle)
        if places < 1:
            raise InputError(f"{places} places hold no picture", hint="give 1 or more")
        self.figures = Figures()
        self.watchers: List[Callable[[Tuple[Box, ...]], None]] = []
        self._session = session
        self._places = places
        self._waiting: Deque[Picture] = deque()
        self._lock, self._changed = locked()
        self._ends = False
        self._thread = threading.Thread(
            target=self._work, name="edgec-detector", daemon=True
        )

    @property
    def name(self) -> str:
        """The name of the network."""
        return self._session.manifest.name

    @property
    def waiting(self) -> int:
        """The number of pictures that wait."""
        return len(self._waiting)

    def submit(self, pixels: Any) -> "Future[Tuple[Box, ...]]":
        """Return the boxes of a picture to come, the best first.

        The future raises DroppedError if newer pictures took its place or the service
        ends, or the error of the session.

        Args:
            pixels: uint8 [height, width, 3], red first
        """
        answer: "Future[Tuple[Box, ...]]" = Future()
        picture = Picture(pixels, answer, time.monotonic())
        oldest: List[Picture] = []
        with self._lock:
            self.figures.received += 1
            ends = self._ends
            if not ends:
                self._waiting.append(picture)
                while not self._fits():
                    oldest.append(self._waiting.popleft())
                newer = len(self._waiting)
                self._changed.notify()
        # Outside the lock, since whoever waits for the answer may submit another picture.
        for each in oldest:
            what = f"the picture waited while {newer} newer ones came"
            self._drop(each, what, "send fewer pictures a second")
        if ends:
            self._drop(picture, "the service ends", "send the picture again later")
        return answer

    def _fits(self) -> bool:
        """Return whether the pictures that wait are few and small enough."""
        pixels = sum(waiting.pixels.size // 3 for waiting in self._waiting)
        return len(self._waiting) <= self._places and (
            pixels <= MOST_WAITING_PIXELS or len(self._waiting) == 1
        )

    def _drop(self, picture: Picture, what: str, hint: str) -> None:
        self.figures.dropped += 1
        # A caller may have cancelled it, and a future takes no answer then.
        if picture.answer.set_running_or_notify_cancel():
            picture.answer.set_exception(DroppedError(what, hint=hint))

    def __enter__(self) -> Detector:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End after the pictures that wait."""
        with self._lock:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._ends:
                    self._changed.wait()
                if not self._waiting:
                    return
                picture = self._waiting.popleft()
            self._detect(picture)

    def _detect(self, picture: Picture) -> None:
        if not picture.answer.set_running_or_notify_cancel():
            self.figures.dropped += 1
            return
        start = time.monotonic()
        try:
            result = self._session.result(picture.pixels)
            assert isinstance(result, Boxes)
        except Exception as e:
            # One picture, or a stick that failed, does not end the service.
            self.figures.failed += 1
            picture.answer.set_exception(e)
            return
        end = time.monotonic()
        self.figures.add(end - start, end - picture.since)
        picture.answer.set_result(result.boxes)
        for watcher in self.watchers:
            watcher(result.boxes)
