"""A cascade from its file to its results: objects whose places are known."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import (
    Bundle,
    CameraFrame,
    CascadeResult,
    InputError,
    Session,
    Smoother,
)
from edgec_runtime.vision.crop import Crop, CropView
from edgec_runtime.vision.tasks.classification import Class, Classes
from numpy.typing import NDArray

from tests.cascade.objects import Thing, bundle, found, scene, seen

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.cc
EVERY = 10
NEAR = 0.1
"""Pixels of the network's input by which a disc's measured middle may be off."""


def moved(n: int) -> tuple[Thing, Thing]:
    """Two objects that move, turn and grow, far enough from each other."""
    first = Thing(45 + 0.4 * n, 50 + 0.2 * n, 0.08 * n, 20 + 0.05 * n)
    second = Thing(145 - 0.3 * n, 100, 2.0 - 0.05 * n, 24)
    return first, second


def off(points: NDArray[np.float32], thing: Thing) -> float:
    """Return how far points are from an object's, in pixels of the input."""
    # Its crop has three lengths for 64 pixels.
    distance = np.abs(points - thing.points).max()
    return float(distance * 64 / (3 * thing.length))


def by_place(result: CascadeResult, network: str) -> list[NDArray[np.float32]]:
    """Return the points of the objects from left to right."""
    return sorted(
        found(result, network).values(), key=lambda points: float(points[:, 0].mean())
    )


def test_objects_are_followed_where_they_go() -> None:
    with Session(bundle()) as session:
        for n in range(60):
            things = moved(n)
            result = seen(session, scene(*things))
            assert [one.identity for one in result.objects] == [1, 2]
            for network in ("discs", "mirror"):
                for points, thing in zip(
                    by_place(result, network), things, strict=True
                ):
                    assert off(points, thing) < NEAR, (n, network)
        runs = {stage.name: stage.runs for stage in session.figures()}
    assert runs == {"thing": 60 // EVERY, "discs": 120, "mirror": 120}


def test_reuse_changes_little() -> None:
    """Against a session that begins anew with each frame, by the sides of the box."""
    with Session(bundle()) as followed, Session(bundle()) as fresh:
        for n in range(40):
            frame = scene(*moved(n))
            fresh.reset()
            ones = by_place(seen(followed, frame), "discs")
            others = by_place(seen(fresh, frame), "discs")
            for points, other in zip(ones, others, strict=True):
                assert np.abs(points - other).max() < 0.005 * 3 * 20


def test_a_lost_object_is_found_again_with_its_number() -> None:
    with Session(bundle()) as session:
        for n in range(5):
            before = found(seen(session, scene(*moved(n))), "discs")
        left = min(before, key=lambda identity: before[identity][0, 0])
        for n in range(5, 9):
            result = seen(session, scene(moved(n)[0]))
            assert [one.identity for one in result.objects] == [left]
        after = found(seen(session, scene(*moved(9))), "discs")
        assert after.keys() == before.keys()
        assert left == min(after, key=lambda identity: after[identity][0, 0])


def test_a_new_object_is_found_within_so_many_frames() -> None:
    with Session(bundle()) as session:
        first, second = moved(0)
        seen(session, scene(first))
        counts = [
            len(seen(session, scene(first, second)).objects) for _ in range(EVERY)
        ]
    assert counts[0] == 1
    assert counts[-1] == 2


def test_nothing_is_found_where_there_is_nothing() -> None:
    with Session(bundle()) as session:
        result = seen(session, scene())
        assert result.objects == ()
        assert result.lines() == ["nothing"]
        assert result.to_json() == {"objects": []}


def test_threads_and_formats_change_no_bit() -> None:
    frame = scene(*moved(3))
    yuyv = np.random.default_rng(0).integers(0, 256, (144, 192, 2), np.uint8)
    with Session(bundle(), threads=2) as two, Session(bundle()) as one:
        for given in (frame, CameraFrame("yuyv", (yuyv,)), frame):
            assert seen(two, given).to_json() == seen(one, given).to_json()


def test_a_stream_has_the_results_of_runs() -> None:
    frames = [scene(*moved(n)) for n in range(25)]
    with Session(bundle()) as session:
        expected = [seen(session, frame).to_json() for frame in frames]
    with Session(bundle()) as session, session.stream(frames) as stream:
        shots = list(stream)
        figures = stream.figures()
    assert [shot.value.to_json() for shot in shots] == expected
    names = [stage.name for stage in figures.stages]
    assert names == ["capture", "cascade", "out", "thing", "discs", "mirror"]


def test_smoothed_objects_keep_their_numbers() -> None:
    smoother = Smoother()
    with Session(bundle()) as session:
        for n in range(6):
            raw = seen(session, scene(*moved(n)))
            made = smoother(raw, n / 30)
            assert isinstance(made, CascadeResult)
            smooth = made
            assert [one.identity for one in smooth.objects] == [1, 2]
        gap = np.subtract(found(raw, "discs")[1], found(smooth, "discs")[1])
        assert 0 < np.abs(gap).max() < 3


def test_a_picture_shows_every_object() -> None:
    frame = scene(*moved(0))
    with Session(bundle()) as session:
        picture = seen(session, frame).draw(frame)
    assert picture.shape == frame.shape
    for thing in moved(0):
        x, y = (int(n) for n in thing.points[0])
        assert (
            picture[y - 2 : y + 3, x - 2 : x + 3] != frame[y - 2 : y + 3, x - 2 : x + 3]
        ).any()


def test_depth_is_in_pixels_of_the_frame() -> None:
    """As wide as x: here a pixel of the input is two of the frame."""
    view = CropView.of_crop(Crop(90, 60, 128, 128, 0.5), (320, 240), (64, 64))
    assert view.depth_to_frame(np.array([1.0, 2.0])) == pytest.approx([2.0, 4.0])


@pytest.mark.slow
def test_a_long_film_costs_no_memory() -> None:
    """A sample of `make cascade-check`, in a process of its own: the memory of this one
    grows by other tests, too.
    """
    command = [sys.executable, "-m", "benchmarks.cascade_check", "--frames", "400"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_classes_are_written_beside_their_object() -> None:
    frame = scene(*moved(0))
    with Session(bundle()) as session:
        one = seen(session, frame).objects[0]
    classes = Classes((Class(0, "red", 0.9),))
    named = replace(one, results={**one.results, "kind": classes})
    plain = CascadeResult((one,)).draw(frame)
    picture = CascadeResult((named,)).draw(frame)
    changed = np.argwhere((picture != plain).any(axis=-1))
    points = found(CascadeResult((one,)), "discs")[one.identity]
    below = points[:, 1].max()
    assert len(changed)
    assert changed[:, 0].min() >= int(below)
    assert changed[:, 1].min() >= int(points[:, 0].min())


def test_what_is_no_frame_is_refused() -> None:
    session = Session(bundle())
    with session, pytest.raises(InputError, match="the frame has no pixels"):
        seen(session, np.zeros((0, 10, 3), np.uint8))
    with pytest.raises(InputError, match="closed"):
        seen(session, scene())


def test_it_may_be_closed_while_another_thread_runs_it() -> None:
    frame = scene(*moved(0))

    def work(session: Session, said: list[str]) -> None:
        try:
            while True:
                seen(session, frame)
        except InputError as e:
            said.append(e.what)

    for _ in range(10):
        said: list[str] = []
        session = Session(bundle(), threads=2)
        thread = threading.Thread(target=work, args=(session, said))
        thread.start()
        time.sleep(0.02)
        session.close()
        thread.join(30)
        assert said == ["this session is closed"]


def test_a_cascade_takes_frames_alone() -> None:
    with Session(bundle()) as session:
        assert session.inputs == ()
        for call in (
            lambda: session.run({"x": scene()}),
            lambda: session.time(),
            lambda: session.vision,
            lambda: session.backends,
            lambda: session.tensor("x"),
        ):
            with pytest.raises(
                InputError, match="is a cascade, and one network is needed"
            ) as e:
                call()
            assert e.value.hint == "give its `result` a frame"


@pytest.mark.parametrize("inputs", [(), ("--input", "photo.png")])
def test_a_cascade_is_not_timed_as_one_network(inputs: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "edgec_runtime", str(bundle()), *inputs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "one network is needed; it has thing, discs, mirror" in done.stderr
    assert ".result(frame)" in done.stderr


def test_one_network_has_results_of_frames_too(tmp_path: Path) -> None:
    with Bundle.open(bundle()) as opened:
        inner = tmp_path / "one.edgec"
        inner.write_bytes(opened.read("networks/discs.edgec"))
    frame = scene(*moved(0))
    with Session(inner) as session:
        outputs = session.run(session.vision.prepare(frame))
        expected = session.vision.result(outputs, (frame.shape[1], frame.shape[0]))
        assert session.result(frame).to_json() == expected.to_json()
        before = session.before
        with session.stream([frame, frame], before=before) as stream:
            results = [session.result_of(shot).to_json() for shot in stream]
        assert results == [expected.to_json()] * 2
        (figures,) = session.figures()
    assert (figures.name, figures.runs) == ("points", 1)
    assert figures.backends == {"c": 1}
    with pytest.raises(InputError, match="closed"):
        session.result(frame)


def test_the_earlier_name_says_what_to_use() -> None:
    with pytest.raises(ImportError, match="use Session"):
        from edgec_runtime import CascadeSession  # noqa: F401


FORKED = """
import os, sys
from edgec_runtime import Session
from tests.cascade.objects import Thing, scene, seen
with Session(sys.argv[1], threads=2) as session:
    expected = seen(session, scene(Thing(60, 60))).to_json()
    child = os.fork()
    if child == 0:
        session.reset()
        os._exit(seen(session, scene(Thing(60, 60))).to_json()["objects"] == [])
    session.reset()
    assert len(seen(session, scene(Thing(60, 60))).objects) == 1
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_has_threads_of_its_own() -> None:
    command = [sys.executable, "-c", FORKED, str(bundle())]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=env, timeout=60).returncode == 0
