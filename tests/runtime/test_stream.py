"""A session's stream: order, what is kept and what is dropped, how it ends, and what
the Edge TPU's faults do to it.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import EdgecError, InputError, Session, Shot, Stream
from edgec_runtime.session import stream

from tests.runtime import tiny_model
from tests.runtime.fake_interpreter import FakeInterpreter
from tests.runtime.fake_stick import FAULTS, FakeStick
from tests.runtime.test_session import forked
from tests.runtime.test_stick import session
from tests.signals import heed_signals
from tests.waiting import LIMIT_S, until

pytestmark = pytest.mark.cc


def images(n: int, seen: list[int] | None = None) -> Iterator[Any]:
    for i in range(n):
        if seen is not None:
            seen.append(i)
        yield tiny_model.image(i)


def right(shot: Shot) -> None:
    expected = tiny_model.reference(tiny_model.image(shot.index))
    assert list(shot.value) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(shot.value[name], array)


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("edgec-")}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert not threads()


@pytest.fixture
def s(bundle_path: Path) -> Iterator[Session]:
    with Session(bundle_path) as made:
        yield made


def test_every_frame_in_order(s: Session) -> None:
    with s.stream(images(300)) as shots:
        kept = list(shots)
    assert [k.index for k in kept] == list(range(300))
    for shot in kept:  # after all of them were made: none has another's memory
        right(shot)
    figures = shots.figures()
    assert (
        figures.captured,
        figures.dropped,
        figures.delivered,
        figures.in_flight,
    ) == (300, 0, 300, 0)
    assert [x.name for x in figures.stages] == [
        "capture",
        "inputs",
        "shift",
        "relu",
        "mix",
        "out",
    ]
    assert [x.runs for x in figures.stages] == [300] * 6
    assert figures.stages[3].backends == {"c": 300}
    assert figures.fps > 0
    assert figures.latency is not None
    assert figures.latency.n == 300
    assert set(kept[0].ms) == {"capture", "inputs", "shift", "relu", "mix"}
    assert figures.as_dict()["stages"][1]["ms"]["n"] == 300


@pytest.mark.parametrize("tpu", ["c", "interpreter"])
def test_the_same_as_run(bundle_path: Path, tpu: str) -> None:
    given = [{"image": tiny_model.image(i)} for i in range(20)]
    with Session(bundle_path, tpu=tpu) as s, s.stream(given) as shots:
        for shot, inputs in zip(shots, given, strict=True):
            np.testing.assert_array_equal(shot.value["out"], s.run(inputs)["out"])
            right(shot)


def test_stages_of_ones_own(s: Session) -> None:
    def read(shot: Shot) -> Any:
        return tiny_model.image(shot.source)

    def flip(shot: Shot) -> None:
        np.bitwise_xor(shot.value, 255, out=shot.inputs["image"])

    def unflipped(shot: Shot) -> Any:
        return {"image": shot.value}

    def total(shot: Shot) -> Any:
        return shot.source, float(shot.value["out"].sum())

    for before, image in (
        ([("read", read), ("flip", flip)], lambda i: tiny_model.image(i) ^ 255),
        ([("read", read), ("as they are", unflipped)], tiny_model.image),
        ([("read", read)], tiny_model.image),
    ):
        with s.stream(
            range(40),
            before=before,
            after=[("total", total), ("last", lambda shot: [shot.value])],
        ) as shots:
            found = [shot.value for shot in shots]
        assert found == [
            [(i, float(tiny_model.reference(image(i))["out"].sum()))] for i in range(40)
        ]


def test_a_photo_is_prepared(s: Session) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    (shot,) = s.stream([photo])
    np.testing.assert_array_equal(shot.value["out"], s.run({"image": photo})["out"])


def test_an_input_is_not_copied_where_it_can_be_used(s: Session) -> None:
    image = tiny_model.image()
    for shot in s.stream([image, np.asfortranarray(image)]):
        np.testing.assert_array_equal(
            shot.value["out"], tiny_model.reference(image)["out"]
        )
    frame = s._network().program.frame()
    frame.put("image", image)
    assert frame.arrays["image"] is image
    frame.put("image", np.asfortranarray(image))
    assert frame.arrays["image"] is not image


def test_stages_work_at_the_same_time(s: Session) -> None:
    """Each of two waits for the other, which is at another frame: none would get on if
    they took turns.
    """
    together = threading.Barrier(2)

    def meets(first: int) -> Any:
        def stage(shot: Shot) -> Any:
            if first <= shot.index < first + 20:
                together.wait(LIMIT_S)
            return shot.value

        return stage

    with s.stream(
        images(24), before=[("a", meets(1))], after=[("b", meets(0))]
    ) as shots:
        for shot in shots:
            right(shot)


def test_a_source_is_read_when_there_is_room(s: Session) -> None:
    seen: list[int] = []
    with s.stream(images(100, seen)) as shots:
        for shot in shots:
            time.sleep(0.002)
            limit = shots.figures().limit
            assert limit <= len(shots.figures().stages) + 1
            assert len(seen) - shot.index <= limit + 1
    assert len(seen) == 100


def test_a_live_source_loses_what_is_old(s: Session) -> None:
    go_on = threading.Event()

    def slowly(shot: Shot) -> Any:
        time.sleep(0.005)
        return shot.value

    def camera() -> Iterator[Any]:
        for i in range(400):
            yield tiny_model.image(i)
            time.sleep(0.0005)
        go_on.set()

    with s.stream(camera(), after=[("slow", slowly)], live=True) as shots:
        found = []
        for shot in shots:
            right(shot)
            found.append(shot.index)
    assert found == sorted(set(found))
    figures = shots.figures()
    assert figures.captured == 400
    assert figures.dropped > 0
    assert figures.delivered == len(found) == 400 - figures.dropped
    assert found[-1] == 399, "the newest is not dropped"


def test_what_a_stage_raises_comes_after_the_frames_before_it(s: Session) -> None:
    def fails(shot: Shot) -> Any:
        if shot.index == 7:
            raise ZeroDivisionError("seven")
        return shot.value

    for where in ("before", "after"):
        found = []
        with (  # noqa: PT012
            pytest.raises(ZeroDivisionError, match="seven"),
            s.stream(images(99), **{where: [("f", fails)]}) as shots,  # type: ignore[arg-type]
        ):
            for shot in shots:
                found.append(shot.index)
        assert found == list(range(7))
        assert list(shots) == []


def test_what_the_model_refuses(s: Session) -> None:
    for bad in (np.zeros((4, 4), np.float32), None, {"imag": 0}):
        with pytest.raises(InputError):
            list(s.stream([bad]))
    with pytest.raises(EdgecError, match="returned 7"):
        list(s.stream([np.full(tiny_model.SHAPE, 255, np.uint8)]))


@pytest.mark.parametrize("live", [False, True])
def test_what_the_source_raises(s: Session, live: bool) -> None:
    def camera() -> Iterator[Any]:
        yield tiny_model.image(0)
        raise OSError("unplugged")

    found = []
    with pytest.raises(OSError, match="unplugged"):  # noqa: PT012
        for shot in s.stream(camera(), live=live):
            right(shot)
            found.append(shot.index)
    assert found == [0]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("how", ["close", "break", "forget", "session"])
def test_a_consumer_that_stops_early(bundle_path: Path, live: bool, how: str) -> None:
    closed = threading.Event()

    def camera() -> Iterator[Any]:
        try:
            for i in range(10**9):
                yield tiny_model.image(i)
        finally:
            closed.set()

    s = Session(bundle_path)
    shots: Stream | None = s.stream(camera(), live=live)
    assert shots is not None
    for shot in shots:
        right(shot)
        if shot.index >= 5:
            break
    if how == "close":
        shots.close()
    elif how == "break":
        with shots:
            pass
    elif how == "forget":
        shots = None
        gc.collect()
    else:
        s.close()
    assert closed.wait(LIMIT_S), "the source is closed"
    assert not threads()
    if shots is not None:
        assert list(shots) == []
    s.close()


def test_a_closed_stream_lets_go_of_the_model(bundle_path: Path) -> None:
    gc.disable()
    try:
        with (
            Session(bundle_path, tpu="c") as s,
            s.stream(tiny_model.image(i) for i in range(3)) as shots,
        ):
            program = weakref.ref(s._network().program)
            assert len(list(shots)) == 3
        del shots
        assert program() is None, "before any collection"
    finally:
        gc.enable()


def test_a_source_that_hangs_does_not_hold_up_closing(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "ENDING_S", 0.1)
    go_on = threading.Event()

    def camera() -> Iterator[Any]:
        yield tiny_model.image(0)
        go_on.wait(LIMIT_S)

    shots = s.stream(camera())
    next(shots)
    # On a busy machine others may be late, too.
    with pytest.warns(RuntimeWarning, match=r"capture.* did not end within 0.1 s"):
        shots.close()
    go_on.set()
    until(lambda: not threads(), "its threads end")


@pytest.mark.parametrize("left", range(4))
def test_ctrl_c_while_a_stream_begins(
    s: Session, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Not all of its threads run then."""
    start = threading.Thread.start
    count = iter(range(10))

    def interrupted(thread: threading.Thread) -> None:
        if next(count) == left:
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        s.stream(images(9))
    monkeypatch.undo()
    gc.collect()
    assert not threads()
    with s.stream(images(3)) as shots:
        assert len([*shots]) == 3


def test_ctrl_c(bundle_path: Path) -> None:
    code = (
        "import sys, itertools; from edgec_runtime import Session; "
        "from tests.runtime import tiny_model as t\n"
        "s = Session(sys.argv[1])\n"
        "for shot in s.stream(t.image(i) for i in itertools.count()):\n"
        "    if shot.index == 20: print('running', flush=True)\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(bundle_path)]
    process = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_signals
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=LIMIT_S)
    assert text.strip().endswith("KeyboardInterrupt"), text
    assert text.count("Traceback") == 1


def test_names_of_stages(s: Session) -> None:
    for name in ("relu", "capture", "out", "inputs"):
        with pytest.raises(InputError, match=f'two stages "{name}"'):
            s.stream([], after=[(name, lambda shot: shot.value)])
    s.close()
    with pytest.raises(InputError, match="closed"):
        s.stream([])


def test_two_streams_of_one_session_and_runs_beside_them(s: Session) -> None:
    with s.stream(images(60)) as a, s.stream(images(60)) as b:
        for one, other in zip(a, b, strict=True):
            right(one)
            right(other)
            image = tiny_model.image(7)
            np.testing.assert_array_equal(
                s.run({"image": image})["out"], tiny_model.reference(image)["out"]
            )


def test_a_forked_child_has_no_part_in_a_stream(s: Session) -> None:
    with s.stream(images(1000)) as shots:
        right(next(shots))

        def work() -> None:
            with pytest.raises(InputError, match="was forked"):
                next(shots)
            shots.close()
            with s.stream(images(9)) as mine:
                for shot in mine:
                    right(shot)

        assert forked(work) == 0
        right(next(shots))


# ---- the Edge TPU
# --------------------------------------------------------------------------------------


def test_the_stick_in_a_stream(bundle_path: Path, tmp_path: Path) -> None:
    fake = FakeStick(tmp_path / "stick")
    with session(bundle_path, fake) as s, s.stream(images(100)) as shots:
        kept = list(shots)
        for shot in kept:
            right(shot)
        assert shots.figures().stages[3].backends == {"delegate": 100}
        facts = shots.figures().edgetpu
        assert facts is not None
        assert (facts.up, facts.lost) == (True, 0)
        assert not any(name.startswith("edgec-") for name in open_files())
    assert len(fake.logged()) == 101


def open_files() -> list[str]:
    return [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_stream_goes_on_when_the_stick_does_not(
    bundle_path: Path, tmp_path: Path, fault: str
) -> None:
    """Until the stick was lost twice and is back, every frame is delivered, right and
    in order.
    """
    fake = FakeStick(tmp_path / "stick", {10: fault, 15: fault})
    end = time.monotonic() + LIMIT_S
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        with (
            session(bundle_path, fake) as s,
            s.stream(images(10**9)) as shots,
        ):
            for n, shot in enumerate(shots):
                assert shot.index == n
                right(shot)
                facts = shots.figures().edgetpu
                assert facts is not None
                if facts.back == 2 and fake.logged()[-1][2] == "ran":
                    break
                assert time.monotonic() < end
                time.sleep(0.002)
            figures = shots.figures()
    assert len(said) == 1
    assert figures.edgetpu is not None
    assert (figures.edgetpu.lost, figures.edgetpu.back, figures.dropped) == (2, 2, 0)
    assert figures.stages[3].backends["c"] >= 2


def test_the_same_interpreter_for_all(bundle_path: Path) -> None:
    make = lambda model, delegate: FakeInterpreter()  # noqa: E731
    with (
        Session(bundle_path, tpu="interpreter", interpreter=make) as s,
        s.stream(images(50)) as shots,
    ):
        for shot in shots:
            right(shot)
        assert shots.figures().stages[3].backends == {"interpreter": 50}


def test_what_a_stage_wrote_in_place_and_returns_is_not_copied(s: Session) -> None:
    seen: list[tuple[int, int]] = []

    def prepare(shot: Shot) -> Any:
        np.copyto(shot.inputs["image"], shot.value)
        return dict(shot.inputs)

    def look(shot: Shot) -> Any:
        assert shot.tensors is not None
        before = shot.tensors.arrays["image"].ctypes.data
        shot.tensors.put("image", shot.value["image"])
        seen.append((before, shot.tensors.arrays["image"].ctypes.data))
        return shot.value

    with s.stream(images(20), before=[("prepare", prepare), ("look", look)]) as shots:
        for shot in shots:
            right(shot)
    assert all(one == other for one, other in seen)
