"""A session's stream: a pipeline in which each stage has its own thread, so that
successive frames are in different stages at the same time.

C segments, the Edge TPU and most libraries release Python's lock while they work, so
stages overlap as far as the machine has cores; waits for a device overlap in any case.
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
from ..errors import EdgecWarning, InputError
from ..model.inference import Inference
from ..stick.stick import StickFacts
from .locks import Signal, alone, finish, start
from .meters import Deliveries, Gate, Lap, Meter, StageFigures, StreamFigures

Array = NDArray[Any]
ENDING_S = 5.0  # longest wait for the stages and the source when a stream is closed


class Shot:
    """A frame that passes through the stages of a stream.

    Attributes:
        index: its number among the captured frames, from 0; numbers of dropped frames
            are missing
        source: the item of the source
        value: the result of the last stage: first the source's item, then the model's
            inputs, its outputs by name, and the results of the stages after it
        ms: the time of each stage in milliseconds, by name
        captured: time.monotonic() of its capture
        error: the exception of the source or of a stage; None without one
        tensors: the memory of its inference; None when the model has taken it
    """

    __slots__ = ("captured", "error", "index", "ms", "source", "tensors", "value")

    def __init__(
        self, index: int, source: Any, captured: float, tensors: Optional[Inference]
    ) -> None:
        self.index = index
        self.source = source
        self.value: Any = source
        self.ms: Dict[str, float] = {}
        self.captured = captured
        self.error: Optional[BaseException] = None
        self.tensors = tensors

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The memory of the model's inputs, for a stage before the model to write.

        A stage that writes to it returns None.
        """
        if self.tensors is None:
            raise InputError(
                "the model has taken its inputs", hint="read them in a stage before it"
            )
        return self.tensors.inputs()


Stage = Tuple[str, Callable[[Shot], Any]]
"""The name of a stage, and the function that returns the new value of a shot."""


class Stream:
    """The shots of a stream, in order, as `for shot in stream`; see Session.stream.

    It ends with the source, or when it is closed: by `close`, by the end of a `with`
    block, or when it is garbage. An exception of the source or of a stage is raised here
    after all earlier shots, and ends it, too.
    """

    def __init__(self, session: object, pipeline: "StreamPipeline") -> None:
        self._session = session  # the reference keeps the session alive
        self._pipeline = pipeline
        self._end = weakref.finalize(self, pipeline.stop)
        pipeline.start()

    def __iter__(self) -> Iterator[Shot]:
        return self

    def __next__(self) -> Shot:
        if os.getpid() != self._pipeline.pid:
            raise InputError(
                "this stream belongs to the process that was forked",
                hint="make one here",
            )
        shot = self._pipeline.deliver()
        if shot is None:
            self.close()
            raise StopIteration
        if shot.error is not None:
            self.close()
            raise shot.error
        return shot

    def figures(self) -> StreamFigures:
        """Return the present figures, in any thread, also after the end."""
        return self._pipeline.figures()

    def close(self) -> None:
        """End all stages, and discard the frames in flight.

        It waits for the stages and the source for ENDING_S at most.
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
"""Is called with the names of a stage and a backend after the stage ran a segment."""


class StreamWork(Protocol):
    """The stages in the middle of a stream: those of a model, or of a cascade."""

    def stages(self, ran_on: RanOn) -> Sequence[Stage]:
        """Return the stages; each is called by its own thread."""

    def admit(self, shot: Shot) -> None:
        """Give a new shot the memory that the stages need."""

    def figures(self) -> Sequence[StageFigures]:
        """Return times of parts of the stages."""

    def edgetpu(self) -> Optional[StickFacts]:
        """Return the state of the Edge TPU; None without one."""

    def stop(self, idle: bool) -> None:
        """Free the memory.

        Args:
            idle: whether the threads of all stages have ended
        """


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
        self._middle = work
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
        """Is locked while a shot is taken from the last queue."""
        self._admitted = 0
        self._arrived = 0
        self._ended = False
        """Whether the last stage has ended, so that its queue gets no more shots."""
        self._threads = [
            threading.Thread(
                target=self._run_stage, args=(i,), name=f"edgec-{name}", daemon=True
            )
            for i, (name, _) in enumerate(self._stages)
        ]
        sources = (self._grab, self._admit_newest) if live else (self._admit_all,)
        self._threads += [
            threading.Thread(target=t, name="edgec-capture", daemon=True)
            for t in sources
        ]
        self._stopped = False
        self.count = 0  # captured frames

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
        self._middle.stop(not late)
        if late:
            text = (
                f"{', '.join(late)} did not end within {ENDING_S:g} s after the "
                "stream was closed"
            )
            warnings.warn(printable(text), EdgecWarning, stacklevel=3)
        else:
            # The stages refer to this pipeline, and so would keep the weights.
            self._stages.clear()

    def _join_threads(self) -> List[str]:
        """Wait for the other threads; return the names of late ones."""
        # After a Ctrl-C some threads may not have been started.
        current = threading.current_thread()
        others = [t for t in self._threads if t is not current and t.is_alive()]
        end = time.monotonic() + ENDING_S
        for t in others:
            t.join(max(0.0, end - time.monotonic()))
        return [t.name[len("edgec-") :] for t in others if t.is_alive()]

    # ---- capture
    # ----------------------------------------------------------------------------------

    def _read(self) -> Optional[Shot]:
        """Return a shot of the source's next item; None at the end of the source.

        After an exception it is a shot with that error.
        """
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
                self._middle.admit(shot)
        except BaseException as e:
            shot.error = e
        self._admitted += 1
        self._queues[0].put(shot)

    def _admit_all(self) -> None:
        """Read all frames of a source, each when the gate admits it."""
        while self._gate.enter(self._in_flight):
            shot = self._read()
            if shot is None:
                break
            self._admit(shot)
            if shot.error is not None:
                break
            # Otherwise the frame would stay in memory until the next one is read.
            del shot
        self._close_source()
        self._queues[0].put(None)

    def _grab(self) -> None:
        """Read a live source continuously, so that the newest frame is available."""
        while not self._stopped:
            shot = self._read()
            self._newest.put(shot)
            # The consumer gets the error in the shot.
            if shot is None or shot.error is not None:
                break
            del shot
        self._close_source()

    def _admit_newest(self) -> None:
        """Admit the newest frame of a live source each time that the gate opens."""
        while self._gate.enter(self._in_flight):
            shot = self._newest.take()
            if shot is None:
                break
            self._admit(shot)
            del shot
        self._queues[0].put(None)

    def _close_source(self) -> None:
        """Close a source that is a generator, so that it frees its camera or file."""
        if isinstance(self._source, GeneratorType):
            try:
                self._source.close()
            except Exception as e:
                text = f"the source failed when it was closed: {e!r}"
                warnings.warn(printable(text), EdgecWarning, stacklevel=2)

    # ---- stages
    # ----------------------------------------------------------------------------------

    def _ran_on(self, stage: str, backend: str) -> None:
        """Count a run of a segment by a backend in a stage."""
        self._meters[stage].ran_on(backend)

    def _run_stage(self, i: int) -> None:
        """Run a stage on the shots of its queue, and pass them to the next queue."""
        # If a Ctrl-C interrupts its start, a thread can begin after `stop`.
        stage = self._stages[i : i + 1]
        if not stage:
            return
        ((name, call),) = stage
        meter = self._meters[name]
        source = self._queues[i]
        sink = self._queues[i + 1]
        while True:
            shot = source.get()
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
            sink.put(shot)
            # It is counted after it is in the queue: for a moment the gate counts it
            # twice, but never not at all.
            self._arrived += sink is self._queues[-1]
            del shot
        # This comes first, since a Ctrl-C of the consumer may lose the None.
        self._ended = self._ended or sink is self._queues[-1]
        sink.put(None)

    # ---- the end
    # ----------------------------------------------------------------------------------

    def deliver(self) -> Optional[Shot]:
        """Return the next shot; None at the end.

        The caller has finished the shot before it.
        """
        delivered = self._delivered
        self._delivered = None
        if delivered is not None:
            self._out.add(delivered)
        # This is necessary even if no shot was delivered, since a Ctrl-C may have
        # skipped it before, or lost a shot.
        self._gate.look()
        shot = alone(self._turn, self._take)
        if shot is None or self._stopped:
            return None
        if shot.error is None:
            self._deliveries.add((time.monotonic() - shot.captured) * 1e3)
            self._delivered = Lap()
        return shot

    def _take(self) -> Optional[Shot]:
        """Return the next shot of the last queue; None at the end.

        After the end it does not wait, since the queue has only one None.
        """
        out = self._queues[-1]
        if self._stopped or (self._ended and out.empty()):
            return None
        return out.get()

    def _in_flight(self) -> int:
        """Return the number of frames in the stages, in the last queue, and in use."""
        waiting = self._queues[-1].qsize() + (self._delivered is not None)
        return self._admitted - self._arrived + waiting

    def figures(self) -> StreamFigures:
        """Return the present figures."""
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
                *self._middle.figures(),
            ),
            edgetpu=self._middle.edgetpu(),
        )


class _Newest:
    """A place for one shot of a live source, which a newer one replaces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Signal()
        self._shot: Optional[Shot] = None
        self._failed: Optional[Shot] = None
        self._ended = False
        self.dropped = 0

    def put(self, shot: Optional[Shot]) -> None:
        """Put a shot; None at the end of the source.

        A shot with an error does not replace the last shot but follows it.
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
        """Wait for a shot and take it; return None at the end."""
        self._changed.wait(lambda: self._ended or self._shot is not None)
        with self._lock:
            shot = self._shot
            self._shot = None
            if shot is None:
                shot = self._failed
                self._failed = None
            return shot

    def shut(self) -> None:
        """End all waits, and discard the shot."""
        # It does not use the lock, which an interrupted thread may still have.
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
