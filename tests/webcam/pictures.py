"""Files of pictures, whole ones and such as cost their decoder memory or time."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

from edgec.ir import Array


def encoded(picture: Array, form: str, **options: object) -> bytes:
    """A picture's file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, form, **options)
    return buffer.getvalue()


def gradient(height: int = 40, width: int = 60) -> Array:
    """From black at the top to white."""
    rows = np.linspace(0, 255, height)[:, None, None]
    return np.broadcast_to(rows, (height, width, 3)).astype(np.uint8)


def blank_png(width: int, height: int) -> bytes:
    """A PNG in some bytes, whose pixels are missing."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", size), (b"IDAT", zlib.compress(bytes(9))), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in parts:
        check = struct.pack(">I", zlib.crc32(name + content))
        data += struct.pack(">I", len(content)) + name + content + check
    return data


def many_scans(count: int = 2000) -> bytes:
    """A JPEG of 0.1 MB that is drawn so often, one over the other."""
    data = encoded(np.zeros((4096, 4096), np.uint8), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + count * data[last:-2] + data[-2:]
