"""The motions of the driving clips of mirror_check.py."""

from __future__ import annotations

from collections.abc import Mapping

from edgec.verbs.face_poses import Pose as Pose
from edgec.verbs.face_poses import motion_of as motion_of

POSES: Mapping[str, Pose] = {
    "turn left": Pose(turn=(0, 0.2, 0)),
    "turn right": Pose(turn=(0, -0.2, 0)),
    "nod up": Pose(turn=(-0.15, 0, 0)),
    "nod down": Pose(turn=(0.15, 0, 0)),
    "tilt left": Pose(turn=(0, 0, -0.2)),
    "tilt right": Pose(turn=(0, 0, 0.2)),
    "blink": Pose(left_lid=1, right_lid=1),
    "wink": Pose(left_lid=1),
    "speak": Pose(jaw=0.08),
    "jaw down": Pose(jaw=0.15),
    "brows up": Pose(brows=0.07),
    "nearer and aside": Pose(shift=(0.15, 0.05), growth=0.1),
}
"""Turns of 12 degrees, as in talk. The mesh network sees two thirds of a turn that is
warped from one picture, and of a jaw that goes further down: there its own error would
be measured.
"""
