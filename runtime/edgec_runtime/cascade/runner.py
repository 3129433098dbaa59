"""A frame through the networks of a bundle, and what is kept for the next one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from numpy.typing import NDArray

from ..session.locks import alone
from ..session.meters import Lap, Meter, StageFigures
from ..session.vision import Vision
from ..vision.camera import CameraFrame
from ..vision.crop import Crop
from ..vision.tasks.base import Result, Size
from ..vision.tasks.instances import Boxes
from ..vision.tasks.points import Points
from ..vision.tasks.text_recognition import TextLine
from .crops import crop_of
from .parameters import Cascade, CascadeNetwork, CropRule
from .result import CascadeObject, CascadeResult
from .tracker import Track, Tracker

Array = NDArray[Any]
Infer = Callable[[Mapping[str, Array], Meter], Dict[str, Array]]
"""Runs a network: the outputs by name for the inputs by name, counted by a meter."""


class Network:
    """A network of a bundle, ready to run.

    Attributes:
        row: the network in the manifest; outside of a cascade its name alone
        vision: makes its inputs and results
        meter: its times, with those of its crops and results
    """

    def __init__(self, row: CascadeNetwork, vision: Vision, infer: Infer) -> None:
        """Hold a network.

        Args:
            row: the network in the manifest
            vision: of its bundle
            infer: runs its bundle
        """
        self.row = row
        self.vision = vision
        self.meter = Meter(row.name)
        self._infer = infer

    @property
    def image(self) -> Size:
        """Width and height of its input."""
        assert self.vision.image is not None, "check_bundles has seen an image input"
        return self.vision.image

    def of_frame(self, frame: CameraFrame) -> Result:
        """Return its result for a whole frame."""
        lap = Lap()
        inputs = self.vision.prepare(frame)
        outputs = self._infer(inputs, self.meter)
        result = self.vision.result(outputs, frame.size)
        self.meter.add(lap)
        return result

    def of_crop(self, frame: CameraFrame, crop: Crop) -> Result:
        """Return its result for a crop, in pixels of the frame."""
        lap = Lap()
        inputs = self.vision.cropped(frame, crop)
        outputs = self._infer(inputs, self.meter)
        result = self.vision.result_of_crop(outputs, crop, frame.size)
        self.meter.add(lap)
        return result


@dataclass(frozen=True)
class _Found:
    """An object that the detector found.

    Attributes:
        result: the detector's result with this object alone
        crop: the crop that the followed network, or the first one behind the detector,
            sees of it
    """

    result: Result
    crop: Crop


class _Seen:
    """An object in the present frame.

    Attributes:
        track: the object
        results: what the networks say of it, by name; none: it is lost
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        self.results: Dict[str, Result] = {}


class FrameRunner:
    """The networks of a bundle, of which the first sees whole frames.

    Any thread may run it.

    Attributes:
        networks: the networks
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        """Hold the networks."""
        self.networks = tuple(networks)

    def run(self, frame: CameraFrame) -> Result:
        """Return what is in the next frame.

        Raises the errors of the networks.
        """
        return self.networks[0].of_frame(frame)

    def figures(self) -> Sequence[StageFigures]:
        """Return the times of each network so far."""
        return tuple(network.meter.figures(0) for network in self.networks)

    def reset(self) -> None:
        """Forget what was kept: the next frame is the first one."""

    def forked(self) -> None:
        """In the child of a fork: who has a lock may not be there."""


class CascadeRunner(FrameRunner):
    """The networks of a cascade, and the objects that they follow.

    Runs wait for each other.
    """

    def __init__(self, cascade: Cascade, networks: Sequence[Network]) -> None:
        """Begin without an object; networks: in the order of the cascade."""
        super().__init__(networks)
        self.cascade = cascade
        self._turn = threading.RLock()
        self._tracker = self._new_tracker()

    def run(self, frame: CameraFrame) -> CascadeResult:
        """Return the objects of the next frame.

        Raises the errors of the networks.
        """
        return alone(self._turn, lambda: self._run(frame))

    def reset(self) -> None:
        """Forget all objects: the next frame is the first one."""
        alone(self._turn, self._forget)

    def forked(self) -> None:
        """In the child of a fork: who has the lock may not be there."""
        self._turn = threading.RLock()

    def _forget(self) -> None:
        self._tracker = self._new_tracker()

    def _new_tracker(self) -> Tracker:
        follows = self.cascade.followed is not None
        return Tracker(self.cascade.objects, self.cascade.every, follows)

    def _run(self, frame: CameraFrame) -> CascadeResult:
        tracker = self._tracker
        detected = self._detected(frame) if tracker.wants_detector() else {}

        seen: List[_Seen] = []
        for track in tracker.tracks:
            seen.append(_Seen(track))
            if track.identity in detected:
                detector = self.cascade.detector.name
                seen[-1].results[detector] = detected[track.identity]
        # A network sees all objects before the next one does: an Edge TPU whose memory
        # holds one of them then loads each once a frame.
        for network in self.networks[1:]:
            self._look(network, seen, frame)

        tracker.update([self._next_crop(one, frame.size) for one in seen])
        objects: List[CascadeObject] = []
        for one in seen:
            if one.results:
                objects.append(CascadeObject(one.track.identity, one.results))
        return CascadeResult(tuple(objects))

    def _detected(self, frame: CameraFrame) -> Dict[int, Result]:
        """Run the detector; return its results by the numbers of the objects."""
        found = self._detect(frame)
        numbers = self._tracker.detected([one.crop for one in found])
        detected: Dict[int, Result] = {}
        for one, number in zip(found, numbers):
            # There may be more than are followed.
            if number is not None:
                detected[number] = one.result
        return detected

    def _detect(self, frame: CameraFrame) -> List[_Found]:
        """Return what the detector finds, the best first."""
        result = self.networks[0].of_frame(frame)
        found: List[_Found] = []
        for single in _singles(result):
            crop = self._first_crop(single, frame.size)
            if crop is not None:
                found.append(_Found(single, crop))
        return found

    def _first_crop(self, result: Result, frame: Size) -> Optional[Crop]:
        """Return the crop by which an object is known from the detector's result."""
        network = self.networks[0]
        rule: Optional[CropRule] = CropRule()
        # A detector alone has no crops, and its boxes tell objects apart.
        if len(self.networks) > 1:
            network = self.networks[1]
            rule = network.row.crop
        assert rule is not None, "parse_cascade has seen it"
        return crop_of(rule, result, frame, network.image)

    def _look(
        self, network: Network, seen: Sequence[_Seen], frame: CameraFrame
    ) -> None:
        """Let a network see all objects, and add its results to theirs.

        An object that the followed network does not know is left without any result.
        """
        row = network.row
        known = 0
        for one in seen:
            place = self._place(network, one, frame.size)
            # New finds come last, and may be more than are followed.
            is_full = row.again is not None and known == self.cascade.objects
            result = None
            if place is not None and not is_full:
                result = network.of_crop(frame, place)
            if result is not None and score_of(result) >= row.threshold:
                one.results[row.name] = result
                known += 1
            elif row.again is not None:
                # The networks behind it would see something else than the object.
                one.results.clear()

    def _place(self, network: Network, one: _Seen, frame: Size) -> Optional[Crop]:
        """Return the crop of an object that a network sees; None if there is none."""
        if network.row.again is not None:
            return one.track.crop
        return self._crop(network, one.results, frame)

    def _crop(
        self, network: Network, results: Mapping[str, Result], frame: Size
    ) -> Optional[Crop]:
        """Return a network's crop from the result that it is after."""
        row = network.row
        assert row.after is not None, "parse_cascade has seen it"
        assert row.crop is not None, "parse_cascade has seen it"
        # It was not sure enough, or its own crop was none.
        if row.after not in results:
            return None
        return crop_of(row.crop, results[row.after], frame, network.image)

    def _next_crop(self, one: _Seen, frame: Size) -> Optional[Crop]:
        """Return an object's crop for the next frame; None if it is lost."""
        if not one.results:
            return None
        for network in self.networks:
            # There is one at most.
            if network.row.again is not None:
                result = one.results[network.row.name]
                return crop_of(network.row.again, result, frame, network.image)
        return one.track.crop


def _singles(result: Result) -> List[Result]:
    """Return a detector's result split into one for each object."""
    if isinstance(result, Boxes):
        return [replace(result, boxes=(box,)) for box in result.boxes]
    # A network of points sees one object, or none.
    if isinstance(result, Points) and result.shown.any():
        return [result]
    return []


def score_of(result: Result) -> float:
    """Return how sure a network is that its object is there; 1 where it says nothing."""
    if isinstance(result, Points):
        return result.score
    if isinstance(result, Boxes):
        return max((box.score for box in result.boxes), default=0.0)
    if isinstance(result, TextLine):
        return result.score
    return 1.0
