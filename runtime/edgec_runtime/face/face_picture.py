"""A picture pinned to a face: glasses, whiskers, paint.

Where the picture's points are pinned says where all points of the mesh are in it, and
those of a ring around the face, which carries what is larger than a face: ears, hats.
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
"""Radii of the rings about the face, in those of its outline."""
RING_MIDDLE = np.array([0.0, 0.35])
"""Their middle, in the frame of the layout."""


class RingedFace:
    """The mesh of a face with rings around it, for pictures that lie over it.

    Attributes:
        layout: its corners in the frame of the layout [540, 3]
    """

    def __init__(self) -> None:
        """Make the rings."""
        face = face_layout().points
        self._ring = _rings(face)
        self._triangles = _triangles(len(face))
        self.layout = np.concatenate([face, self._ring])

    def placed(self, face: Array) -> Array:
        """Return the corners over a face in a frame [540, 3].

        Args:
            face: x, y and depth of it [468, 3]
        """
        around = seen_pose(face[:, :2]).apply(self._ring)
        points = solid(face, depth_scale(face))
        return np.concatenate([points, around])

    def triangles(self, corners: Array, closed: bool = True) -> Array:
        """Return the triangles, those behind first, int32 [M, 3].

        Args:
            corners: from placed
            closed: whether eyes and mouth have triangles, too
        """
        found = self._triangles
        if not closed:
            found = found[: -len(_opening_triangles())]
        behind = corners[found, 2].mean(axis=1)
        order = np.argsort(-behind, kind="stable")
        return found[order].astype(np.int32)


class PinnedPicture:
    """A picture with alpha, and the mesh of a face in it."""

    def __init__(self, picture: Array, pinned: Pinned) -> None:
        """Find the mesh.

        Args:
            picture: uint8 [H, W, 4]
            pinned: where it belongs to points of the face
        """
        self.source = premultiplied(picture)
        self._mesh = RingedFace()
        known = self._mesh.layout[pinned.numbers, :2]
        self.begin = bent(known, pinned.places, self._mesh.layout[:, :2])

    def scale(self, face: Array) -> float:
        """Return the pixels of the picture for one of the frame.

        Args:
            face: x, y and depth of a face in the frame [468, 3]
        """
        own = lengths(np.ptp(self.begin[list(OVAL)], axis=0))
        other = lengths(np.ptp(face[list(OVAL), :2], axis=0))
        return float(own / np.maximum(other, 1.0))

    def warp(self, face: Array, light: Array, source: Array) -> Warp:
        """Return the warp that puts the picture over a face.

        Args:
            face: x, y and depth of it in the frame [468, 3]
            light: how bright each point of it is, 1: as the picture [468]
            source: the picture, or a smaller copy of it, uint8 [H, W, 4]
        """
        end = self._mesh.placed(face)
        shrunk = np.array([source.shape[1], source.shape[0]])
        whole = np.array([self.source.shape[1], self.source.shape[0]])
        begin = self.begin * (shrunk / whole)
        # What is around the face is in the light of its outline.
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

    Between a pixel and a transparent one the colour of the latter must not count.

    Args:
        picture: uint8 [H, W, 4]
    """
    result = picture.copy()
    alpha = picture[..., 3:].astype(np.uint16)
    product = picture[..., :3] * alpha
    result[..., :3] = (product + 127) // 255
    return result


def _rings(layout: Array) -> Array:
    """Return the points of the rings about the face [72, 3].

    Args:
        layout: [468, 3]
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
    found: List[Triangle] = []
    inner = list(OVAL)
    for i in range(len(RINGS)):
        begin = first + i * len(OVAL)
        outer = list(range(begin, begin + len(OVAL)))
        # A ring is closed: its first point follows its last.
        found += strip([*outer, outer[0]], [*inner, inner[0]])
        inner = outer
    # Glasses lie over open eyes, and a beard over an open mouth.
    found += _opening_triangles()
    return np.concatenate([face_layout().triangles, np.array(found)])


def _opening_triangles() -> List[Triangle]:
    """Return the triangles of eyes and mouth."""
    found: List[Triangle] = []
    for upper, lower in openings():
        found += strip(upper, lower)
    return found
