"""The process that decodes a picture, with limits of memory and time: what a picture
does to a decoder ends this process, and not the show.

It reads the picture's file from standard input, and writes a line of JSON to standard
output: {"width", "height"}, with the bytes of red, green and blue behind it, or {"what",
"hint"} of an error.
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
"""What the interpreter is started with: modules are where they are in the show's
process, whose sys.path is the first argument.  The second is the PictureLimits.
"""
HINT = "send another JPEG or PNG"
_FORMATS = ("JPEG", "PNG")


class PictureLimits(NamedTuple):
    """What decoding a picture may take.

    Attributes:
        side: its width or height, in pixels
        pixels: of all of it
        kept: width or height of the result, which is made smaller where it exceeds them
        memory: bytes of the process
        seconds: of one core
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
        picture = _limited(sys.stdin.buffer.read(), limits)
    except InputError as e:
        head, pixels = {"what": e.what, "hint": e.hint}, b""
    else:
        head = {"width": picture.width, "height": picture.height}
        pixels = picture.tobytes()
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + pixels)


def _limited(data: bytes, limits: PictureLimits) -> Any:
    """Return the picture of a file as Pillow's, RGB.  Raises InputError."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError(
            "Pillow is needed to read pictures, and is not there",
            hint="sudo apt install python3-pil on the device",
        ) from None
    # The limits here are lower.
    Image.MAX_IMAGE_PIXELS = None
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    # The first ends the process by a signal that says why, and with no core file.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return _decoded(data, limits)
    except InputError:
        raise
    except UnidentifiedImageError:
        # Its own text names an object of this program.
        what = "the picture cannot be read: it is not a JPEG or PNG, or damaged"
        raise InputError(what, hint=HINT) from None
    except MemoryError:
        what = f"the picture takes more than {limits.memory >> 20} MB to read"
        raise InputError(what, hint="make it smaller") from None
    except Exception as e:
        # Pillow's decoders raise a dozen kinds for a damaged file.
        what = f"the picture cannot be read: {e or type(e).__name__}"
        raise InputError(what, hint=HINT) from e


def _decoded(data: bytes, limits: PictureLimits) -> Any:
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data), formats=_FORMATS) as file:
        # The header says the size. A small file may hold very many pixels of one
        # colour, and each row costs memory of its own.
        if max(file.size) > limits.side or file.width * file.height > limits.pixels:
            raise InputError(
                f"the picture has {file.width} x {file.height} pixels, more than "
                f"{limits.side} on a side or {limits.pixels // 1_000_000} million",
                hint="make it smaller",
            )
        # Pillow makes no picture of I;16 smaller.
        picture = file.convert("I") if file.mode.startswith("I;") else file
        # Before it is turned: a JPEG is then decoded in the smaller size.
        picture.thumbnail((limits.kept, limits.kept))
        upright = ImageOps.exif_transpose(picture) or picture
        if upright.mode == "I":
            # 16 bits of grey, which Pillow would cut off at 255.
            upright = upright.point(lambda level: level / 256).convert("L")
        return upright.convert("RGB")
