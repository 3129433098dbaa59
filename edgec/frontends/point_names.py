"""Points of MediaPipe's networks of faces, eyes, hands and bodies: names, lines, numbers.

They are the layout of the networks' outputs, as the graphs of MediaPipe state it
(mediapipe/modules: face_landmark, iris_landmark, hand_landmark, pose_landmark).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any


def _path(*points: int) -> list[list[int]]:
    """Return the lines from each point to the next."""
    return [[a, b] for a, b in pairwise(points)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


HAND_POINTS = [
    "wrist",
    "thumb base",
    "thumb knuckle",
    "thumb joint",
    "thumb tip",
    "index knuckle",
    "index joint 1",
    "index joint 2",
    "index tip",
    "middle knuckle",
    "middle joint 1",
    "middle joint 2",
    "middle tip",
    "ring knuckle",
    "ring joint 1",
    "ring joint 2",
    "ring tip",
    "pinky knuckle",
    "pinky joint 1",
    "pinky joint 2",
    "pinky tip",
]
"""The 21 points of a hand."""

HAND_LINES = [
    *_path(0, 1, 2, 3, 4),
    *_path(0, 5, 6, 7, 8),
    *_path(9, 10, 11, 12),
    *_path(13, 14, 15, 16),
    *_path(0, 17, 18, 19, 20),
    # The palm's edge, from knuckle to knuckle.
    *_path(5, 9, 13, 17),
]
"""Pairs of them that are joined in pictures."""

BODY_POINTS = [
    "nose",
    "left eye inner",
    "left eye",
    "left eye outer",
    "right eye inner",
    "right eye",
    "right eye outer",
    "left ear",
    "right ear",
    "mouth left",
    "mouth right",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left wrist",
    "right wrist",
    "left pinky",
    "right pinky",
    "left index",
    "right index",
    "left thumb",
    "right thumb",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left ankle",
    "right ankle",
    "left heel",
    "right heel",
    "left foot index",
    "right foot index",
    "centre",
    "top of circle",
]
"""The 33 points of a body, and two more that say where the body is.

A circle around "centre" through "top of circle" has the whole body in it, and the way
from one to the other is the body's direction.
"""

BODY_LINES = [
    *_path(8, 6, 5, 4, 0, 1, 2, 3, 7),
    *_path(9, 10),
    # The trunk.
    *_path(11, 12, 24, 23, 11),
    # Left arm and leg, then right ones.
    *_path(11, 13, 15, 17, 19, 15, 21),
    *_path(23, 25, 27, 29, 31, 27),
    *_path(12, 14, 16, 18, 20, 16, 22),
    *_path(24, 26, 28, 30, 32, 28),
]
"""Pairs of the body's points that are joined in pictures."""

EYE_CONTOUR_POINTS = 71
"""Points of lids and brow in the first output of the network for an eye."""

IRIS_POINTS = [*range(EYE_CONTOUR_POINTS, EYE_CONTOUR_POINTS + 5)]
"""The centre of the iris, and four points of its edge."""

IRIS_LINES = [
    # The lower lid from corner to corner, then the upper one.
    *_path(0, 1, 2, 3, 4, 5, 6, 7, 8),
    *_path(0, 9, 10, 11, 12, 13, 14, 15, 8),
    *_path(72, 73, 74, 75, 72),
]
"""Pairs of an eye's points that are joined in pictures."""

_LIPS = _numbers(
    """
    61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291, 185, 40, 39, 37, 0,
    267, 269, 270, 409, 78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308,
    191, 80, 81, 82, 13, 312, 311, 310, 415, 76, 77, 90, 180, 85, 16, 315,
    404, 320, 307, 306, 184, 74, 73, 72, 11, 302, 303, 304, 408, 62, 96,
    89, 179, 86, 15, 316, 403, 319, 325, 292, 183, 42, 41, 38, 12, 268,
    271, 272, 407
    """
)
_LEFT_EYE = _numbers(
    """
    33, 7, 163, 144, 145, 153, 154, 155, 133, 246, 161, 160, 159, 158,
    157, 173, 130, 25, 110, 24, 23, 22, 26, 112, 243, 247, 30, 29, 27, 28,
    56, 190, 226, 31, 228, 229, 230, 231, 232, 233, 244, 113, 225, 224,
    223, 222, 221, 189, 35, 124, 46, 53, 52, 65, 143, 111, 117, 118, 119,
    120, 121, 128, 245, 156, 70, 63, 105, 66, 107, 55, 193
    """
)
_RIGHT_EYE = _numbers(
    """
    263, 249, 390, 373, 374, 380, 381, 382, 362, 466, 388, 387, 386, 385,
    384, 398, 359, 255, 339, 254, 253, 252, 256, 341, 463, 467, 260, 259,
    257, 258, 286, 414, 446, 261, 448, 449, 450, 451, 452, 453, 464, 342,
    445, 444, 443, 442, 441, 413, 265, 353, 276, 283, 282, 295, 372, 340,
    346, 347, 348, 349, 350, 357, 465, 383, 300, 293, 334, 296, 336, 285,
    417
    """
)
_LID_POINTS = 16
"""The first points of an eye are its lids."""


def _refinement(output: str, points: list[int]) -> dict[str, Any]:
    """Return the refinement of points of the mesh by an output of x and y."""
    return {"output": output, "points": points}


def _iris(output: str, first: int, eye: list[int]) -> dict[str, Any]:
    """Return the refinement that adds an iris, as deep as the lids of its eye."""
    points = [*range(first, first + 5)]
    return {"output": output, "points": points, "depth_of": eye[:_LID_POINTS]}


FACE_REFINEMENTS = [
    _refinement("#1", _LIPS),
    _refinement("#2", _LEFT_EYE),
    _refinement("#3", _RIGHT_EYE),
    _iris("#4", 468, _LEFT_EYE),
    _iris("#5", 473, _RIGHT_EYE),
]
"""What the face mesh with attention says of lips, eyes and irises."""
