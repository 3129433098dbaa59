"""The figures of a stream: times by stage, queues, drops, and the Edge TPU."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from ..model.stats import Summary
from ..stick.stick import StickFacts
from .locks import Signal

KEPT = 512  # number of last samples of each kind that are stored
# weight of the newest time in the running mean that decides the frames in flight
_WEIGHT = 0.1


@dataclass(frozen=True)
class StageFigures:
    """The figures of a stage.

    Attributes:
        name: its name
        runs: number of runs since the start
        ms: milliseconds of the last KEPT runs; None before the first
        waiting: number of frames that wait for it now
        backends: number of segments of the model that each backend ran
    """

    name: str
    runs: int
    ms: Optional[Summary]
    waiting: int
    backends: Dict[str, int]


@dataclass(frozen=True)
class StreamFigures:
    """The figures of a stream.

    captured = dropped + delivered + frames in flight.

    Attributes:
        seconds: time since the start
        captured: number of captured frames since the start
        dropped: number of frames of a live source that a newer one replaced
        delivered: number of delivered frames
        fps: delivered frames per second, of the last KEPT ones
        latency: milliseconds from capture to delivery, of the last KEPT frames
        in_flight: number of frames in flight now
        limit: largest number of frames in flight
        stages: figures of each stage
        edgetpu: state of the Edge TPU; None without one
    """

    seconds: float
    captured: int
    dropped: int
    delivered: int
    fps: float
    latency: Optional[Summary]
    in_flight: int
    limit: int
    stages: Tuple[StageFigures, ...]
    edgetpu: Optional[StickFacts]

    def as_dict(self) -> Dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


class Lap:
    """Measures the time since it was made, and this thread's time on a core."""

    __slots__ = ("_cpu", "_wall")

    def __init__(self) -> None:
        self._wall = time.perf_counter_ns()
        self._cpu = time.thread_time_ns()

    def ms(self) -> Tuple[float, float]:
        """Return the time that has passed, and the time on a core, in milliseconds."""
        return (time.perf_counter_ns() - self._wall) * 1e-6, (
            time.thread_time_ns() - self._cpu
        ) * 1e-6


class Meter:
    """The times of one stage, written by its thread alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0
        self.mean = 0.0  # running mean of the time, ms
        self.cpu = 0.0  # running mean of the time on a core, ms
        self.backends: Dict[str, int] = {}
        self._ms: Deque[float] = deque(maxlen=KEPT)

    def add(self, lap: "Lap") -> float:
        """Add a run that ends now; return its time in milliseconds."""
        ms, cpu = lap.ms()
        weight = 1.0 if self.runs == 0 else _WEIGHT
        self.mean += weight * (ms - self.mean)
        self.cpu += weight * (cpu - self.cpu)
        self.runs += 1
        self._ms.append(ms)
        return ms

    def ran_on(self, backend: str) -> None:
        """Count a run of a segment by a backend."""
        self.backends[backend] = self.backends.get(backend, 0) + 1

    def figures(self, waiting: int) -> StageFigures:
        """Return the present figures.

        Args:
            waiting: number of frames that wait for the stage
        """
        ms = _copied(self._ms)
        return StageFigures(
            self.name,
            self.runs,
            Summary.of(ms) if ms else None,
            waiting,
            dict(self.backends),
        )


class Deliveries:
    """The times of delivered frames, and their ages."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.count = 0
        self._at: Deque[float] = deque(maxlen=KEPT)
        self._ms: Deque[float] = deque(maxlen=KEPT)

    def add(self, ms: float) -> None:
        """Count a frame that is delivered now, with its age in milliseconds."""
        self.count += 1
        self._at.append(time.monotonic())
        self._ms.append(ms)

    def fps(self) -> float:
        """Return the frames per second of the last ones."""
        at = _copied(self._at)
        if len(at) > 1 and at[-1] > at[0]:
            return (len(at) - 1) / (at[-1] - at[0])
        return 0.0

    def latency(self) -> Optional[Summary]:
        """Return the ages of the last frames, in milliseconds."""
        ms = _copied(self._ms)
        return Summary.of(ms) if ms else None


class Gate:
    """Limits the number of frames in flight.

    Stages with the times t1 … tn keep the slowest stage busy with
    (t1 + … + tn) / max(t) frames. The limit is one more than that; further frames would
    only wait in queues and grow old.
    """

    def __init__(self, meters: Sequence[Meter], waits_outside: Sequence[Meter]) -> None:
        """Open the gate.

        Args:
            meters: the meters of all stages
            waits_outside: meters of stages in which a frame is not in flight
        """
        self._changed = Signal()
        self._meters = meters
        self._outside = waits_outside
        self._shut = False

    @property
    def limit(self) -> int:
        """The largest number of frames in flight."""
        means: List[float] = [m.mean for m in self._meters]
        work = sum(means) - sum(m.mean for m in self._outside)
        return int(work / max(means) + 0.75) + 1 if max(means) > 0 else 2

    def enter(self, inside: Callable[[], int]) -> bool:
        """Wait until one more frame may be in flight; return False at the end.

        Args:
            inside: returns the number of frames in flight. It counts them in the queues:
                a counter would stay wrong after a Ctrl-C has lost a frame.
        """
        self._changed.wait(lambda: self._shut or inside() < self.limit)
        return not self._shut

    def look(self) -> None:
        """Check the limit again, since a frame has left."""
        self._changed.send()

    def shut(self) -> None:
        """Let no more frames in, and end all waits."""
        self._shut = True
        self._changed.send()


def _copied(samples: Deque[float]) -> List[float]:
    """Return a copy of samples, to which another thread may be adding."""
    while True:
        try:
            return list(samples)
        except RuntimeError:
            continue
