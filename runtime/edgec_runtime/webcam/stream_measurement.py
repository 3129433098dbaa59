"""Measures the stream of a bundle: frames of a source, or generated ones, pass through
all stages of its task.
"""

from __future__ import annotations

import itertools
from typing import Iterator, Optional

import numpy as np

from ..bundle.archive import Bundle
from ..errors import InputError
from ..model.inputs import noise_inputs
from ..session.meters import StreamFigures
from ..session.session import Session
from ..vision.camera import CameraFrame
from .playing import play
from .show import Playback, Show
from .sources import Source, open_source

SIZE = (640, 480)
"""Width and height of generated frames."""
_FRAMES = 8
"""Number of different generated frames."""


def streamed(
    bundle: str, frames: int, source: Optional[str] = None, tpu: str = "auto"
) -> StreamFigures:
    """Return the figures of a stream.

    Of a bundle without a task only the network runs.

    Args:
        bundle: the path of the bundle
        frames: number of frames
        source: the source, as for the webcam; a file begins anew at its end; None for
            frames that are generated before the stream begins
        tpu: as for a Session

    Raises:
        InputError: the bundle has no task and cannot use a source, or there was no frame
        DeviceError: the source cannot be opened
    """
    with Bundle.open(bundle) as file:
        has_task = file.manifest.task is not None or file.manifest.cascade is not None
    if has_task:
        if source is not None:
            camera = open_source(source)
        else:
            camera = Source("made frames", False, 0.0, lambda _: _noise_frames())
        return play(
            Show(camera, {"bundle": bundle}, playback=Playback(loop=True), tpu=tpu),
            None,
            frames,
            lambda url: None,
        )
    if source is not None:
        hint = "compile it with --task, or leave the source out"
        raise InputError(
            "the bundle does not say what its outputs mean, so it takes no source",
            hint=hint,
        )
    with Session(bundle, tpu=tpu) as session:
        inputs = noise_inputs(session.manifest)
        with session.stream(itertools.repeat(inputs, frames)) as stream:
            for _ in stream:
                pass
            return stream.figures()


def _noise_frames() -> Iterator[CameraFrame]:
    # They are generated once, since the figures would include the time of it.
    noise = np.random.default_rng(0).integers(
        0, 256, (_FRAMES, SIZE[1], SIZE[0], 3), np.uint8
    )
    return (CameraFrame.of(frame) for frame in itertools.cycle(noise))
