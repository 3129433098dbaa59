"""A photo made into a model's input by its preprocessing.

The same code on the host and on the device.
"""

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
"""Files that are read as photos, lower case."""

_LUMA = (19595, 38470, 7471)
"""Of red, green and blue in grey, of 65536 (ITU-R BT.601)."""


@dataclass(frozen=True)
class Placement:
    """box: the part of the photo that is used: left, top, width, height, in its pixels;
    with a letterbox it may go beyond the photo by half a pixel of the input.

    target: where it is in the input: left, top, width, height, in the input's.  To find
    a point of the input in the photo: photo = box + (input - target) * box size /
    target size.
    """

    box: Tuple[float, float, float, float]
    target: Tuple[int, int, int, int]

    @classmethod
    def of(cls, photo: Tuple[int, int], image: Tuple[int, int], fit: Fit) -> Placement:
        """For a photo and an input of these widths and heights."""
        (width, height), (w, h) = photo, image
        if fit.resize == "letterbox":
            ratio = min(w / width, h / height)
            middle = fit.position == "center"
            across, down = (
                _letterboxed(n * ratio, of, middle)
                for n, of in ((width, w), (height, h))
            )
            box = (
                across[0] / ratio,
                down[0] / ratio,
                across[2] / ratio,
                down[2] / ratio,
            )
            return cls(box, (across[1], down[1], across[2], down[2]))
        if fit.resize == "crop":
            ratio = min(width / w, height / h) * fit.crop
            part = w * ratio, h * ratio
            return cls(
                ((width - part[0]) / 2, (height - part[1]) / 2, *part), (0, 0, w, h)
            )
        return cls((0.0, 0.0, float(width), float(height)), (0, 0, w, h))


def _letterboxed(length: float, of: int, middle: bool) -> Tuple[float, int, int]:
    """Of a photo as long as that on one side of an input: where it begins in the pixels
    it takes, the first of these, and how many.

    These are the ones with their middle in it.  They are parted from it by fractions,
    which the resizing keeps, so that what a network finds is where it is, not up to a
    pixel of the input beside it.
    """
    start = (of - length) / 2 if middle else 0.0
    first = math.floor(start + 0.5)
    end = math.floor(start + length + 0.5)
    if end == first:  # as thin as that: the pixel that it is in
        first = math.floor(start)
        end = math.floor(start) + 1
    return first - start, first, end - first


def is_photo(array: Array) -> bool:
    """Whether an array for an image input is a photo, still to be prepared: uint8,
    [H,W] or [H,W,1, 3 or 4].

    A prepared input has a batch axis, so that the two cannot be mistaken for each
    other.
    """
    return array.dtype == np.uint8 and (
        array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    )


def prepare(photo: Array, preprocess: Preprocess, info: TensorInfo) -> Array:
    """The input `info` made of a photo: uint8 [H,W] or [H,W,C], red first; alpha is
    dropped.

    preprocess: one that suits `info`.  The image is repeated along the batch.
    """
    layout = ImageLayout.of(info, preprocess.layout)
    assert layout is not None, "the preprocessing does not suit its input"
    if photo.size == 0:
        raise InputError(
            f'the photo for "{info.name}" is empty: {photo.shape}',
            hint="give one with pixels",
        )
    pixels = photo[:, :, None] if photo.ndim == 2 else photo[:, :, :3]
    levels = _levels(
        _placed(pixels, layout, preprocess), preprocess.color, layout.channels
    )
    table = value_table(preprocess.values, info, layout.channels)
    order = (2, 1, 0) if preprocess.color == "bgr" else range(layout.channels)
    planes = [table[c][levels[..., c]] for c in order]
    one = np.stack(planes, axis=0 if layout.channels_first else -1)
    return np.ascontiguousarray(np.broadcast_to(one, info.shape))


def _placed(pixels: Array, layout: ImageLayout, preprocess: Preprocess) -> Array:
    """uint8 [H,W,3] of the input's size."""
    size = layout.width, layout.height
    place = Placement.of((pixels.shape[1], pixels.shape[0]), size, preprocess.fit)
    left, top, width, height = place.target
    inner = resize(pixels, place.box, (width, height), preprocess.filter)
    canvas = np.empty((layout.height, layout.width, 3), np.uint8)
    canvas[:] = preprocess.fit.fill
    canvas[top : top + height, left : left + width] = inner
    return canvas


def _levels(image: Array, color: str, channels: int) -> Array:
    """uint8 [H,W,channels], red first, or grey in each channel."""
    if color != "gray":
        return image
    grey = (image.astype(np.int32) @ np.array(_LUMA, np.int32) + 0x8000) >> 16
    return np.broadcast_to(grey.astype(np.uint8)[..., None], (*grey.shape, channels))


def value_table(values: Values, info: TensorInfo, channels: int) -> Array:
    """[channels, 256], red first: the element that each level becomes."""
    dtype = info.numpy_dtype
    level = np.arange(256, dtype=np.float64)
    if values.range == "raw":
        bytes_: Array = (level + np.iinfo(dtype).min).astype(dtype)
        return np.tile(bytes_, (channels, 1))
    mean, std = (_per_channel(n, channels) for n in (values.mean, values.std))
    reals: Array = (
        ((level / 255 if values.range == "0_1" else level) - mean) / std
    ).astype(np.float32)
    if info.quant is None or dtype == np.float32:
        return reals
    return quantized(reals, info.quant.scale[0], info.quant.zero_point[0], dtype)


def _per_channel(numbers: Tuple[float, ...], channels: int) -> Array:
    """[channels, 1]; one channel takes the mean of three."""
    if channels == 1 and len(numbers) == 3:
        numbers = ((numbers[0] + numbers[1] + numbers[2]) / 3,)
    return np.broadcast_to(np.array(numbers, np.float64), (channels,))[:, None]


def quantized(reals: Array, scale: float, zero_point: int, dtype: Any) -> Array:
    """round(real / scale) + zero_point as TFLite's AffineQuantize: float32, ties away
    from zero, clipped to `dtype`.

    What is not a number becomes the zero point and infinities the ends of the range, as
    TFLite's conversion to int32 has it on Arm; C leaves it open, and x86 makes the
    lowest integer of both.
    """
    with np.errstate(all="ignore"):
        x = (reals / np.float32(scale)).astype(np.float32)
        whole = np.trunc(x)
        rounded = whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), np.float32(0))
        return saturated(rounded, zero_point, dtype)


def saturated(rounded: Array, zero_point: int, dtype: Any) -> Array:
    """Whole reals with the zero point added, in the range of `dtype`; what is not a
    number is none.
    """
    info = np.iinfo(dtype)
    whole = np.where(np.isnan(rounded), np.float32(0), rounded) + np.float32(zero_point)
    clipped: Array = np.clip(whole, info.min, info.max).astype(dtype)
    return clipped


def read_photo(path: Path) -> Array:
    """uint8 [H,W,3] of a file, turned upright as EXIF says, red first.

    Needs Pillow, which a device may lack.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        other = (
            "pip install pillow, or give the pixels: a uint8 array [height, "
            "width, "
            "3] in an .npy file"
        )
        raise InputError(
            "Pillow is needed to read photos, and is not there",
            at=str(path),
            hint=other,
        ) from None
    hint = "remove the file or save it again"
    # Pillow would wait for a pipe's writer, and read a device for ever
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path.name} cannot be read as a photo: it is no plain file",
            at=str(path),
            hint=hint,
        )
    try:
        with warnings.catch_warnings():
            # far larger ones are an error
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            file = Image.open(path)
        with file:
            upright = ImageOps.exif_transpose(file) or file
            # 16 bits of grey, which Pillow would cut off at 255
            if upright.mode.startswith("I"):
                grey = np.clip(np.asarray(upright, np.int64) // 256, 0, 255).astype(
                    np.uint8
                )
                return np.repeat(grey[:, :, None], 3, axis=2)
            return np.asarray(upright.convert("RGB"), np.uint8)
    except MemoryError:  # Pillow's own for some damaged files
        what = (
            f"{path.name} cannot be read as a photo: it asks for more memory than "
            "there is"
        )
        raise InputError(what, at=str(path), hint=hint) from None
    except Exception as e:  # Pillow's decoders raise a dozen kinds for a damaged file
        what = f"{path.name} cannot be read as a photo: {e or type(e).__name__}"
        raise InputError(what, at=str(path), hint=hint) from e
