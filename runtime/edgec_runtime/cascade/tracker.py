"""Follows objects from frame to frame: it gives each a number, and decides which are
followed and when the detector runs again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ..vision.crop import Crop
from ..vision.tasks.overlap import overlaps

MIN_OVERLAP = 0.4
"""Least intersection over union of two crops of the same object."""
REMEMBERED = 30
"""Number of frames for which a lost object can get its number back."""


@dataclass(frozen=True)
class Track:
    """An object.

    Attributes:
        identity: its number
        crop: the crop for the next frame; for a lost object the last one
        seen: whether it was recognized in a frame; otherwise it may have been a false
            detection, which is not remembered
        lost: number of frames since it was lost; 0 while it is followed
    """

    identity: int
    crop: Crop
    seen: bool = False
    lost: int = 0


TRIED = 2
"""Number of detections for the next network per object that may be followed, since some
detections are false.
"""


class Tracker:
    """The objects of one stream.

    The calls for each frame are `wants_detector`, `detected` if the detector ran, and
    `update` with the crops for the next frame.
    """

    def __init__(self, objects: int, every: int, follows: bool) -> None:
        """Begin without an object.

        Args:
            objects: largest number of objects that are followed
            every: number of frames after which the detector runs again; 0 for only
                while an object is lost or there is none
            follows: whether crops come from the objects' own results, not from the
                detector in every frame
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
        # Nothing else tells the positions of objects.
        if not self._follows or not self._tracks:
            return True
        # The detector looks for a lost object as long as that is remembered.
        if self._lost:
            return True
        return 0 < self._every <= self._rested

    def detected(self, crops: Sequence[Crop]) -> Tuple[Optional[int], ...]:
        """Take the detections of a frame.

        Args:
            crops: the crop of each detection, the best first

        Returns:
            for each crop the number of its object; None for one that is not followed
        """
        self._rested = 0
        before = list(self._tracks)
        tracks: List[Track] = []
        numbers: List[Optional[int]] = []
        for crop in crops:
            track = self._continued(before, crop)
            # Objects that are not detected yet need their places, too.
            n_reserved = len(before) if self._follows else 0
            has_room = len(tracks) + n_reserved < self._most
            # A second detection of the same object does not begin a new track.
            if track is None and has_room and _nearest(tracks, crop) is None:
                track = self._new_track(crop)
            numbers.append(None if track is None else track.identity)
            if track is not None:
                tracks.append(track)

        # A followed object without a detection stays: its own network decides when it is
        # lost.
        if self._follows:
            tracks += before
        else:
            self._lose(before)
        self._tracks = sorted(tracks, key=lambda track: track.identity)
        return tuple(numbers)

    def update(self, crops: Sequence[Optional[Crop]]) -> None:
        """Take the crops for the next frame.

        Args:
            crops: one for each of `tracks`; None for an object that is lost
        """
        self._rested += 1
        self._forget_old()
        tracks: List[Track] = []
        lost: List[Track] = []
        for track, crop in zip(self._tracks, crops):
            # If two tracks have come to the same object, the older one stays.
            is_duplicate = crop is not None and _nearest(tracks, crop) is not None
            if crop is None or is_duplicate:
                lost.append(track)
            else:
                tracks.append(replace(track, crop=crop, seen=True))
        self._tracks = tracks
        self._lose(lost)

    def _forget_old(self) -> None:
        """Count a frame for each lost object, and forget those lost for too long."""
        remembered: List[Track] = []
        for track in self._lost:
            # After this time the object would hardly return to the same position.
            if track.lost < REMEMBERED:
                remembered.append(replace(track, lost=track.lost + 1))
        self._lost = remembered

    def _continued(self, before: List[Track], crop: Crop) -> Optional[Track]:
        """Return the track that a crop continues, and remove it from the list."""
        track = _nearest(before, crop)
        if track is None:
            return None
        before.remove(track)
        # Its own points are more exact than the detector's box.
        return track if self._follows else replace(track, crop=crop)

    def _new_track(self, crop: Crop) -> Track:
        """Return a track for a crop: that of an object that was lost here, or a new one."""
        track = _nearest(self._lost, crop)
        if track is not None:
            self._lost.remove(track)
            return replace(track, crop=crop, lost=0)
        self._last += 1
        return Track(self._last, crop)

    def _lose(self, tracks: Sequence[Track]) -> None:
        self._lost += [replace(track, lost=1) for track in tracks if track.seen]


def _nearest(tracks: Sequence[Track], crop: Crop) -> Optional[Track]:
    """Return the track whose crop a crop overlaps most; None if all overlap too little."""
    if not tracks:
        return None
    boxes = [_bounds(track.crop) for track in tracks]
    ratios: NDArray[np.float32] = overlaps(np.array(_bounds(crop)), np.array(boxes))

    best = int(ratios.argmax())
    if ratios[best] < MIN_OVERLAP:
        return None
    return tracks[best]


def _bounds(crop: Crop) -> Tuple[float, float, float, float]:
    """Return x1, y1, x2, y2 of the upright box with a crop's centre and sides.

    The angle is ignored: most crops are squares, for which it makes little difference.
    """
    left = crop.x - crop.width / 2
    top = crop.y - crop.height / 2
    right = crop.x + crop.width / 2
    bottom = crop.y + crop.height / 2
    return left, top, right, bottom
