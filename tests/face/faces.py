"""Faces without a network: the layout, posed and with expressions, as results."""

from __future__ import annotations

import numpy as np
from edgec_runtime.face.alignment import rotation_of
from edgec_runtime.face.landmarks import face_layout
from edgec_runtime.vision.tasks.points import Points

from edgec.ir import Array
from edgec.verbs.face_poses import FacePose, motion_of

SIZE = (160, 120)
"""Width and height of frames."""
UNIT = 36.0
"""Pixels between the eyes."""

AT_REST = FacePose()


def points(pose: FacePose = AT_REST, depth: float = 1.0) -> Array:
    """The face in a pose [468, 3]; depth: the factor that a network has of it."""
    shape = face_layout().points
    motion = motion_of(pose, shape)
    turned = (shape + motion.expression) @ rotation_of(motion.turn).T
    face = (turned * np.exp(motion.growth) + motion.shift) * UNIT
    face[:, :2] += np.array(SIZE) * [0.5, 0.42]
    face[:, 2] *= depth
    return np.asarray(face)


def result(face: Array | None) -> Points:
    """A result with these points; None: one without a face."""
    there = face is not None
    known = points() if face is None else face
    count = len(known)
    return Points(
        known[:, :2].astype(np.float32),
        np.ones(count, np.float32),
        np.full(count, there),
        1.0 if there else 0.0,
        known[:, 2].astype(np.float32),
    )


def frame(seed: int = 0) -> Array:
    """A frame of noise: nothing of it should be seen in a portrait."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
