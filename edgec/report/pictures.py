"""Puts pictures into pages as data, so that a page is one file."""

from __future__ import annotations

import base64
import io
from typing import Any

from edgec.ir import Array

MAX_SIDE = 480
"""The longer side of a photo on a page, px."""
MIN_SIDE = 320
"""A smaller picture is shown in larger pixels, px."""
JPEG_QUALITY = 88


def exact_url(picture: Array) -> str:
    """Return a picture, uint8 [H, W] or [H, W, 3], as a data URL without loss."""
    # Pillow is imported here: most pages have no picture.
    from PIL import Image

    return _url(Image.fromarray(picture), "png")


def photo_url(picture: Array) -> str:
    """Return a photo, uint8 [H, W, 3], as a data URL, made smaller if it is large."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    # A digit of 28 pixels would be a blur.
    factor = -(-MIN_SIDE // max(image.size))
    if factor > 1:
        size = (image.width * factor, image.height * factor)
        image = image.resize(size, Image.Resampling.NEAREST)
    return _url(image, "jpeg", quality=JPEG_QUALITY)


def _url(image: Any, kind: str, **options: int) -> str:
    """Return an image of Pillow as a data URL. kind: "png" or "jpeg"."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    data = base64.b64encode(file.getvalue()).decode()
    return f"data:image/{kind};base64,{data}"
