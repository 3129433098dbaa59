"""What well-known families of networks answer, as rows of a task's file (docs/tasks.md): `--task yolox`.

Each is what the family's own post-processing does, with the thresholds that it is published with.
"""

from __future__ import annotations

from typing import Any

_FACE = {"labels": ["face"]}
_FACEMESH = {
    "task": "landmarks",
    "preprocess": "0_1",
    "output": "#0",
    "columns": ["x", "y", "z"],
    "activation": "sigmoid",
    "threshold": 0.5,
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
    "yolov8": {
        "task": "detection",
        "preprocess": "0_1,letterbox",
        "transposed": True,
        "units": "pixels",
        "score_column": 4,
        "threshold": 0.25,
        "iou": 0.7,
    },
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
    "blazeface": {
        "task": "detection",
        "preprocess": "m1_1,letterbox=0",
        "anchors": {"strides": [8, 16], "sizes": [[[128, 128]] * 2, [[128, 128]] * 6]},
        "scales": [128.0, 128.0, 128.0, 128.0],
        "exponential": False,
        "activation": "sigmoid",
        "points": 6,
        "iou": 0.3,
        "suppression": "weighted",
        **_FACE,
    },
    "facemesh": {**_FACEMESH, "score": "#1"},
    "facemesh-attention": {**_FACEMESH, "score": "#6"},
    "movenet": {"task": "pose", "preprocess": "letterbox=0"},
    "selfie": {"task": "segmentation", "preprocess": "0_1", "labels": ["person"]},
    "style": {"task": "image", "preprocess": "0_255", "range": "0_255"},
    "style-bgr": {"task": "image", "preprocess": "0_255,bgr", "range": "0_255", "color": "bgr"},
}
