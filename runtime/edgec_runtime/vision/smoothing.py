"""Smooths masks, boxes and points of successive frames, so that they do not tremble.

Points and boxes are smoothed by the 1€ filter (Casiez, Roussel and Vogel, "1€ Filter: A
Simple Speed-based Low-pass Filter for Noisy Input in Interactive Systems", 2012): a
low-pass whose cutoff rises with speed, so that resting points are calm and moving ones
are not late. Masks are smoothed by an exponential mean. The price is a `lag`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import numpy as np
from numpy.typing import NDArray

from ..cascade.result import CascadeObject, CascadeResult
from .tasks.base import Result
from .tasks.instances import Box, Boxes
from .tasks.points import Points
from .tasks.segmentation import Segments

Array = NDArray[Any]


SPEED_CUTOFF_HZ = 1.0
"""Cutoff of the low-pass for speeds."""

MIN_OVERLAP = 0.3
"""A box continues a track if it overlaps it by this much at least."""


def _share(cutoff: Any, seconds: float) -> Any:
    """Return the share of a new value in the output of a first-order low-pass.

    It is 1 - exp(-2 pi f t).

    Args:
        cutoff: f in Hz
        seconds: t since the last value
    """
    return 1 - np.exp(-2 * math.pi * cutoff * seconds)


@dataclass(frozen=True)
class Strength:
    """How strongly results are smoothed.

    Attributes:
        rest: cutoff for points at rest, Hz
        agility: rise of the cutoff for a speed of an object's own size a second, Hz
        mask: time constant of masks, seconds
    """

    rest: float = 1.2
    agility: float = 6.0
    mask: float = 0.06

    def lag(self, speed: float = 0.0) -> float:
        """Return by how many seconds points and boxes are late.

        Args:
            speed: their speed, in sizes of the object a second
        """
        return 1 / (2 * math.pi * (self.rest + self.agility * speed))


class OneEuro:
    """The 1€ filter for an array of coordinates."""

    def __init__(self, strength: Strength, side: float) -> None:
        """Begin without a value.

        Args:
            strength: the cutoffs
            side: the size of the object, in the unit of the coordinates
        """
        self._strength = strength
        self._side = side
        self._value: Optional[Array] = None
        self._speed = np.zeros(0)
        self._raw = self._speed
        self._at = 0.0

    def __call__(self, value: Array, at: float) -> Array:
        """Return the smoothed value.

        A value of another shape begins anew, and one that is not later changes nothing.

        Args:
            value: the coordinates
            at: the time, seconds
        """
        value = np.asarray(value, np.float64)
        if self._value is None or self._value.shape != value.shape:
            self._value = value
            self._raw = value
            self._speed = np.zeros_like(value)
            self._at = at
            return value

        seconds = at - self._at
        if seconds <= 0:
            return self._value
        # Speeds are noisier than values, so they are smoothed first.
        speed = (value - self._raw) / seconds
        share = _share(SPEED_CUTOFF_HZ, seconds)
        self._speed = self._speed + (speed - self._speed) * share

        rise = self._strength.agility * np.abs(self._speed) / self._side

        share = _share(self._strength.rest + rise, seconds)
        self._value = self._value + (value - self._value) * share
        self._raw = value
        self._at = at
        return self._value


class Smoother:
    """Smooths the results of one stream; other results than these stay as they are.

    Attributes:
        strength: how strongly
    """

    def __init__(self, strength: Strength = Strength()) -> None:
        """Begin without a result."""
        self.strength = strength
        self._points: Optional[OneEuro] = None
        self._tracks: List[_Track] = []
        self._mask: Optional[Array] = None
        self._mask_at = 0.0

        self._rules: Dict[Type[Any], Callable[[Any, float], Result]] = {
            Points: self._of_points,
            Boxes: self._of_boxes,
            Segments: self._of_mask,
            CascadeResult: self._of_objects,
        }
        self._inner: Dict[Tuple[int, str], Smoother] = {}

    def __call__(self, result: Result, at: float) -> Result:
        """Return a result smoothed with the results before.

        Args:
            result: the result
            at: when its frame was captured, seconds
        """
        rule = self._rules.get(type(result))
        return result if rule is None else rule(result, at)

    def lag(self, result: Result) -> float:
        """Return by how many seconds such a result is late, at worst in slow motion."""
        if isinstance(result, Segments):
            return self.strength.mask
        if isinstance(result, (Points, Boxes)):
            return self.strength.lag()
        return 0.0

    def _of_points(self, result: Points, at: float) -> Result:
        """Return points smoothed with the points before."""
        # Without any visible point the next ones may be of another object.
        if self._points is None or not result.shown.any():
            self._points = OneEuro(self.strength, _side(result.points))

        smoothed = self._points(result.points, at)
        return replace(result, points=np.asarray(smoothed, np.float32))

    def _of_boxes(self, result: Boxes, at: float) -> Result:
        """Return boxes smoothed with the boxes before.

        Each continues the track of its class that it overlaps most.
        """
        free = list(self._tracks)
        boxes: List[Box] = []
        tracks: List[_Track] = []
        for box in result.boxes:
            track = _nearest_track(free, box)
            if track is None:
                track = _Track(self.strength, box)
            else:
                free.remove(track)

            tracks.append(track)
            boxes.append(track.moved(box, at))

        # Tracks without a box end at once.
        self._tracks = tracks
        return replace(result, boxes=tuple(boxes))

    def _of_objects(self, result: CascadeResult, at: float) -> Result:
        """Return objects smoothed with those before, each network's results alone."""
        kept: Dict[Tuple[int, str], Smoother] = {}
        objects: List[CascadeObject] = []
        for one in result.objects:
            smooth: Dict[str, Result] = {}
            for name, found in one.results.items():
                key = one.identity, name
                smoother = self._inner.get(key)
                # Its first frame, or the network had nothing to say in the last.
                if smoother is None:
                    smoother = Smoother(self.strength)
                kept[key] = smoother
                smooth[name] = smoother(found, at)
            objects.append(replace(one, results=smooth))

        # An object that comes back begins anew, wherever it is now.
        self._inner = kept
        return CascadeResult(tuple(objects))

    def _of_mask(self, result: Segments, at: float) -> Result:
        """Return a mask smoothed with the masks before."""
        last = self._mask
        seconds = at - self._mask_at

        new = result.probability

        # Another model, or the first mask.
        if last is None or last.shape != new.shape:
            self._mask = new
            self._mask_at = at
        elif seconds > 0:
            share = 1 - math.exp(-seconds / self.strength.mask)

            self._mask = last + (new - last) * np.float32(share)
            self._mask_at = at

        assert self._mask is not None
        return replace(result, probability=self._mask)


def _side(points: Array) -> float:
    """Return the unit of speeds: the larger side of the points' bounding box."""
    if not len(points):
        return 1.0
    return max(1.0, float(np.ptp(points, axis=0).max()))


class _Track:
    """A box from frame to frame."""

    def __init__(self, strength: Strength, box: Box) -> None:
        """Begin a track with a box."""
        self._box = box

        # The unit of speeds is the box's larger side when the track begins.
        x1, y1, x2, y2 = box.corners
        self._filter = OneEuro(strength, max(1.0, x2 - x1, y2 - y1))

    def overlap(self, box: Box) -> float:
        """Return the intersection over union with a box, 0 for another class."""

        if box.index != self._box.index:
            return 0.0
        a = self._box.corners
        b = box.corners
        width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
        height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
        intersection = width * height

        area_a = (a[2] - a[0]) * (a[3] - a[1])
        area_b = (b[2] - b[0]) * (b[3] - b[1])
        union = area_a + area_b - intersection
        return intersection / union if union > 0 else 0.0

    def moved(self, box: Box, at: float) -> Box:
        """Return a box at its smoothed place, with its points, as the track's last."""
        # One filter for all, so that points do not lag behind their box.
        flat: List[float] = list(box.corners)
        for point in box.points:
            flat += point
        smooth = [float(v) for v in self._filter(np.array(flat), at)]

        x1, y1, x2, y2 = smooth[:4]
        points = tuple(zip(smooth[4::2], smooth[5::2]))
        self._box = replace(box, corners=(x1, y1, x2, y2), points=points)
        return self._box


def _nearest_track(tracks: List[_Track], box: Box) -> Optional[_Track]:
    """Return the track that a box overlaps most; None if it continues none."""
    best: Optional[_Track] = None
    best_overlap = 0.0

    for track in tracks:
        overlap = track.overlap(box)
        if best is None or overlap > best_overlap:
            best = track
            best_overlap = overlap
    return best if best_overlap >= MIN_OVERLAP else None
