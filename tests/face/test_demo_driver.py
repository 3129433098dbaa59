"""What avatars show of a driver whose pose is known: eyes and mouths, measured in the
pictures of both by the networks of the demo.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session
from edgec_runtime.face.geometry import downward
from edgec_runtime.face.landmarks import LEFT_BROW, LOWER_MOUTH, openings
from edgec_runtime.face.lids import EYES
from edgec_runtime.face.motion import NEUTRAL_FRAMES, Driver, FaceMotion
from edgec_runtime.face.points import depth_scale, face_points, has_irises, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.effects import OVERLAY, Painter, effect
from edgec_runtime.webcam.effects.avatar import drawn, framed
from edgec_runtime.webcam.show import Show

from edgec.ir import Array
from edgec.verbs.demo import fixtures
from edgec.verbs.face_poses import FacePose, motion_of
from edgec.verbs.webcam_demo import (
    GESTURES,
    NETWORKS,
    SIZE,
    Gesture,
    demo_subject,
    poses,
)
from tests.catalogue.networks import bundle

pytestmark = [pytest.mark.slow, pytest.mark.cc]

WAY = 6
FRAMES = 16
"""Frames on the way to a pose, and in it."""


def opened(face: Array) -> Array:
    """How far the left eye, the right eye and the mouth are open, in their widths [3]."""
    found: list[float] = []
    for upper, lower in openings():
        across = face[upper[-1], :2] - face[upper[0], :2]
        apart = face[list(lower[1:-1]), :2] - face[list(upper[1:-1]), :2]
        opening = apart @ downward(across)
        found.append(float(opening.mean() / np.hypot(*across)))
    return np.array(found)


class Stage:
    """The demo's networks, its person, and what avatars make of a pose."""

    def __init__(self, session: Session, photo: Path) -> None:
        self._session = session
        self._painter = Painter(session.painting)
        self._photo = photo
        picture = read_photo(photo)
        face = self._face(picture)
        self.person: Portrait = framed(picture, solid(face, depth_scale(face)), SIZE)

    def _face(self, picture: Array) -> Array:
        self._session.reset()
        face = face_points(self._session.result(picture))
        assert face is not None
        return face

    def opened(self, picture: Array) -> Array:
        """How far eyes and mouth of a picture are open [3]."""
        return opened(self._face(picture))

    def posed(self, pose: FacePose) -> Array:
        """The picture of the person in a pose."""
        return drawn(self.person, motion_of(pose, self.person.shape), self._painter)

    def motion(self, pose: FacePose) -> FaceMotion:
        """What a driver sees of a pose, after a while at rest."""
        driver = Driver()
        self._session.reset()
        for at in [FacePose()] * NEUTRAL_FRAMES + [pose] * 3:
            result = self._session.result(self.posed(at))
            face = face_points(result)
            assert face is not None
            motion = driver(face, has_irises(result))
        assert motion is not None
        return motion

    def shown(self, how: str, pose: FacePose) -> Array:
        """What an effect shows when the person came from rest to a pose."""
        self._session.reset()
        made = effect(how, self._painter, self._session.result)
        self._session.reset()
        shares = [0.0] * (NEUTRAL_FRAMES + 2)
        shares += [i / WAY for i in range(1, WAY)] + [1.0] * FRAMES
        for i, share in enumerate(shares):
            frame = self.posed(pose.part(share))
            out = made(frame, self._session.result(frame), i / 25)
        return out


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Session(bundle(NETWORKS)) as session:
        yield Stage(session, fixtures() / "photos" / "astronaut_face.jpg")


PORTRAITS = {
    "herself": f"avatar={fixtures() / 'photos' / 'astronaut_face.jpg'}",
    "puppet": "puppet",
}
LIDS = {
    "rest": (0.0, 0.0),
    "half": (0.66, 0.66),
    "closed": (1.0, 1.0),
    "left wink": (1.0, 0.0),
    "right wink": (0.0, 1.0),
}


@pytest.mark.parametrize("name", PORTRAITS)
def test_eyes_are_as_closed_as_the_drivers(stage: Stage, name: str) -> None:
    how = PORTRAITS[name]
    rest = stage.opened(stage.posed(FacePose()))[:2]
    own = stage.opened(stage.shown(how, FacePose()))[:2]
    for lids in LIDS.values():
        pose = FacePose(left_lid=lids[0], right_lid=lids[1])
        driver = stage.opened(stage.posed(pose))[:2] / rest
        avatar = stage.opened(stage.shown(how, pose))[:2] / own
        assert np.abs(avatar - driver).max() < 0.3, lids
        # The network is asked what is known, too: closed eyes are seen as closed.
        known = 1 - np.array(lids)
        assert np.abs(driver - known).max() < 0.35, lids


@pytest.mark.parametrize("name", PORTRAITS)
def test_mouths_open_as_far_as_the_drivers(stage: Stage, name: str) -> None:
    how = PORTRAITS[name]
    rest = stage.opened(stage.posed(FacePose()))[2]
    own = stage.opened(stage.shown(how, FacePose()))[2]
    shape = stage.person.shape
    for jaw in (0.08, 0.15, 0.22):
        pose = FacePose(jaw=jaw)
        driver = stage.opened(stage.posed(pose))[2]
        avatar = stage.opened(stage.shown(how, pose))[2]
        known = opened(stage.person.moved(motion_of(pose, shape)))[2]
        assert driver == pytest.approx(known, abs=0.09), jaw
        assert avatar - own == pytest.approx(driver - rest, abs=0.06), jaw


@pytest.mark.parametrize("gesture", GESTURES, ids=range(len(GESTURES)))
def test_what_the_demo_does_is_seen(stage: Stage, gesture: Gesture) -> None:
    pose = gesture.pose
    motion = stage.motion(pose)
    known = motion_of(pose, stage.person.shape)
    # Of a turn that is warped from one photo a mesh shows about two thirds.
    turned = np.linalg.norm(known.turn)
    assert motion.turn @ known.turn >= 0.5 * turned**2
    assert motion.growth >= 0.7 * known.growth - 0.02
    assert (motion.shift * known.shift).sum() >= 0.5 * (known.shift**2).sum()
    closed = motion.closed()
    assert (closed >= 0.9 * known.closed() - 0.3).all()
    assert (closed <= known.closed() + 0.15).all()
    lip = LOWER_MOUTH[5]
    assert motion.expression[lip, 1] >= 0.75 * pose.jaw - 0.02
    raised = motion.expression[list(LEFT_BROW), 1].mean()
    assert -raised >= 0.25 * pose.brows - 0.005


def test_the_cat_does_at_once_what_its_driver_does(stage: Stage) -> None:
    every = list(poses())
    known: list[tuple[float, float]] = []
    seen: list[Array] = []
    with demo_subject(OVERLAY, lambda question: True, print) as subject:
        show = Show(subject.source, subject.bundles, subject.effect)
        for shown in show:
            pose = every[shown.number - 1]
            # The last frames of the turn, a blink and three words.
            if shown.number > 95:
                known.append((1 - pose.left_lid, pose.jaw))
                seen.append(stage.opened(shown.after)[[0, 2]])
            if shown.number == 170:
                show.stop()
    eyes, mouth = zip(*known, strict=True)
    assert np.corrcoef(eyes, [s[0] for s in seen])[0, 1] > 0.92
    assert np.corrcoef(mouth, [s[1] for s in seen])[0, 1] > 0.97


def test_makeup_of_lids_covers_closed_ones(stage: Stage) -> None:
    pose = FacePose(left_lid=1.0, right_lid=1.0)
    out = stage.shown("makeup=lids:#2040c0", pose).astype(int)
    face = stage.person.moved(motion_of(pose, stage.person.shape))
    for upper, _, skin in EYES:
        for share in (0.25, 0.5, 0.75):
            at = face[list(skin[3:-3]), :2] * (1 - share)
            at = at + face[list(upper[3:-3]), :2] * share
            x, y = at.astype(int).T
            # Blue lies on skin, of which nothing is blue.
            assert (out[y, x, 2] > out[y, x, 0]).all(), share
