"""Objects from frame to frame: which are followed, when the detector runs again, and
which number each has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ..vision.crop import Crop
from ..vision.tasks.overlap import overlaps

MIN_OVERLAP = 0.4
"""Intersection over union from which two crops are of the same object."""
REMEMBERED = 30
"""Frames for which a lost object's number waits for it."""


@dataclass(frozen=True)
class Track:
    """An object.

    Attributes:
        identity: its number
        crop: the crop for the next frame; of a lost one, the last
        seen: whether it was there in a frame after its detection; what was not may be
            no object at all, and nobody waits for it
        lost: the frames since it was lost; 0: it is followed
    """

    identity: int
    crop: Crop
    seen: bool = False
    lost: int = 0


TRIED = 2
"""Finds of the detector that the next network sees, in objects that are followed: some
finds are none.
"""


class Tracker:
    """The objects of one stream.

    A frame is: `wants_detector`, `detected` if it ran, then `update` with the crops for
    the next frame.
    """

    def __init__(self, objects: int, every: int, follows: bool) -> None:
        """Begin without an object.

        Args:
            objects: at most so many are followed; of new finds more may be tried
            every: frames after which the detector runs again; 0: only while an object
                is lost or none is there
            follows: whether crops come from the objects' own results; else from the
                detector, in every frame
        """
        self._most = TRIED * objects if follows else objects
        self._every = every
        self._follows = follows
        self._tracks: List[Track] = []
        self._lost: List[Track] = []
        self._rested = 0
        self._last = 0

    @property
    def tracks(self) -> Tuple[Track, ...]:
        """The objects that are followed, the oldest first."""
        return tuple(self._tracks)

    def wants_detector(self) -> bool:
        """Return whether the detector is to run for the next frame."""
        # Nobody else says where objects are.
        if not self._follows or not self._tracks:
            return True
        # A lost object is looked for as long as its number waits for it.
        if self._lost:
            return True
        return 0 < self._every <= self._rested

    def detected(self, crops: Sequence[Crop]) -> Tuple[Optional[int], ...]:
        """Take what the detector found, the best first.

        Returns:
            for each crop the number of its object; None for one that is not followed
        """
        self._rested = 0
        before = list(self._tracks)
        kept: List[Track] = []
        numbers: List[Optional[int]] = []
        for crop in crops:
            track = self._taken(before, crop)
            has_room = len(kept) + self._held(before) < self._most
            # A second find of an object that another find has continued is no new one.
            if track is None and has_room and _nearest(kept, crop) is None:
                track = self._begun(crop)
            numbers.append(None if track is None else track.identity)
            if track is not None:
                kept.append(track)

        # A followed object that the detector missed is still there: its own network
        # says when it is lost.
        if self._follows:
            kept += before
        else:
            self._lose(before)
        self._tracks = sorted(kept, key=lambda track: track.identity)
        return tuple(numbers)

    def update(self, crops: Sequence[Optional[Crop]]) -> None:
        """Take the crops for the next frame.

        Args:
            crops: one for each of `tracks`; None: the object is lost
        """
        self._rested += 1
        self._forget_old()
        kept: List[Track] = []
        gone: List[Track] = []
        for track, crop in zip(self._tracks, crops):
            # Two that have come upon the same object: the older one stays.
            is_twin = crop is not None and _nearest(kept, crop) is not None
            if crop is None or is_twin:
                gone.append(track)
            else:
                kept.append(replace(track, crop=crop, seen=True))
        self._tracks = kept
        self._lose(gone)

    def _forget_old(self) -> None:
        """Let lost objects wait a frame more, and forget those that waited too long."""
        waiting: List[Track] = []
        for track in self._lost:
            # The same object would hardly come back at this place.
            if track.lost < REMEMBERED:
                waiting.append(replace(track, lost=track.lost + 1))
        self._lost = waiting

    def _held(self, before: Sequence[Track]) -> int:
        """Return how many places the objects take that no crop has continued yet."""
        return len(before) if self._follows else 0

    def _taken(self, before: List[Track], crop: Crop) -> Optional[Track]:
        """Return the object that a crop continues, taken from those before it."""
        track = _nearest(before, crop)
        if track is None:
            return None
        before.remove(track)
        # Its own points say better where it is than the detector's box.
        return track if self._follows else replace(track, crop=crop)

    def _begun(self, crop: Crop) -> Track:
        """Return the object of a crop: one that was lost here, or a new one."""
        track = _nearest(self._lost, crop)
        if track is not None:
            self._lost.remove(track)
            return replace(track, crop=crop, lost=0)
        self._last += 1
        return Track(self._last, crop)

    def _lose(self, tracks: Sequence[Track]) -> None:
        self._lost += [replace(track, lost=1) for track in tracks if track.seen]


def _nearest(tracks: Sequence[Track], crop: Crop) -> Optional[Track]:
    """Return the object whose crop a crop overlaps most; None if it is none of them."""
    if not tracks:
        return None
    boxes = [_bounds(track.crop) for track in tracks]
    found: NDArray[np.float32] = overlaps(np.array(_bounds(crop)), np.array(boxes))

    best = int(found.argmax())
    if found[best] < MIN_OVERLAP:
        return None
    return tracks[best]


def _bounds(crop: Crop) -> Tuple[float, float, float, float]:
    """Return x1, y1, x2, y2 of the upright box with a crop's centre and sides.

    The angle does not count: most crops are squares, of which little sticks out.
    """
    left = crop.x - crop.width / 2
    top = crop.y - crop.height / 2
    right = crop.x + crop.width / 2
    bottom = crop.y + crop.height / 2
    return left, top, right, bottom
