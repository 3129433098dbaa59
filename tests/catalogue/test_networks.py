"""Each network of MediaPipe as `models:NAME`, beside LiteRT and the published
post-processing in plain loops.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session, read_photo
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.ir import Array
from tests.catalogue.networks import bundle, found
from tests.tasks import published

pytestmark = [pytest.mark.shared, pytest.mark.slow]

FACE = ("test_data__face.jpg", (229, 42, 384, 197))
"""A photo and a square of it with one object: left, top, right, bottom."""
EYE = ("test_data__face.jpg", (263, 82, 295, 114))
HAND = ("openmv__hand.png", (0, 0, 370, 370))
PERSON = ("test_data__squat.png", (0, 100, 420, 610))


def photo(shared: Path, name: str, part: tuple[int, ...] | None = None) -> Array:
    pixels = read_photo(shared / "data" / "photos" / name)
    if part is None:
        return pixels
    left, top, right, bottom = part
    return pixels[top:bottom, left:right]


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "net", "name_of_photo", "least"),
    [
        ("face-near", published.NEAR, "test_data__face.jpg", 2),
        ("face-near", published.NEAR, "scikit-image__astronaut.png", 1),
        ("face-near", published.NEAR, "test_data__grace_hopper.png", 1),
        ("face-far", published.FAR, "openmv__faces.png", 10),
        ("face-far", published.FAR, "test_data__face.jpg", 2),
        ("palm", published.PALM, "openmv__hand.png", 1),
        ("palm-lite", published.PALM, "openmv__hand.png", 1),
        ("pose-detector", published.PERSON, "test_data__squat.png", 1),
    ],
)
def test_detectors(
    shared: Path, name: str, net: published.Blaze, name_of_photo: str, least: int
) -> None:
    picture = photo(shared, name_of_photo)
    size = (picture.shape[1], picture.shape[0])
    got, outputs, _ = found(name, picture)
    assert isinstance(got, Boxes)
    expected = published.blazeface(outputs[0], outputs[1], size, net)
    assert len(got.boxes) == len(expected) >= least
    for b, e in zip(got.boxes, sorted(expected, key=lambda f: -f.score), strict=True):
        cut = [min(max(v, 0), size[i % 2]) for i, v in enumerate(e.box)]
        assert published.iou(b.corners, cut) >= 0.99
        assert b.score == pytest.approx(e.score, abs=1e-4)
        assert len(b.points) == net.points
        np.testing.assert_allclose(b.points, e.points, atol=0.1)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "where", "columns", "side"),
    [
        ("hand", HAND, 3, 224),
        ("hand-lite", HAND, 3, 224),
        ("pose", PERSON, 5, 256),
        ("iris", EYE, 3, 64),
    ],
)
def test_landmarks(
    shared: Path,
    name: str,
    where: tuple[str, tuple[int, ...]],
    columns: int,
    side: int,
) -> None:
    picture = photo(shared, *where)
    size = (picture.shape[1], picture.shape[0])
    got, outputs, _ = found(name, picture)
    assert isinstance(got, Points)
    tables = [published.square(outputs[0], columns, side, size)]
    if name == "iris":
        tables.append(published.square(outputs[1], 3, side, size))
    expected = np.concatenate(tables)[: len(got.points)]
    np.testing.assert_allclose(got.points, expected[:, :2], atol=0.1)
    assert got.depth is not None
    np.testing.assert_allclose(got.depth, expected[:, 2], atol=0.1)
    assert got.shown[:21].all()


def test_an_iris_is_between_the_lids(shared: Path) -> None:
    got, _, _ = found("iris", photo(shared, *EYE))
    assert isinstance(got, Points)
    assert len(got.points) == 76
    lids = got.points[:16]
    for point in got.points[71:]:
        assert (lids.min(axis=0) - 1 <= point).all()
        assert (point <= lids.max(axis=0) + 1).all()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["hand", "hand-lite"])
def test_a_left_hand_and_its_mirror_image(shared: Path, name: str) -> None:
    picture = photo(shared, *HAND)
    for pixels, label in ((picture, "left"), (picture[:, ::-1], "right")):
        got, _, _ = found(name, pixels)
        assert isinstance(got, Points)
        assert got.label is not None
        assert (got.label.name, got.label.score > 0.9) == (label, True)
        assert got.to_json()["label"] == label
        assert got.lines()[0].split() == [f"{got.label.score:.1%}", label]


def test_a_bodys_points_and_their_scores(shared: Path) -> None:
    got, outputs, _ = found("pose", photo(shared, *PERSON))
    assert isinstance(got, Points)
    assert len(got.points) == 35
    rows = outputs[0].reshape(-1, 5)[:35]
    np.testing.assert_allclose(got.scores, 1 / (1 + np.exp(-rows[:, 3])), atol=1e-4)
    assert got.score == pytest.approx(float(outputs[1].item()), abs=1e-3)
    where = dict(zip(got.names, got.points, strict=True))
    assert where["nose"][1] < where["left hip"][1] < where["left heel"][1]
    # Two points for the next frame are no part of the body.
    assert not got.shown[33:].any()


def test_a_mesh(shared: Path) -> None:
    picture = photo(shared, *FACE)
    size = (picture.shape[1], picture.shape[0])
    got, outputs, _ = found("face-mesh", picture)
    assert isinstance(got, Points)
    expected = published.facemesh(outputs[0], size)
    np.testing.assert_allclose(got.points, expected, atol=0.1)
    assert got.depth is not None
    depth = outputs[0].reshape(-1, 3)[:, 2] * size[0] / 192
    np.testing.assert_allclose(got.depth, depth, atol=0.1)
    # The tip of the nose is nearer than an ear.
    assert got.depth[1] < got.depth[234]


def test_a_mesh_with_attention(shared: Path) -> None:
    """LiteRT lacks its operators: the outputs are edgec's own, and the plain mesh of the
    same face is near.
    """
    picture = photo(shared, *FACE)
    frame = CameraFrame.of(np.ascontiguousarray(picture))
    with Session(bundle("face-mesh-attention")) as session:
        outputs = session.run(session.vision.prepare(frame))
        got = session.vision.result(outputs, frame.size)
        arrays = [outputs[o.name] for o in session.outputs]
    assert isinstance(got, Points)
    scale = frame.size[0] / 192
    expected = published.attention_mesh(arrays) * scale
    np.testing.assert_allclose(got.points, expected[:, :2], atol=0.1)
    assert got.depth is not None
    np.testing.assert_allclose(got.depth, expected[:, 2], atol=0.1)

    plain, _, _ = found("face-mesh", picture)
    assert isinstance(plain, Points)
    apart = np.hypot(*(got.points[:468] - plain.points).T)
    between_eyes = np.hypot(*(plain.points[33] - plain.points[263]))
    assert np.median(apart) < 0.05 * between_eyes
    # Each iris is within its eye.
    for iris, (outer, inner) in ((468, (33, 133)), (473, (263, 362))):
        low, high = sorted((got.points[outer][0], got.points[inner][0]))
        assert low < got.points[iris][0] < high


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["selfie", "selfie-wide"])
def test_a_person(shared: Path, name: str) -> None:
    """LiteRT lacks an operator; the wide network is also in the shared folder, with
    reference outputs.
    """
    with Session(bundle(name)) as session:
        pixels = photo(shared, "scikit-image__astronaut.png")
        frame = CameraFrame.of(pixels)
        outputs = session.run(session.vision.prepare(frame))
        got = session.vision.result(outputs, frame.size)
        assert isinstance(got, Segments)
        mask = got.mask() >= 0.5
        # The face, and the sky beside it.
        assert mask[80:160, 200:250].mean() > 0.97
        assert mask[20:120, 300:340].mean() < 0.03
        if name == "selfie-wide":
            with np.load(
                shared / "models" / "mp_selfie_land_f16" / "ref.npz"
            ) as reference:
                (out,) = session.run(
                    {session.inputs[0].name: reference["in0_0"]}
                ).values()
                np.testing.assert_allclose(out, reference["out0_0"], atol=1e-4)
