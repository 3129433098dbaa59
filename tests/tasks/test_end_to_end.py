"""Networks of the shared folder from file to result: the compiled bundle's beside that
of the reference outputs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session, read_photo
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.base import reals
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.segmentation import Segments

import edgec
from tests import builds
from tests.conftest import MODELS
from tests.tasks import published

pytestmark = [pytest.mark.shared, pytest.mark.slow]


def _bundle(shared: Path, name: str, family: str) -> Path:
    model = shared / "models" / MODELS[name]["file"]

    def make(folder: Path) -> None:
        edgec.compile(model, output=folder / "net.edgec", task=family)

    return builds.once(f"task {name} {family}", make) / "net.edgec"


def _reference(
    shared: Path, name: str
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    with np.load(shared / "models" / name / "ref.npz") as file:
        return dict(file)


def test_a_mask(shared: Path) -> None:
    ref = _reference(shared, "mp_selfie_land_f16")
    with Session(_bundle(shared, "mp_selfie_land_f16", "selfie")) as session:
        outputs = session.run({session.inputs[0].name: ref["in0_0"]})
        result = session.vision.result(outputs, (640, 480))
        assert isinstance(result, Segments)
        mine = result.mask() >= 0.5
        expected = published.mask(ref["out0_0"][0, ..., 0], (640, 480))
        assert (mine & expected).sum() / (mine | expected).sum() >= 0.99
        assert session.vision.native
        assert session.vision.painting is not None


def test_faces_of_a_photo_in_every_format(shared: Path) -> None:
    """The published post-processing of the outputs that the very same session gives."""
    photo = read_photo(shared / "data" / "photos" / "openmv__faces.png")
    with Session(_bundle(shared, "ultraface_rfb320", "ultraface")) as session:
        frames = [
            CameraFrame.of(photo),
            CameraFrame("bgr", (np.ascontiguousarray(photo[..., ::-1]),)),
        ]
        first = None
        for frame in frames:
            outputs = session.run(session.vision.prepare(frame))
            result = session.vision.result(outputs, frame.size)
            assert isinstance(result, Boxes)
            real = [reals(outputs[o.name], o) for o in session.outputs]
            expected = published.ultraface(real[0], real[1], frame.size)
            assert len(result.boxes) == len(expected) >= 14
            for b, e in zip(
                result.boxes, sorted(expected, key=lambda f: -f.score), strict=True
            ):
                cut = [min(max(v, 0), frame.size[i % 2]) for i, v in enumerate(e.box)]
                assert published.iou(b.corners, cut) >= 0.99
            assert first is None or first == result
            first = result
