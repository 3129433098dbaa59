"""Writes runtime/edgec_runtime/face/layout.json: the mean of faces in photos, made
symmetric, and its triangles.

The mesh of each photo is turned to the front and brought to one size. The mean of the
meshes and of their reflections is the layout; each point has a partner of its own on
the other side, so that they are together as near as can be to the reflection. The
triangles are Delaunay's, with the eyes opened so that their edges are edges of
triangles, and those of the lips go from row to row of their points; the openings and
what is outside the outline have none.

    python tools/face_layout.py DETECTOR.edgec MESH.edgec PHOTO…
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.face.alignment import align
from edgec_runtime.face.landmarks import (
    LEFT_CORNERS,
    LOWER_LIP,
    LOWER_MOUTH,
    LOWER_ROWS,
    OVAL,
    RIGHT_CORNERS,
    STABLE,
    UPPER_LIP,
    UPPER_MOUTH,
    UPPER_ROWS,
    openings,
    strip,
)
from edgec_runtime.vision.photo import read_photo
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Delaunay

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.face_meshes import FaceMeshes  # noqa: E402

Array = NDArray[Any]

FILE = ROOT / "runtime" / "edgec_runtime" / "face" / "layout.json"
ROUNDS = 5
"""Rounds in which the mean and the alignments to it settle."""
OPENED = 0.12
"""How far the middle of an eye is opened for the triangles."""

OUTWARD = 1.04
"""By how much the outline is enlarged for them, so that it bulges everywhere."""
RINGS = (UPPER_ROWS, LOWER_ROWS)
EYES = openings()[:2]


def mean_face(meshes: list[Array]) -> tuple[Array, Array]:
    """Return the symmetric mean of meshes [468, 3], and the partners of its points."""
    stable = list(STABLE)
    mean = meshes[0]
    for _ in range(ROUNDS):
        turned = [align(m[stable], mean[stable]).apply(m) for m in meshes]
        mean = upright(np.mean(turned, axis=0))
    reflected = mean * [-1, 1, 1]
    apart = np.linalg.norm(mean[:, None] - reflected[None], axis=2)
    partners = linear_sum_assignment(apart + apart.T)[1]
    assert (partners[partners] == np.arange(len(mean))).all(), "no clear partners"
    for _ in range(ROUNDS):
        mean = upright((mean + mean[partners] * [-1, 1, 1]) / 2)
    return mean, partners


def upright(mesh: Array) -> Array:
    """Return a mesh that looks ahead, with the stable points' mean as its origin."""
    across = mesh[RIGHT_CORNERS[1]] - mesh[LEFT_CORNERS[0]]
    size = np.linalg.norm(across)
    x = across / size
    # The forehead's top above the chin gives the direction down.
    down = mesh[152] - mesh[10]
    down = down - x * (down @ x)
    y = down / np.linalg.norm(down)
    axes = np.stack([x, y, np.cross(x, y)])
    turned = mesh @ axes.T / size
    return np.asarray(turned - turned[list(STABLE)].mean(axis=0))


def triangles_of(points: Array) -> Array:
    """Return the triangles of the skin of a mesh [468, 3], clockwise on the screen."""
    flat = spread(points[:, :2].copy())
    found = Delaunay(flat).simplices
    middles = flat[found].mean(axis=1)
    kept = inside(middles, flat[list(OVAL)])
    for upper, lower in (*EYES, (UPPER_LIP, LOWER_LIP)):
        hole = flat[[*upper, *lower[-2:0:-1]]]
        kept &= ~inside(middles, hole)
    # A point within a lip has no place in a triangle of the skin.
    kept &= ~np.isin(found, [i for rings in RINGS for r in rings[1:] for i in r]).any(1)
    found = found[kept]
    one = flat[found[:, 1]] - flat[found[:, 0]]
    two = flat[found[:, 2]] - flat[found[:, 0]]
    is_turned = one[:, 0] * two[:, 1] < one[:, 1] * two[:, 0]
    found[is_turned] = found[is_turned][:, ::-1]
    return np.concatenate([found[np.lexsort(found.T[::-1])], lips()])


def lips() -> Array:
    """Return the triangles of both lips, from ring to ring."""
    upper = [
        triangle
        for above, below in pairwise(UPPER_ROWS)
        for triangle in strip(above, below)
    ]
    lower = [
        triangle
        for below, above in pairwise(LOWER_ROWS)
        for triangle in strip(above, below)
    ]
    return np.array(upper + lower)


def spread(flat: Array) -> Array:
    """Return points [468, 2] with open eyes and lips, and a round outline.

    Only their neighbourhood counts: the edges of openings and the outline become edges
    of triangles.
    """
    for upper, lower in EYES:
        last = len(upper) - 1
        for i in range(1, last):
            a, b = upper[i], lower[i]
            missing = max(0.0, OPENED - (flat[b, 1] - flat[a, 1])) / 2
            flat[a, 1] -= missing * np.sin(np.pi * i / last)
            flat[b, 1] += missing * np.sin(np.pi * i / last)
    # What is within the lips goes to their middle, out of the way of the skin.
    for rings in RINGS:
        for ring in rings[1:]:
            flat[list(ring)] = flat[[UPPER_MOUTH[5], LOWER_MOUTH[5]]].mean(axis=0)
            flat[list(ring), 0] += 1e-3 * np.arange(len(ring))
    flat[list(OVAL)] *= OUTWARD
    return flat


def inside(places: Array, outline: Array) -> Array:
    """Return whether places [N, 2] lie in an outline [K, 2], by the even-odd rule."""
    x, y = places[:, :1], places[:, 1:]
    ax, ay = outline.T
    bx, by = np.roll(outline, -1, axis=0).T
    crosses = (ay > y) != (by > y)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = ax + (y - ay) * (bx - ax) / (by - ay)
    return np.asarray((crosses & (x < at)).sum(axis=1) % 2 == 1)


def main() -> None:
    """Write the file."""
    detector, mesh, *photos = sys.argv[1:]
    meshes = FaceMeshes(Path(detector), Path(mesh))
    found: list[Array] = []
    for photo in photos:
        points = meshes(read_photo(Path(photo)))
        assert points is not None, photo
        assert points.depth is not None
        found.append(np.column_stack([points.points, points.depth]).astype(float))
    layout, partners = mean_face(found)
    stored = {
        "points": [[round(float(v), 4) for v in p] for p in layout],
        "triangles": triangles_of(layout).tolist(),
        "mirrored": partners.tolist(),
    }
    FILE.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
