"""Reads frames of cameras in their various formats, and encodes and decodes JPEG."""

from __future__ import annotations

import importlib
import io
import math
import warnings
from dataclasses import dataclass
from typing import Any, List, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Array = NDArray[Any]

QUALITY = 85
"""Quality of encoded JPEG, 0…100."""

FORMATS = ("rgb", "bgr", "gray", "rgba", "yuyv", "nv12")
"""Formats of frames, in the order of csrc/ek_frame.h."""

MAX_SIDE = 65_535
"""The largest width and height of a frame, which are those of JPEG."""

_EVEN_SIDES = {"yuyv": (2, 1), "nv12": (2, 2)}
"""Divisors of width and height for formats in which pixels share colours."""


@dataclass(frozen=True)
class CameraFrame:
    """A frame of a camera.

    The planes are uint8: [H, W, 3] ("rgb", "bgr"), [H, W] ("gray"), [H, W, 4] ("rgba"),
    [H, W, 2] ("yuyv"), or [H, W] and [H/2, W] ("nv12"). The pixels of a row are
    contiguous; there may be gaps between rows. YUV is BT.601 with Y in 16…235, as V4L2
    cameras give it.

    Attributes:
        format: one of `FORMATS`
        planes: the planes

    Raises:
        InputError: the planes are not a frame of the format
    """

    format: str
    planes: Tuple[Array, ...]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise InputError if the planes are not a frame of the format.

        It is called again before C gets their addresses, since the shape of an array
        can be changed in place.
        """
        _check_format(self.format)
        planes = self.planes
        # An array is not accepted for the tuple, since its items are rows.
        is_tuple = isinstance(planes, (tuple, list)) and len(planes) > 0
        if not is_tuple or not all(isinstance(p, np.ndarray) for p in planes):
            raise InputError(
                f"the planes of a {self.format} frame are not a tuple of arrays",
                hint='give a tuple: CameraFrame("rgb", (array,))',
            )
        types = ", ".join(f"{p.dtype} {list(p.shape)}" for p in planes)
        if planes[0].ndim < 2 or planes[0].size == 0:
            raise InputError(
                f"the frame has no pixels: {types}",
                hint="give one of [height, width] or [height, width, channels]",
            )
        height, width = planes[0].shape[:2]
        _check_sides(self.format, width, height, types)
        shapes = _plane_shapes(self.format, width, height)
        is_levels = all(p.dtype == np.uint8 for p in planes)
        if not is_levels or [p.shape for p in planes] != shapes:
            expected = ", ".join(f"uint8 {list(shape)}" for shape in shapes)
            raise InputError(
                f"planes {types} are not one {self.format} frame of {width} x {height}",
                hint=f"give {expected}",
            )

    @classmethod
    def of(cls, photo: Union[Array, CameraFrame]) -> CameraFrame:
        """Return the frame of a photo; a frame is returned unchanged.

        Args:
            photo: [H, W, 3] or [H, W, 4], red first, or [H, W] or [H, W, 1], gray

        Raises:
            InputError: it is not a photo
        """
        if isinstance(photo, CameraFrame):
            return photo
        try:
            pixels = np.asarray(photo)
        except ValueError as e:
            # Lists of several lengths have no shape.
            raise InputError(
                f"a photo is a uint8 array, not a {type(photo).__name__}: {e}",
                hint="give an array of [height, width, 3]",
            ) from e
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[..., 0]
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        name = {1: "gray", 4: "rgba"}.get(channels, "rgb")
        return cls(name, (pixels,))

    @classmethod
    def packed(
        cls, format: str, data: Union[Array, bytes], width: int, height: int
    ) -> CameraFrame:
        """Return the frame of bytes whose rows have no gaps.

        Args:
            format: one of `FORMATS`
            data: the bytes, or a uint8 array of any shape
            width: width of the frame
            height: height of the frame

        Raises:
            InputError: there are more or fewer bytes than a frame has
        """
        _check_format(format)
        if isinstance(data, (bytes, bytearray, memoryview)):
            data = np.frombuffer(data, np.uint8)
        # Other numbers would be cut to bytes without a word.
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
            kind = getattr(data, "dtype", type(data).__name__)
            raise InputError(
                f"the data of a frame are {kind}", hint="give bytes, or a uint8 array"
            )
        flat = np.ascontiguousarray(data).reshape(-1)
        _check_sides(format, width, height, f"{flat.size} bytes")
        shapes = _plane_shapes(format, width, height)

        sizes = [math.prod(shape) for shape in shapes]
        expected = sum(sizes)
        if flat.size != expected:
            raise InputError(
                f"{flat.size} bytes are not one {format} frame of {width} x {height}",
                hint=f"give {expected} bytes",
            )

        planes: List[Array] = []
        start = 0
        for shape, size in zip(shapes, sizes):
            planes.append(flat[start : start + size].reshape(shape))
            start += size
        return cls(format, tuple(planes))

    @property
    def size(self) -> Tuple[int, int]:
        """Width and height."""
        return self.planes[0].shape[1], self.planes[0].shape[0]

    def rgb(self) -> Array:
        """Return the frame as uint8 [H, W, 3], red first.

        It shares memory with the frame if the format allows that.
        """
        first = self.planes[0]
        if self.format == "rgb":
            return first
        if self.format == "bgr":
            return np.asarray(first[..., ::-1])
        if self.format == "rgba":
            return np.asarray(first[..., :3])
        if self.format == "gray":
            return np.asarray(np.broadcast_to(first[..., None], (*first.shape, 3)))

        # Two pixels of a row share U and V, in NV12 also those of two rows.
        if self.format == "yuyv":
            pairs = first[..., 1].reshape(first.shape[0], -1, 2)
            return _from_yuv(first[..., 0], np.repeat(pairs, 2, axis=1))
        second = self.planes[1]

        pairs = second.reshape(second.shape[0], -1, 2)
        by_row = np.repeat(pairs, 2, axis=0)
        return _from_yuv(first, np.repeat(by_row, 2, axis=1))


def _check_format(format: str) -> None:
    if not isinstance(format, str) or format not in FORMATS:
        raise InputError(
            f'there is no frame format "{format}"', hint="use " + ", ".join(FORMATS)
        )


def _check_sides(format: str, width: int, height: int, data: str) -> None:
    """Raise InputError for sides that no frame of a format can have.

    Args:
        format: the format
        width: width of the frame
        height: height of the frame
        data: a text about the frame's arrays or bytes, for the error
    """
    across, down = _EVEN_SIDES.get(format, (1, 1))
    hint = None
    if not all(isinstance(side, (int, np.integer)) for side in (width, height)):
        raise InputError(
            f"the sides of a frame are {width!r} and {height!r}",
            hint="give whole numbers of pixels",
        )
    if not 1 <= width <= MAX_SIDE or not 1 <= height <= MAX_SIDE:
        hint = f"its sides are 1 to {MAX_SIDE}"
    elif width % across != 0 or height % down != 0:
        hint = "its sides are even"
    if hint is not None:
        what = f"{data} are not one {format} frame of {width} x {height}"
        raise InputError(what, hint=hint)


def _plane_shapes(format: str, width: int, height: int) -> List[Tuple[int, ...]]:
    """Return the shapes of a frame's planes."""
    if format == "gray":
        return [(height, width)]
    if format == "rgba":
        return [(height, width, 4)]
    if format == "yuyv":
        return [(height, width, 2)]
    if format == "nv12":
        return [(height, width), (height // 2, width)]
    return [(height, width, 3)]


def _from_yuv(luma: Array, chroma: Array) -> Array:
    """Return the colours of BT.601 YUV as uint8 [H, W, 3], red first.

    In units of 1/256, R = 298 (Y - 16) + 409 (V - 128), and so on; they are rounded.
    csrc/ek_frame.h computes the same.

    Args:
        luma: Y [H, W]
        chroma: U and V [H, W, 2]
    """
    # All products fit into 32 bits.
    y = 298 * (luma.astype(np.int32) - 16) + 128

    u = chroma[..., 0].astype(np.int32) - 128
    v = chroma[..., 1].astype(np.int32) - 128

    channels = [y + 409 * v, y - 100 * u - 208 * v, y + 516 * u]

    levels = np.stack(channels, -1) >> 8
    return np.asarray(np.clip(levels, 0, 255), np.uint8)


def decode_jpeg(data: bytes) -> CameraFrame:
    """Decode a JPEG picture, by OpenCV or else by Pillow.

    A frame of MJPEG is such a picture.

    Raises:
        InputError: the bytes are not a JPEG, or neither library is installed
    """
    # OpenCV is several times as fast as Pillow.
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError:
        return _decode_by_pillow(data)

    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise InputError(
            "the frame is not a JPEG picture", hint="check the camera's format"
        )
    return CameraFrame("bgr", (pixels,))


def _decode_by_pillow(data: bytes) -> CameraFrame:
    try:
        from PIL import Image
    except ImportError:
        raise _missing_library("decode") from None
    try:
        with warnings.catch_warnings():
            # This warning is for large pictures; far larger ones are an error.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as file:
                pixels = np.asarray(file.convert("RGB"), np.uint8)
                return CameraFrame("rgb", (pixels,))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        raise InputError(
            f"the frame is not a JPEG picture: {e}", hint="check the camera's format"
        ) from e


def encode_jpeg(picture: Array) -> bytes:
    """Encode a picture as JPEG, by OpenCV or else by Pillow.

    Args:
        picture: uint8 [H, W, 3], red first

    Raises:
        InputError: neither library is installed
    """
    try:
        cv2 = importlib.import_module("cv2")
        options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
        # OpenCV expects blue first.
        _, encoded = cv2.imencode(".jpg", picture[..., ::-1], options)
        return bytes(encoded)
    except ImportError:
        pass

    try:
        from PIL import Image
    except ImportError:
        raise _missing_library("encode") from None
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _missing_library(verb: str) -> InputError:
    """Return the error for a machine without OpenCV and Pillow."""
    text = f"OpenCV or Pillow is needed to {verb} JPEG frames, and neither is there"
    return InputError(text, hint="pip install opencv-python-headless or pillow")
