"""The motions of the driving clips of mirror_check.py."""

from __future__ import annotations

from collections.abc import Mapping

from edgec.verbs.face_poses import FacePose as FacePose
from edgec.verbs.face_poses import motion_of as motion_of

POSES: Mapping[str, FacePose] = {
    "turn left": FacePose(turn=(0, 0.2, 0)),
    "turn right": FacePose(turn=(0, -0.2, 0)),
    "nod up": FacePose(turn=(-0.15, 0, 0)),
    "nod down": FacePose(turn=(0.15, 0, 0)),
    "tilt left": FacePose(turn=(0, 0, -0.2)),
    "tilt right": FacePose(turn=(0, 0, 0.2)),
    "blink": FacePose(left_lid=1, right_lid=1),
    "wink": FacePose(left_lid=1),
    "speak": FacePose(jaw=0.08),
    "jaw down": FacePose(jaw=0.15),
    "brows up": FacePose(brows=0.07),
    "nearer and aside": FacePose(shift=(0.15, 0.05), growth=0.1),
}
"""Turns of 12 degrees, as in talk. The mesh network sees two thirds of a turn that is
warped from one picture, and of a jaw that goes further down: there its own error would
be measured.
"""
