"""Makes a model's input of a photo by its preprocessing, on the host and on a device."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..tensors import TensorInfo
from .preprocess import Fit, ImageLayout, Preprocess, Values
from .resample import resize

Array = NDArray[Any]

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp")
"""Endings of files that are read as photos, in lower case."""

_LUMA = (19595, 38470, 7471)
"""Weights of red, green and blue in grey, in 1/65536 (ITU-R BT.601)."""
_LUMA_BITS = 16
_LUMA_HALF = 1 << _LUMA_BITS - 1


@dataclass(frozen=True)
class Placement:
    """The place of a photo in an input.

    A point p of the input is the point box + (p - target) * box size / target size of
    the photo.

    Attributes:
        box: left, top, width and height of the used part of the photo, in its pixels;
            with a letterbox it may exceed the photo by half a pixel of the input
        target: left, top, width and height of the part of the input that the box fills,
            in the input's pixels
    """

    box: Tuple[float, float, float, float]
    target: Tuple[int, int, int, int]

    @classmethod
    def of(cls, photo: Tuple[int, int], image: Tuple[int, int], fit: Fit) -> Placement:
        """Return the placement of a photo.

        Args:
            photo: its width and height
            image: width and height of the input
            fit: how it fills the input
        """
        width, height = photo
        w, h = image

        whole_input = (0, 0, w, h)
        if fit.resize == "letterbox":
            return cls._letterboxed(photo, image, fit)
        if fit.resize == "crop":
            ratio = min(width / w, height / h) * fit.crop

            used_width = w * ratio
            used_height = h * ratio

            left = (width - used_width) / 2
            top = (height - used_height) / 2
            return cls((left, top, used_width, used_height), whole_input)
        return cls((0.0, 0.0, float(width), float(height)), whole_input)

    @classmethod
    def _letterboxed(
        cls, photo: Tuple[int, int], image: Tuple[int, int], fit: Fit
    ) -> Placement:
        """Return the placement of a photo in a letterbox."""
        ratio = min(image[0] / photo[0], image[1] / photo[1])
        is_centred = fit.position == "center"
        x, left, columns = _covered_pixels(photo[0] * ratio, image[0], is_centred)

        y, top, rows = _covered_pixels(photo[1] * ratio, image[1], is_centred)

        # The box is in the photo's own pixels again.
        box = (x / ratio, y / ratio, columns / ratio, rows / ratio)
        return cls(box, (left, top, columns, rows))


def _covered_pixels(
    length: float, pixels: int, is_centred: bool
) -> Tuple[float, int, int]:
    """Return the pixels of an input that a photo covers along an axis.

    They are the pixels whose middle is in the photo. The border of the photo may be
    inside a pixel; resizing respects that fraction, since otherwise a detected box would
    be up to a pixel beside its object.

    Args:
        length: the length of the photo in pixels of the input
        pixels: the length of the input
        is_centred: whether the photo is in the middle, not at the beginning

    Returns:
        position of the first pixel in the photo, its index, and the number of pixels
    """
    start = (pixels - length) / 2 if is_centred else 0.0

    first = math.floor(start + 0.5)
    end = math.floor(start + length + 0.5)
    if end == first:
        # A photo thinner than a pixel covers the pixel in which it lies.
        first = math.floor(start)
        end = first + 1
    return first - start, first, end - first


def is_photo(array: Array) -> bool:
    """Return whether an array for an image input is a photo, not a prepared input.

    A photo is uint8, [H, W] or [H, W, 1, 3 or 4]. A prepared input has a batch axis, so
    that the two cannot be confused.
    """
    if array.dtype != np.uint8:
        return False
    if array.ndim == 3:
        return array.shape[2] in (1, 3, 4)
    return array.ndim == 2


def prepare(photo: Array, preprocess: Preprocess, info: TensorInfo) -> Array:
    """Return an input made of a photo, repeated along the batch.

    Args:
        photo: uint8 [H, W] or [H, W, C], red first; alpha is dropped
        preprocess: a preprocessing that suits the input
        info: the input

    Raises:
        InputError: the photo has no pixels
    """
    layout = ImageLayout.of(info, preprocess.layout)
    assert layout is not None, "the preprocessing does not suit its input"
    if photo.size == 0:
        raise InputError(
            f'the photo for "{info.name}" is empty: {photo.shape}',
            hint="give one with pixels",
        )
    pixels = photo[:, :, None] if photo.ndim == 2 else photo[:, :, :3]
    image = _resized(pixels, layout, preprocess)

    return levels_input(image, preprocess, info, layout)


def levels_input(
    pixels: Array, preprocess: Preprocess, info: TensorInfo, layout: ImageLayout
) -> Array:
    """Return an input made of pixels that have its size.

    Args:
        pixels: uint8 [H, W, 3], red first
        preprocess: a preprocessing that suits the input
        info: the input
        layout: its layout
    """
    levels = _levels(pixels, preprocess.color, layout.channels)

    # There are only 256 levels: a table is faster than arithmetic for each pixel.
    table = value_table(preprocess.values, info, layout.channels)
    order = (2, 1, 0) if preprocess.color == "bgr" else range(layout.channels)
    planes = [table[c][levels[..., c]] for c in order]

    image = np.stack(planes, axis=0 if layout.channels_first else -1)
    return np.ascontiguousarray(np.broadcast_to(image, info.shape))


def _resized(pixels: Array, layout: ImageLayout, preprocess: Preprocess) -> Array:
    """Return a photo in the input's size, uint8 [H, W, 3]."""
    height, width = pixels.shape[:2]
    size = layout.width, layout.height
    placement = Placement.of((width, height), size, preprocess.fit)
    left, top, columns, rows = placement.target

    inner = resize(pixels, placement.box, (columns, rows), preprocess.filter)

    # Only a letterbox leaves a border to fill.
    canvas = np.empty((layout.height, layout.width, 3), np.uint8)
    canvas[:] = preprocess.fit.fill
    canvas[top : top + rows, left : left + columns] = inner
    return canvas


def _levels(image: Array, color: str, channels: int) -> Array:
    """Return levels [H, W, channels], red first, or grey in each channel."""
    if color != "gray":
        return image
    # Integers in 1/65536 give the same bits on all machines.
    weighted = image.astype(np.int32) @ np.array(_LUMA, np.int32)
    grey = (weighted + _LUMA_HALF) >> _LUMA_BITS

    one_channel = grey.astype(np.uint8)[..., None]
    return np.broadcast_to(one_channel, (*grey.shape, channels))


def value_table(values: Values, info: TensorInfo, channels: int) -> Array:
    """Return the input's element for each level of a pixel, [channels, 256], red first.

    Args:
        values: the values of pixels
        info: the input
        channels: the number of its channels
    """
    dtype = info.numpy_dtype
    level = np.arange(256, dtype=np.float64)
    if values.range == "raw":
        # An int8 element is the byte minus 128.
        elements: Array = (level + np.iinfo(dtype).min).astype(dtype)
        return np.tile(elements, (channels, 1))

    mean = _per_channel(values.mean, channels)
    std = _per_channel(values.std, channels)
    in_range = level / 255 if values.range == "0_1" else level

    reals: Array = ((in_range - mean) / std).astype(np.float32)
    if info.quant is None or dtype == np.float32:
        return reals

    # An input with several scales has been refused before.
    return quantized(reals, info.quant.scale[0], info.quant.zero_point[0], dtype)


def _per_channel(numbers: Tuple[float, ...], channels: int) -> Array:
    """Return a number for each channel, [channels, 1]."""
    # Grey takes the mean of the colours' numbers.
    if channels == 1 and len(numbers) == 3:
        numbers = ((numbers[0] + numbers[1] + numbers[2]) / 3,)

    array = np.array(numbers, np.float64)
    return np.broadcast_to(array, (channels,))[:, None]


def quantized(reals: Array, scale: float, zero_point: int, dtype: Any) -> Array:
    """Return round(real / scale) + zero_point, computed like TFLite's AffineQuantize.

    That computes in float32, rounds ties away from zero, and clips to `dtype`. NaN
    becomes the zero point and infinities the ends of the range, like TFLite's
    conversion to int32 on Arm; C leaves these cases undefined, and x86 gives the lowest
    integer.

    Args:
        reals: the reals
        scale: the scale
        zero_point: the zero point
        dtype: the integer type
    """
    with np.errstate(all="ignore"):
        x = (reals / np.float32(scale)).astype(np.float32)
        # x + 0.5 in float32 would round 0.49999997 up.
        whole = np.trunc(x)
        is_up = np.abs(x - whole) >= 0.5
        rounded = whole + np.where(is_up, np.sign(x), np.float32(0))
        return saturated(rounded, zero_point, dtype)


def saturated(rounded: Array, zero_point: int, dtype: Any) -> Array:
    """Return whole reals plus the zero point, clipped to `dtype`; NaN counts as 0."""
    info = np.iinfo(dtype)
    numbers = np.where(np.isnan(rounded), np.float32(0), rounded)

    # The sum is float, since one of integers could overflow.
    steps = numbers + np.float32(zero_point)

    clipped: Array = np.clip(steps, info.min, info.max).astype(dtype)
    return clipped


def read_photo(path: Path, alpha: bool = False) -> Array:
    """Return the pixels of a file, turned upright by its EXIF, uint8 [H, W, 3].

    Red comes first. Needs Pillow, which a device may lack.

    Args:
        path: the file
        alpha: whether to return a fourth channel, which is 255 where it is opaque

    Raises:
        InputError: the file cannot be read as a photo, or Pillow is not installed
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        install = (
            "pip install pillow, or give the pixels: a uint8 array [height, "
            "width, "
            "3] in an .npy file"
        )
        raise InputError(
            "Pillow is needed to read photos, and is not there",
            at=str(path),
            hint=install,
        ) from None
    hint = "remove the file or save it again"
    if not path.exists():
        raise InputError(f"there is no photo {path}", hint="check the path")
    # Pillow would wait for a pipe's writer, and read a device for ever.
    if not path.is_file():
        raise InputError(
            f"{path.name} cannot be read as a photo: it is not a plain file",
            at=str(path),
            hint=hint,
        )
    try:
        with warnings.catch_warnings():
            # This warning is for large photos; far larger ones are an error.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            file = Image.open(path)
        with file:
            upright = ImageOps.exif_transpose(file) or file
            if alpha:
                return np.asarray(upright.convert("RGBA"), np.uint8)
            # The photo has 16 bits of grey, which Pillow would cut off at 255.
            if upright.mode.startswith("I"):
                high_bytes = np.asarray(upright, np.int64) // 256
                grey = np.clip(high_bytes, 0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, axis=2)
            return np.asarray(upright.convert("RGB"), np.uint8)
    except MemoryError:
        # Pillow raises it for some damaged files.
        what = (
            f"{path.name} cannot be read as a photo: it asks for more memory than "
            "there is"
        )
        raise InputError(what, at=str(path), hint=hint) from None
    except Exception as e:
        # Pillow's decoders raise a dozen kinds of exceptions for a damaged file.
        what = f"{path.name} cannot be read as a photo: {e or type(e).__name__}"
        raise InputError(what, at=str(path), hint=hint) from e
