"""The parameters of a detection: the layout of boxes in a network's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from ...rows import parameter
from ...tensors import TensorInfo
from .anchors import MAX_BOXES, Anchors
from .base import ACTIVATIONS

ORDERS = ("xywh", "xyxy", "yxyx", "yxhw")
"""Orders of a box's numbers: a centre and a size, or two corners."""
SUPPRESSIONS = ("class", "all", "weighted", "none")
"""Kinds of non-maximum suppression."""
ROW_COLUMNS = 7
"""Columns of a box before its points: x1, y1, x2, y2, score, class, and its row in the
output.
"""

_FIRST = -4096
"""The least number of a column; negative numbers count from the last column, -1."""
_LAST = 4095
"""The largest number of a column."""


@dataclass(frozen=True)
class DetectionParameters:
    """The parameters of the task, as the manifest has them (docs/tasks.md).

    The texts of the fields describe them.
    """

    boxes: Optional[str] = parameter(
        "the output with boxes [1,N,columns]; default: the only one that can be", None
    )
    scores: Optional[str] = parameter(
        "the output with scores [1,N,columns]; default: the one with the boxes", None
    )
    classes: Optional[str] = parameter("an output with the class of each box", None)
    count: Optional[str] = parameter("an output with the number of boxes", None)
    transposed: bool = parameter("outputs are [1,columns,N]", False)
    order: str = parameter(
        "of a box's numbers; x and y of a centre where a w or h follows",
        "xywh",
        choices=ORDERS,
    )
    units: str = parameter(
        "of boxes without anchors: 0…1 of the input, or its pixels",
        "relative",
        choices=("relative", "pixels"),
    )
    anchors: Optional[Anchors] = parameter(
        "what boxes are counted from: x = anchor x + x / scale * anchor width", None
    )
    scales: Tuple[float, ...] = parameter(
        "by which x, y, width and height are divided", (1.0, 1.0, 1.0, 1.0), low=1e-6
    )
    exponential: bool = parameter(
        "width = exp(width / scale) * anchor width, not only width / scale * anchor width",
        True,
    )
    box_column: int = parameter(
        "the first of the four numbers", 0, low=_FIRST, high=_LAST
    )
    score_column: int = parameter(
        "the first of the classes' scores, which end where another column of the same "
        "output is named",
        0,
        low=_FIRST,
        high=_LAST,
    )
    class_column: Optional[int] = parameter(
        "the class of the box, whose only score is in the column of scores",
        None,
        low=_FIRST,
        high=_LAST,
    )
    several: bool = parameter(
        "a row is a box of each class whose score is high enough, not only of the best",
        False,
    )
    objectness: Optional[int] = parameter(
        "a column by which all scores are multiplied", None, low=_FIRST, high=_LAST
    )
    background: bool = parameter("the first class is that there is nothing", False)
    activation: str = parameter(
        "what makes probabilities of scores", "none", choices=ACTIVATIONS
    )
    points: int = parameter("how many points a box has", 0, low=0, high=64)
    point_column: int = parameter(
        "the first of their x and y", 4, low=_FIRST, high=_LAST
    )
    point_numbers: int = parameter(
        "2, or 3 where a number behind x and y says whether it is seen",
        2,
        low=2,
        high=3,
    )
    point_threshold: float = parameter(
        "points that are less surely seen are not drawn", 0.0, low=0, high=1
    )
    point_names: Tuple[str, ...] = parameter("of the points", ())
    lines: Tuple[Tuple[int, ...], ...] = parameter(
        "pairs of points that are joined in pictures", (), low=0, high=_LAST
    )
    angle_column: Optional[int] = parameter(
        "by how much a box is turned about its centre, in radians",
        None,
        low=_FIRST,
        high=_LAST,
    )
    mask_column: Optional[int] = parameter(
        "the first of the factors, to the last column, by which planes are added up to "
        "the mask of a box",
        None,
        low=_FIRST,
        high=_LAST,
    )
    masks: Optional[str] = parameter(
        "the output with those planes [1,planes,H,W]; default: the only one that can be",
        None,
    )
    threshold: float = parameter("the least score of a box", 0.5, low=0, high=1)
    clipped: bool = parameter(
        "boxes are cut off at the borders of the input before they are compared", False
    )
    candidates: int = parameter(
        "how many boxes of a class are compared at most, the best; 0: all",
        0,
        low=0,
        high=MAX_BOXES,
    )
    iou: float = parameter("boxes that overlap more are one", 0.5, low=0, high=1)
    suppression: str = parameter(
        "of such boxes the best is left: of its class, of all, "
        "or the mean weighted by scores; or all are left",
        "class",
        choices=SUPPRESSIONS,
    )
    limit: int = parameter("how many boxes are told at most", 100, low=1, high=4096)

    def table(self, shape: Tuple[int, ...]) -> Tuple[int, int]:
        """Return the numbers of rows and columns of an output; 0, 0 if it is not a table.

        Other axes of a table have one element.
        """
        inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape

        if len(inner) == 1:
            return inner[0], 1

        # Images and masks are larger than any table of boxes.
        if len(inner) != 2 or max(inner) > MAX_BOXES:
            return 0, 0

        if self.transposed:
            return inner[1], inner[0]
        return inner[0], inner[1]

    def score_columns(self, columns: int) -> int:
        """Return the number of columns with scores of classes, for a bound task.

        Args:
            columns: number of columns of the output with the scores
        """
        if self.class_column is not None:
            return 1
        # An output without boxes has only scores from there on.
        if self.scores != self.boxes:
            return columns - self.score_column

        others = [self.angle_column, self.mask_column]
        if self.points:
            others.append(self.point_column)

        # The scores end where columns with another meaning begin.
        ends = [columns]
        for column in others:
            if column is not None and column > self.score_column:
                ends.append(column)
        return min(ends) - self.score_column

    def most(self, outputs: Mapping[str, TensorInfo]) -> int:
        """Return the largest number of boxes before suppression, for a bound task.

        C allocates memory for them once.
        """
        rows, columns = self.table(outputs[str(self.scores)].shape)
        return rows * (self.score_columns(columns) if self.several else 1)

    @property
    def width(self) -> int:
        """The number of columns of a box, with its points."""
        return ROW_COLUMNS + 2 * self.points

    @property
    def one_pass(self) -> bool:
        """Whether boxes have to be selected from rows, since the network does not do it."""
        return self.classes is None

    @property
    def box_columns(self) -> int:
        """The least number of columns of the output with boxes."""
        columns = self.box_column + 4
        if self.points:
            columns = max(columns, self.point_column + self.point_columns)
        return columns

    @property
    def point_columns(self) -> int:
        """The columns of all points of a box."""
        return self.point_numbers * self.points

    @property
    def least_classes(self) -> int:
        """The least number of columns of scores: a class beside the background."""
        return 2 if self.background else 1
