"""Each family of networks: edgec's result of the reference outputs beside the published
post-processing of the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import QuantInfo, TensorInfo
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks.base import DecoderSetting, Result, View, reals
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.frontends.task_file import task_file
from edgec.ir import Array
from tests.conftest import MODELS
from tests.tasks import published
from tests.tasks.published import Found, Size
from tests.tasks.vision import found_boxes

pytestmark = [pytest.mark.shared, pytest.mark.cc]
FRAMES: list[Size] = [(640, 480), (480, 853)]


class Network:
    """A model of the shared folder: its task, and reference outputs."""

    def __init__(
        self, shared: Path, name: str, family: str, labels: str | None = None
    ) -> None:
        row = MODELS[name]
        self.file = shared / "models" / row["file"]
        with np.load(shared / "models" / row["ref"]["file"]) as file:
            self.arrays = dict(file)
        first = [self.arrays[f"out0_{i}"] for i in range(len(row["outputs"]))]
        self.outputs = {
            o["name"]: TensorInfo(
                o["name"], a.shape, a.dtype.str, _quant(o.get("quant"))
            )
            for o, a in zip(row["outputs"], first, strict=True)
        }
        _, *shape = self.arrays["in0_0"].shape
        self.image = (shape[1], shape[0]) if shape[2] == 3 else (shape[2], shape[1])
        wanted = task_file(Path(row["file"]), family)
        assert wanted.task is not None
        self.task: Any = wanted.task.bind(self.outputs, self.image)
        self.fit = wanted.preprocess.fit or Fit()
        self.labels = wanted.labels

    def samples(self, kernels: bool = False) -> Iterator[list[Array]]:
        """The outputs for each reference input; kernels: of TFLite's reference kernels,
        where there are such.
        """
        for k, _ in enumerate(self.inputs()):
            way = "kref" if kernels and f"kref{k}_0" in self.arrays else "out"
            yield [self.arrays[f"{way}{k}_{i}"] for i in range(len(self.outputs))]

    def inputs(self) -> Iterator[Array]:
        """The first reference input of each sample."""
        for k in range(
            sum(name.startswith("in") and name.endswith("_0") for name in self.arrays)
        ):
            yield self.arrays[f"in{k}_0"]

    def result(self, arrays: list[Array], frame: Size, detect: Any = None) -> Result:
        real = {
            n: reals(a, info)
            for (n, info), a in zip(self.outputs.items(), arrays, strict=True)
        }
        setting = DecoderSetting(self.image, self.outputs, self.labels, {}, detect)
        result: Result = self.task.decoder(setting)(
            real, View.of(frame, self.image, self.fit)
        )
        return result


def _quant(of: list[Any] | None) -> QuantInfo | None:
    return QuantInfo((float(of[0]),), (int(of[1]),)) if of else None


def _same_boxes(got: Result, expected: list[Found], frame: Size) -> None:
    assert isinstance(got, Boxes)
    assert len(got.boxes) == len(expected)
    for b, e in zip(got.boxes, sorted(expected, key=lambda f: -f.score), strict=True):
        cut = [min(max(v, 0), frame[i % 2]) for i, v in enumerate(e.box)]
        assert published.iou(b.corners, cut) >= 0.99
        assert b.index == e.label
        assert b.score == pytest.approx(e.score, abs=1e-4)
        for p, q in zip(b.points, e.points, strict=True):
            assert np.hypot(p[0] - q[0], p[1] - q[1]) <= 0.5


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("name", "family", "way"),
    [
        ("ultraface_rfb320", "ultraface", published.ultraface),
        ("mp_blazeface_short_f16", "blazeface", published.blazeface),
        ("yolox_nano_416", "yolox", published.yolox),
        ("ssd_mnv1_coco_u8", "tflite-ssd", published.tflite_ssd),
    ],
)
def test_boxes(
    shared: Path, tmp_path: Path, name: str, family: str, way: Any, frame: Size
) -> None:
    net = Network(shared, name, family)
    assert isinstance(net.task, Detection)
    calls: list[Any] = [None]
    if net.task.one_pass:
        calls += found_boxes([(net.task, net.outputs, net.image)], tmp_path)
    found = 0
    for arrays in net.samples():
        expected = way(*arrays, frame)
        found += len(expected)
        for detect in calls:
            _same_boxes(net.result(arrays, frame, detect), expected, frame)
    assert found


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    "name",
    [
        "mp_selfie_land_f16",
        "mp_selfie_land_onnx",
        "prisma_f32",
        "prisma_i8",
        "prisma_onnx",
    ],
)
def test_masks(shared: Path, name: str, frame: Size) -> None:
    net = Network(shared, name, "selfie")
    for arrays in net.samples():
        got = net.result(arrays, frame)
        assert isinstance(got, Segments)
        real = reals(arrays[0], next(iter(net.outputs.values()))).reshape(
            net.image[1], net.image[0]
        )
        expected = published.mask(real, frame)
        mine = got.mask() >= 0.5
        assert mine.shape == (frame[1], frame[0])
        assert expected.any()
        assert (mine & expected).sum() / (mine | expected).sum() >= 0.99
        ((label, share),) = got.shares()
        assert label == "person"
        assert share == pytest.approx(expected.mean(), abs=0.005)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", ["mp_face_landmark_f16", "mp_face_landmark_onnx"])
def test_landmarks(shared: Path, name: str, frame: Size) -> None:
    net = Network(shared, name, "facemesh")
    for arrays in net.samples():
        got = net.result(arrays, frame)
        assert isinstance(got, Points)
        expected = published.facemesh(arrays[0], frame)
        assert np.hypot(*(got.points - expected).T).max() <= 0.5
        assert got.shown.all()
        assert got.score == pytest.approx(
            1 / (1 + np.exp(-float(arrays[1].ravel()[0])))
        )


@pytest.mark.parametrize("frame", FRAMES)
def test_pose(shared: Path, frame: Size) -> None:
    net = Network(shared, "movenet_lightning_i8", "movenet")
    (arrays,) = net.samples()
    got = net.result(arrays, frame)
    assert isinstance(got, Points)
    expected = published.movenet(arrays[0], frame)
    assert np.hypot(*(got.points - expected[:, :2]).T).max() <= 0.5
    np.testing.assert_allclose(got.scores, expected[:, 2])
    assert got.names[16] == "right ankle"


def test_pictures(shared: Path) -> None:
    net = Network(shared, "fns_udnie_std_256", "style-bgr")
    (arrays,) = net.samples()
    got = net.result(arrays, (256, 256))
    assert isinstance(got, Picture)
    assert (
        np.abs(
            got.draw(np.zeros((256, 256, 3), np.uint8)) - published.style(arrays[0])
        ).max()
        <= 0.5
    )
    # of the frame that `result` was told of
    assert got.draw(np.zeros((480, 640, 3), np.uint8)).shape == (256, 256, 3)


def test_labels(shared: Path) -> None:
    net = Network(shared, "mnv2_tf2_i8", "classification")
    for arrays in net.samples():
        got = net.result(arrays, (640, 480))
        assert isinstance(got, Classes)
        assert [c.index for c in got.classes] == published.top(arrays[0])
        assert got.classes[0].score == pytest.approx(arrays[0].max() / 256)
