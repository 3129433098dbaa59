"""Pictures that a page sends: checked, decoded and kept in memory, never written."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Array = NDArray[Any]

MAX_UPLOAD_BYTES = 8 << 20
"""Bytes of a picture's file."""
MAX_UPLOAD_PIXELS = 24_000_000
"""Pixels of a picture before it is made smaller."""
MAX_SIDE = 1280
"""Width or height of a picture that is kept: more than a frame shows is of no use."""

_FORMATS = ("JPEG", "PNG")
_HINT = "send a JPEG or PNG"


def decode_upload(data: bytes) -> Array:
    """Return the picture in the bytes of a JPEG or PNG file, uint8 [H, W, 3].

    It is turned upright by its EXIF, made smaller where a side exceeds MAX_SIDE, and
    red comes first.

    Raises:
        InputError: it is no such file, has too many bytes or pixels, or Pillow is not
            there
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError(
            "Pillow is needed to read pictures, and is not there",
            hint="sudo apt install python3-pil on the device",
        ) from None
    if not data:
        megabytes = MAX_UPLOAD_BYTES >> 20
        what = f"the picture is empty, or larger than {megabytes} MB"
        raise InputError(what, hint=_HINT)
    try:
        with warnings.catch_warnings():
            # The limit below is lower than the one that Pillow warns of.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            file = Image.open(io.BytesIO(data), formats=_FORMATS)
        with file:
            # The header says the size. A small file may hold very many pixels of one
            # colour, and decoding them would take all of a Pi's memory.
            if file.width * file.height > MAX_UPLOAD_PIXELS:
                raise InputError(
                    f"the picture has {file.width} x {file.height} pixels, more than "
                    f"{MAX_UPLOAD_PIXELS // 1_000_000} million",
                    hint="make it smaller",
                )
            upright = ImageOps.exif_transpose(file) or file
            upright.thumbnail((MAX_SIDE, MAX_SIDE))
            return np.asarray(upright.convert("RGB"), np.uint8)
    except InputError:
        raise
    except Exception as e:
        # Pillow's decoders raise a dozen kinds for a damaged file.
        what = f"the picture cannot be read: {e or type(e).__name__}"
        raise InputError(what, hint=_HINT) from e
