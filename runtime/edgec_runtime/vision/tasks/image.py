"""The task of image networks (style, cartoon, super-resolution): the output is a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...rows import parameter
from ...tensors import TensorInfo
from ..resample import whole
from .base import Array, Decode, DecoderSetting, Outputs, Size, View, output_for

_RANGES = {"0_1": (255.0, 0.0), "0_255": (1.0, 0.0), "m1_1": (127.5, 127.5)}
"""Factor and offset that turn values of each range into levels of 0…255."""


def levels(image: Array, range: str) -> Array:
    """Return the uint8 levels of an image of floats.

    Args:
        image: the values
        range: their range, a key of `_RANGES`
    """
    factor, offset = _RANGES[range]
    scaled = image * np.float32(factor) + np.float32(offset)

    # Values have to be clipped, since networks overshoot at sharp edges.
    clipped: Array = np.clip(np.rint(scaled), 0, 255)
    return clipped.astype(np.uint8)


def _is_image(shape: Tuple[int, ...]) -> bool:
    """Return whether an output is one image of 1 or 3 channels, first or last."""
    if len(shape) != 4 or shape[0] != 1:
        return False
    return shape[3] in (1, 3) or shape[1] in (1, 3)


@dataclass(frozen=True)
class ImageOutput:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "image"
    output: Optional[str] = parameter(
        "the output that is an image; default: the only one", None
    )
    range: str = parameter("what its values are", "0_1", choices=tuple(_RANGES))
    color: str = parameter("the order of its colours", "rgb", choices=("rgb", "bgr"))

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> ImageOutput:
        """Return the task for a model, with defaults replaced by the model's outputs."""
        output = output_for(self.output, "image", outputs, _is_image)
        return replace(self, output=output)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""

        def decode(outputs: Outputs, view: View) -> Picture:
            image = outputs[str(self.output)][0]
            if image.shape[2] not in (1, 3):
                image = image.transpose(1, 2, 0)
            pixels = levels(image, self.range)
            if self.color == "bgr":
                pixels = pixels[..., ::-1]

            # Grey becomes a picture of three equal channels.
            shape = (*pixels.shape[:2], 3)
            in_color = np.broadcast_to(pixels, shape)

            return Picture(np.ascontiguousarray(in_color), view)

        return decode


Resized = Callable[[Array, Size, str], Array]
"""Resizes a picture to a width and height by the filter of a name."""


@dataclass(frozen=True)
class Picture:
    """The picture that a network has made of the visible part of a frame.

    Attributes:
        pixels: the picture, uint8 [H, W, 3]
        view: the place of the frame in the input
    """

    pixels: Array
    view: View

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        return {
            "image": {"width": self.pixels.shape[1], "height": self.pixels.shape[0]}
        }

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        return [f"a picture of {self.pixels.shape[1]} x {self.pixels.shape[0]} pixels"]

    def of_frame(self, resized: Resized = whole) -> Array:
        """Return the picture in the shape of the visible part of the frame.

        It has no letterbox, and at least the size of the visible part.

        Args:
            resized: resizes a picture
        """
        _, _, width, height = self._box()
        _, _, visible_width, visible_height = self.view.seen()

        # The picture of a super-resolution network is not reduced.
        factor = max(1.0, width / visible_width, height / visible_height)
        size = (
            max(1, round(visible_width * factor)),
            max(1, round(visible_height * factor)),
        )
        return resized(self.inside(), size, "bicubic")

    def inside(self) -> Array:
        """Return the pixels without the borders of a letterbox."""
        x, y, w, h = self._box()

        rows = slice(round(y), round(y + h))
        columns = slice(round(x), round(x + w))
        return self.pixels[rows, columns]

    def part(self, frame: Array) -> Array:
        """Return the visible part of the frame."""
        left, top, width, height = (round(v) for v in self.view.seen())
        return frame[top : top + height, left : left + width]

    def _box(self) -> Tuple[float, float, float, float]:
        """Return the place of the visible part in the pixels: left, top, width, height."""
        height, width = self.pixels.shape[:2]
        x, y, w, h = self.view.place.target

        # The output of a super-resolution network has more pixels than its input.
        per_x = width / self.view.image[0]
        per_y = height / self.view.image[1]
        return x * per_x, y * per_y, w * per_x, h * per_y

    def draw(self, frame: Array) -> Array:
        """Return the picture itself."""
        return self.of_frame()
