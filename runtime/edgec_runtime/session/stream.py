"""A session's stream: neighbouring frames in different stages at the same time, each
stage on a thread of its own.

C segments, the Edge TPU and most libraries release Python's lock while they work, so
stages overlap as far as the machine has cores; what waits for a device overlaps in any
case.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from queue import SimpleQueue
from types import GeneratorType, TracebackType
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Type,
)

from numpy.typing import NDArray

from ..device_end.printable import printable
from ..errors import InputError
from ..model.inference import Inference
from ..stick.stick import StickFacts
from .locks import Signal, alone, finish, start
from .meters import Deliveries, Gate, Lap, Meter, StageFigures, StreamFigures

Array = NDArray[Any]
ENDING_S = 5.0  # that a stage, or the source, may take to end when the stream is closed


class Shot:
    """One frame on its way.

    Attributes:
        index: its number among the captured frames, from 0; missing numbers are dropped
            frames
        source: the item of the source
        value: the last stage's result: the source's item, the model's inputs, its
            outputs by name, then the results of the stages after it
        ms: the time of each stage, by name
    """

    __slots__ = ("captured", "error", "index", "ms", "source", "tensors", "value")

    def __init__(
        self, index: int, source: Any, captured: float, tensors: Optional[Inference]
    ) -> None:
        self.index = index
        self.source = source
        self.value: Any = source
        self.ms: Dict[str, float] = {}
        self.captured = captured  # time.monotonic()
        self.error: Optional[BaseException] = None
        self.tensors = tensors

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The memory of the model's inputs, for a stage before the model.

        Such a stage returns None.
        """
        if self.tensors is None:
            raise InputError(
                "the model has taken its inputs", hint="read them in a stage before it"
            )
        return self.tensors.inputs()


# its name, and what makes the new value of a shot
Stage = Tuple[str, Callable[[Shot], Any]]


class Stream:
    """The shots of a stream, in order, as `for shot in stream`.

    Made by Session.stream.

    It ends with the source, with an exception of the source or of a stage, which is
    raised here after all shots before it, and with `close`, which leaving the `with`
    block, and forgetting the stream, do too.
    """

    def __init__(self, session: object, work: "StreamPipeline") -> None:
        self._session = session  # which lives as long as the stream does
        self._work = work
        self._end = weakref.finalize(self, work.stop)
        work.start()

    def __iter__(self) -> Iterator[Shot]:
        return self

    def __next__(self) -> Shot:
        if os.getpid() != self._work.pid:
            raise InputError(
                "this stream belongs to the process that was forked",
                hint="make one here",
            )
        found = self._work.deliver()
        if found is None:
            self.close()
            raise StopIteration
        if found.error is not None:
            self.close()
            raise found.error
        return found

    def figures(self) -> StreamFigures:
        """Return the figures of this moment, from any thread; also after the end."""
        return self._work.figures()

    def close(self) -> None:
        """End all stages; frames in flight are forgotten.

        Waits for a stage, or a source, for ENDING_S at most.
        """
        finish(self._end)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


RanOn = Callable[[str, str], None]
"""Is told that a stage, by its name, ran a segment on a backend."""


class StreamWork(Protocol):
    """The middle of a stream: the stages of a model, or of a cascade."""

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the stages; each is called by a thread of its own."""

    def admit(self, shot: Shot) -> None:
        """Give a new shot the memory that the stages need."""

    def figures(self) -> Sequence[StageFigures]:
        """Return further times within the stages."""

    def edgetpu(self) -> Optional[StickFacts]:
        """Return how the Edge TPU fares; None without one."""

    def stop(self, idle: bool) -> None:
        """Free the memory; idle: whether the threads of all stages have ended."""


class StreamPipeline:
    """The threads of a stream, and the queues between them."""

    def __init__(
        self,
        work: StreamWork,
        frames: Iterable[Any],
        before: Sequence[Stage],
        after: Sequence[Stage],
        live: bool,
    ) -> None:
        self.pid = os.getpid()
        self._shared = work
        self._source = iter(frames)
        self._stages: List[Stage] = [*before, *work.stages(self._ran_on), *after]
        _check_names([name for name, _ in self._stages])
        self._capture = Meter("capture")
        self._out = Meter("out")
        self._meters = {name: Meter(name) for name, _ in self._stages}
        meters = [self._capture, *self._meters.values(), self._out]
        self._gate = Gate(meters, [self._capture] if live else [])
        self._queues: List["SimpleQueue[Optional[Shot]]"] = [
            SimpleQueue() for _ in range(len(self._stages) + 1)
        ]
        self._newest = _Newest()
        self._deliveries = Deliveries()
        self._delivered: Optional[Lap] = None
        self._turn = threading.RLock()
        """Of who takes what comes out."""
        self._admitted = 0
        self._arrived = 0
        self._ended = False
        """Nothing comes out any more, but for what has come."""
        self._threads = [
            threading.Thread(
                target=self._work, args=(i,), name=f"edgec-{name}", daemon=True
            )
            for i, (name, _) in enumerate(self._stages)
        ]
        sources = (self._grab, self._admit_newest) if live else (self._admit_all,)
        self._threads += [
            threading.Thread(target=t, name="edgec-capture", daemon=True)
            for t in sources
        ]
        self._stopped = False
        self.count = 0  # captured

    def start(self) -> None:
        """Start all threads."""
        start(self._threads)

    def stop(self) -> None:
        """End all threads except the current one, and free their memory."""
        # A forked child has none of the threads.
        if os.getpid() != self.pid:
            return
        self._stopped = True
        self._gate.shut()
        self._newest.shut()
        for queue in self._queues:
            queue.put(None)

        late = self._join_threads()
        self._shared.stop(not late)
        if late:
            text = (
                f"{', '.join(late)} did not end within {ENDING_S:g} s after the "
                "stream was closed"
            )
            warnings.warn(printable(text), RuntimeWarning, stacklevel=3)
        else:
            self._stages.clear()  # which hold this, and with it the weights

    def _join_threads(self) -> List[str]:
        """Wait for the other threads; return the names of late ones."""
        # A Ctrl-C may have come before all were started.
        current = threading.current_thread()
        others = [t for t in self._threads if t is not current and t.is_alive()]
        end = time.monotonic() + ENDING_S
        for t in others:
            t.join(max(0.0, end - time.monotonic()))
        return [t.name[len("edgec-") :] for t in others if t.is_alive()]

    # ---- capture
    # ----------------------------------------------------------------------------------

    def _read(self) -> Optional[Shot]:
        """The source's next item; None at its end.  An exception is a shot's too."""
        lap = Lap()
        try:
            item = next(self._source)
            error = None
        except StopIteration:
            return None
        except BaseException as e:
            item = None
            error = e
        shot = Shot(self.count, item, time.monotonic(), None)
        self.count += 1
        shot.ms["capture"] = self._capture.add(lap)
        shot.error = error
        return shot

    def _admit(self, shot: Shot) -> None:
        try:
            if shot.error is None:
                self._shared.admit(shot)
        except BaseException as e:
            shot.error = e
        self._admitted += 1
        self._queues[0].put(shot)

    def _admit_all(self) -> None:
        """Read the frames of a file, each when there is room for it."""
        while self._gate.enter(self._in_flight):
            shot = self._read()
            if shot is None:
                break
            self._admit(shot)
            if shot.error is not None:
                break
            # Else the frame would live until the next one is read.
            del shot
        self._source_ends()
        self._queues[0].put(None)

    def _grab(self) -> None:
        """Read a live source all the time, so that each frame is new."""
        while not self._stopped:
            shot = self._read()
            self._newest.put(shot)
            # The consumer finds the error in the shot.
            if shot is None or shot.error is not None:
                break
            del shot
        self._source_ends()

    def _admit_newest(self) -> None:
        while self._gate.enter(self._in_flight):
            shot = self._newest.take()
            if shot is None:
                break
            self._admit(shot)
            del shot
        self._queues[0].put(None)

    def _source_ends(self) -> None:
        """A generator lets go of its camera or file."""
        if isinstance(self._source, GeneratorType):
            try:
                self._source.close()
            except Exception as e:
                text = f"the source failed when it was closed: {e!r}"
                warnings.warn(printable(text), RuntimeWarning, stacklevel=2)

    # ---- stages
    # ----------------------------------------------------------------------------------

    def _ran_on(self, stage: str, backend: str) -> None:
        """Count a run of a segment by a backend in a stage."""
        self._meters[stage].ran_on(backend)

    def _work(self, i: int) -> None:
        # A thread whose start a Ctrl-C ended can begin after all has been freed.
        stage = self._stages[i : i + 1]
        if not stage:
            return
        ((name, call),) = stage
        meter = self._meters[name]
        taken = self._queues[i]
        given = self._queues[i + 1]
        while True:
            shot = taken.get()
            if shot is None or self._stopped:
                break
            if shot.error is None:
                lap = Lap()
                try:
                    shot.value = call(shot)
                except BaseException as e:
                    shot.error = e
                    self._gate.shut()
                shot.ms[name] = meter.add(lap)
            given.put(shot)
            # After it can be seen there: the gate counts it twice rather than never.
            self._arrived += given is self._queues[-1]
            del shot
        # First, so that it is known where a Ctrl-C takes the None away.
        self._ended = self._ended or given is self._queues[-1]
        given.put(None)

    # ---- the end
    # ----------------------------------------------------------------------------------

    def deliver(self) -> Optional[Shot]:
        """The next shot; None at the end.  The one before has left."""
        delivered = self._delivered
        self._delivered = None
        if delivered is not None:
            self._out.add(delivered)
        # Each time: a Ctrl-C may have come before it, or taken a shot away.
        self._gate.look()
        shot = alone(self._turn, self._taken)
        if shot is None or self._stopped:
            return None
        if shot.error is None:
            self._deliveries.add((time.monotonic() - shot.captured) * 1e3)
            self._delivered = Lap()
        return shot

    def _taken(self) -> Optional[Shot]:
        """Return what comes out next; None at the end, of which there is no second."""
        out = self._queues[-1]
        if self._stopped or (self._ended and out.empty()):
            return None
        return out.get()

    def _in_flight(self) -> int:
        """Return how many frames are in the stages, wait behind them or are in use."""
        waiting = self._queues[-1].qsize() + (self._delivered is not None)
        return self._admitted - self._arrived + waiting

    def figures(self) -> StreamFigures:
        """Return the figures of this moment."""
        d = self._deliveries
        waiting = [q.qsize() for q in self._queues]
        meters = zip([*self._meters.values(), self._out], waiting)
        return StreamFigures(
            seconds=time.monotonic() - d.started,
            captured=self.count,
            dropped=self._newest.dropped,
            delivered=d.count,
            fps=d.fps(),
            latency=d.latency(),
            in_flight=0 if self._stopped else self._in_flight(),
            limit=self._gate.limit,
            stages=(
                self._capture.figures(0),
                *(m.figures(n) for m, n in meters),
                *self._shared.figures(),
            ),
            edgetpu=self._shared.edgetpu(),
        )


class _Newest:
    """Room for one shot of a live source: a newer one takes its place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Signal()
        self._shot: Optional[Shot] = None
        self._failed: Optional[Shot] = None
        self._ended = False
        self.dropped = 0

    def put(self, shot: Optional[Shot]) -> None:
        """None: there will be no more.

        An error does not replace the last shot but follows it, as the last one.
        """
        with self._lock:
            if shot is None:
                self._ended = True
            elif shot.error is not None:
                self._failed = shot
                self._ended = True
            elif not self._ended:
                self.dropped += self._shot is not None
                self._shot = shot
        self._changed.send()

    def take(self) -> Optional[Shot]:
        """Waits for one; None when there will be none."""
        self._changed.wait(lambda: self._ended or self._shot is not None)
        with self._lock:
            shot = self._shot
            self._shot = None
            if shot is None:
                shot = self._failed
                self._failed = None
            return shot

    def shut(self) -> None:
        """End all waits; frames are taken no more."""
        # Without the lock, which this thread may not come to give back.
        self._ended = True
        self._shot = self._failed = None
        self._changed.send()


def _check_names(names: List[str]) -> None:
    for name in names:
        if names.count(name) > 1 or name in ("capture", "out"):
            raise InputError(
                f'there are two stages "{name}"',
                hint="give each stage a name of its own",
            )
