"""A bundle's stream, run for its figures: frames of a source, or made ones, through all
the stages of its task.
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
_DIFFERENT = 8


def streamed(
    bundle: str, frames: int, source: Optional[str] = None, tpu: str = "auto"
) -> StreamFigures:
    """Return the figures of a stream of so many frames.

    source: as the webcam's, and a file begins anew at its end; None: frames that were
    made before the stream began.

    Of a bundle that does not say what its outputs mean, the model alone.  Raises
    InputError, DeviceError.
    """
    with Bundle.open(bundle) as opened:
        alone = opened.manifest.task is None and opened.manifest.cascade is None
    if not alone:
        if source is not None:
            from_ = open_source(source)
        else:
            from_ = Source("made frames", False, 0.0, lambda _: _made())
        return play(
            Show(from_, {"bundle": bundle}, playback=Playback(loop=True), tpu=tpu),
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


def _made() -> Iterator[CameraFrame]:
    # Generated once, since the figures would include the time of doing it each time.
    noise = np.random.default_rng(0).integers(
        0, 256, (_DIFFERENT, SIZE[1], SIZE[0], 3), np.uint8
    )
    return (CameraFrame.of(frame) for frame in itertools.cycle(noise))
