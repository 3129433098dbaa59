"""Whether an avatar mirrors what its driver does: 12 known motions, 3 portraits.

A clip is a photo of a person, warped into a known pose and back to rest. Its frames go
through the detector, the mesh network and the effect, as a camera's do. The mesh
network then finds the points of the portrait that was drawn; they are compared with the
portrait's own points moved by the known motion.

    python -m benchmarks.mirror_check [--clips blink,wink] [--int8] [--out build]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from edgec_runtime.face.landmarks import LEFT_CORNERS, RIGHT_CORNERS
from edgec_runtime.face.points import depth_scale, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.webcam.effects import Painter
from edgec_runtime.webcam.effects.avatar import Avatar, framed
from edgec_runtime.webcam.effects.base import EffectSetting
from numpy.typing import NDArray

from benchmarks.face_meshes import FaceMeshes
from benchmarks.face_motions import POSES, Pose, motion_of

Array = NDArray[Any]

SIZE = (640, 480)
"""Width and height of frames."""
FPS = 30.0
NEUTRAL = 14
RAMP = 8
HOLD = 16
"""Frames of a clip at rest, on the way to the pose, and in it."""
JUDGED = 4
"""Frames at the end of a clip that are compared: the filter has come to rest."""
MEDIAN = 0.03
WORST = 0.08
"""How far points may be off, in distances of the eyes: the median, and 95 in 100."""
STILL_PIXELS = 0.5
"""How far a point may move while the driver keeps still."""


@dataclass(frozen=True)
class Clip:
    """Frames of a person that are known to show a pose.

    Attributes:
        name: of the pose
        pose: the pose at the end
        frames: uint8 [H, W, 3] each
        shape: the person's neutral face in the layout's frame
    """

    name: str
    pose: Pose
    frames: Sequence[Array]
    shape: Array


@dataclass(frozen=True)
class Mirrored:
    """What one clip and one portrait gave.

    Attributes:
        clip: the motion
        portrait: the portrait
        median, worst: distances of points from their places, in distances of the eyes:
            the median, and the 95th percentile
    """

    clip: str
    portrait: str
    median: float
    worst: float


def face_of(picture: Array, meshes: FaceMeshes, last: Array | None = None) -> Points:
    """Return the face in a picture.

    Args:
        picture: uint8 [H, W, 3]
        meshes: finds it
        last: the points of the frame before
    """
    found = meshes(picture, last)
    assert found is not None, "no face was found"
    return found


def portrait_of(picture: Array, meshes: FaceMeshes) -> Portrait:
    """Return a portrait as large as a frame."""
    return framed(picture, solid_points(face_of(picture, meshes)), SIZE)


def solid_points(found: Points) -> Array:
    """Return the points of a face with depth in pixels [468, 3]."""
    assert found.depth is not None
    points = np.column_stack([found.points, found.depth]).astype(np.float64)
    return solid(points, depth_scale(points))


def clip_of(name: str, person: Portrait, painter: Painter) -> Clip:
    """Return the clip of a person who takes on a pose."""
    pose = POSES[name]
    shares = [0.0] * NEUTRAL
    shares += [float(x) for x in np.linspace(0, 1, RAMP + 2)[1:-1]]
    shares += [1.0] * HOLD
    frames: list[Array] = []
    for share in shares:
        motion = motion_of(pose.part(share), person.shape)
        frame = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
        painter.warp_into(person.warp(motion), frame)
        frames.append(frame)
    return Clip(name, pose, frames, person.shape)


def eyes_apart(points: Array) -> float:
    """Return the distance of the middles of the eyes."""
    left = points[list(LEFT_CORNERS), :2].mean(axis=0)
    right = points[list(RIGHT_CORNERS), :2].mean(axis=0)
    return float(np.hypot(*(right - left)))


def mirrored(
    clip: Clip, picture: Array, meshes: FaceMeshes, painter: Painter
) -> tuple[Array, list[Array]]:
    """Return distances of points from their places [frames, 468], in distances of the
    eyes, and the pictures that were drawn.
    """
    points = solid_points(face_of(picture, meshes))
    effect = Avatar(EffectSetting("", painter), picture, points)
    portrait = framed(picture, points, SIZE)
    wanted = portrait.moved(motion_of(clip.pose, clip.shape))[:, :2]
    last: Array | None = None
    off: list[Array] = []
    drawn: list[Array] = []
    for i, frame in enumerate(clip.frames):
        found = face_of(frame, meshes, last)
        last = found.points
        out = effect(frame, found, i / FPS)
        drawn.append(out)
        if i >= len(clip.frames) - JUDGED:
            again = face_of(out, meshes)
            apart = np.hypot(*(again.points - wanted).T)
            off.append(apart / eyes_apart(wanted))
    return np.array(off), drawn
