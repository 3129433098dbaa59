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

from edgec.ir import Array

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


def blazeface(regressors: Array, classificators: Array, frame: Size) -> list[Found]:
    """face_detection_short_range.pbtxt: SSD anchors, linear boxes by 128, a sigmoid,
    weighted suppression at 0.3; the frame is letterboxed into a square.
    """
    centres = [
        (x, y)
        for stride, each in ((8, 2), (16, 6))
        for y in range(128 // stride)
        for x in range(128 // stride)
        for _ in range(each)
        for stride_ in (stride,)
    ]
    strides = [
        stride
        for stride, each in ((8, 2), (16, 6))
        for _ in range((128 // stride) ** 2 * each)
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
        if score < 0.5:
            continue
        ax, ay = ((c + 0.5) * strides[i] / 128 for c in centres[i])
        x = float(raw[0]) / 128 + ax
        y = float(raw[1]) / 128 + ay
        w = float(raw[2]) / 128
        h = float(raw[3]) / 128
        corners = (*place(x - w / 2, y - h / 2), *place(x + w / 2, y + h / 2))
        points = tuple(
            place(float(raw[4 + 2 * k]) / 128 + ax, float(raw[5 + 2 * k]) / 128 + ay)
            for k in range(6)
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
            for k in range(6)
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
