"""Pictures that a page sends: decoded in a process of their own, and kept in memory,
never written.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, InputError
from .decoding import HINT, START, PictureLimits

Array = NDArray[Any]

MAX_UPLOAD_BYTES = 8 << 20
"""Bytes of a picture's file."""
MAX_SIDE = 1280
"""Width or height of a picture that is kept: more than a frame shows is of no use."""
LIMITS = PictureLimits(
    side=8192, pixels=24_000_000, kept=MAX_SIDE, memory=384 << 20, seconds=10
)
"""24 million pixels with alpha take 250 MB."""
_SLOWER = 3
"""Times the seconds of a core that pass on a busy machine."""


def decode_upload(data: bytes) -> Array:
    """Return the picture in the bytes of a JPEG or PNG file, uint8 [H, W, 3].

    It is turned upright by its EXIF, made smaller where a side exceeds MAX_SIDE, and
    red comes first.

    Raises:
        InputError: it is no such file, has too many bytes or pixels, takes more than
            the LIMITS to decode, or Pillow is not there
        DeviceError: the system starts no process
    """
    if not data:
        megabytes = MAX_UPLOAD_BYTES >> 20
        what = f"the picture is empty, or larger than {megabytes} MB"
        raise InputError(what, hint=HINT)
    head, _, pixels = _answer(data).partition(b"\n")
    told = json.loads(head)
    if "what" in told:
        raise InputError(told["what"], hint=told["hint"])
    shape = (told["height"], told["width"], 3)
    return np.frombuffer(pixels, np.uint8).reshape(shape)


def _answer(data: bytes) -> bytes:
    """Return the answer of the process that decodes a picture (see decoding)."""
    command = [
        sys.executable or "python3",
        "-I",
        "-c",
        START,
        json.dumps(sys.path),
        json.dumps(LIMITS),
    ]
    try:
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SLOWER * LIMITS.seconds,
            # Ctrl-C is for the show.
            start_new_session=True,
        )
    except OSError as e:
        what = f"no process can be started that reads the picture: {e.strerror}"
        raise DeviceError(what, hint="end other programs, and send it again") from e
    except subprocess.TimeoutExpired:
        raise _too_slow() from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _too_slow()
    if done.returncode:
        # A decoder that a damaged file has overcome.
        what = f"the picture cannot be read: its decoder ended with {done.returncode}"
        raise InputError(what, hint=HINT)
    return done.stdout


def _too_slow() -> InputError:
    what = f"the picture takes more than {LIMITS.seconds} s to read"
    return InputError(what, hint="save it again, smaller or as a PNG")
