"""Smooths masks, boxes and points of successive frames, so that they do not tremble.

Points and boxes are smoothed by the 1€ filter (Casiez, Roussel and Vogel, "1€ Filter: A
Simple Speed-based Low-pass Filter for Noisy Input in Interactive Systems", 2012). It is
a low-pass whose cutoff rises with speed, so that resting points are steady and moving
ones are hardly delayed. Masks are smoothed by an exponential mean. Both delay the
results by a `lag`.
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
"""Least overlap (intersection over union) of a box with the track that it continues."""


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
    """The strength of smoothing.

    Attributes:
        rest: cutoff for points at rest, Hz
        agility: rise of the cutoff for a speed of one object size per second, Hz
        mask: time constant of masks, seconds
    """

    rest: float = 1.2
    agility: float = 6.0
    mask: float = 0.06

    def lag(self, speed: float = 0.0) -> float:
        """Return the delay of points and boxes in seconds.

        Args:
            speed: their speed in object sizes per second
        """
        return 1 / (2 * math.pi * (self.rest + self.agility * speed))


class OneEuro:
    """The 1€ filter for an array of coordinates."""

    def __init__(self, strength: Strength, side: float) -> None:
        """Begin without a value.

        Args:
            strength: the cutoffs
            side: the size of the object in the unit of the coordinates
        """
        self._strength = strength
        self._side = side
        self._value: Optional[Array] = None
        self._speed = np.zeros(0)
        self._raw = self._speed
        self._at = 0.0

    def __call__(self, value: Array, at: float) -> Array:
        """Return the smoothed value.

        After a value of another shape the filter begins anew. A value that is not later
        than the last one is ignored.

        Args:
            value: the coordinates
            at: their time, seconds
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
    """Smooths masks, boxes, points and cascades of one stream, and no other results.

    Attributes:
        strength: the strength of smoothing
    """

    def __init__(self, strength: Strength = Strength()) -> None:
        self.strength = strength
        self._points: Optional[OneEuro] = None
        self._tracks: List[_Track] = []
        self._mask: Optional[Array] = None
        self._mask_at = 0.0

        self._rules: Dict[Type[Any], Callable[[Any, float], Result]] = {
            Points: self._smooth_points,
            Boxes: self._smooth_boxes,
            Segments: self._smooth_mask,
            CascadeResult: self._smooth_objects,
        }
        # smoothers of a cascade, by the object's identity and the network's name
        self._smoothers: Dict[Tuple[int, str], Smoother] = {}

    def __call__(self, result: Result, at: float) -> Result:
        """Return a result smoothed with the results before.

        Args:
            result: the result
            at: time of its frame's capture, seconds
        """
        rule = self._rules.get(type(result))
        return result if rule is None else rule(result, at)

    def lag(self, result: Result) -> float:
        """Return the largest delay of such a result in seconds, that of slow motion."""
        if isinstance(result, Segments):
            return self.strength.mask
        if isinstance(result, (Points, Boxes)):
            return self.strength.lag()
        return 0.0

    def _smooth_points(self, result: Points, at: float) -> Result:
        """Return points smoothed with the points before."""
        # After a frame without a visible point the next may be another object's.
        if self._points is None or not result.shown.any():
            self._points = OneEuro(self.strength, _side(result.points))

        smoothed = self._points(result.points, at)
        return replace(result, points=np.asarray(smoothed, np.float32))

    def _smooth_boxes(self, result: Boxes, at: float) -> Result:
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

    def _smooth_objects(self, result: CascadeResult, at: float) -> Result:
        """Return objects whose results are smoothed with those before, for each network."""
        smoothers: Dict[Tuple[int, str], Smoother] = {}
        objects: List[CascadeObject] = []
        for item in result.objects:
            results: Dict[str, Result] = {}
            for name, inner in item.results.items():
                key = item.identity, name
                smoother = self._smoothers.get(key)
                # The object is new, or the network had no result in the last frame.
                if smoother is None:
                    smoother = Smoother(self.strength)
                smoothers[key] = smoother
                results[name] = smoother(inner, at)
            objects.append(replace(item, results=results))

        # An object that returns later begins anew, since it has moved.
        self._smoothers = smoothers
        return CascadeResult(tuple(objects))

    def _smooth_mask(self, result: Segments, at: float) -> Result:
        """Return a mask smoothed with the masks before."""
        last = self._mask
        seconds = at - self._mask_at

        new = result.probability

        # This is the first mask, or one of another model.
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
    """A box that is followed from frame to frame."""

    def __init__(self, strength: Strength, box: Box) -> None:
        """Begin a track with a box."""
        self._box = box

        # The unit of speeds is the larger side of the track's first box.
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
        """Return a box with smoothed corners and points, and continue the track with it."""
        # One filter smooths all coordinates, so that points move with their box.
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
