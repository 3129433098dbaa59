"""Output formats of well-known families of networks: `--task yolox`.

Each has the keys of a task's file (docs/tasks.md). They reproduce the family's own
post-processing, with its published thresholds.
"""

from __future__ import annotations

from typing import Any

from edgec_runtime.vision.tasks.points import COCO_LINES, COCO_POINTS

from edgec.frontends.point_names import (
    BODY_LINES,
    BODY_POINTS,
    FACE_REFINEMENTS,
    HAND_LINES,
    HAND_POINTS,
    IRIS_LINES,
    IRIS_POINTS,
)

_FACE = {"labels": ["face"]}
_FACEMESH = {
    "task": "landmarks",
    "preprocess": "0_1",
    "output": "#0",
    "columns": ["x", "y", "z"],
    "activation": "sigmoid",
    "threshold": 0.5,
}


def _blaze(side: int, anchors: dict[int, int]) -> dict[str, Any]:
    """Return the keys of MediaPipe's detectors of one class.

    side: of the input, in pixels. anchors: how many a cell has, by stride.
    """
    sizes = [[[side, side]] * n for n in anchors.values()]
    return {
        "task": "detection",
        "preprocess": "m1_1,letterbox=0",
        "anchors": {"strides": [*anchors], "sizes": sizes},
        "scales": [float(side)] * 4,
        "exponential": False,
        "activation": "sigmoid",
        "iou": 0.3,
        "suppression": "weighted",
    }


_ULTRALYTICS = {
    "task": "detection",
    "preprocess": "0_1,letterbox",
    "units": "pixels",
    "score_column": 4,
    "threshold": 0.25,
}
_CANDIDATES = {**_ULTRALYTICS, "transposed": True, "iou": 0.7}
"""All candidates of the network: x, y, width and height, a score for each class, and
further numbers of a box.
"""

_PICKED = {
    **_ULTRALYTICS,
    "order": "xyxy",
    "class_column": 5,
    "suppression": "none",
    "limit": 300,
}
"""Boxes picked by the network: corners, a score, a class, and further numbers."""

_PERSON = {
    "points": 17,
    "point_numbers": 3,
    "point_threshold": 0.5,
    "point_names": list(COCO_POINTS),
    "lines": [list(pair) for pair in COCO_LINES],
    "labels": ["person"],
}

FORMATS: dict[str, dict[str, Any]] = {
    "yolox": {
        "task": "detection",
        "preprocess": "0_255,bgr,letterbox,topleft",
        "anchors": {"strides": [8, 16, 32], "offset": 0.0},
        "objectness": 4,
        "score_column": 5,
        "threshold": 0.3,
        "iou": 0.45,
        "suppression": "all",
    },
    "yolov5": {
        "task": "detection",
        "preprocess": "0_1,letterbox",
        "units": "pixels",
        "objectness": 4,
        "score_column": 5,
        "threshold": 0.25,
        "iou": 0.45,
    },
    "yolov8": _CANDIDATES,
    "yolov8-seg": {**_CANDIDATES, "mask_column": -32},
    "yolov8-pose": {**_CANDIDATES, **_PERSON, "point_column": -51},
    "yolov8-obb": {**_CANDIDATES, "angle_column": -1},
    "yolo26": _PICKED,
    "yolo26-seg": {**_PICKED, "mask_column": 6},
    "yolo26-pose": {**_PICKED, **_PERSON, "point_column": 6},
    "yolo26-obb": {**_PICKED, "order": "xywh", "angle_column": 6},
    "tflite-ssd": {
        "task": "detection",
        "boxes": "#0",
        "classes": "#1",
        "scores": "#2",
        "count": "#3",
        "order": "yxyx",
    },
    "ultraface": {
        "task": "detection",
        "preprocess": "0_255,mean=127,std=128",
        "order": "xyxy",
        "background": True,
        "threshold": 0.7,
        "iou": 0.3,
        **_FACE,
    },
    "blazeface": {**_blaze(128, {8: 2, 16: 6}), **_FACE, "points": 6},
    "blazeface-back": {**_blaze(256, {16: 2, 32: 6}), **_FACE, "points": 6},
    "blazeface-full": {**_blaze(192, {4: 1}), **_FACE, "points": 6, "threshold": 0.6},
    "blazepose": {
        **_blaze(224, {8: 2, 16: 2, 32: 6}),
        "labels": ["person"],
        "points": 4,
    },
    "palm": {
        **_blaze(192, {8: 2, 16: 6}),
        "preprocess": "0_1,letterbox=0",
        "labels": ["palm"],
        "points": 7,
    },
    "facemesh": {**_FACEMESH, "score": "#1"},
    "facemesh-attention": {
        **_FACEMESH,
        "score": "#6",
        "refinements": FACE_REFINEMENTS,
    },
    "iris": {
        "task": "landmarks",
        "preprocess": "0_1,letterbox=0",
        "output": "#0",
        "columns": ["x", "y", "z"],
        "refinements": [
            {"output": "#1", "points": IRIS_POINTS, "columns": ["x", "y", "z"]}
        ],
        "lines": IRIS_LINES,
    },
    "hand": {
        "task": "landmarks",
        "preprocess": "0_1,letterbox=0",
        "output": "#0",
        "columns": ["x", "y", "z"],
        "score": "#1",
        "either": "#2",
        "threshold": 0.5,
        "names": HAND_POINTS,
        "lines": HAND_LINES,
        # The network's authors see mirrored pictures, where a right hand is a left one.
        "labels": ["right", "left"],
    },
    "blazepose-points": {
        "task": "landmarks",
        "preprocess": "0_1,letterbox=0",
        "output": "#0",
        "columns": ["x", "y", "z", "score", "unused"],
        "score": "#1",
        "point_activation": "sigmoid",
        "threshold": 0.5,
        "count": len(BODY_POINTS),
        "names": BODY_POINTS,
        "lines": BODY_LINES,
    },
    "ppocr-detection": {
        "task": "text-detection",
        "preprocess": "m1_1,bgr,letterbox=0",
        "threshold": 0.5,
        "unclip": 1.6,
    },
    "ppocr-recognition": {
        "task": "text-recognition",
        "preprocess": "m1_1,bgr,letterbox=127,topleft",
    },
    "movenet": {"task": "pose", "preprocess": "letterbox=0"},
    "selfie": {"task": "segmentation", "preprocess": "0_1", "labels": ["person"]},
    "style": {"task": "image", "preprocess": "0_255", "range": "0_255"},
    "style-bgr": {
        "task": "image",
        "preprocess": "0_255,bgr",
        "range": "0_255",
        "color": "bgr",
    },
}
