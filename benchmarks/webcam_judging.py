"""What `edgec webcam --out` kept of a frame, beside what a network's authors publish as
its post-processing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from edgec.ir import Array
from tests.tasks import published
from tests.tasks.published import Found, Size, iou

BOXES = MASK = 0.99
"""Intersection over union, at least."""
POINTS = 0.5
"""Pixels, at most."""
PICTURE = 2.0
SOFT = 6.0
"""Levels by which a picture may be off, on average; and one that was blurred, by
another filter than Pillow's.
"""
FRONT = 0.95
"""Of what is in front of a replaced background, where the network is sure: it follows
the frame's edges too.
"""
SEEN = 0.01
"""The least part of a frame whose intersection over union says something of what is in
front of a background.
"""
AT_THRESHOLD = 1e-3
"""A box whose score is as near to the threshold as this may be there or not: engines
add in other orders.
"""


@dataclass(frozen=True)
class Kept:
    """What is in the folder of one frame. frame: uint8 [H,W,3], as it was read."""

    place: Path
    frame: Array

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.frame.shape[1], self.frame.shape[0]

    @property
    def picture(self) -> Array:
        """uint8 [H,W,3]."""
        return np.asarray(Image.open(self.place.with_suffix(".png")))

    @property
    def result(self) -> Mapping[str, Any]:
        """As JSON."""
        found: Mapping[str, Any] = json.loads(
            self.place.with_suffix(".json").read_text()
        )
        return found

    @property
    def mask(self) -> Array:
        """bool [H,W]."""
        return np.asarray(Image.open(self.place.with_suffix(".mask.png"))) > 0


@dataclass(frozen=True)
class Judged:
    """figure: by the measure of the task. holds: whether that is enough. count: of what
    was compared.
    """

    figure: float
    holds: bool
    count: int = 1


Outputs = Sequence[Array]
Judge = Callable[[Kept, Outputs], Judged]


def boxes(way: Callable[..., list[Found]], threshold: float) -> Judge:
    """Least intersection over union of pairs. way: from outputs and size to boxes."""

    def judge(kept: Kept, outputs: Outputs) -> Judged:
        wide, high = kept.size
        left = [
            Found(
                tuple(
                    min(max(v, 0.0), (wide, high)[i % 2]) for i, v in enumerate(f.box)
                ),
                f.score,
                f.label,
                f.points,
            )
            for f in way(*outputs, kept.size)
        ]
        least = 1.0
        count = 0
        for box in kept.result["boxes"]:
            same = [
                f
                for f in left
                if f.label == box["class"]
                and abs(f.score - box["score"]) < 2 * AT_THRESHOLD
            ]
            near = max(same, key=lambda f: iou(f.box, box["box"]), default=None)
            if near is None:
                least = least if abs(box["score"] - threshold) < AT_THRESHOLD else 0.0
                continue
            left.remove(near)
            off = [
                np.hypot(*np.subtract(p, q))
                for p, q in zip(box.get("points", []), near.points, strict=True)
            ]
            least = min(
                least,
                iou(near.box, box["box"]) if max(off, default=0) <= POINTS else 0.0,
            )
            count += 1
        if any(f.score - threshold > AT_THRESHOLD for f in left):
            least = 0.0
        return Judged(least, least >= BOXES, count)

    return judge


def points(way: Callable[[Array, Size], Array]) -> Judge:
    """Most distance, in pixels."""

    def judge(kept: Kept, outputs: Outputs) -> Judged:
        expected = way(outputs[0], kept.size)[:, :2]
        got = np.array([[p["x"], p["y"]] for p in kept.result["points"]])
        off = float(np.hypot(*(got - expected).T).max())
        return Judged(off, off <= POINTS, len(got))

    return judge


def mask(kept: Kept, outputs: Outputs) -> Judged:
    """Intersection over union; 1 where neither has any."""
    return _overlap(kept.mask, _published(kept, outputs), MASK)


def _published(kept: Kept, outputs: Outputs) -> Array:
    return published.mask(_plane(outputs), kept.size)


def _plane(outputs: Outputs) -> Array:
    """The probability, [h,w]: square where the output does not say."""
    flat = outputs[0]
    side = round(flat.size**0.5)
    return flat.reshape(flat.shape[1:3] if flat.ndim == 4 else (side, side))


def _overlap(a: Array, b: Array, least: float) -> Judged:
    both = float((a & b).sum() / max(1, (a | b).sum())) if (a | b).any() else 1.0
    return Judged(both, both >= least, int((a | b).any()))


def replaced(background: Path) -> Judge:
    """A picture whose person is the frame's, on the middle of another photo that Pillow
    resized.

    The figure is the intersection over union of what is in front with the network's
    mask, where that is sure.
    """

    def judge(kept: Kept, outputs: Outputs) -> Judged:
        wide, high = kept.size
        with Image.open(background) as file:
            part = min(file.width / wide, file.height / high)
            left = (file.width - wide * part) / 2
            top = (file.height - high * part) / 2
            box = (left, top, left + wide * part, top + high * part)
            behind = np.asarray(
                file.convert("RGB").resize(
                    kept.size, Image.Resampling.BILINEAR, box=box
                )
            )
        front, back = _certain(kept, outputs)
        held = (
            _off(kept.picture, kept.frame, front) <= PICTURE
            and _off(kept.picture, behind, back) <= PICTURE
        )
        frame, other, picture = (
            x.astype(np.float64) for x in (kept.frame, behind, kept.picture)
        )
        apart = ((frame - other) ** 2).sum(axis=-1)
        plane = _plane(outputs)
        sure = published.mask(plane, kept.size, 0.9) | ~published.mask(
            plane, kept.size, 0.1
        )
        # elsewhere the two look alike, or the frame's edges decide
        told = sure & (apart > 64**2)
        alpha = ((picture - other) * (frame - other)).sum(axis=-1) / np.maximum(
            apart, 1
        )
        person = _published(kept, outputs) & told
        if person.mean() < SEEN:
            return Judged(1.0, held, 0)
        found = _overlap((alpha >= 0.5) & told, person, FRONT)
        return Judged(found.figure, found.holds and held, found.count)

    return judge


def blurred(kept: Kept, outputs: Outputs) -> Judged:
    """A picture whose person is the frame's, and whose background lost its details.

    The figure: how many levels the background is off a Gaussian blur by Pillow, far
    from the person, on average.
    """
    front, back = _certain(kept, outputs, far=True)
    soft = Image.fromarray(kept.frame).filter(
        ImageFilter.GaussianBlur(kept.size[0] / 48)
    )
    off = _off(kept.picture, np.asarray(soft), back)
    return Judged(
        off,
        off <= SOFT and _off(kept.picture, kept.frame, front) <= PICTURE,
        int(front.any()),
    )


def _certain(kept: Kept, outputs: Outputs, far: bool = False) -> tuple[Array, Array]:
    """Where the person is, and where nobody is, beyond doubt: some of the network's
    pixels away from edges.
    """
    plane = _plane(outputs)
    reach = 2 * (round(plane.shape[1] / 12) if far else 10) + 1
    grown, shrunk = (
        np.asarray(Image.fromarray(plane.astype(np.float32)).filter(how(reach))).astype(
            np.float32
        )
        for how in (ImageFilter.MaxFilter, ImageFilter.MinFilter)
    )
    return published.mask(shrunk, kept.size, 0.9), ~published.mask(
        grown, kept.size, 0.1
    )


def _off(a: Array, b: Array, where: Array) -> float:
    """Mean of how many levels they differ by there."""
    return float(np.abs(a.astype(int) - b)[where].mean()) if where.any() else 0.0


def style(kept: Kept, outputs: Outputs) -> Judged:
    """How many levels a picture is off, on average; Pillow makes it of the frame's
    shape, and no smaller.
    """
    made = Image.fromarray(np.rint(published.style(outputs[0])).astype(np.uint8))
    factor = max(1.0, made.width / kept.size[0], made.height / kept.size[1])
    size = round(kept.size[0] * factor), round(kept.size[1] * factor)
    expected = np.asarray(made.resize(size, Image.Resampling.BICUBIC))
    off = np.abs(kept.picture.astype(int) - expected)
    return Judged(float(off.mean()), float(off.mean()) <= PICTURE)


def labels(kept: Kept, outputs: Outputs) -> Judged:
    """How many of the classes are those, in order."""
    got = [c["class"] for c in kept.result["classes"]]
    want = published.top(outputs[0])
    same = sum(a == b for a, b in zip(got, want, strict=True))
    return Judged(float(same), same == len(want), len(want))
