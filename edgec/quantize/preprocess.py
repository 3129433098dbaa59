"""From a photo to a model's input: layout, size, and what a pixel value becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from edgec.errors import InputError
from edgec.ir import Array, TensorType
from edgec.ops.quantize import Quantize

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm")
"""Files that are read as photos, lower case."""

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """value = (pixel * scale - mean) / std, with pixel in 0…255 and mean and std per channel in the order of `color`.

    `raw` hands the pixels to a quantized input as they are (int8: pixel - 128) and ignores the rest.
    """

    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    color: str = "rgb"
    raw: bool = False

    @classmethod
    def parse(cls, text: str) -> Preprocess:
        """A name of `NAMES`, with `bgr_` before it for blue first. Raises InputError for any other."""
        name = text.removeprefix("bgr_")
        if name not in NAMES:
            known = ", ".join(sorted(NAMES))
            raise InputError(f'there is no preprocessing "{text}"', hint=f"use one of {known}; bgr_… for blue first")
        rows = NAMES[name]
        return cls(**rows, color="bgr" if text.startswith("bgr_") else "rgb")

    @classmethod
    def default(cls, t: TensorType) -> Preprocess:
        """Raw pixels for a quantized input, 0…1 for a float one."""
        return cls.parse("raw" if t.dtype in ("int8", "uint8") else "0_1")

    def reals(self, pixels: Array) -> Array:
        """float32 [H,W,C] of uint8 pixels [H,W,C], red first."""
        ordered = pixels[..., ::-1] if self.color == "bgr" else pixels
        mean, std = (np.array(a, np.float64) for a in (self.mean, self.std))
        if pixels.shape[-1] == 1:  # one grey channel: the means of the three
            mean, std = mean.mean(), std.mean()
        result: Array = ((ordered * np.float64(self.scale) - mean) / std).astype(np.float32)
        return result

    def apply(self, pixels: Array, t: TensorType) -> Array:
        """The [H,W,C] elements of an input of type `t`."""
        if t.dtype == "float32":
            return self.reals(pixels)
        if t.dtype not in ("int8", "uint8"):
            raise InputError(f"an input of type {t} cannot take a photo", hint="give an .npz file instead")
        info = np.iinfo(t.np_dtype)
        if self.raw or t.quant is None:
            ordered = pixels[..., ::-1] if self.color == "bgr" else pixels
            shifted: Array = (ordered.astype(np.int16) + info.min).astype(t.np_dtype)
            return shifted
        real = self.reals(pixels)
        return Quantize(t.dtype).ref([real], [TensorType(real.shape)], [t])[0]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Preprocess:
        """What `as_dict` gave."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """For manifest.json."""
        if self.raw:
            return {"raw": True, "color": self.color}
        return {"scale": self.scale, "mean": list(self.mean), "std": list(self.std), "color": self.color}


NAMES: dict[str, dict[str, Any]] = {
    "raw": {"raw": True},
    "0_1": {},
    "0_255": {"scale": 1.0},
    "m1_1": {"mean": (0.5,), "std": (0.5,)},
    "imagenet": {"mean": _IMAGENET_MEAN, "std": _IMAGENET_STD},
}
"""What `Preprocess.parse` knows: pixels as they are, in 0…1, in 0…255, in -1…1, and normalised as torchvision does."""


@dataclass(frozen=True)
class ImageLayout:
    """How an input stores an image: [N,H,W,C] or [N,C,H,W] with one or three channels."""

    batch: int
    height: int
    width: int
    channels: int
    channels_first: bool

    @classmethod
    def of(cls, name: str, t: TensorType) -> ImageLayout:
        """Told by the shape: the last axis if it has 1 or 3 channels, else the second. Raises InputError if neither."""
        if t.rank == 4 and t.shape[3] in (1, 3):
            n, h, w, c = t.shape
            return cls(n, h, w, c, False)
        if t.rank == 4 and t.shape[1] in (1, 3):
            n, c, h, w = t.shape
            return cls(n, h, w, c, True)
        hint = "give the samples as an .npz file with an array of that shape"
        raise InputError(f"input {name} is {t}, which is no image of 1 or 3 channels", hint=hint)

    def arrange(self, image: Array) -> Array:
        """[H,W,C] in this layout, repeated along the batch."""
        one = image.transpose(2, 0, 1) if self.channels_first else image
        return np.ascontiguousarray(np.broadcast_to(one, (self.batch, *one.shape)))


def read_photo(path: Path, layout: ImageLayout) -> Array:
    """uint8 [H,W,C] of the layout's size: turned upright as EXIF says, stretched, red first (or grey)."""
    try:
        with Image.open(path) as file:
            upright = ImageOps.exif_transpose(file) or file
            mode = "L" if layout.channels == 1 else "RGB"
            image = upright.convert(mode).resize((layout.width, layout.height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        raise InputError(
            f"{path.name} cannot be read as a photo: {e}", str(path), "remove the file or save it again"
        ) from e
    return np.asarray(image, np.uint8).reshape(layout.height, layout.width, layout.channels)


def photo_input(path: Path, name: str, t: TensorType, preprocess: Preprocess | None = None) -> Array:
    """The input `name` of type `t` made from one photo."""
    layout = ImageLayout.of(name, t)
    chosen = preprocess or Preprocess.default(t)
    return layout.arrange(chosen.apply(read_photo(path, layout), t))
