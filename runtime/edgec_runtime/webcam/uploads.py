"""Decodes pictures that a page sends, each in its own process (decoding.py)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, InputError
from ..python_command import isolated_python
from .decoding import HINT, START, PictureLimits

Array = NDArray[Any]

MAX_UPLOAD_BYTES = 8 << 20
"""Largest size of a picture's file."""
MAX_SIDE = 1280
"""Largest width or height of a decoded picture, which is enough for a frame."""
LIMITS = PictureLimits(
    side=8192, pixels=24_000_000, kept=MAX_SIDE, memory=384 << 20, seconds=10
)
"""The limits of decoding; 24 million pixels with alpha take 250 MB."""
_SLOWDOWN = 3
"""Ratio of elapsed time to time on a core that a busy machine may need."""


def decode_upload(data: bytes) -> Array:
    """Return the picture in the bytes of a JPEG or PNG file, uint8 [H, W, 3].

    It is turned upright by its EXIF, made smaller if a side exceeds MAX_SIDE, and has
    red first.

    Raises:
        InputError: it is not such a file, has too many bytes or pixels, exceeds the
            LIMITS of decoding, or Pillow is not installed
        DeviceError: no process can be started
    """
    if not data:
        megabytes = MAX_UPLOAD_BYTES >> 20
        what = f"the picture is empty, or larger than {megabytes} MB"
        raise InputError(what, hint=HINT)
    head, _, pixels = _answer(data).partition(b"\n")
    answer = json.loads(head)
    if "what" in answer:
        raise InputError(answer["what"], hint=answer["hint"])
    shape = (answer["height"], answer["width"], 3)
    return np.frombuffer(pixels, np.uint8).reshape(shape)


def _answer(data: bytes) -> bytes:
    """Return the answer of the process that decodes a picture (see decoding)."""
    command = [
        *isolated_python(),
        "-c",
        START,
        json.dumps(sys.path),
        json.dumps(LIMITS),
    ]
    try:
        process = subprocess.run(
            command,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SLOWDOWN * LIMITS.seconds,
            # In another session, so that Ctrl-C ends only the show.
            start_new_session=True,
        )
    except OSError as e:
        what = f"no process can be started that reads the picture: {e.strerror}"
        raise DeviceError(what, hint="end other programs, and send it again") from e
    except subprocess.TimeoutExpired:
        raise _too_slow() from None
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _too_slow()
    if process.returncode:
        # A damaged file has crashed the decoder.
        what = (
            f"the picture cannot be read: its decoder ended with {process.returncode}"
        )
        raise InputError(what, hint=HINT)
    return process.stdout


def _too_slow() -> InputError:
    what = f"the picture takes more than {LIMITS.seconds} s to read"
    return InputError(what, hint="save it again, smaller or as a PNG")
