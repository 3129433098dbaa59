"""What int8 changes of a network's task: figures from the outputs of both models.

    top-1      1 where the float and the int8 model have the same best class
    IoU        mean intersection over union of the areas of the classes in a mask
    |Δp|       mean difference of a mask's probability
    distance   mean distance of points or of peaks of heat maps, in widths of the picture
    boxes      IoU of the boxes that both models find, summed, over the larger number of boxes

Detectors have this figure where tests/tasks/published.py has their post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgec.ir import Array
from tests.tasks import published
from tests.tasks.published import Found, iou

Outputs = Sequence[Array]
"""The outputs for one photo, in the model's order."""
Figures = Mapping[str, float]
Comparison = Callable[[Outputs, Outputs], Figures]
"""Computes figures from the outputs of the float model and of the int8 model."""
PROBABLE = 0.5
"""The probability above which a pixel of a mask belongs to the class."""
SAME_OBJECT = 0.5
"""The IoU above which two boxes show one object."""
PEAK = 0.1
"""The least value of a heat map's peak that shows a point."""
POINTS: Mapping[str, tuple[int, float]] = {
    "mp_face_landmark_f16": (3, 192),
    "mp_face_landmark_onnx": (3, 192),
    "pfld_ghostone": (2, 1),
}
"""The coordinates of a point, and the width of the picture in their unit."""
DETECTORS: Mapping[str, Callable[[Outputs], list[Found]]] = {
    "mp_blazeface_short_f16": lambda y: published.blazeface(y[0], y[1], (128, 128)),
    "mp_blazeface_short_onnx_b": lambda y: published.blazeface(y[0], y[1], (128, 128)),
    "ultraface_rfb320": lambda y: published.ultraface(y[0], y[1], (320, 240)),
    "yolox_nano_416": lambda y: published.yolox(y[0], (416, 416)),
}


def figures(
    model: str, task: str, floats: Sequence[Outputs], int8: Sequence[Outputs]
) -> Figures:
    """Return the means of a task's figures over all photos.

    Args:
        model: the model's name in the data folder
        task: the index's word for its task
        floats: the float model's outputs for each photo
        int8: the int8 model's outputs for each photo
    """
    compare = _comparison(model, task)
    if compare is None:
        return {}
    rows = [compare(a, b) for a, b in zip(floats, int8, strict=True)]
    # A photo without an object says nothing of boxes, and one without peaks of points.
    values = {
        name: [row[name] for row in rows if name in row] for row in rows for name in row
    }
    return {name: round(float(np.mean(column)), 4) for name, column in values.items()}


def _comparison(model: str, task: str) -> Comparison | None:
    if task.startswith("cls"):
        return _classes
    if task.endswith("seg") or task.startswith("seg"):
        return _mask
    if task == "face landmark":
        return lambda floats, int8: _points(floats, int8, *POINTS[model])
    if task == "pose":
        return _peaks
    if model in DETECTORS:
        find = DETECTORS[model]
        return lambda floats, int8: _boxes(find(floats), find(int8))
    return None


def _classes(floats: Outputs, int8: Outputs) -> Figures:
    return {"top-1": float(np.argmax(floats[0]) == np.argmax(int8[0]))}


def _mask(floats: Outputs, int8: Outputs) -> Figures:
    """Compare masks: one probability a pixel, or a channel for each class."""
    a = floats[0]
    b = int8[0]
    # Rows and columns are the longest axes behind the batch.
    image_axes = sorted(range(1, a.ndim), key=lambda axis: -a.shape[axis])[:2]
    channel = next((i for i in range(1, a.ndim) if i not in image_axes), None)
    if channel is not None and a.shape[channel] > 1:
        return {"IoU": _class_iou(a.argmax(channel), b.argmax(channel))}
    difference = float(np.abs(a.astype(float) - b).mean())
    return {"IoU": _class_iou(a > PROBABLE, b > PROBABLE), "|Δp|": difference}


def _class_iou(a: Array, b: Array) -> float:
    """Return the mean IoU over the classes that the first map has."""
    ious = []
    for number in np.unique(a):
        in_a = a == number
        in_b = b == number
        ious.append((in_a & in_b).sum() / (in_a | in_b).sum())
    return float(np.mean(ious))


def _points(floats: Outputs, int8: Outputs, size: int, width: float) -> Figures:
    a, b = (y[0].reshape(-1, size)[:, :2].astype(float) for y in (floats, int8))
    return {"distance": float(np.linalg.norm(a - b, axis=1).mean() / width)}


def _peaks(floats: Outputs, int8: Outputs) -> Figures:
    """Compare heat maps [1, rows, columns, points] where the float model has a peak."""
    columns = floats[0].shape[2]
    a, b = (y[0].reshape(-1, y[0].shape[-1]) for y in (floats, int8))
    has_peak = a.max(axis=0) >= PEAK
    if not has_peak.any():
        return {}
    places = [
        np.stack(np.divmod(maps.argmax(axis=0)[has_peak], columns), axis=1)
        for maps in (a, b)
    ]
    distances = np.linalg.norm(places[0] - places[1], axis=1)
    return {"distance": float(distances.mean()) / columns}


def _boxes(floats: list[Found], int8: list[Found]) -> Figures:
    if not floats:
        return {}
    unmatched = list(int8)
    overlap = 0.0
    for box in floats:
        alike = [other for other in unmatched if other.label == box.label]
        best = max(alike, key=lambda other: iou(other.box, box.box), default=None)
        if best is not None and iou(best.box, box.box) >= SAME_OBJECT:
            overlap += iou(best.box, box.box)
            unmatched.remove(best)
    return {"boxes": overlap / max(len(floats), len(int8))}
