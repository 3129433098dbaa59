"""What avatars show of a driver whose pose is known: eyes and mouths, measured in the
pictures of both by the networks of the demo.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.cascade.session import CascadeSession
from edgec_runtime.face.driving import NEUTRAL_FRAMES
from edgec_runtime.face.geometry import downward
from edgec_runtime.face.landmarks import openings
from edgec_runtime.face.lids import EYES
from edgec_runtime.face.points import depth_scale, face_points, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.effects import Painter, effect
from edgec_runtime.webcam.effects.avatar import drawn, framed

from edgec.ir import Array
from edgec.verbs.demo import fixtures
from edgec.verbs.face_poses import FacePose, motion_of
from edgec.verbs.webcam_demo import NETWORKS, SIZE
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

    def __init__(self, session: CascadeSession, photo: Path) -> None:
        self._session = session
        self._painter = Painter(session.painting)
        self._photo = photo
        picture = read_photo(photo)
        face = self._face(picture)
        self.person: Portrait = framed(picture, solid(face, depth_scale(face)), SIZE)

    def _face(self, picture: Array) -> Array:
        self._session.reset()
        face = face_points(self._session.run(picture))
        assert face is not None
        return face

    def opened(self, picture: Array) -> Array:
        """How far eyes and mouth of a picture are open [3]."""
        return opened(self._face(picture))

    def posed(self, pose: FacePose) -> Array:
        """The picture of the person in a pose."""
        return drawn(self.person, motion_of(pose, self.person.shape), self._painter)

    def shown(self, how: str, pose: FacePose) -> Array:
        """What an effect shows when the person came from rest to a pose."""
        self._session.reset()
        made = effect(how, self._painter, self._session.run)
        self._session.reset()
        shares = [0.0] * (NEUTRAL_FRAMES + 2)
        shares += [i / WAY for i in range(1, WAY)] + [1.0] * FRAMES
        for i, share in enumerate(shares):
            frame = self.posed(pose.part(share))
            out = made(frame, self._session.run(frame), i / 25)
        return out


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with CascadeSession(bundle(NETWORKS)) as session:
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
        assert driver == pytest.approx(known, abs=0.07), jaw
        assert avatar - own == pytest.approx(driver - rest, abs=0.06), jaw


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
