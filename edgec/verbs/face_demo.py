"""The webcam's demo: a photograph of a face is given turns, blinks and a spoken word, and
drives a portrait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgec_runtime.cascade.session import CascadeSession
from edgec_runtime.errors import InputError
from edgec_runtime.face.points import depth_scale, face_points, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.effects.avatar import drawn, framed
from edgec_runtime.webcam.effects.painter import Painter
from edgec_runtime.webcam.sources import Source

from edgec.verbs.face_poses import Pose, motion_of

SIZE = (640, 480)
"""Width and height of the clip."""
FRAMES_PER_SECOND = 25.0
REST_S = 1.0
"""Seconds of the neutral face, which an effect takes for its own."""


@dataclass(frozen=True)
class Gesture:
    """A part of the clip.

    Attributes:
        pose: the furthest pose.
        seconds: the time it takes.
        times: how often the face goes there and back.
    """

    pose: Pose
    seconds: float
    times: int = 1


GESTURES = (
    Gesture(Pose(turn=(0.0, 0.2, 0.0)), 1.6),
    Gesture(Pose(turn=(0.0, -0.2, 0.0)), 1.6),
    Gesture(Pose(left_lid=1.0, right_lid=1.0), 0.5),
    Gesture(Pose(jaw=0.13, brows=0.03), 1.4, times=3),
    Gesture(Pose(turn=(0.0, 0.0, 0.2)), 1.4),
    Gesture(Pose(turn=(0.0, 0.0, -0.2), brows=0.06), 1.4),
    Gesture(Pose(left_lid=1.0), 0.7),
    Gesture(Pose(turn=(0.12, 0.0, 0.0), jaw=0.1), 1.4, times=2),
    Gesture(Pose(shift=(0.12, 0.04), growth=0.1), 1.6),
)
"""What the face does after its rest, one after the other."""


def face_clip(photo: Path, bundle: Path) -> Source:
    """Return a clip of the face in a photo.

    Args:
        photo: the photo.
        bundle: finds the mesh of a face: a cascade.

    Raises InputError where the bundle finds no face.
    """
    picture = read_photo(photo)
    with CascadeSession(bundle) as session:
        points = face_points(session.run(picture))
        painting = session.painting
    if points is None:
        raise InputError("no face was found", str(photo), "give a photo of one face")

    portrait = framed(picture, solid(points, depth_scale(points)), SIZE)
    frames = partial(_frames, portrait, Painter(painting))
    name = f"{photo.name}, moved"
    return Source(name, False, FRAMES_PER_SECOND, lambda _: frames())


def _frames(portrait: Portrait, painter: Painter) -> Iterator[CameraFrame]:
    for pose in poses():
        motion = motion_of(pose, portrait.shape)
        yield CameraFrame.of(drawn(portrait, motion, painter))


def poses() -> Iterator[Pose]:
    """Yield the pose of each frame of the clip."""
    for _ in range(round(REST_S * FRAMES_PER_SECOND)):
        yield Pose()
    for gesture in GESTURES:
        count = round(gesture.seconds * FRAMES_PER_SECOND)
        for i in range(count):
            # There and back without a jerk at either end.
            part = gesture.times * i / count
            share = 0.5 - 0.5 * math.cos(2 * math.pi * part)
            yield gesture.pose.part(share)
