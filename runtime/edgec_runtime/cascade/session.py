"""Runs a cascade in this process: a Session for each network, and what passes between
them from frame to frame.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, Union

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..errors import BundleError, InputError
from ..model.interpreters import InterpreterFactory, load_edgetpu
from ..session.meters import Lap, Meter, StageFigures
from ..session.session import Session
from ..session.vision import Vision
from ..stick.process import Delegate
from ..vision.camera import CameraFrame
from ..vision.crop import Crop
from ..vision.tasks.base import Result, Size
from ..vision.tasks.instances import Boxes
from ..vision.tasks.points import Points
from .crops import crop_of
from .fitting import check_bundles
from .parameters import Cascade, CascadeNetwork, CropRule
from .result import CascadeObject, CascadeResult
from .tracker import Tracker

Array = NDArray[Any]


class _Network:
    """A network of a cascade, ready to run.

    Attributes:
        row: the network in the manifest
        session: runs it
        vision: makes its inputs and results
        image: width and height of its input
        meter: its times, with those of its crops and results
    """

    def __init__(self, row: CascadeNetwork, session: Session, vision: Vision) -> None:
        assert vision.image is not None, "check_bundles has seen an image input"
        self.row = row
        self.session = session
        self.vision = vision
        self.image = vision.image
        self.meter = Meter(row.name)

    def of_frame(self, frame: CameraFrame) -> Result:
        """Return its result for a whole frame."""
        lap = Lap()
        outputs = self._run(self.vision.prepare(frame))
        result = self.vision.result(outputs, frame.size)
        self.meter.add(lap)
        return result

    def of_crop(self, frame: CameraFrame, crop: Crop) -> Result:
        """Return its result for a crop, in pixels of the frame."""
        lap = Lap()
        outputs = self._run(self.vision.cropped(frame, crop))
        result = self.vision.result_of_crop(outputs, crop, frame.size)
        self.meter.add(lap)
        if isinstance(result, Points) and result.depth is not None:
            # In pixels of the frame, as x and y are.
            depth = result.depth * np.float32(crop.width / self.image[0])
            return replace(result, depth=depth)
        return result

    def _run(self, inputs: Mapping[str, Array]) -> Dict[str, Array]:
        outputs = self.session.run(inputs)
        for backend in self.session.backends.values():
            self.meter.ran_on(backend)
        return outputs


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


class CascadeSession:
    """Runs the networks of a cascade on frames, one after the other.

    Objects are followed from frame to frame, until `reset`: the frames of a session are
    those of one camera. Any thread may run it; runs wait for each other.

    Args:
        bundle: the .edgec file of a cascade, or an opened one
        tpu: as for a Session
        interpreter: as for a Session
        threads: as for a Session
        delegate: as for a Session
        timeout: as for a Session

    Raises BundleError, InputError or DeviceError.
    """

    def __init__(
        self,
        bundle: Union[PathLike, Bundle],
        *,
        tpu: str = "auto",
        interpreter: Union[str, InterpreterFactory, None] = None,
        threads: int = 1,
        delegate: Delegate = load_edgetpu,
        timeout: float = 1.0,
    ) -> None:
        self._owns_bundle = not isinstance(bundle, Bundle)
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        self.manifest = self.bundle.manifest
        self._sessions: Dict[str, Session] = {}
        self._bundles: Dict[str, Bundle] = {}
        self._turn = threading.Lock()
        try:
            self.cascade = _cascade_of(self.bundle)
            self._bundles = opened_networks(self.bundle)
            manifests = {name: b.manifest for name, b in self._bundles.items()}
            check_bundles(self.cascade, manifests, str(self.bundle.path))
            visions: Dict[str, Vision] = {}
            for name, inner in self._bundles.items():
                visions[name] = Vision(inner)
                self._sessions[name] = Session(
                    inner,
                    tpu=tpu,
                    interpreter=interpreter,
                    threads=threads,
                    delegate=delegate,
                    timeout=timeout,
                )
        except BaseException:
            self.close()
            raise
        self._networks: List[_Network] = []
        for row in self.cascade.networks:
            model = row.like or row.name
            self._networks.append(_Network(row, self._sessions[model], visions[model]))
        self._tracker = self._new_tracker()

    # ---- what callers use
    # ----------------------------------------------------------------------------------

    def run(self, frame: Any) -> CascadeResult:
        """Return the objects of the next frame.

        Args:
            frame: a CameraFrame, or a photo: uint8 [H, W, 3], [H, W, 4] or [H, W]

        Raises:
            InputError: the frame has no pixels
            DeviceError: a network failed
        """
        given = frame if isinstance(frame, CameraFrame) else CameraFrame.of(frame)
        if 0 in given.size:
            raise InputError("the frame is empty", hint="give one with pixels")
        with self._turn:
            return self._next(given)

    def reset(self) -> None:
        """Forget all objects: the next frame is the first one."""
        with self._turn:
            self._tracker = self._new_tracker()

    def figures(self) -> Tuple[StageFigures, ...]:
        """Return the times of each network so far, from any thread."""
        return tuple(network.meter.figures(0) for network in self._networks)

    def close(self) -> None:
        """Free what the session has, and the bundle if the session opened it."""
        for session in self._sessions.values():
            session.close()
        for inner in self._bundles.values():
            inner.close()
        if self._owns_bundle:
            self.bundle.close()

    def __enter__(self) -> CascadeSession:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    # ---- within
    # ----------------------------------------------------------------------------------

    def _new_tracker(self) -> Tracker:
        follows = self.cascade.followed is not None
        return Tracker(self.cascade.objects, self.cascade.every, follows)

    def _next(self, frame: CameraFrame) -> CascadeResult:
        """Return the objects of a frame, in turn."""
        tracker = self._tracker
        detected: Dict[int, Result] = {}
        if tracker.wants_detector():
            found = self._detect(frame)
            numbers = tracker.detected([one.crop for one in found])
            for one, number in zip(found, numbers):
                if number is not None:
                    detected[number] = one.result

        objects: List[CascadeObject] = []
        crops: List[Optional[Crop]] = []
        for track in tracker.tracks:
            first = detected.get(track.identity)
            results = self._results(frame, track.crop, first)
            crop = self._next_crop(results, track.crop, frame.size)
            crops.append(crop)
            if results:
                objects.append(CascadeObject(track.identity, results))
        tracker.update(crops)
        return CascadeResult(tuple(objects))

    def _detect(self, frame: CameraFrame) -> List[_Found]:
        """Return what the detector finds, the best first."""
        result = self._networks[0].of_frame(frame)
        singles: List[Result] = []
        if isinstance(result, Boxes):
            singles = [replace(result, boxes=(box,)) for box in result.boxes]
        elif isinstance(result, Points) and result.shown.any():
            singles = [result]

        found: List[_Found] = []
        for single in singles:
            crop = self._first_crop(single, frame.size)
            if crop is not None:
                found.append(_Found(single, crop))
        return found

    def _first_crop(self, result: Result, frame: Size) -> Optional[Crop]:
        """Return the crop by which an object is known from the detector's result."""
        behind = self._networks[1] if len(self._networks) > 1 else None
        if behind is None:
            return crop_of(CropRule(), result, frame, self._networks[0].image)
        assert behind.row.crop is not None, "parse_cascade has seen it"
        return crop_of(behind.row.crop, result, frame, behind.image)

    def _results(
        self, frame: CameraFrame, crop: Crop, detected: Optional[Result]
    ) -> Dict[str, Result]:
        """Return what the networks say of an object; {} if it is lost.

        Args:
            frame: the frame
            crop: the object's crop, for the followed network
            detected: the detector's result; None where it did not run or find it
        """
        results: Dict[str, Result] = {}
        if detected is not None:
            results[self.cascade.detector.name] = detected
        for network in self._networks[1:]:
            row = network.row
            if row.again is not None:
                place: Optional[Crop] = crop
            else:
                place = self._crop(network, results, frame.size)
            if place is None:
                continue
            result = network.of_crop(frame, place)
            if score_of(result) >= row.threshold:
                results[row.name] = result
            elif row.again is not None:
                return {}
        return results

    def _crop(
        self, network: _Network, results: Mapping[str, Result], frame: Size
    ) -> Optional[Crop]:
        """Return a network's crop from the result that it is after."""
        row = network.row
        assert row.after is not None, "parse_cascade has seen it"
        assert row.crop is not None, "parse_cascade has seen it"
        if row.after not in results:
            return None
        return crop_of(row.crop, results[row.after], frame, network.image)

    def _next_crop(
        self, results: Mapping[str, Result], crop: Crop, frame: Size
    ) -> Optional[Crop]:
        """Return an object's crop for the next frame; None if it is lost."""
        if not results:
            return None
        for network in self._networks:
            if network.row.again is not None:
                result = results[network.row.name]
                return crop_of(network.row.again, result, frame, network.image)
        return crop


def score_of(result: Result) -> float:
    """Return how sure a network is that its object is there; 1 where it says nothing."""
    if isinstance(result, Points):
        return result.score
    if isinstance(result, Boxes):
        return max((box.score for box in result.boxes), default=0.0)
    return 1.0


def opened_networks(bundle: Bundle) -> Dict[str, Bundle]:
    """Return the opened bundle of each network with a model of its own, by name."""
    found: Dict[str, Bundle] = {}
    try:
        for row in _cascade_of(bundle).networks:
            if row.like is None:
                found[row.name] = bundle.network(row.name)
    except BaseException:
        for opened in found.values():
            opened.close()
        raise
    return found


def _cascade_of(bundle: Bundle) -> Cascade:
    """Return the cascade of a bundle; raises BundleError where it is none."""
    if bundle.manifest.cascade is None:
        raise BundleError(
            "the bundle is no cascade but one network",
            at=str(bundle.path),
            hint="run it with a Session",
        )
    return bundle.manifest.cascade
