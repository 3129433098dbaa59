"""A camera's frame, in the form in which it comes."""

from __future__ import annotations

import importlib
import io
import warnings
from dataclasses import dataclass
from typing import Any, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Array = NDArray[Any]

QUALITY = 85
"""Of JPEG that is made."""

FORMATS = ("rgb", "bgr", "gray", "rgba", "yuyv", "nv12")
"""As csrc/ek_frame.h counts them."""


@dataclass(frozen=True)
class CameraFrame:
    """uint8 planes: [H,W,3] ("rgb", "bgr"), [H,W] ("gray"), [H,W,4] ("rgba"), [H,W,2]
    ("yuyv"), or [H,W] and [H/2,W] ("nv12").  Pixels of a row follow each other; rows
    may be further apart.

    YUV is that of BT.601 with Y in 16…235, which V4L2 cameras give.
    """

    format: str
    planes: Tuple[Array, ...]

    @classmethod
    def of(cls, array: Array) -> CameraFrame:
        """Of a photo: [H,W,3] or [H,W,4], red first, or [H,W] or [H,W,1], gray."""
        if array.ndim == 2 or array.shape[2] == 1:
            return cls("gray", (array.reshape(array.shape[:2]),))
        return cls("rgb" if array.shape[2] == 3 else "rgba", (array,))

    @classmethod
    def packed(cls, format: str, data: Array, width: int, height: int) -> CameraFrame:
        """Of the bytes of a frame, rows without gaps.

        Raises InputError where they are too many or too few.
        """
        if format not in FORMATS:
            raise InputError(
                f'there is no frame format "{format}"', hint="use " + ", ".join(FORMATS)
            )
        shapes = {
            "gray": (height, width),
            "rgba": (height, width, 4),
            "yuyv": (height, width, 2),
        }
        flat = np.ascontiguousarray(data, np.uint8).reshape(-1)
        if format == "nv12":
            wanted = height * width * 3 // 2
        else:
            wanted = int(np.prod(shapes.get(format, (height, width, 3))))
        odd = format in ("yuyv", "nv12") and (
            width % 2 or (format == "nv12" and height % 2)
        )
        if flat.size != wanted or odd or min(width, height) < 1:
            what = f"{flat.size} bytes are no {format} frame of {width} x {height}"
            raise InputError(
                what, hint=f"it has {wanted}" if not odd else "its sides are even"
            )
        if format == "nv12":
            luma = height * width
            return cls(
                format,
                (
                    flat[:luma].reshape(height, width),
                    flat[luma:].reshape(height // 2, width),
                ),
            )
        return cls(format, (flat.reshape(shapes.get(format, (height, width, 3))),))

    @property
    def size(self) -> Tuple[int, int]:
        """Width and height."""
        return self.planes[0].shape[1], self.planes[0].shape[0]

    def rgb(self) -> Array:
        """uint8 [H,W,3], red first; the frame's own memory where it is that already."""
        first = self.planes[0]
        if self.format == "rgb":
            return first
        if self.format in ("bgr", "rgba"):
            return np.asarray(
                first[..., ::-1] if self.format == "bgr" else first[..., :3]
            )
        if self.format == "gray":
            return np.asarray(np.broadcast_to(first[..., None], (*first.shape, 3)))
        if self.format == "yuyv":
            chroma = np.repeat(first[..., 1].reshape(first.shape[0], -1, 2), 2, axis=1)
            return _from_yuv(first[..., 0], chroma)
        pairs = self.planes[1].reshape(self.planes[1].shape[0], -1, 2)
        return _from_yuv(first, np.repeat(np.repeat(pairs, 2, axis=0), 2, axis=1))


def _from_yuv(luma: Array, chroma: Array) -> Array:
    c = 298 * (luma.astype(np.int32) - 16) + 128
    d = chroma[..., 0].astype(np.int32) - 128
    e = chroma[..., 1].astype(np.int32) - 128
    channels = [c + 409 * e, c - 100 * d - 208 * e, c + 516 * d]
    return np.asarray(np.clip(np.stack(channels, -1) >> 8, 0, 255), np.uint8)


def decode_jpeg(data: bytes) -> CameraFrame:
    """A frame of JPEG bytes (MJPEG has one a frame), by OpenCV or Pillow, whichever is
    there.  Raises InputError.
    """
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError:
        return _by_pillow(data)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise InputError(
            "the frame is no JPEG picture", hint="check the camera's format"
        )
    return CameraFrame("bgr", (pixels,))


def _by_pillow(data: bytes) -> CameraFrame:
    try:
        from PIL import Image
    except ImportError:
        raise _neither("decode") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as file:
                return CameraFrame("rgb", (np.asarray(file.convert("RGB"), np.uint8),))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        raise InputError(
            f"the frame is no JPEG picture: {e}", hint="check the camera's format"
        ) from e


def encode_jpeg(picture: Array) -> bytes:
    """uint8 [H,W,3], red first, by OpenCV or Pillow, whichever is there.

    Raises InputError where neither is.
    """
    try:
        cv2 = importlib.import_module("cv2")
        return bytes(
            cv2.imencode(
                ".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
            )[1]
        )
    except ImportError:
        pass
    try:
        from PIL import Image
    except ImportError:
        raise _neither("encode") from None
    into = io.BytesIO()
    Image.fromarray(picture).save(into, "JPEG", quality=QUALITY)
    return into.getvalue()


def _neither(what: str) -> InputError:
    text = f"OpenCV or Pillow is needed to {what} JPEG frames, and neither is there"
    return InputError(text, hint="pip install opencv-python-headless or pillow")
