"""Faces of every photo: the cascade beside a straightforward pipeline of numpy over
LiteRT, which computes crops in real numbers and knows nothing of the cascade's code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edgec_runtime import (
    Bundle,
    CameraFrame,
    CascadeObject,
    Session,
    Vision,
    read_photo,
)
from edgec_runtime.vision.crop import Crop
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points
from numpy.typing import NDArray
from PIL import Image

import edgec
from tests import builds
from tests.cascade.objects import seen

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FACE = "mp_blazeface_short_f16"
MESH = "mp_face_landmark_f16"
SIDE = 192
"""Of the mesh's input."""
FILE = """
objects = 8
every = 5

[[networks]]
name = "face"
model = "{face}"
task = "blazeface"

[[networks]]
name = "mesh"
model = "{mesh}"
task = "facemesh"
preprocess = "0_1,letterbox=0"
after = "face"

[networks.crop]
turn = [0, 1]
scale = 1.5

[networks.again]
turn = [33, 263]
scale = 1.5
"""


def model(shared: Path, name: str) -> Path:
    return shared / "models" / name / f"{name}.tflite"


@pytest.fixture
def bundle(shared: Path) -> Path:
    def make(folder: Path) -> None:
        text = FILE.format(face=model(shared, FACE), mesh=model(shared, MESH))
        (folder / "cascade.toml").write_text(text)
        edgec.compile(folder / "cascade.toml", output=folder / "x.edgec")

    return builds.once("cascade of faces", make) / "x.edgec"


class LiteRT:
    """A network by LiteRT's own kernels."""

    def __init__(self, path: Path) -> None:
        self._net = Interpreter(str(path))
        self._net.allocate_tensors()

    def __call__(self, image: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        self._net.set_tensor(self._net.get_input_details()[0]["index"], image)
        self._net.invoke()
        outputs = self._net.get_output_details()
        return {o["name"]: self._net.get_tensor(o["index"]) for o in outputs}


@dataclass(frozen=True)
class Square:
    """A turned square of a photo, in the words of MediaPipe."""

    x: float
    y: float
    side: float
    angle: float

    @classmethod
    def around(
        cls, box: tuple[float, float, float, float], eyes: NDArray[np.float64]
    ) -> Square:
        """Around a box, 1.5 times as large, upright where the eyes are level."""
        x1, y1, x2, y2 = box
        dx, dy = eyes[1] - eyes[0]
        side = 1.5 * max(x2 - x1, y2 - y1)
        return cls((x1 + x2) / 2, (y1 + y2) / 2, side, -math.atan2(-dy, dx))

    def of_input(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return pixels of the input in the photo."""
        u, v = (points.T / SIDE - 0.5) * self.side
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        return np.stack(
            [self.x + u * cosine - v * sine, self.y + u * sine + v * cosine], -1
        )

    def pixels(self, photo: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the input as levels in real numbers, [SIDE, SIDE, 3]."""
        size = 1 << max(0, math.floor(math.log2(self.side / SIDE)))
        height, width = (-(-n // size) for n in photo.shape[:2])
        # Black all around, a whole square away.
        far = math.ceil(2 * self.side / size) + 2
        whole = np.zeros(((height + 2 * far) * size, (width + 2 * far) * size, 3))
        start = far * size
        whole[start : start + photo.shape[0], start : start + photo.shape[1]] = photo
        blocks = whole.reshape(height + 2 * far, size, width + 2 * far, size, 3)
        small = np.floor(blocks.mean(axis=(1, 3)) + 0.5)

        v, u = np.mgrid[:SIDE, :SIDE] + 0.5
        places = self.of_input(np.stack([u.ravel(), v.ravel()], -1)) / size - 0.5 + far
        left = np.floor(places).astype(int)
        right, lower = (places - left).T[..., None]
        x, y = left.T
        above = small[y, x] * (1 - right) + small[y, x + 1] * right
        below = small[y + 1, x] * (1 - right) + small[y + 1, x + 1] * right
        mean = above * (1 - lower) + below * lower
        return np.asarray(mean.reshape(SIDE, SIDE, 3), np.float64)


def photos(shared: Path) -> list[Path]:
    found = sorted((shared / "data" / "photos").glob("*.*"))
    assert len(found) > 40
    return found


def faces(
    frame: CameraFrame, vision: Vision, face: LiteRT
) -> Iterator[tuple[Square, Box]]:
    """Yield the square and the box of each face, by LiteRT."""
    result = vision.result(face(vision.prepare(frame)["input"]), frame.size)
    assert isinstance(result, Boxes)
    for box in result.boxes:
        eyes = np.array(box.points[:2], np.float64)
        yield Square.around(box.corners, eyes), box


def expected_mesh(
    square: Square, levels: NDArray[np.float64], mesh: LiteRT
) -> tuple[float, NDArray[np.float64]]:
    """Return the score of a face and its points in the photo, by LiteRT."""
    # A picture's levels are whole.
    outputs = mesh(np.asarray(np.rint(levels) / 255, np.float32)[None])
    score = 1 / (1 + math.exp(-float(outputs["conv2d_31"].ravel()[0])))
    points = outputs["conv2d_21"].reshape(-1, 3)[:, :2].astype(np.float64)
    return score, square.of_input(points)


def test_crops_and_points_are_those_of_the_reference(
    shared: Path, bundle: Path
) -> None:
    face = LiteRT(model(shared, FACE))
    mesh = LiteRT(model(shared, MESH))
    compared = 0
    with Bundle.open(bundle) as opened, Session(opened) as session:
        vision = Vision(opened.network("face"), native=False)
        cropping = Vision(opened.network("mesh"))
        for path in photos(shared):
            frame = CameraFrame.of(read_photo(path))
            session.reset()
            left = {only_box(o).corners: o for o in seen(session, frame).objects}
            for square, box in faces(frame, vision, face):
                side = square.side
                made = Crop(square.x, square.y, side, side, square.angle)
                expected = square.pixels(frame.rgb())
                levels = cropping.cropped(frame, made)["input_1"][0] * 255
                assert np.abs(levels - expected).max() <= 1, path.name

                score, points = expected_mesh(square, expected, mesh)
                near = [c for c in left if np.allclose(c, box.corners, atol=0.05)]
                assert len(near) == (score >= 0.5), (path.name, score)
                if near:
                    difference = mesh_of(left.pop(near[0])) - points
                    assert np.abs(difference).max() * SIDE / side <= 0.1, path.name
                    compared += 1
            assert not left, path.name
    assert compared >= 6


def turned(photo: NDArray[np.uint8], n: int) -> NDArray[np.uint8]:
    """Return the photo shifted, turned and enlarged a little, as frame n of a film."""
    image = Image.fromarray(photo)
    center = photo.shape[1] / 2, photo.shape[0] / 2
    shift = (round(0.6 * n), round(0.3 * n))
    made = image.rotate(
        0.5 * n, Image.Resampling.BICUBIC, center=center, translate=shift
    )
    return np.asarray(made)


@pytest.mark.parametrize(
    "name",
    [
        "openmv__person.png",
        "scikit-image__astronaut.png",
        "test_data__grace_hopper.png",
    ],
)
def test_following_changes_points_by_little(
    shared: Path, bundle: Path, name: str
) -> None:
    """In parts of the crop's side, means over the points: beside a crop by the same
    frame's own points, 0.5 % in each frame; beside the detector's crop, for which the
    network itself answers a little otherwise, 0.5 % in the middle of the film.
    """
    photo = read_photo(shared / "data" / "photos" / name)
    by_detector = []
    with Session(bundle) as followed, Session(bundle) as fresh:
        for n in range(30):
            frame = turned(photo, n)
            points = mesh_of(seen(followed, frame).objects[0])
            fresh.reset()
            first = seen(fresh, frame).objects[0]
            second = seen(fresh, frame).objects[0]
            corners = np.reshape(only_box(first).corners, (2, 2))
            side = 1.5 * float(np.ptp(corners, axis=0).max())
            by_detector.append(np.abs(points - mesh_of(first)).mean() / side)
            assert np.abs(points - mesh_of(second)).mean() <= 0.005 * side, n
    assert np.median(by_detector) <= 0.005


def only_box(one: CascadeObject) -> Box:
    result = one.results["face"]
    assert isinstance(result, Boxes)
    return result.boxes[0]


def mesh_of(one: CascadeObject) -> NDArray[np.float64]:
    result = one.results["mesh"]
    assert isinstance(result, Points)
    assert result.points.shape == (468, 2)
    return np.asarray(result.points, np.float64)
