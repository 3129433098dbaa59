"""Text detection: boxes of lines of text from a map of probabilities.

The map is that of "Real-time Scene Text Detection with Differentiable Binarization"
(Liao et al., 2020). It has the inner part of each line, so that lines stay apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, List, Mapping, Optional, Tuple

import numpy as np

from ...rows import parameter
from ...tensors import TensorInfo
from ..regions import HALF_PIXEL, TurnedRectangle, runs_of, smallest_rectangle
from .base import (
    ACTIVATIONS,
    Array,
    Decode,
    DecoderSetting,
    Outputs,
    Size,
    View,
    activated,
    output_for,
)
from .instances import Box, Boxes

MAX_REGIONS = 1000
"""The most regions of a map that are looked at: the largest ones."""

LABEL = "text"
"""The label of a box, where the model has none."""


@dataclass(frozen=True)
class TextDetection:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "text-detection"
    output: Optional[str] = parameter(
        "the output with the map; default: the only one that can be", None
    )
    activation: str = parameter(
        "what makes probabilities of it", "none", choices=ACTIVATIONS[:2]
    )
    binary: float = parameter(
        "the least probability of a pixel of text", 0.3, low=0, high=1
    )
    threshold: float = parameter(
        "boxes with a smaller mean probability are left out", 0.6, low=0, high=1
    )
    unclip: float = parameter(
        "r of the paper: a box grows by area · r / perimeter on each side",
        1.5,
        low=0,
        high=10,
    )
    least: float = parameter(
        "smaller regions are left out: their shorter side in pixels of the map",
        3.0,
        low=0,
        high=4096,
    )
    limit: int = parameter("the most boxes, the best ones", 100, low=1, high=4096)

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> TextDetection:
        """Return the task for a model, with everything that was left open."""
        output = output_for(self.output, "map of text", outputs, _is_map)
        return replace(self, output=output)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""
        label = setting.labels[0] if setting.labels else LABEL

        def decode(outputs: Outputs, view: View) -> Boxes:
            array = outputs[str(self.output)]
            height, width = _map_size(array.shape)
            values = activated(array.reshape(height, width), self.activation)

            # The map may be coarser than the input.
            scale = np.array(view.image) / np.array([width, height])
            boxes: List[Box] = []
            for rectangle, score in self._found(values):
                quad = view.to_frame(rectangle.polygon() * scale)
                boxes.append(_box(quad, score, label, view.frame))
            return Boxes(tuple(boxes))

        return decode

    def _found(self, values: Array) -> List[Tuple[TurnedRectangle, float]]:
        """Return rectangles and scores of a map [H, W], the best first."""
        runs = runs_of(values >= self.binary)
        regions = runs.regions()

        # Noise makes thousands of regions of a few pixels.
        regions.sort(key=len, reverse=True)
        found: List[Tuple[TurnedRectangle, float]] = []
        for numbers in regions[:MAX_REGIONS]:
            # The outline is of middles: the pixels reach half a one farther.
            around = smallest_rectangle(runs.outline(numbers))
            rectangle = around.grown(HALF_PIXEL)
            if min(rectangle.size) < self.least:
                continue
            score = rectangle.mean(values)
            if score >= self.threshold:
                found.append((rectangle.grown(self._offset(rectangle)), score))

        found.sort(key=lambda one: -one[1])
        return found[: self.limit]

    def _offset(self, rectangle: TurnedRectangle) -> float:
        """Return by how much a box grows on each side.

        D' = A' · r / L' with area A' and perimeter L' of the region, equation 10 of the
        paper.
        """
        width, height = rectangle.size
        return width * height * self.unclip / (2 * (width + height))


def _is_map(shape: Tuple[int, ...]) -> bool:
    """Return whether an output can be a map of one plane, [1, 1, H, W] or [1, H, W, 1]."""
    return len(shape) == 4 and shape[0] == 1 and 1 in (shape[1], shape[3])


def _map_size(shape: Tuple[int, ...]) -> Tuple[int, int]:
    """Return height and width of a map."""
    if shape[1] == 1:
        return shape[2], shape[3]
    return shape[1], shape[2]


def _box(quad: Array, score: float, label: str, frame: Size) -> Box:
    """Return a turned box.

    Args:
        quad: its corners in the frame [4, 2], from the top left on, clockwise
        score: its mean probability
        label: its label
        frame: width and height of the frame
    """
    # A frame that was stretched turns the box, so that its top edge says the angle.
    along = quad[1] - quad[0]
    angle = math.atan2(along[1], along[0])

    low = np.clip(quad.min(axis=0), 0, np.array(frame))
    high = np.clip(quad.max(axis=0), 0, np.array(frame))
    x1, y1 = low.tolist()
    x2, y2 = high.tolist()
    polygon = tuple((float(x), float(y)) for x, y in quad)
    return Box(
        corners=(x1, y1, x2, y2),
        score=score,
        index=0,
        label=label,
        angle=angle,
        polygon=polygon,
    )
