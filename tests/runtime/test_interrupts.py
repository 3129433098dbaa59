"""A Ctrl-C at any moment of a public call: the next call works, and nothing waits for
ever.

Each call is interrupted a hundred times, and in a sweep as many times as a person
could hardly press.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Session, Shot
from edgec_runtime.coral.pipeline.pipelined_model_runner import PipelinedModelRunner
from edgec_runtime.interpreter import Interpreter

from tests.cascade.objects import Thing, scene, seen
from tests.cascade.objects import bundle as cascade_bundle
from tests.runtime import tiny_model
from tests.runtime.fake_stick import FakeStick
from tests.runtime.test_stick import session
from tests.waiting import until

pytestmark = [
    pytest.mark.cc,
    # One that comes within a finalizer is printed there, and raised again.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SAMPLE = 100
HANGS_S = 30.0
AGAIN_S = 1.0
"""Between two signals, where the first one came within a finalizer."""


def counts(whole: int) -> pytest.MarkDecorator:
    """Two runs of a test: a sample, and the whole number of interrupts."""
    long = pytest.mark.sweep(2, among="long runs of interrupts")
    all_of_them = pytest.param(whole, marks=[pytest.mark.slow, long])
    return pytest.mark.parametrize("times", [SAMPLE, all_of_them])


class Alarm:
    """Raises KeyboardInterrupt in this thread, or says that it hangs."""

    def __init__(self) -> None:
        self.checked_from: float | None = None
        """When a check began, which no signal is to end before it hangs."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.checked_from is None:
            raise KeyboardInterrupt
        # Else it is a late one of the timer before.
        if time.monotonic() - self.checked_from > HANGS_S / 2:
            raise AssertionError(f"it hangs after {HANGS_S} s")

    @contextmanager
    def heeded(self) -> Iterator[None]:
        before = signal.signal(signal.SIGALRM, self)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def interrupt(
    call: Callable[[], object],
    check: Callable[[], object],
    times: int,
    longest_s: float = 1e-3,
) -> None:
    """End `call` so many times at random moments, and after each let `check` succeed."""
    moments = random.Random(times)
    alarm = Alarm()
    with alarm.heeded():
        for _ in range(times):
            alarm.checked_from = None
            try:
                moment = moments.uniform(2e-5, longest_s)
                signal.setitimer(signal.ITIMER_REAL, moment, AGAIN_S)
                while True:
                    call()
            except KeyboardInterrupt:
                alarm.checked_from = time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, HANGS_S)
            check()
            signal.setitimer(signal.ITIMER_REAL, 0)


def right(results: dict[str, Any], seed: int) -> None:
    expected = tiny_model.reference(tiny_model.image(seed))
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)


@contextmanager
def beside(call: Callable[[], object], threads: int) -> Iterator[None]:
    """The same call in other threads, which all have to go on until the end, and then."""
    ended = threading.Event()
    faults: list[BaseException] = []
    runs = [0] * threads

    def work(i: int) -> None:
        try:
            while not ended.is_set():
                call()
                runs[i] += 1
        except BaseException as e:
            faults.append(e)

    workers = [
        threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
        before = [*runs]
        until(
            lambda: faults or all(a > b for a, b in zip(runs, before, strict=True)),
            "all run",
        )
    finally:
        ended.set()
        for worker in workers:
            worker.join(HANGS_S)
    assert not faults
    assert not any(worker.is_alive() for worker in workers)


def left() -> list[str]:
    """The threads of streams, pipelines and Edge TPUs."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("edgec-")]


@counts(5000)
def test_a_run(bundle_path: Path, times: int) -> None:
    with Session(bundle_path, tpu="c") as s:

        def run() -> None:
            right(s.run({"image": tiny_model.image(1)}), 1)

        interrupt(run, run, times)


@counts(1000)
def test_a_run_beside_others(bundle_path: Path, times: int) -> None:
    """More than there are cores: some wait for what the interrupted run had."""
    with Session(bundle_path, tpu="c") as s:

        def run() -> None:
            right(s.run({"image": tiny_model.image(1)}), 1)

        with beside(run, 5):
            interrupt(run, run, times, 5e-3)


@counts(1000)
def test_a_session_that_is_opened_and_closed(bundle_path: Path, times: int) -> None:
    def open_and_close() -> None:
        with Session(bundle_path, tpu="c") as s:
            right(s.run({"image": tiny_model.image(2)}), 2)

    interrupt(open_and_close, open_and_close, times, 2e-2)


@pytest.mark.slow
def test_a_cascade_that_is_opened_and_closed() -> None:
    """With threads of its own, of which none may go on in memory that is freed."""
    frame = scene(Thing(60, 60), Thing(130, 80))
    path = cascade_bundle()

    def open_and_close() -> None:
        with Session(path, threads=2) as s:
            assert len(seen(s, frame).objects) == 2

    interrupt(open_and_close, open_and_close, SAMPLE, 5e-2)


@counts(1000)
def test_a_run_on_an_edge_tpu(bundle_path: Path, tmp_path: Path, times: int) -> None:
    """Its process goes on, and answers of interrupted runs are nobody's."""
    fake = FakeStick(tmp_path / "stick")
    with session(bundle_path, fake, tpu="delegate") as s:

        def run() -> None:
            right(s.run({"image": tiny_model.image(6)}), 6)

        interrupt(run, run, times)
        assert s.edgetpu is not None
        assert (s.edgetpu.up, s.edgetpu.lost) == (True, 0)


@counts(5000)
def test_an_interpreter(bundle_path: Path, times: int) -> None:
    interpreter = Interpreter(str(bundle_path))

    def infer() -> None:
        interpreter.allocate_tensors()
        (row,) = interpreter.get_input_details()
        interpreter.set_tensor(row["index"], tiny_model.image(3))
        interpreter.invoke()
        rows = interpreter.get_output_details()
        right({r["name"]: interpreter.get_tensor(r["index"]) for r in rows}, 3)

    interrupt(infer, infer, times)


@counts(5000)
def test_the_next_shot_of_a_stream(bundle_path: Path, times: int) -> None:
    """A frame that is taken away with the interrupt is missed, and no other one."""
    source = (tiny_model.image(i % 100) for i in itertools.count())
    with Session(bundle_path, tpu="c") as s, s.stream(source) as shots:
        before = -1

        def take() -> None:
            nonlocal before
            shot: Shot = next(shots)
            right(shot.value, shot.index % 100)
            assert shot.index > before
            before = shot.index

        interrupt(take, take, times)
        figures = shots.figures()
    # One each time at most: none was made twice, and none left behind in a queue.
    missed = before + 1 - figures.delivered
    assert 0 <= missed <= times
    assert figures.in_flight <= figures.limit + 1


@counts(1000)
def test_the_end_of_a_stream(bundle_path: Path, times: int) -> None:
    with Session(bundle_path, tpu="c") as s:

        def whole() -> None:
            shots = s.stream(tiny_model.image(i) for i in range(3))
            try:
                found = [shot.index for shot in shots]
            finally:
                shots.close()
            assert found == [0, 1, 2]

        def live() -> None:
            images = (tiny_model.image(i) for i in range(9))
            with s.stream(images, live=True) as shots:
                assert [shot.index for shot in shots][-1] == 8

        interrupt(whole, whole, times, 5e-3)
        interrupt(live, live, times // 4, 5e-3)
    # Threads that were being started end by themselves.
    until(lambda: not left(), "threads of a stream are left")


@counts(2000)
def test_a_pipeline(bundle_path: Path, times: int) -> None:
    interpreters = [Interpreter(str(bundle_path))]
    interpreters[0].allocate_tensors()
    runner = PipelinedModelRunner(interpreters)

    def push_and_pop() -> None:
        runner.push({"image": tiny_model.image(4)})
        right(runner.pop() or {}, 4)

    interrupt(push_and_pop, push_and_pop, times)
    runner.push({})
    while runner.pop():
        pass
    assert runner.pop() is None


@counts(2000)
@pytest.mark.parametrize("side", ["push", "pop"])
def test_a_pipeline_with_little_room(bundle_path: Path, times: int, side: str) -> None:
    interpreters = [Interpreter(str(bundle_path))]
    interpreters[0].allocate_tensors()
    runner = PipelinedModelRunner(interpreters)
    runner.set_input_queue_size(1)
    runner.set_output_queue_size(1)
    ended = threading.Event()

    def push() -> None:
        runner.push({"image": tiny_model.image(5)})

    def pop() -> None:
        right(runner.pop() or {}, 5)

    def other_side() -> None:
        while not ended.is_set():
            (pop if side == "push" else push)()

    other = threading.Thread(target=other_side, daemon=True)
    other.start()
    call = push if side == "push" else pop
    interrupt(call, call, times)
    ended.set()
    # The other side may wait for room, or for a frame.
    runner.set_input_queue_size(0)
    runner.set_output_queue_size(0)
    push()
    other.join(HANGS_S)
    assert not other.is_alive()


@counts(1000)
def test_a_cascade(times: int) -> None:
    frame = scene(Thing(60, 60), Thing(130, 80))
    with Session(cascade_bundle()) as s:

        def run() -> None:
            assert len(seen(s, frame).objects) == 2

        def anew() -> None:
            s.reset()
            run()

        interrupt(run, anew, times, 1e-2)
