"""What the authors of networks publish as their post-processing, written down with
plain loops, apart from edgec's.

Each takes the network's outputs (batch and all) and a frame's width and height, and
answers in the frame's pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from edgec.frontends.point_names import FACE_REFINEMENTS
from edgec.ir import Array

LEFT_LIDS = (
    33,
    7,
    163,
    144,
    145,
    153,
    154,
    155,
    133,
    246,
    161,
    160,
    159,
    158,
    157,
    173,
)
RIGHT_LIDS = (
    *(263, 249, 390, 373, 374, 380, 381, 382, 362),
    *(466, 388, 387, 386, 385, 384, 398),
)
Size = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """One box: x1, y1, x2, y2."""

    box: tuple[float, ...]
    score: float
    label: int
    points: tuple[tuple[float, float], ...] = ()


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return w * h / (sum(areas) - w * h) if w * h else 0.0


def _greedy(every: list[Found], limit: float) -> list[Found]:
    kept: list[Found] = []
    for one in sorted(every, key=lambda f: -f.score):
        if all(iou(one.box, k.box) <= limit for k in kept):
            kept.append(one)
    return kept


def ultraface(scores: Array, boxes: Array, frame: Size) -> list[Found]:
    """run_video_face_detection_onnx.py: corners of 0…1, the second score, more than
    0.7, IoU 0.3.
    """
    scale = (*frame, *frame)
    every = [
        Found(
            tuple(float(v) * s for v, s in zip(box, scale, strict=True)),
            float(score),
            0,
        )
        for score, box in zip(scores[0, :, 1], boxes[0], strict=True)
        if score > 0.7
    ]
    return _greedy(every, 0.3)


@dataclass(frozen=True)
class Blaze:
    """What differs between MediaPipe's detectors: the input's side, anchors of a cell by
    stride, points of a box, the least score.
    """

    size: int
    cells: tuple[tuple[int, int], ...]
    points: int
    least: float = 0.5


NEAR = Blaze(128, ((8, 2), (16, 6)), 6)
FAR = Blaze(192, ((4, 1),), 6, 0.6)
PALM = Blaze(192, ((8, 2), (16, 6)), 7)
PERSON = Blaze(224, ((8, 2), (16, 2), (32, 6)), 4)


def blazeface(
    regressors: Array, classificators: Array, frame: Size, net: Blaze = NEAR
) -> list[Found]:
    """face_detection_short_range.pbtxt and its kin: SSD anchors, linear boxes by the
    input's side, a sigmoid, weighted suppression at 0.3; the frame is letterboxed into a
    square.
    """
    size = net.size
    centres = [
        (x, y)
        for stride, each in net.cells
        for y in range(size // stride)
        for x in range(size // stride)
        for _ in range(each)
    ]
    strides = [
        stride
        for stride, each in net.cells
        for _ in range((size // stride) ** 2 * each)
    ]
    side = max(frame)
    shift = ((side - frame[0]) / 2, (side - frame[1]) / 2)

    def place(x: float, y: float) -> tuple[float, float]:
        return x * side - shift[0], y * side - shift[1]

    every: list[Found] = []
    for i, raw in enumerate(regressors[0]):
        score = 1 / (
            1 + math.exp(-min(100.0, max(-100.0, float(classificators[0, i, 0]))))
        )
        if score < net.least:
            continue
        ax, ay = ((c + 0.5) * strides[i] / size for c in centres[i])
        x = float(raw[0]) / size + ax
        y = float(raw[1]) / size + ay
        w = float(raw[2]) / size
        h = float(raw[3]) / size
        corners = (*place(x - w / 2, y - h / 2), *place(x + w / 2, y + h / 2))
        points = tuple(
            place(float(raw[4 + 2 * k]) / size + ax, float(raw[5 + 2 * k]) / size + ay)
            for k in range(net.points)
        )
        every.append(Found(corners, score, 0, points))
    left: list[Found] = []
    every.sort(key=lambda f: -f.score)
    while every:
        near = [f for f in every if iou(every[0].box, f.box) > 0.3 or f is every[0]]
        total = sum(f.score for f in near)
        box = tuple(sum(f.box[k] * f.score for f in near) / total for k in range(4))
        points = tuple(
            (
                sum(f.points[k][0] * f.score for f in near) / total,
                sum(f.points[k][1] * f.score for f in near) / total,
            )
            for k in range(net.points)
        )
        left.append(Found(box, every[0].score, 0, points))
        every = [f for f in every if f not in near]
    return left


def yolox(output: Array, frame: Size, threshold: float = 0.3) -> list[Found]:
    """demo/ONNXRuntime/onnx_inference.py: demo_postprocess, then multiclass_nms over
    all classes, IoU 0.45.
    """
    ratio = min(416 / frame[0], 416 / frame[1])
    rows = output[0].astype(np.float64)
    i = 0
    every: list[Found] = []
    for stride in (8, 16, 32):
        for gy in range(416 // stride):
            for gx in range(416 // stride):
                row = rows[i]
                i += 1
                scores = row[4] * row[5:]
                best = int(np.argmax(scores))
                if scores[best] <= threshold:
                    continue
                x = (row[0] + gx) * stride
                y = (row[1] + gy) * stride
                w = math.exp(row[2]) * stride
                h = math.exp(row[3]) * stride
                corners = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
                every.append(
                    Found(
                        tuple(float(v) / ratio for v in corners),
                        float(scores[best]),
                        best,
                    )
                )
    return _greedy(every, 0.45)


def tflite_ssd(
    boxes: Array, classes: Array, scores: Array, count: Array, frame: Size
) -> list[Found]:
    """TensorFlow's object detection example: y1, x1, y2, x2 of 0…1, at least 0.5."""
    found = []
    for i in range(int(count.ravel()[0])):
        y1, x1, y2, x2 = (float(v) for v in boxes[0, i])
        if scores[0, i] >= 0.5:
            box = (x1 * frame[0], y1 * frame[1], x2 * frame[0], y2 * frame[1])
            found.append(Found(box, float(scores[0, i]), int(classes[0, i])))
    return found


def mask(probability: Array, frame: Size, threshold: float = 0.5) -> Array:
    """bool [H,W]: the probability resized between its pixels, as Pillow does, and cut
    at the threshold.
    """
    image = Image.fromarray(probability.astype(np.float32), mode="F")
    return np.asarray(
        np.asarray(image.resize(frame, Image.Resampling.BILINEAR)) >= threshold
    )


def facemesh(points: Array, frame: Size, side: int = 192) -> Array:
    """[468,2]: x and y of pixels of the stretched input."""
    return np.asarray(
        points.reshape(-1, 3)[:, :2].astype(np.float64) / side * np.array(frame)
    )


def square(table: Array, columns: int, side: int, frame: Size) -> Array:
    """[N,3]: x, y and z in the frame of points in pixels of a square input into which the
    frame is letterboxed.
    """
    rows = table.reshape(-1, columns).astype(np.float64)
    scale = max(frame) / side
    border = [(max(frame) - length) / 2 for length in frame]
    return np.array(
        [
            (x * scale - border[0], y * scale - border[1], z * scale)
            for x, y, z in rows[:, :3]
        ]
    )


def attention_mesh(outputs: Sequence[Array]) -> Array:
    """[478,3] in pixels of the input: what
    tensors_to_face_landmarks_with_attention.pbtxt merges, an output after the other.
    """
    points = np.zeros((478, 3))
    points[:468] = outputs[0].reshape(468, 3)
    for one, table in zip(FACE_REFINEMENTS, outputs[1:], strict=False):
        for number, (x, y) in zip(one["points"], table.reshape(-1, 2), strict=True):
            points[number, :2] = (x, y)
    for iris, lids in ((range(468, 473), LEFT_LIDS), (range(473, 478), RIGHT_LIDS)):
        for number in iris:
            points[number, 2] = sum(points[k, 2] for k in lids) / len(lids)
    return points


def movenet(output: Array, frame: Size) -> Array:
    """[17,3]: x, y and score; the frame is letterboxed into a square."""
    side = max(frame)
    found = [
        (x * side - (side - frame[0]) / 2, y * side - (side - frame[1]) / 2, s)
        for y, x, s in output[0, 0]
    ]
    return np.array(found)


def style(output: Array) -> Array:
    """uint8 [H,W,3], red first, of blue-first planes of 0…255."""
    planes = np.clip(output[0], 0, 255)
    return np.asarray(np.stack([planes[2], planes[1], planes[0]], axis=-1))


def top(scores: Array, count: int = 5) -> list[int]:
    return [
        int(i)
        for i in sorted(
            range(scores.size), key=lambda i: (-float(scores.ravel()[i]), i)
        )[:count]
    ]
