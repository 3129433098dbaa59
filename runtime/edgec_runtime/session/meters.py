"""The figures of a stream: times by stage, queues, drops, and the Edge TPU."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from ..model.stats import Summary
from ..stick.stick import StickFacts
from .locks import Signal

KEPT = 512  # samples of each kind: the last ones
# of the newest time in the mean that decides how many frames are in flight
_WEIGHT = 0.1


@dataclass(frozen=True)
class StageFigures:
    """runs: since the start.  ms: of the last KEPT runs; None before the first.
    waiting: frames before it, now.

    backends: how often each ran, for segments of the model.
    """

    name: str
    runs: int
    ms: Optional[Summary]
    waiting: int
    backends: Dict[str, int]


@dataclass(frozen=True)
class StreamFigures:
    """Counts are since the start; `fps`, `latency` (ms, from capture to delivery) and
    `ms` of the last KEPT frames.

    captured = dropped + delivered + those in flight.  in_flight: now; limit: the most
    that may be.
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
    """Time since it was made, and how much of it this thread had a core."""

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
        self.mean = 0.0  # ms, of the last ones
        self.cpu = 0.0  # ms of them that its thread had a core
        self.backends: Dict[str, int] = {}
        self._ms: Deque[float] = deque(maxlen=KEPT)

    def add(self, lap: "Lap") -> float:
        """Add a run that ends now; return its ms."""
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
        """Return the figures of this moment; waiting: frames before the stage."""
        ms = _copied(self._ms)
        return StageFigures(
            self.name,
            self.runs,
            Summary.of(ms) if ms else None,
            waiting,
            dict(self.backends),
        )


class Deliveries:
    """When frames came out, and how old they were."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.count = 0
        self._at: Deque[float] = deque(maxlen=KEPT)
        self._ms: Deque[float] = deque(maxlen=KEPT)

    def add(self, ms: float) -> None:
        """Count a frame that comes out; ms: its age."""
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
    """How many frames may be in flight: those that keep the slowest stage busy, and one
    more, so that none waits long.

    With stages of t1 … tn the slowest has always work when (t1 + … + tn) / max(t)
    frames are on their way; more would only stand in queues and grow old.
    """

    def __init__(self, meters: Sequence[Meter], waits_outside: Sequence[Meter]) -> None:
        """waits_outside: those of the meters whose time a frame does not spend in
        flight.
        """
        self._changed = Signal()
        self._meters = meters
        self._outside = waits_outside
        self._shut = False

    @property
    def limit(self) -> int:
        """The most frames in flight."""
        means: List[float] = [m.mean for m in self._meters]
        work = sum(means) - sum(m.mean for m in self._outside)
        return int(work / max(means) + 0.75) + 1 if max(means) > 0 else 2

    def enter(self, inside: Callable[[], int]) -> bool:
        """Wait until one more frame may be in flight; return False at the end.

        inside: returns how many are. They are counted where they are: a number that
            each frame raises and lowers is wrong for ever once a Ctrl-C takes one away.
        """
        self._changed.wait(lambda: self._shut or inside() < self.limit)
        return not self._shut

    def look(self) -> None:
        """After a frame has left."""
        self._changed.send()

    def shut(self) -> None:
        """Let no more frames in, and end all waits."""
        self._shut = True
        self._changed.send()


def _copied(samples: Deque[float]) -> List[float]:
    """Its own thread may be adding to it."""
    while True:
        try:
            return list(samples)
        except RuntimeError:
            continue
