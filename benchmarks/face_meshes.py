"""The 468 points of the face in a picture, by a bundle that detects faces and one of
the face mesh.

The face's box is turned by the line through the eyes, enlarged by a half and squared;
the part is cropped with numpy, given to the mesh network, and the points are turned
back into the picture.  A second pass crops by the points of the first, as trackers do
from frame to frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.bundle.archive import Bundle
from edgec_runtime.session.session import Session
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.points import Points
from numpy.typing import NDArray

Array = NDArray[Any]

ENLARGED = 1.5
"""The side of the crop in sides of the face's box."""
RIGHT_EYE = 33
LEFT_EYE = 263
"""Points of the mesh at the outer corners of the eyes."""
LEAST_SCORE = 0.5
"""Below it the mesh network says that there is no face."""


class NetworkRunner:
    """A bundle with its task, for pictures."""

    def __init__(self, path: Path) -> None:
        """Open a bundle."""
        self._bundle = Bundle.open(str(path))
        self._vision = Vision(self._bundle)
        self._session = Session(self._bundle)
        assert self._vision.image is not None
        self.side: int = self._vision.image[0]

    def __call__(self, picture: Array) -> Any:
        """Return the result of a picture, uint8 [H, W, 3]."""
        inputs: Mapping[str, Array] = self._vision.prepare(picture)
        size = picture.shape[1], picture.shape[0]
        return self._vision.result(self._session.run(inputs), size)


class FaceMeshes:
    """Finds the mesh of the largest face in pictures."""

    def __init__(self, detector: Path, mesh: Path) -> None:
        """Open both bundles."""
        self._detector = NetworkRunner(detector)
        self._mesh = NetworkRunner(mesh)

    def __call__(self, picture: Array, last: Array | None = None) -> Points | None:
        """Return 468 points with depth, in pixels of the picture; None without a face.

        Args:
            picture: uint8 [H, W, 3]
            last: the points of the frame before [468, 2], for a crop without the
                detector
        """
        if last is None:
            square = self._detected(picture)
            if square is None:
                return None
            first = self._in_square(picture, square)
            last = first.points
        found = self._in_square(picture, square_of(last))
        return found if found.score >= LEAST_SCORE else None

    def _detected(self, picture: Array) -> Array | None:
        """Return the square about the surest face; None if there is none."""
        boxes: Boxes = self._detector(picture)
        if not boxes.boxes:
            return None
        box = max(boxes.boxes, key=lambda b: b.corners[2] - b.corners[0])
        left, top, right, bottom = box.corners
        middle = np.array([left + right, top + bottom]) / 2
        side = ENLARGED * max(right - left, bottom - top)
        # The first two of the six points are the eyes.
        eyes = np.array(box.points[:2])
        return square(middle, side, eyes[1] - eyes[0])

    def _in_square(self, picture: Array, matrix: Array) -> Points:
        """Return the mesh of the face in a turned square of a picture."""
        side = self._mesh.side
        scale = matrix / side
        scale[:, 2] = matrix[:, 2]
        crop = cropped(picture, scale, side)
        found: Points = self._mesh(crop)
        points = found.points @ scale[:, :2].T + scale[:, 2]
        assert found.depth is not None
        depth = found.depth * np.hypot(*scale[:, 0])
        return Points(
            points.astype(np.float32), found.scores, found.shown, found.score, depth
        )


def square(middle: Array, side: float, across: Array) -> Array:
    """Return the map from a unit square, [2, 3]: columns its sides and its corner.

    Args:
        middle: of the square
        side: its length, pixels
        across: the direction of the upper side
    """
    x = across / np.hypot(*across) * side
    y = np.array([-x[1], x[0]])
    return np.stack([x, y, middle - (x + y) / 2], axis=1)


def square_of(points: Array) -> Array:
    """Return the square about the points of a mesh."""
    across = points[LEFT_EYE] - points[RIGHT_EYE]
    unit = across / np.hypot(*across)
    turn = np.array([[unit[0], unit[1]], [-unit[1], unit[0]]])
    turned = points @ turn.T
    low = turned.min(axis=0)
    high = turned.max(axis=0)
    middle = (low + high) / 2 @ turn
    return square(middle, ENLARGED * float((high - low).max()), across)


def cropped(picture: Array, matrix: Array, side: int) -> Array:
    """Return a turned square of a picture, uint8 [side, side, 3], black outside.

    Each pixel is the mean of samples, as many as the crop reduces the picture.

    Args:
        picture: uint8 [H, W, 3]
        matrix: from pixels of the result to those of the picture [2, 3]
        side: of the result, pixels
    """
    many = max(1, int(np.ceil(np.hypot(*matrix[:, 0]))))
    at = (np.arange(side * many) + 0.5) / many
    x, y = np.meshgrid(at, at)
    places = np.stack([x, y], axis=-1) @ matrix[:, :2].T + matrix[:, 2]
    samples = bilinear(picture, places)
    means = samples.reshape(side, many, side, many, 3).mean(axis=(1, 3))
    return np.asarray(means + 0.5, np.uint8)


def bilinear(picture: Array, places: Array) -> Array:
    """Return the colours at places [..., 2] of a picture, 0 outside, float64."""
    padded = np.pad(picture, ((1, 1), (1, 1), (0, 0)))
    height, width = padded.shape[:2]
    x = np.clip(places[..., 0] + 0.5, 0, width - 1.001)
    y = np.clip(places[..., 1] + 0.5, 0, height - 1.001)
    column = x.astype(np.int64)
    row = y.astype(np.int64)
    right = (x - column)[..., None]
    low = (y - row)[..., None]
    upper = padded[row, column] * (1 - right) + padded[row, column + 1] * right
    under = padded[row + 1, column] * (1 - right) + padded[row + 1, column + 1] * right
    return np.asarray(upper * (1 - low) + under * low)
