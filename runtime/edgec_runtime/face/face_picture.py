"""Draws a picture over a face to which it is pinned: glasses, whiskers, paint.

From the pinned points follow the positions of all points of the mesh in the picture, and
of rings around the face, which carry parts outside it: ears, hats.
"""

from __future__ import annotations

from typing import Any, List

import numpy as np
from numpy.typing import NDArray

from .bending import bent
from .geometry import lengths
from .landmarks import OVAL, face_layout, openings, strip
from .openings import Triangle
from .point_file import Pinned
from .points import depth_scale, seen_pose, solid
from .warping import Warp

Array = NDArray[Any]

RINGS = (1.35, 2.4)
"""Radii of the rings around the face, relative to its outline."""
RING_MIDDLE = np.array([0.0, 0.35])
"""The middle of the rings in the frame of the layout."""


class RingedFace:
    """The mesh of a face with rings around it, for pictures that are drawn over it.

    Attributes:
        layout: its corners in the frame of the layout [540, 3]
    """

    def __init__(self) -> None:
        face = face_layout().points
        self._ring = _rings(face)
        self._triangles = _triangles(len(face))
        self.layout = np.concatenate([face, self._ring])

    def placed(self, face: Array) -> Array:
        """Return the corners of the mesh for a face in a frame [540, 3].

        Args:
            face: x, y and depth of the face's points [468, 3]
        """
        around = seen_pose(face[:, :2]).apply(self._ring)
        points = solid(face, depth_scale(face))
        return np.concatenate([points, around])

    def triangles(self, corners: Array, closed: bool = True) -> Array:
        """Return the triangles from back to front, int32 [M, 3].

        Args:
            corners: the corners of `placed`
            closed: whether eyes and mouth have triangles, too
        """
        triangles = self._triangles
        if not closed:
            triangles = triangles[: -len(_opening_triangles())]
        depth = corners[triangles, 2].mean(axis=1)
        order = np.argsort(-depth, kind="stable")
        return triangles[order].astype(np.int32)


class PinnedPicture:
    """A picture with alpha, and the mesh of a face in it."""

    def __init__(self, picture: Array, pinned: Pinned) -> None:
        """Compute the positions of the mesh in the picture.

        Args:
            picture: uint8 [H, W, 4]
            pinned: points of the picture that belong to points of a face
        """
        self.source = premultiplied(picture)
        self._mesh = RingedFace()
        known = self._mesh.layout[pinned.numbers, :2]
        self.begin = bent(known, pinned.places, self._mesh.layout[:, :2])

    def scale(self, face: Array) -> float:
        """Return the pixels of the picture per pixel of the frame.

        Args:
            face: x, y and depth of a face in the frame [468, 3]
        """
        picture_size = lengths(np.ptp(self.begin[list(OVAL)], axis=0))
        frame_size = lengths(np.ptp(face[list(OVAL), :2], axis=0))
        return float(picture_size / np.maximum(frame_size, 1.0))

    def warp(self, face: Array, light: Array, source: Array) -> Warp:
        """Return the warp that draws the picture over a face.

        Args:
            face: x, y and depth of the face's points in the frame [468, 3]
            light: factor of the picture's brightness at each point [468]
            source: the picture, or a smaller copy of it, uint8 [H, W, 4]
        """
        end = self._mesh.placed(face)
        copy_size = np.array([source.shape[1], source.shape[0]])
        full_size = np.array([self.source.shape[1], self.source.shape[0]])
        begin = self.begin * (copy_size / full_size)
        # The rings have the light of the outline.
        outline = np.tile(light[list(OVAL)], len(RINGS))
        return Warp(
            source,
            begin.astype(np.float32),
            end[:, :2].astype(np.float32),
            self._mesh.triangles(end),
            np.concatenate([light, outline]).astype(np.float32),
            blended=True,
        )


def premultiplied(picture: Array) -> Array:
    """Return a picture whose colours are multiplied by its alpha, uint8 [H, W, 4].

    Otherwise interpolation would mix in the colours of transparent pixels.

    Args:
        picture: uint8 [H, W, 4]
    """
    result = picture.copy()
    alpha = picture[..., 3:].astype(np.uint16)
    product = picture[..., :3] * alpha
    result[..., :3] = (product + 127) // 255
    return result


def _rings(layout: Array) -> Array:
    """Return the points of the rings around the face [72, 3].

    Args:
        layout: the points of the layout [468, 3]
    """
    oval = layout[list(OVAL)]
    rings: List[Array] = []
    for radius in RINGS:
        ring = oval.copy()
        out = (oval[:, :2] - RING_MIDDLE) * radius
        ring[:, :2] = RING_MIDDLE + out
        rings.append(ring)
    return np.concatenate(rings)


def _triangles(first: int) -> Array:
    """Return the triangles of face, rings and, at the end, openings [M, 3].

    Args:
        first: the number of the first point of the rings
    """
    triangles: List[Triangle] = []
    inner = list(OVAL)
    for i in range(len(RINGS)):
        begin = first + i * len(OVAL)
        outer = list(range(begin, begin + len(OVAL)))
        # A ring is closed: its first point follows its last one.
        triangles += strip([*outer, outer[0]], [*inner, inner[0]])
        inner = outer
    # Openings have triangles, too: glasses cover the eyes, and a beard an open mouth.
    triangles += _opening_triangles()
    return np.concatenate([face_layout().triangles, np.array(triangles)])


def _opening_triangles() -> List[Triangle]:
    """Return the triangles of eyes and mouth."""
    triangles: List[Triangle] = []
    for upper, lower in openings():
        triangles += strip(upper, lower)
    return triangles
