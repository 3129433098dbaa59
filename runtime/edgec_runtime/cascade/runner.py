"""Runs the networks of a bundle on a frame, and follows objects from frame to frame."""

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
"""Runs a network: returns outputs by name for inputs by name; a meter counts the run."""


class Network:
    """A network of a bundle, ready to run.

    Attributes:
        row: the network in the manifest; outside of a cascade only its name
        vision: makes its inputs and results
        meter: its times, which include its crops and results
    """

    def __init__(self, row: CascadeNetwork, vision: Vision, infer: Infer) -> None:
        """Prepare a network.

        Args:
            row: the network in the manifest
            vision: the pre- and post-processing of its bundle
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
        """Return the result for a whole frame."""
        lap = Lap()
        inputs = self.vision.prepare(frame)
        outputs = self._infer(inputs, self.meter)
        result = self.vision.result(outputs, frame.size)
        self.meter.add(lap)
        return result

    def of_crop(self, frame: CameraFrame, crop: Crop) -> Result:
        """Return the result for a crop, in pixels of the frame."""
        lap = Lap()
        inputs = self.vision.cropped(frame, crop)
        outputs = self._infer(inputs, self.meter)
        result = self.vision.result_of_crop(outputs, crop, frame.size)
        self.meter.add(lap)
        return result


@dataclass(frozen=True)
class _Detection:
    """An object in the result of the detector.

    Attributes:
        result: the detector's result with only this object
        crop: its crop for the first network after the detector
    """

    result: Result
    crop: Crop


class _FrameObject:
    """An object in the present frame.

    Attributes:
        track: its track
        results: the results of the networks, by name; without any it is lost
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        self.results: Dict[str, Result] = {}


class FrameRunner:
    """The networks of a bundle, of which the first takes whole frames.

    Any thread may run it.

    Attributes:
        networks: the networks
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = tuple(networks)

    def run(self, frame: CameraFrame) -> Result:
        """Return the result for the next frame.

        Raises the errors of the networks.
        """
        return self.networks[0].of_frame(frame)

    def figures(self) -> Sequence[StageFigures]:
        """Return the times of each network so far."""
        return tuple(network.meter.figures(0) for network in self.networks)

    def reset(self) -> None:
        """Forget all earlier frames."""

    def forked(self) -> None:
        """Replace locks in the child of a fork, where their owners may not exist."""


class CascadeRunner(FrameRunner):
    """The networks of a cascade, and the objects that they follow.

    Runs wait for each other.
    """

    def __init__(self, cascade: Cascade, networks: Sequence[Network]) -> None:
        """Begin without an object.

        Args:
            cascade: the cascade
            networks: its networks, in its order
        """
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
        """Forget all objects."""
        alone(self._turn, self._forget)

    def forked(self) -> None:
        """Replace the lock in the child of a fork, where its owner may not exist."""
        self._turn = threading.RLock()

    def _forget(self) -> None:
        self._tracker = self._new_tracker()

    def _new_tracker(self) -> Tracker:
        follows = self.cascade.followed is not None
        return Tracker(self.cascade.objects, self.cascade.every, follows)

    def _run(self, frame: CameraFrame) -> CascadeResult:
        tracker = self._tracker
        detected = self._detected(frame) if tracker.wants_detector() else {}

        items: List[_FrameObject] = []
        for track in tracker.tracks:
            items.append(_FrameObject(track))
            if track.identity in detected:
                detector = self.cascade.detector.name
                items[-1].results[detector] = detected[track.identity]
        # Each network runs on all objects before the next one: if the memory of an Edge
        # TPU has space for one network, it then loads each only once per frame.
        for network in self.networks[1:]:
            self._run_network(network, items, frame)

        tracker.update([self._next_crop(item, frame.size) for item in items])
        objects: List[CascadeObject] = []
        for item in items:
            if item.results:
                objects.append(CascadeObject(item.track.identity, item.results))
        return CascadeResult(tuple(objects))

    def _detected(self, frame: CameraFrame) -> Dict[int, Result]:
        """Run the detector; return its results by the identities of objects."""
        detections = self._detect(frame)
        identities = self._tracker.detected([d.crop for d in detections])
        results: Dict[int, Result] = {}
        for detection, identity in zip(detections, identities):
            # There may be more detections than objects are followed.
            if identity is not None:
                results[identity] = detection.result
        return results

    def _detect(self, frame: CameraFrame) -> List[_Detection]:
        """Return the detections in a frame, the best first."""
        result = self.networks[0].of_frame(frame)
        detections: List[_Detection] = []
        for single in _singles(result):
            crop = self._first_crop(single, frame.size)
            if crop is not None:
                detections.append(_Detection(single, crop))
        return detections

    def _first_crop(self, result: Result, frame: Size) -> Optional[Crop]:
        """Return the crop of a detection, by which its track is recognized."""
        network = self.networks[0]
        rule: Optional[CropRule] = CropRule()
        # Without further networks the crop is just the box.
        if len(self.networks) > 1:
            network = self.networks[1]
            rule = network.row.crop
        assert rule is not None, "parse_cascade has seen it"
        return crop_of(rule, result, frame, network.image)

    def _run_network(
        self, network: Network, items: Sequence[_FrameObject], frame: CameraFrame
    ) -> None:
        """Run a network on all objects, and add its results to them.

        If it is the network that follows objects, those that it does not recognize lose
        all results.
        """
        row = network.row
        known = 0
        for item in items:
            if row.again is not None:
                crop: Optional[Crop] = item.track.crop
            else:
                crop = self._crop(network, item.results, frame.size)
            # New objects come last, and there may be more than are followed.
            is_full = row.again is not None and known == self.cascade.objects
            result = None
            if crop is not None and not is_full:
                result = network.of_crop(frame, crop)
            if result is not None and score_of(result) >= row.threshold:
                item.results[row.name] = result
                known += 1
            elif row.again is not None:
                # Further networks would get crops of something else than the object.
                item.results.clear()

    def _crop(
        self, network: Network, results: Mapping[str, Result], frame: Size
    ) -> Optional[Crop]:
        """Return a network's crop, by the result of the network before it."""
        row = network.row
        assert row.after is not None, "parse_cascade has seen it"
        assert row.crop is not None, "parse_cascade has seen it"
        # The network before it had no crop, or its score was below the threshold.
        if row.after not in results:
            return None
        return crop_of(row.crop, results[row.after], frame, network.image)

    def _next_crop(self, item: _FrameObject, frame: Size) -> Optional[Crop]:
        """Return an object's crop for the next frame; None if it is lost."""
        if not item.results:
            return None
        for network in self.networks:
            # At most one network follows the objects.
            if network.row.again is not None:
                result = item.results[network.row.name]
                return crop_of(network.row.again, result, frame, network.image)
        return item.track.crop


def _singles(result: Result) -> List[Result]:
    """Return a detector's result split into one for each object."""
    if isinstance(result, Boxes):
        return [replace(result, boxes=(box,)) for box in result.boxes]
    # The result of a network of points has one object, or none.
    if isinstance(result, Points) and result.shown.any():
        return [result]
    return []


def score_of(result: Result) -> float:
    """Return the score of a network for its object; 1 if the task has no such score."""
    if isinstance(result, Points):
        return result.score
    if isinstance(result, Boxes):
        return max((box.score for box in result.boxes), default=0.0)
    if isinstance(result, TextLine):
        return result.score
    return 1.0
