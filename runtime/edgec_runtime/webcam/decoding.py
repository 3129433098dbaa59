"""Decodes a picture in a process with limits of memory and time.

A picture that overcomes the decoder ends only this process, not the show.

The process reads the picture's file from standard input, and writes a line of JSON to
standard output: {"width", "height"}, followed by the bytes of the pixels (red, green,
blue), or {"what", "hint"} of an error.
"""

from __future__ import annotations

import io
import json
import resource
import sys
from typing import Any, NamedTuple

from ..errors import InputError

START = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from edgec_runtime.webcam.decoding import main\n"
    "main()\n"
)
"""The Python program of the process.

Its first argument is sys.path of the show's process, the second the PictureLimits, both
as JSON.
"""
HINT = "send another JPEG or PNG"
_FORMATS = ("JPEG", "PNG")


class PictureLimits(NamedTuple):
    """The limits of decoding a picture.

    Attributes:
        side: its largest width or height in pixels
        pixels: its largest number of pixels
        kept: the largest width or height of the result; a larger one is made smaller
        memory: the largest memory of the process in bytes
        seconds: the longest time on one core
    """

    side: int
    pixels: int
    kept: int
    memory: int
    seconds: int


def main() -> None:
    """Decode the picture of standard input."""
    limits = PictureLimits(*json.loads(sys.argv[2]))
    try:
        picture = _decode_limited(sys.stdin.buffer.read(), limits)
    except InputError as e:
        head, pixels = {"what": e.what, "hint": e.hint}, b""
    else:
        head = {"width": picture.width, "height": picture.height}
        pixels = picture.tobytes()
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + pixels)


def _decode_limited(data: bytes, limits: PictureLimits) -> Any:
    """Limit this process, and return the picture of a file, a PIL.Image in RGB.

    Raises InputError.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError(
            "Pillow is needed to read pictures, and is not there",
            hint="sudo apt install python3-pil on the device",
        ) from None
    # Pillow's own limit is not needed, since the limits here are lower.
    Image.MAX_IMAGE_PIXELS = None
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    # The soft limit of time ends the process by SIGXCPU, which names the reason. It
    # writes no core file.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return _decode(data, limits)
    except InputError:
        raise
    except UnidentifiedImageError:
        # The error's own text names a Python object.
        what = "the picture cannot be read: it is not a JPEG or PNG, or damaged"
        raise InputError(what, hint=HINT) from None
    except MemoryError:
        what = f"the picture takes more than {limits.memory >> 20} MB to read"
        raise InputError(what, hint="make it smaller") from None
    except Exception as e:
        # Pillow's decoders raise a dozen kinds of exceptions for a damaged file.
        what = f"the picture cannot be read: {e or type(e).__name__}"
        raise InputError(what, hint=HINT) from e


def _decode(data: bytes, limits: PictureLimits) -> Any:
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data), formats=_FORMATS) as file:
        # The size is in the header. A small file may have very many pixels of one
        # colour, and each row needs memory.
        if max(file.size) > limits.side or file.width * file.height > limits.pixels:
            raise InputError(
                f"the picture has {file.width} x {file.height} pixels, more than "
                f"{limits.side} on a side or {limits.pixels // 1_000_000} million",
                hint="make it smaller",
            )
        # Pillow cannot make a picture of I;16 smaller.
        picture = file.convert("I") if file.mode.startswith("I;") else file
        # Before it is turned, so that a JPEG is decoded in the smaller size.
        picture.thumbnail((limits.kept, limits.kept))
        upright = ImageOps.exif_transpose(picture) or picture
        if upright.mode == "I":
            # The picture has 16 bits of grey, which Pillow would cut off at 255.
            upright = upright.point(lambda level: level / 256).convert("L")
        return upright.convert("RGB")
