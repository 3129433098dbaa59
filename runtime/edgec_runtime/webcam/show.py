"""Shows the frames of a source with the results or effects of a bundle.

Each stage has its own thread: preparing a frame, inference, the result, and the picture.
"""

from __future__ import annotations

import threading
import time
from types import MappingProxyType
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..errors import InputError, did_you_mean
from ..session.locks import locked
from ..session.meters import StreamFigures
from ..session.stream import Shot, Stream
from ..vision.camera import CameraFrame
from .effects import EFFECTS, OVERLAY, Uploads, effects_for, wants_value
from .programs import DrawnFrame, ProgramOptions, ShowProgram, kind_of, program_of
from .programs import ShownFrame as ShownFrame
from .sources import Source

Array = NDArray[Any]


class Choice(NamedTuple):
    """The bundle and the effect of a show.

    Attributes:
        bundle: the bundle's name
        effect: the effect (see effects.effect)
        task: the bundle's task
        uploads: pictures in memory that the effect may name; they are replaced together
            with the effect, so that a program always has both
    """

    bundle: str
    effect: str
    task: str
    uploads: Uploads = MappingProxyType({})


class Playback(NamedTuple):
    """How a file is shown.

    Attributes:
        loop: whether it begins anew at its end
        pace: whether it is shown at its own rate, not as fast as possible
    """

    loop: bool = False
    pace: bool = False


ONCE = Playback()
"""Each frame is shown once, as fast as possible."""
WATCHED = Playback(loop=True, pace=True)
"""The file is shown for a viewer."""


class Show:
    """Frames of a source with the effect of a bundle, both of which can be switched.

    Args:
        source: the source
        bundles: paths of bundles by their names; it starts with the first
        effect: the effect at the start (see effects.effect)
        smooth: whether results are smoothed over time
        playback: how a file is shown
        tpu: as for a Session

    Raises:
        EdgecError: the first bundle cannot be shown with the effect
    """

    def __init__(
        self,
        source: Source,
        bundles: Mapping[str, str],
        effect: str = OVERLAY,
        smooth: bool = True,
        playback: Playback = ONCE,
        tpu: str = "auto",
    ) -> None:
        self.source = source
        self.bundles = dict(bundles)
        self.smooth = smooth
        self._tpu = tpu
        self._pace = playback.pace and not source.live
        self._loop = playback.loop and not source.live
        self._lock, self._changed = locked()
        self._picture: Optional[ShownFrame] = None
        self._stream: Optional[Stream] = None
        self._stopped = False
        self._count = 0
        self._frames = _SharedFrames(self._source_frames())
        self._first_effect = effect
        self._program: Optional[ShowProgram] = None
        self._upload_count = 0
        self._switching = threading.Lock()
        # An impossible choice is refused now, not at the first frame.
        self.choice = self._tried_out(Choice(next(iter(self.bundles)), effect, ""))

    def __iter__(self) -> Iterator[ShownFrame]:
        """Yield all pictures until the source ends, or until `stop`."""
        while not self._stopped:
            # A switch ends the stream of the old bundle, and the source goes on.
            choice = self.choice
            program = self._opened(choice, self.smooth)
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

        drawn: DrawnFrame = shot.value
        shown = ShownFrame(
            number=self._count,
            before=drawn.before,
            after=drawn.after,
            result=drawn.result,
            at=drawn.at,
        )
        with self._lock:
            self._picture = shown
            assert self._program is not None, "the shot is from its stream"
            self._program.shown = shown
            self._changed.notify_all()
            return shown

    def _source_frames(self) -> Iterator[CameraFrame]:
        """Yield the frames of the source; repeat and pace a file if the playback says so."""
        due = time.monotonic()
        while not self._stopped:
            for frame in self.source.frames():
                if self._pace:
                    # After a pause at most a second is caught up on.
                    due = max(due + 1 / self.source.fps, time.monotonic() - 1)
                    time.sleep(max(0.0, due - time.monotonic()))
                yield frame
                if self._stopped:
                    return
            if not self._loop:
                return

    def newer(self, seen: int, timeout: float) -> Optional[ShownFrame]:
        """Return the newest picture; None if there is no other in time.

        Args:
            seen: the number of the picture that the caller has
            timeout: longest wait for another, seconds
        """
        with self._lock:
            in_time = self._changed.wait_for(
                lambda: self._stopped or self._number() != seen, timeout
            )
            return self._picture if in_time and self._number() != seen else None

    def _number(self) -> int:
        return self._picture.number if self._picture is not None else 0

    def effects(self, task: str) -> List[str]:
        """Return the effects that the page offers for a task.

        An effect with a picture is offered with the picture of the start, with each of
        edgec's, and with the last uploaded one.
        """
        names: List[str] = []
        for name in effects_for(task):
            if wants_value(name):
                names += [f"{name}={value}" for value in self._values(name)]
            else:
                names.append(name)
        return names

    def _values(self, name: str) -> List[str]:
        """Return the values that a page may choose for an effect.

        Any other value could be a path, so that a page could read the user's files.
        """
        first, _, value = self._first_effect.partition("=")
        values = EFFECTS[name].built_in()
        if first == name and value not in values:
            values = [value, *values]
        if EFFECTS[name].picture:
            values += self.choice.uploads
        return values

    def takes_pictures(self) -> bool:
        """Return whether an effect for the present bundle needs a picture."""
        return bool(self._picture_effects(self.choice.task))

    def _picture_effects(self, task: str) -> List[str]:
        return [name for name in effects_for(task) if EFFECTS[name].picture]

    def upload(self, picture: Array) -> None:
        """Switch to a picture for the present effect, or for the first that needs one.

        The picture replaces the last uploaded one, and stays in memory only.

        Args:
            picture: uint8 [H, W, 3]

        Raises:
            InputError: no effect needs a picture, or this one does not suit it
        """
        with self._switching:
            last = self.choice
            effects = self._picture_effects(last.task)
            if not effects:
                raise InputError(
                    f"no effect for {last.bundle} wants a picture",
                    hint="switch to a bundle with such an effect",
                )
            name = last.effect.partition("=")[0]
            if name not in effects:
                name = effects[0]
            # A new name makes this a new choice, for which the show opens a program.
            self._upload_count += 1
            upload = f"your picture {self._upload_count}"
            self.choice = self._tried_out(
                last._replace(effect=f"{name}={upload}", uploads={upload: picture})
            )

    def preview(self, name: str) -> Optional[Array]:
        """Return the newest frame with an effect, small, uint8 [H, W, 3].

        None before the first frame, and for an effect that is not offered: a page asks
        for those of the last bundle until it learns of a switch.  Raises InputError for
        an effect that fails.
        """
        choice = self.choice
        if name not in self.effects(choice.task):
            return None
        program = self._program
        # After a switch of the bundle the old program still runs for some frames.
        if program is None or program.path != self.bundles[choice.bundle]:
            return None
        # It does so after an upload, too.
        if program.uploads is not choice.uploads:
            return None
        return program.preview(name)

    @property
    def renewable(self) -> bool:
        """Whether the present effect has a neutral face that can be taken anew."""
        return self._program is not None and self._program.effect.renewable

    def renew(self) -> None:
        """Take the neutral face anew, from the next frames on."""
        if self._program is not None:
            self._program.effect.renew()

    def switch(
        self, bundle: Optional[str] = None, effect: Optional[str] = None
    ) -> None:
        """Switch to another bundle or effect from the next frame on.

        Args:
            bundle: the name of the bundle; None for the present one
            effect: the effect; None for the present one, or overlay if that is not for
                the bundle's task

        Raises:
            InputError: the bundle cannot be shown with the effect, or the effect names
                a file, which a page must not do
        """
        self._check_choice(bundle, effect)
        # The test of a choice takes a while. Of two requests, the second has to start
        # from the first's choice, or it would undo that.
        with self._switching:
            last = self.choice
            bundle = bundle or last.bundle
            if effect is None and last.effect.partition("=")[0] not in effects_for(
                self._task_of(bundle)
            ):
                effect = OVERLAY
            self.choice = self._tried_out(
                last._replace(bundle=bundle, effect=effect or last.effect)
            )

    def _check_choice(self, bundle: Optional[str], effect: Optional[str]) -> None:
        """Raise InputError for an unknown bundle, or an effect with a file."""
        if bundle is not None and bundle not in self.bundles:
            raise InputError(
                f'no bundle "{bundle}" was given{did_you_mean(bundle, self.bundles)}',
                hint="start it with it",
            )
        name, _, value = (effect or "").partition("=")
        if value and (name not in EFFECTS or value not in self._values(name)):
            raise InputError("a page names no files", hint="start it with that effect")

    def _task_of(self, bundle: str) -> str:
        with Bundle.open(self.bundles[bundle]) as opened:
            return kind_of(opened)

    def _tried_out(self, choice: Choice) -> Choice:
        """Return a choice with its bundle's task, after a test of all of it."""
        with self._opened(choice, smooth=False) as program:
            return choice._replace(task=program.try_out())

    def _opened(self, choice: Choice, smooth: bool) -> ShowProgram:
        """Return the program of a choice."""
        rate = 0.0 if self.source.live else self.source.fps
        options = ProgramOptions(choice.effect, choice.uploads, smooth, self._tpu, rate)
        return program_of(self.bundles[choice.bundle], options)

    def figures(self) -> Optional[StreamFigures]:
        """Return the figures of the present or the last stream."""
        return self._stream.figures() if self._stream is not None else None

    def found(self) -> Tuple[List[str], Dict[str, Any]]:
        """Return the last result, as lines of text and as JSON."""
        picture = self._picture
        if picture is not None:
            return (picture.result.lines(), picture.result.to_json())
        return ([], {})

    def stop(self) -> None:
        """End the show after the present frame."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()


class _SharedFrames:
    """An iterator of frames that one stream after the other reads on."""

    def __init__(self, frames: Iterator[CameraFrame]) -> None:
        self._frames = frames
        self._lock = threading.Lock()

    def __iter__(self) -> _SharedFrames:
        return self

    def __next__(self) -> CameraFrame:
        with self._lock:  # the thread of a closed stream may still be reading
            return next(self._frames)
