"""The task of text detection: boxes of lines of text from a map of probabilities.

The map is that of "Real-time Scene Text Detection with Differentiable Binarization"
(Liao et al., 2020). It marks only the inner part of each line, so that lines do not
touch.
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
from .instances import Box, Boxes, Point

MAX_REGIONS = 1000
"""Number of regions of a map that are examined, the largest ones."""

LABEL = "text"
"""The label of a box if the model has no labels."""


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
        """Return the task for a model, with defaults replaced by the model's outputs."""
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
            scores = array.reshape(height, width)
            # NaN becomes 0, since one would make the mean of its box NaN.
            values = np.nan_to_num(activated(scores, self.activation))

            # The map may be coarser than the input.
            input_size = np.array(view.image)
            scale = input_size / np.array([width, height])
            boxes: List[Box] = []
            for rectangle, score in self._rectangles(values):
                in_input = rectangle.polygon() * scale
                quad = view.to_frame(in_input)
                box = _box(quad, score, label, view.frame)
                boxes.append(box)
            return Boxes(tuple(boxes))

        return decode

    def _rectangles(self, values: Array) -> List[Tuple[TurnedRectangle, float]]:
        """Return the rectangles of text in a map [H, W] with scores, the best first."""
        mask = values >= self.binary
        runs = runs_of(mask)
        regions = runs.regions()

        # The largest come first, since noise makes thousands of regions of a few pixels.
        regions.sort(key=len, reverse=True)
        rectangles: List[Tuple[TurnedRectangle, float]] = []
        for numbers in regions[:MAX_REGIONS]:
            # The outline is that of middles of pixels, which extend half a pixel farther.
            outline = runs.outline(numbers)
            rectangle = smallest_rectangle(outline).grown(HALF_PIXEL)
            if min(rectangle.size) < self.least:
                continue

            score = rectangle.mean(values)
            if score < self.threshold:
                continue
            line = rectangle.grown(self._offset(rectangle))
            rectangles.append((line, score))

        rectangles.sort(key=lambda pair: pair[1], reverse=True)
        return rectangles[: self.limit]

    def _offset(self, rectangle: TurnedRectangle) -> float:
        """Return the distance by which a box grows on each side.

        D' = A' · r / L' with area A' and perimeter L' of the region, equation 10 of the
        paper.
        """
        width, height = rectangle.size
        area = width * height
        perimeter = 2 * (width + height)
        return area * self.unclip / perimeter


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
    # Stretching the frame changes the angle, so that of the top edge is taken.
    along_x, along_y = quad[1] - quad[0]
    angle = math.atan2(along_y, along_x)

    size = np.array(frame)
    low = np.clip(quad.min(axis=0), 0, size)
    high = np.clip(quad.max(axis=0), 0, size)
    x1, y1 = low.tolist()
    x2, y2 = high.tolist()
    corners: List[Point] = []
    for x, y in quad.tolist():
        corners.append((x, y))
    return Box(
        corners=(x1, y1, x2, y2),
        score=score,
        index=0,
        label=label,
        angle=angle,
        polygon=tuple(corners),
    )
