"""What int8 does to what a network is for: figures of a task from the outputs of the
float and of the int8 model.

    classes    how often the largest element is the same
    mask       intersection over union of the classes' areas, and the mean difference of a soft
               score
    points     mean distance, as a part of the picture's width
    heat maps  the same of their peaks
    boxes      what both find, by intersection over union, over what either finds (float alone
               says what is there: the
               mean over photos where it finds something), score above 0.5, doubles suppressed

Which it is, the data folder's index says by its word for the task; detectors have a
decoder each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgec.ir import Array

Outputs = Sequence[Array]
"""Of one photo, in the model's order."""
Figures = Mapping[str, float]
Pair = tuple[Outputs, Outputs]
SCORE = 0.5
SAME_OBJECT = 0.5
"""Boxes that overlap by so much are of one object."""


def figures(name: str, task: str, pairs: Sequence[Pair]) -> Figures:
    """name: of the model; task: the index's word for it; pairs: of each photo what
    float and int8 give.
    """
    found: dict[str, list[float]] = {}
    judge = _judge(name, task)
    for want, got in pairs if judge else ():
        assert judge is not None
        for what, figure in judge(want, got).items():
            found.setdefault(what, []).append(figure)
    means = {
        what: float(np.nanmean(row))
        for what, row in found.items()
        if not np.all(np.isnan(row))
    }
    return {what: round(mean, 4) for what, mean in means.items()}


def _judge(name: str, task: str) -> Callable[[Outputs, Outputs], Figures] | None:
    if task.startswith("cls"):
        return _classes
    if task.endswith("seg") or task.startswith("seg"):
        return _mask
    if task == "face landmark":
        return lambda want, got: _points(want, got, _LANDMARKS[name])
    if task == "pose":
        return _peaks
    decode = _DETECTORS.get(name)
    if decode is None:
        return None
    return lambda want, got: _boxes(decode(want), decode(got))


# ---- pictures
# --------------------------------------------------------------------------------------


def _classes(want: Outputs, got: Outputs) -> Figures:
    return {"top-1": float(np.argmax(want[0]) == np.argmax(got[0]))}


def _mask(want: Outputs, got: Outputs) -> Figures:
    """One score a pixel, or a channel for each class: the shortest axis but the first."""
    x = want[0]
    y = got[0]
    spatial = sorted(range(1, x.ndim), key=lambda i: -x.shape[i])[:2]
    channel = next((i for i in range(1, x.ndim) if i not in spatial), None)
    soft: dict[str, float] = {}
    if channel is None or x.shape[channel] == 1:
        a = x > SCORE
        b = y > SCORE
        soft["|Δp|"] = float(np.abs(x.astype(float) - y).mean())
    else:
        a = x.argmax(channel)
        b = y.argmax(channel)
    ious = [
        float(((a == c) & (b == c)).sum() / ((a == c) | (b == c)).sum())
        for c in np.unique(a)
    ]
    return {"IoU": float(np.mean(ious)), **soft}


_LANDMARKS = {
    "mp_face_landmark_f16": (3, 192),
    "mp_face_landmark_onnx": (3, 192),
    "pfld_ghostone": (2, 1),
}
"""How many numbers a point has, and how wide the picture is in their unit."""


def _points(want: Outputs, got: Outputs, kind: tuple[int, float]) -> Figures:
    size, width = kind
    a, b = (o[0].reshape(-1, size)[:, :2].astype(float) for o in (want, got))
    return {"distance": float(np.linalg.norm(a - b, axis=1).mean() / width)}


def _peaks(want: Outputs, got: Outputs) -> Figures:
    """[1, rows, columns, points]; those of the float model that are one."""
    maps, others = (o[0].reshape(-1, o[0].shape[-1]) for o in (want, got))
    columns = want[0].shape[2]
    seen = maps.max(0) >= 0.1
    places = [
        np.stack(np.divmod(m.argmax(0)[seen], columns), 1).astype(float)
        for m in (maps, others)
    ]
    far = np.linalg.norm(places[0] - places[1], axis=1) / columns
    return {"distance": float(far.mean()) if len(far) else float("nan")}


# ---- detectors
# --------------------------------------------------------------------------------------

Boxes = tuple[Array, Array, Array]
"""Corners [n, 4] (left, top, right, bottom), scores [n], classes [n]."""


def _boxes(want: Boxes, got: Boxes) -> Figures:
    a = _suppressed(want)
    b = _suppressed(got)
    if not len(a[0]):
        return {"boxes": float("nan")}
    overlap = _iou(a[0], b[0]) * (a[2][:, None] == b[2][None])
    common = 0.0
    for _ in range(min(overlap.shape)):
        i, j = np.unravel_index(overlap.argmax(), overlap.shape)
        if overlap[i, j] < SAME_OBJECT:
            break
        common += float(overlap[i, j])
        overlap[i], overlap[:, j] = 0, 0
    return {"boxes": common / max(len(a[0]), len(b[0]))}


def _suppressed(boxes: Boxes) -> Boxes:
    """The best of each object, by the usual non-maximum suppression."""
    corners, scores, classes = boxes
    # one of int8's levels is 0.5
    left = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > SCORE]
    kept = list[int]()
    while left:
        best, *left = left
        kept.append(best)
        over = _iou(corners[[best]], corners[left])[0] if left else []
        left = [
            i
            for i, o in zip(left, over, strict=True)
            if o < SAME_OBJECT or classes[i] != classes[best]
        ]
    return corners[kept], scores[kept], classes[kept]


def _iou(a: Array, b: Array) -> Array:
    """[n, 4], [m, 4] to [n, m]."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(-1)
    areas = [np.clip(c[:, 2:] - c[:, :2], 0, None).prod(-1) for c in (a, b)]
    found: Array = both / np.maximum(areas[0][:, None] + areas[1][None] - both, 1e-12)
    return found


def _of(
    centre: Array, size: Array, scores: Array, classes: Array | None = None
) -> Boxes:
    kinds = np.zeros(len(scores), np.int64) if classes is None else classes
    return np.concatenate([centre - size / 2, centre + size / 2], 1), scores, kinds


def _sigmoid(x: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-np.clip(x.astype(float), -60, 60)))
    return found


def _cells(
    size: int, strides: Sequence[int], each: Sequence[int]
) -> tuple[Array, Array]:
    """Columns and rows [n, 2] of the cells of grids, row by row, each cell so often;
    the stride of each [n, 1].
    """
    places = []
    steps = []
    for stride, count in zip(strides, each, strict=True):
        side = size // stride
        rows, columns = np.divmod(np.arange(side * side), side)
        places.append(np.repeat(np.stack([columns, rows], 1), count, 0))
        steps.append(np.full((side * side * count, 1), stride))
    return np.concatenate(places).astype(float), np.concatenate(steps).astype(float)


def _blazeface(outputs: Outputs) -> Boxes:
    places, steps = _cells(128, (8, 16), (2, 6))
    boxes = outputs[0].reshape(-1, 16)
    return _of(
        (places + 0.5) * steps + boxes[:, :2],
        boxes[:, 2:4],
        _sigmoid(outputs[1].reshape(-1)),
    )


def _ultraface(outputs: Outputs) -> Boxes:
    """Boxes are decoded to corners by the network itself."""
    scores, boxes = (o.reshape(-1, o.shape[-1]) for o in outputs)
    return boxes, scores[:, 1], np.zeros(len(boxes), np.int64)


def _yunet(outputs: Outputs) -> Boxes:
    places, steps = _cells(320, (8, 16, 32), (1, 1, 1))
    classes, objects, boxes = (
        np.concatenate([o.reshape(-1, o.shape[-1]) for o in outputs[3 * i : 3 * i + 3]])
        for i in range(3)
    )
    scores = np.sqrt(np.clip(classes, 0, 1) * np.clip(objects, 0, 1))[:, 0]
    return _of(
        (places + boxes[:, :2]) * steps,
        np.exp(np.clip(boxes[:, 2:4], -20, 10)) * steps,
        scores,
    )


def _yolox(outputs: Outputs) -> Boxes:
    places, steps = _cells(416, (8, 16, 32), (1, 1, 1))
    row = outputs[0].reshape(-1, 85)
    classes = row[:, 5:].argmax(1)
    scores = row[:, 4] * row[:, 5:].max(1)
    return _of(
        (places + row[:, :2]) * steps,
        np.exp(np.clip(row[:, 2:4], -20, 10)) * steps,
        scores,
        classes,
    )


def _fastestdet(outputs: Outputs) -> Boxes:
    """Parts of the picture: an object's score, its box, its classes' scores, of 22 × 22
    cells.
    """
    row = outputs[0].reshape(85, -1).T
    places, _ = _cells(22, (1,), (1,))
    classes = row[:, 5:].argmax(1)
    scores = np.clip(row[:, 0], 0, 1) ** 0.6 * np.clip(row[:, 5:].max(1), 0, 1) ** 0.4
    return _of(
        (places + np.tanh(row[:, 1:3])) / 22, _sigmoid(row[:, 3:5]), scores, classes
    )


_DETECTORS: Mapping[str, Callable[[Outputs], Boxes]] = {
    "mp_blazeface_short_f16": _blazeface,
    "mp_blazeface_short_onnx_b": _blazeface,
    "ultraface_rfb320": _ultraface,
    "yunet_n_320": _yunet,
    "fastestdet_onnx": _fastestdet,
    "yolox_nano_416": _yolox,
}
