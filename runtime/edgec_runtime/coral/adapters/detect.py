"""Objects of a detector that picks its boxes itself, such as TFLite's SSDs."""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Tuple

from numpy.typing import NDArray

from . import common

Array = NDArray[Any]


class BBox(NamedTuple):
    """A box by its lowest and highest x and y."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    @property
    def width(self) -> float:
        """Return the extent along x; below 0 for a box that is not `valid`."""
        return self.xmax - self.xmin

    @property
    def height(self) -> float:
        """Return the extent along y; below 0 for a box that is not `valid`."""
        return self.ymax - self.ymin

    @property
    def area(self) -> float:
        """Return width times height."""
        return self.width * self.height

    @property
    def valid(self) -> bool:
        """Whether neither width nor height is negative."""
        return self.width >= 0 and self.height >= 0

    def scale(self, sx: float, sy: float) -> "BBox":
        """Return the box with x multiplied by sx, y by sy."""
        return BBox(sx * self.xmin, sy * self.ymin, sx * self.xmax, sy * self.ymax)

    def translate(self, dx: float, dy: float) -> "BBox":
        """Return the box moved by dx and dy."""
        return BBox(dx + self.xmin, dy + self.ymin, dx + self.xmax, dy + self.ymax)

    def map(self, f: Callable[[float], float]) -> "BBox":
        """Return the box with f of each number."""
        return BBox(*(f(number) for number in self))

    @staticmethod
    def intersect(a: "BBox", b: "BBox") -> "BBox":
        """Return the part that two boxes share; it is not `valid` where they do not."""
        return BBox(
            max(a.xmin, b.xmin),
            max(a.ymin, b.ymin),
            min(a.xmax, b.xmax),
            min(a.ymax, b.ymax),
        )

    @staticmethod
    def union(a: "BBox", b: "BBox") -> "BBox":
        """Return the smallest box around two boxes."""
        return BBox(
            min(a.xmin, b.xmin),
            min(a.ymin, b.ymin),
            max(a.xmax, b.xmax),
            max(a.ymax, b.ymax),
        )

    @staticmethod
    def iou(a: "BBox", b: "BBox") -> float:
        """Return the intersection's area over the union's, 0…1."""
        shared = BBox.intersect(a, b)
        if not shared.valid:
            return 0.0
        return shared.area / (a.area + b.area - shared.area)


class Object(NamedTuple):
    """A detected object.

    Attributes:
        id: the number of its class
        score: its score
        bbox: its box, in pixels
    """

    id: int
    score: float
    bbox: BBox


def get_objects(
    interpreter: Any,
    score_threshold: float = -math.inf,
    image_scale: Tuple[float, float] = (1.0, 1.0),
) -> List[Object]:
    """Return the objects of the last inference, with boxes in whole pixels.

    Args:
        interpreter: the interpreter
        score_threshold: the lowest score that counts
        image_scale: the scale from `common.set_resized_input`: boxes are then in pixels
            of the picture; without it, in pixels of the input
    """
    boxes, classes, scores, count = _outputs(interpreter)
    width, height = common.input_size(interpreter)
    # Boxes are in parts of the input; the input is the picture times the scale.
    sx = width / image_scale[0]
    sy = height / image_scale[1]
    objects: List[Object] = []
    # Rows behind the count hold nothing.
    for i in range(min(count, len(scores))):
        if scores[i] < score_threshold:
            continue
        ymin, xmin, ymax, xmax = map(float, boxes[i])
        box = BBox(xmin, ymin, xmax, ymax).scale(sx, sy).map(int)
        objects.append(Object(int(classes[i]), float(scores[i]), box))
    return objects


def _outputs(interpreter: Any) -> Tuple[Array, Array, Array, int]:
    """Return boxes [N, 4] (y, x, y, x in 0…1), classes [N], scores [N] and the count.

    The order is in the names of a signature (output_0: count, 1: scores, 2: classes, 3:
    boxes), as TensorFlow 2's exporter writes them. A model without one has the order of
    TFLite_Detection_PostProcess (boxes, classes, scores, count), or, where the last
    output is no count, of TensorFlow 2 without signature (scores, boxes, count,
    classes).
    """
    # An exporter may sort outputs by name, so that their order says nothing.
    outputs = [common.output_tensor(interpreter, i) for i in range(4)]
    if interpreter.get_signature_list():
        named = interpreter.get_signature_runner().get_output_details()
        by_name = {
            name: interpreter.tensor(row["index"])() for name, row in named.items()
        }
        count, scores, classes, boxes = (by_name[f"output_{i}"] for i in range(4))
    elif outputs[3].size == 1:
        boxes, classes, scores, count = outputs
    else:
        scores, boxes, count, classes = outputs
    return boxes[0], classes[0], scores[0], int(count.flat[0])
