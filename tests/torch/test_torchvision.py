"""torchvision's single-shot detectors, as torch.onnx exports them: the boxes are those
that onnxruntime picks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.vision.tasks.detection import Detection

import edgec
from edgec.frontends.task_metadata import stated_task
from tests.tasks.test_torchvision_ssd import compare, waves

WHY = "torchvision is not installed: pip install torchvision runs these"
torch = pytest.importorskip("torch", reason=WHY)
models = pytest.importorskip("torchvision.models.detection", reason=WHY)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIDE = 96


def small() -> Any:
    """A detector with two layers for a backbone, and logits that differ."""
    torch.manual_seed(1)
    backbone = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 8, 8), torch.nn.ReLU(), torch.nn.Conv2d(16, 24, 1)
    )
    backbone.out_channels = [24]
    anchors = models.anchor_utils.DefaultBoxGenerator([[2]], scales=[0.2, 0.4])
    detector = models.ssd.SSD(backbone, anchors, (SIDE, SIDE), 5, topk_candidates=9)
    for head in (detector.head.regression_head, detector.head.classification_head):
        for layer in head.module_list:
            torch.nn.init.normal_(layer.weight, 0, 0.2)
    return detector.eval()


def exported(detector: Any, path: Path, side: int, dynamic: bool = False) -> Path:
    axes = {"images": {0: "batch", 2: "height", 3: "width"}} if dynamic else {}
    torch.onnx.export(
        detector,
        (torch.rand(1, 3, side, side),),
        str(path),
        opset_version=17,
        dynamo=False,
        input_names=["images"],
        output_names=["boxes", "scores", "labels"],
        dynamic_axes=axes,
    )
    return path


@pytest.mark.cc
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("side", [SIDE, 2 * SIDE])
def test_the_boxes_are_those_of_the_export(
    side: int, dynamic: bool, tmp_path: Path
) -> None:
    model = exported(small(), tmp_path / "ssd.onnx", SIDE if dynamic else side, dynamic)
    shapes = {"images": (1, 3, side, side)} if dynamic else {}
    edgec.compile(model, output=tmp_path / "ssd.edgec", input_shapes=shapes)
    for seed in range(3):
        assert compare(model, tmp_path / "ssd.edgec", waves(side, side, seed)) > 10


@pytest.mark.parametrize(
    ("name", "side", "threshold", "candidates", "iou", "limit", "anchors"),
    [
        ("ssdlite320_mobilenet_v3_large", 320, 0.001, 300, 0.55, 300, 3234),
        ("ssd300_vgg16", 300, 0.01, 400, 0.45, 200, 8732),
    ],
)
def test_the_numbers_of_its_own_detectors(
    name: str,
    side: int,
    threshold: float,
    candidates: int,
    iou: float,
    limit: int,
    anchors: int,
    tmp_path: Path,
) -> None:
    """The numbers are the defaults in torchvision's source."""
    detector = getattr(models, name)(weights=None, weights_backbone=None).eval()
    stated = stated_task(exported(detector, tmp_path / "ssd.onnx", side))
    task = stated.task
    assert isinstance(task, Detection)
    assert task.anchors is not None
    found = task.anchors.made((side, side), stated.files)
    assert (task.threshold, task.candidates) == (threshold, candidates)
    assert (task.iou, task.limit) == (iou, limit)
    assert task.scales == (10.0, 10.0, 5.0, 5.0)
    (expected,) = detector.anchor_generator(
        models.image_list.ImageList(torch.zeros(1, 3, side, side), [(side, side)]),
        list(detector.backbone(torch.zeros(1, 3, side, side)).values()),
    )
    low, high = np.split(expected.numpy(), 2, axis=1)
    middles = np.concatenate([(low + high) / 2, high - low], axis=1) / side
    assert found.shape == (anchors, 4)
    np.testing.assert_allclose(found, middles, atol=1e-6)
