"""Results that do not tremble: masks, boxes and points of successive frames, smoothed
over time.

Points and boxes by the 1€ filter (Casiez, Roussel and Vogel, 2012): a low-pass whose
cutoff rises with speed, so that what rests is calm and what moves is not late.  Masks
by an exponential mean.  What it costs is `lag`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import numpy as np
from numpy.typing import NDArray

from .tasks.base import Result
from .tasks.instances import Box, Boxes
from .tasks.points import Points
from .tasks.segmentation import Segments

Array = NDArray[Any]


def _share(cutoff: Any, seconds: float) -> Any:
    """How much of a new value a first-order low-pass of this cutoff (Hz) takes, this
    long after the last.
    """
    return 1 - np.exp(-2 * math.pi * cutoff * seconds)


@dataclass(frozen=True)
class Strength:
    """rest: the cutoff, Hz, of what does not move.  agility: by how much it rises for
    what moves its own size a second. mask: the time constant of masks, seconds.
    """

    rest: float = 1.2
    agility: float = 6.0
    mask: float = 0.06

    def lag(self, speed: float = 0.0) -> float:
        """Seconds by which points and boxes are late that move steadily, `speed` times
        their own size a second.
        """
        return 1 / (2 * math.pi * (self.rest + self.agility * speed))


class OneEuro:
    """The filter for an array of coordinates.  side: the size of what moves, in their
    unit.
    """

    def __init__(self, strength: Strength, side: float) -> None:
        self._strength = strength
        self._side = side
        self._value: Optional[Array] = None
        self._speed = np.zeros(0)
        self._raw = self._speed
        self._at = 0.0

    def __call__(self, value: Array, at: float) -> Array:
        """The smoothed value.  at: seconds; where they do not rise it stays.

        Of another shape it begins anew.
        """
        value = np.asarray(value, np.float64)
        if self._value is None or self._value.shape != value.shape:
            self._value = value
            self._raw = value
            self._speed = np.zeros_like(value)
            self._at = at
            return value
        seconds = at - self._at
        if seconds > 0:
            speed = (value - self._raw) / seconds
            self._speed = self._speed + (speed - self._speed) * _share(1.0, seconds)
            cutoff = (
                self._strength.rest
                + self._strength.agility * np.abs(self._speed) / self._side
            )
            self._value = self._value + (value - self._value) * _share(cutoff, seconds)
            self._raw = value
            self._at = at
        return self._value


class Smoother:
    """Smooths the results of one stream.  What has no rule here is left as it is."""

    def __init__(self, strength: Strength = Strength()) -> None:
        self.strength = strength
        self._points: Optional[OneEuro] = None
        self._tracks: List[_Track] = []
        self._mask: Optional[Array] = None
        self._mask_at = 0.0
        self._rules: Dict[Type[Any], Callable[[Any, float], Result]] = {
            Points: self._of_points,
            Boxes: self._of_boxes,
            Segments: self._of_mask,
        }

    def __call__(self, result: Result, at: float) -> Result:
        """The result, smoothed with those before.  at: seconds, when its frame was
        captured.
        """
        rule = self._rules.get(type(result))
        return result if rule is None else rule(result, at)

    def lag(self, result: Result) -> float:
        """Seconds by which a result of this type is late at worst: that of slow motion."""
        if isinstance(result, Segments):
            return self.strength.mask
        return self.strength.lag() if isinstance(result, (Points, Boxes)) else 0.0

    def _of_points(self, result: Points, at: float) -> Result:
        if self._points is None or not result.shown.any():
            self._points = OneEuro(self.strength, _side(result.points))
        smoothed = self._points(result.points, at)
        return replace(result, points=np.asarray(smoothed, np.float32))

    def _of_boxes(self, result: Boxes, at: float) -> Result:
        """Each is the continuation of the track of its class that it overlaps most."""
        free = list(self._tracks)
        found = []
        tracks = []
        for box in result.boxes:
            near = max(free, key=lambda t: t.overlap(box), default=None)
            if near is None or near.overlap(box) < 0.3:
                near = _Track(self.strength, box)
            else:
                free.remove(near)
            tracks.append(near)
            found.append(near.moved(box, at))
        self._tracks = tracks
        return replace(result, boxes=tuple(found))

    def _of_mask(self, result: Segments, at: float) -> Result:
        last = self._mask
        seconds = at - self._mask_at
        new = result.probability
        if last is None or last.shape != new.shape:
            self._mask = new
            self._mask_at = at
        elif seconds > 0:
            self._mask = last + (new - last) * np.float32(
                1 - math.exp(-seconds / self.strength.mask)
            )
            self._mask_at = at
        assert self._mask is not None
        return replace(result, probability=self._mask)


def _side(points: Array) -> float:
    """What speeds are counted by: the larger side of what the points take up."""
    return max(1.0, float(np.ptp(points, axis=0).max())) if len(points) else 1.0


class _Track:
    """A box from frame to frame."""

    def __init__(self, strength: Strength, box: Box) -> None:
        self._box = box
        x1, y1, x2, y2 = box.corners
        self._filter = OneEuro(strength, max(1.0, x2 - x1, y2 - y1))

    def overlap(self, box: Box) -> float:
        """Intersection over union; 0 of another class."""
        if box.index != self._box.index:
            return 0.0
        a = self._box.corners
        b = box.corners
        w, h = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
        union = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - w * h
        return w * h / union if union > 0 else 0.0

    def moved(self, box: Box, at: float) -> Box:
        """The box at its smoothed place, with its points."""
        flat: Tuple[float, ...] = (*box.corners, *(v for p in box.points for v in p))
        smooth = [float(v) for v in self._filter(np.array(flat), at)]
        points = tuple(zip(smooth[4::2], smooth[5::2]))
        self._box = replace(
            box, corners=(smooth[0], smooth[1], smooth[2], smooth[3]), points=points
        )
        return self._box
