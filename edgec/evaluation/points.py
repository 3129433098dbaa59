"""Errors of points, of a face for example, relative to the size of what they are on.

The normalised mean error of a picture is the mean distance between found and labelled
points over a length of the label: the distance between two points, such as the outer
corners of the eyes (Sagonas et al., 300 Faces in-the-Wild, 2013), or the root of the
area of the box around all points (Bulat and Tzimiropoulos, 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_devices.decoding import from_json
from edgec_runtime.vision.camera import MAX_SIDE
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.points import Points

from edgec.errors import InputError
from edgec.evaluation.class_names import class_number
from edgec.evaluation.label_files import (
    check_files,
    check_not_empty,
    listed,
    pictures_folder,
    read_text,
    shortened,
    table_rows_of,
)
from edgec.evaluation.measure import (
    LabelledPicture,
    Means,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
)
from edgec.ir import Array

BOX = "box"
EYES = ("left eye", "right eye")
"""Names of points whose distance is a length, where a network has them."""
_FARTHEST = 2 * MAX_SIDE
"""Pixels from the first corner of any picture."""
_WANTED = "give a .csv: file,x0,y0,x1,y1,… or a .json: [{file, points: [[x, y], …]}, …]"


@dataclass(frozen=True)
class PointLabel:
    """A picture of a .json file, with x and y of each point, px."""

    file: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PointError(Measure):
    """Judges the places of points; the label is x and y of each.

    Attributes:
        count: how many points the network finds
        between: the two points whose distance is the length; None: the box
        names: names of the points
        joined: pairs of points that are joined in pictures
        pictures: the folder that names of pictures are relative to, if given
    """

    count: int
    between: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    joined: tuple[tuple[int, ...], ...] = ()
    pictures: Path | None = None

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """The normalised mean error."""
        length = "the root of the area of the box around the labelled points"
        if self.between is not None:
            length = f"the distance of points {self.between[0]} and {self.between[1]}"
        text = f"mean distance of found and labelled points, over {length}"
        return (MeasuredFigure("nme", "error of points", "%", text, rises=False),)

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of a table or a .json file."""
        if data.suffix.lower() == ".csv":
            labels = _of_table(data)
        elif data.suffix.lower() == ".json":
            content = read_text(data).encode()
            kind = tuple[PointLabel, ...]
            labels = [*from_json(content, kind, data.name, str(data), _WANTED)]
        else:
            raise InputError(f"{data.name} has no labels of points", str(data), _WANTED)
        check_not_empty(labels, data, _WANTED)
        self._check_counts(labels, data)

        folder = pictures_folder(data, self.pictures)
        files = [folder / label.file for label in labels]
        check_files(files, data)
        pictures = []
        for file, label in zip(files, labels, strict=True):
            # Lists, as JSON has them: the label is a part of a picture's key.
            truth = [[*point] for point in label.points]
            pictures.append(LabelledPicture(file, truth))
        return pictures

    def _check_counts(self, labels: Sequence[PointLabel], data: Path) -> None:
        """Raise InputError for labels of other points, or of no extent."""
        faults = []
        for label in labels:
            count = len(label.points)
            if count != self.count:
                faults.append(f"{label.file} has {count}")
                continue
            x, y = np.abs(np.array(label.points)).max(axis=0)
            if not max(x, y) <= _FARTHEST:
                faults.append(f"{label.file} has one at {x:g}, {y:g}")
                continue
            # Errors would be relative to nothing.
            length = self._length(np.array(label.points))
            if not length > 0:
                faults.append(f"{label.file} has all of them in one place")
        if faults:
            raise InputError(
                f"the bundle finds {self.count} points, but {listed(faults)}",
                str(data),
                "label the points that the network finds, in its order",
            )

    def _length(self, points: Array) -> float:
        """Return the length of a label, points [N, 2], that errors are relative to."""
        if self.between is not None:
            one, other = points[list(self.between)]
            return float(np.linalg.norm(one - other))
        width, height = points.max(axis=0) - points.min(axis=0)
        return math.sqrt(float(width * height))

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return the normalised mean error of the picture, in percent."""
        assert isinstance(result, Points)
        # Points that the network is unsure of count too: leaving them out would pay.
        labelled = np.array(picture.truth, np.float64)
        distances = np.linalg.norm(result.points - labelled, axis=1)
        return {"nme": 100 * float(distances.mean()) / self._length(labelled)}

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return the mean of the pictures."""
        return Means.of(self.figures, observations)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the labelled points."""
        points = np.array(picture.truth, np.float32)
        sure = np.ones(len(points), np.float32)
        shown = np.ones(len(points), bool)
        return Points(points, sure, shown, 1.0, None, self.joined, self.names)

    def loss(self, result: Result, picture: LabelledPicture, frame: Array) -> float:
        """Return the error of the picture, as a part of the length."""
        return float(self.observe(result, picture, frame)["nme"]) / 100


def between_points(
    text: str | None, count: int, names: Sequence[str]
) -> tuple[int, int] | None:
    """Return the two points of --normalise; None for the box.

    Raises InputError for any other text.

    Args:
        text: the option, if it was given
        count: how many points there are
        names: their names, if they have some
    """
    if text == BOX:
        return None
    if text is None:
        # Two eyes, where the network names its points.
        if all(eye in names for eye in EYES):
            return names.index(EYES[0]), names.index(EYES[1])
        return None
    numbers = [class_number(part, count) for part in text.split(",")]
    if len(numbers) == 2 and numbers[0] != numbers[1]:
        one, other = numbers
        if one is not None and other is not None:
            return one, other
    raise InputError(
        f'errors cannot be relative to "{shortened(text)}"',
        "--normalise",
        f"give box, or the numbers of two of its {count} points: 36,45",
    )


def _of_table(data: Path) -> list[PointLabel]:
    """Return the labels of file,x0,y0,… lines."""
    labels = []
    faults = []
    for row in table_rows_of(data):
        try:
            numbers = [float(cell) for cell in row.cells[1:]]
        except ValueError:
            numbers = []
        is_finite = all(map(math.isfinite, numbers))
        if not numbers or len(numbers) % 2 or not is_finite:
            faults.append(f"line {row.line}")
            continue
        x = numbers[::2]
        y = numbers[1::2]
        points = tuple(zip(x, y, strict=True))
        label = PointLabel(row.cells[0], points)
        labels.append(label)
    if faults:
        raise InputError(
            f"{data.name} has lines without pairs of numbers: {listed(faults)}",
            str(data),
            _WANTED,
        )
    return labels
