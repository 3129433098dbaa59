"""A source through a bundle: prepared, computed, made a result and a picture, each on a
thread of its own.
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
    """The subject of a show: a bundle's name, the effect, the bundle's task, and the
    pictures in memory that effects may name.
    """

    bundle: str
    effect: str
    task: str
    # Beside the effect that names it: a program that is opened meanwhile has both.
    uploads: Uploads = MappingProxyType({})


class Playback(NamedTuple):
    """How a file is shown.

    loop: it begins anew at its end. pace: at its own rate, not as fast as it can be.
    """

    loop: bool = False
    pace: bool = False


ONCE = Playback()
"""Each frame once, as fast as they can be."""
WATCHED = Playback(loop=True, pace=True)
"""As someone watches it."""


class Show:
    """Frames of a source, changed by one of several bundles; which, and how, may change
    while it runs.

    bundles: by name, paths.  The first is on at the start.  effect: see effects.effect.
    smooth: results over time. playback: how a file is shown.
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
        self._frames = _Held(self._source_frames())
        self._given = effect
        self._program: Optional[ShowProgram] = None
        self._upload_count = 0
        self._switching = threading.Lock()
        # what cannot be shown is refused at the start
        self.choice = self._tried_out(Choice(next(iter(self.bundles)), effect, ""))

    def __iter__(self) -> Iterator[ShownFrame]:
        """All pictures until the source ends, or `stop`."""
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
            assert self._program is not None, "its stream gave the shot"
            self._program.shown = shown
            self._changed.notify_all()
            return shown

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

        One with a picture is among them with the picture that was given at the start,
        with edgec's own, and with the last one that was sent.
        """
        offered: List[str] = []
        for name in effects_for(task):
            if wants_value(name):
                offered += [f"{name}={value}" for value in self._values(name)]
            else:
                offered.append(name)
        return offered

    def _values(self, name: str) -> List[str]:
        """Return the values that a page may choose for an effect: no other files."""
        given, _, value = self._given.partition("=")
        values = EFFECTS[name].built_in()
        if given == name and value not in values:
            values = [value, *values]
        if EFFECTS[name].picture:
            values += self.choice.uploads
        return values

    def takes_pictures(self) -> bool:
        """Return whether an effect for the present bundle wants a picture."""
        return bool(self._with_pictures(self.choice.task))

    def _with_pictures(self, task: str) -> List[str]:
        return [name for name in effects_for(task) if EFFECTS[name].picture]

    def upload(self, picture: Array) -> None:
        """Show the present effect with a picture, uint8 [H,W,3]; where it wants none,
        the first effect that does.

        The picture takes the place of the last one, and is in memory only.  Raises
        InputError where no effect wants a picture, or where this one does not suit.
        """
        with self._switching:
            last = self.choice
            wanting = self._with_pictures(last.task)
            if not wanting:
                raise InputError(
                    f"no effect for {last.bundle} wants a picture",
                    hint="switch to a bundle with such an effect",
                )
            name = last.effect.partition("=")[0]
            if name not in wanting:
                name = wanting[0]
            # A new name each time, by which the running show sees that there is another.
            self._upload_count += 1
            upload = f"your picture {self._upload_count}"
            self.choice = self._tried_out(
                last._replace(effect=f"{name}={upload}", uploads={upload: picture})
            )

    def preview(self, name: str) -> Optional[Array]:
        """Return the newest frame with an effect, small; None before the first frame.

        Raises InputError for an effect that is not offered, or fails.
        """
        choice = self.choice
        if name not in self.effects(choice.task):
            raise InputError(f'there is no effect "{name}"', hint="reload the page")
        program = self._program
        # After a switch the frames of the last bundle are still on their way.
        if program is None or program.path != self.bundles[choice.bundle]:
            return None
        # So are those of the program before the last picture that was sent.
        if program.uploads is not choice.uploads:
            return None
        return program.preview(name)

    @property
    def renewable(self) -> bool:
        """Whether the present effect has a neutral face to take anew."""
        return self._program is not None and self._program.effect.renewable

    def renew(self) -> None:
        """Take the neutral face anew, from the next frames on."""
        if self._program is not None:
            self._program.effect.renew()

    def switch(
        self, bundle: Optional[str] = None, effect: Optional[str] = None
    ) -> None:
        """Another bundle, another effect, from the next frame on; overlay, where a
        bundle cannot be shown as the last.

        Of several at the same time each begins with what the one before it left. Raises
        InputError for what cannot be shown, and for a file: who looks at a page names
        none.
        """
        self._check_wish(bundle, effect)
        # Trying out takes a while: the second of two requests must start from the
        # first's choice, or it would undo it.
        with self._switching:
            last = self.choice
            to = bundle or last.bundle
            if effect is None and last.effect.partition("=")[0] not in effects_for(
                self._task_of(to)
            ):
                effect = OVERLAY
            self.choice = self._tried_out(
                last._replace(bundle=to, effect=effect or last.effect)
            )

    def _check_wish(self, bundle: Optional[str], effect: Optional[str]) -> None:
        """Raise InputError for a bundle that was not given, and for a file."""
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
