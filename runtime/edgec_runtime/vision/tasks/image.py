"""Image to image (style, cartoon, super-resolution): the output is the picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...rows import said
from ...tensors import TensorInfo
from ..resample import whole
from .base import Array, Decode, DecoderSetting, Outputs, Size, View, output_for

_RANGES = {"0_1": (255.0, 0.0), "0_255": (1.0, 0.0), "m1_1": (127.5, 127.5)}
"""What a value is multiplied by, and what is added, to be a level of 0…255."""


def levels(image: Array, range: str) -> Array:
    """uint8 levels of an image of floats of a range."""
    factor, more = _RANGES[range]
    made: Array = np.clip(
        np.rint(image * np.float32(factor) + np.float32(more)), 0, 255
    ).astype(np.uint8)
    return made


def _is_image(shape: Tuple[int, ...]) -> bool:
    """Whether an output is one image of 1 or 3 channels, first or last."""
    return (
        len(shape) == 4 and shape[0] == 1 and (shape[3] in (1, 3) or shape[1] in (1, 3))
    )


@dataclass(frozen=True)
class ImageOutput:
    """The parameters of the task."""

    kind: ClassVar[str] = "image"
    output: Optional[str] = said(
        "the output that is an image; default: the only one", None
    )
    range: str = said("what its values are", "0_1", choices=tuple(_RANGES))
    color: str = said("the order of its colours", "rgb", choices=("rgb", "bgr"))

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> ImageOutput:
        """See Task."""
        output = output_for(self.output, "image", outputs, _is_image)
        return replace(self, output=output)

    def files(self) -> Tuple[str, ...]:
        """None."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """See Task."""

        def decode(outputs: Outputs, view: View) -> Picture:
            one = outputs[str(self.output)][0]
            image = one if one.shape[2] in (1, 3) else one.transpose(1, 2, 0)
            pixels = levels(image, self.range)
            if self.color == "bgr":
                pixels = pixels[..., ::-1]
            return Picture(
                np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3))),
                view,
            )

        return decode


Resized = Callable[[Array, Size, str], Array]


@dataclass(frozen=True)
class Picture:
    """The picture that the network made, uint8 [H,W,3], of the part of the frame that
    it saw.
    """

    pixels: Array
    view: View

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        return {
            "image": {"width": self.pixels.shape[1], "height": self.pixels.shape[0]}
        }

    def lines(self) -> List[str]:
        """See Result."""
        return [f"a picture of {self.pixels.shape[1]} x {self.pixels.shape[0]} pixels"]

    def of_frame(self, resized: Resized = whole) -> Array:
        """Without a letterbox's borders, in the shape of what the network saw of the
        frame, and no smaller.

        resized: makes a picture of another width and height, by a filter's name.
        """
        _, _, w, h = self._box()
        _, _, *seen = self.view.seen()
        factor = max(1.0, w / seen[0], h / seen[1])
        size = max(1, round(seen[0] * factor)), max(1, round(seen[1] * factor))
        return resized(self.inside(), size, "bicubic")

    def inside(self) -> Array:
        """The pixels without a letterbox's borders."""
        x, y, w, h = self._box()
        left, top, right, bottom = (round(v) for v in (x, y, x + w, y + h))
        return self.pixels[top:bottom, left:right]

    def part(self, frame: Array) -> Array:
        """What the network saw of the frame."""
        left, top, width, height = (round(v) for v in self.view.seen())
        return frame[top : top + height, left : left + width]

    def _box(self) -> Tuple[float, float, float, float]:
        """Where that part is in the pixels: left, top, width, height."""
        height, width = self.pixels.shape[:2]
        x, y, w, h = self.view.place.target
        per_x = width / self.view.image[0]
        per_y = height / self.view.image[1]
        return x * per_x, y * per_y, w * per_x, h * per_y

    def draw(self, frame: Array) -> Array:
        """The picture itself."""
        return self.of_frame()
