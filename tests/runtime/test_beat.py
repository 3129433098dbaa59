"""Cores are woken while more stages compute than there are cores, and at no other time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from edgec_runtime import Session, Shot
from edgec_runtime.beat import LOOK, Beat

from tests.runtime import tiny_model


def beats() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "edgec-beat"]


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the stream sees it."""
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {core})
    yield
    assert not beats()


def looked(*stages: tuple[float, float]) -> Beat:
    """stages: ms, and those of them on a core."""
    beat = Beat([SimpleNamespace(mean=mean, cpu=cpu) for mean, cpu in stages])  # type: ignore[misc]
    for _ in range(LOOK):
        beat.look()
    return beat


@pytest.mark.parametrize(
    ("stages", "on"),
    [
        ([(20.0, 20.0)], False),
        ([(20.0, 12.0), (20.0, 12.0)], True),
        ([(20.0, 5.0), (20.0, 5.0), (20.0, 5.0)], True),
        ([(20.0, 20.0), (20.0, 0.1)], False),
        ([(20.0, 20.0), (0.0, 0.0)], False),
        ([(20.0, 20.0), (3.0, 3.0), (2.0, 2.0)], False),
    ],
)
def test_only_where_more_compute_than_there_are_cores(
    stages: list[tuple[float, float]], on: bool
) -> None:
    beat = looked(*stages)
    assert len(beats()) == on
    beat.stop()
    assert not beats()


def test_it_ends_when_they_wait_again_and_begins_no_more_once_stopped() -> None:
    stages = [SimpleNamespace(mean=20.0, cpu=20.0) for _ in range(2)]
    beat = Beat(stages)  # type: ignore[arg-type]
    for cpu, n in ((20.0, 1), (0.0, 0), (20.0, 1)):
        stages[1].cpu = cpu
        for _ in range(LOOK):
            beat.look()
        assert len(beats()) == n
    beat.stop()
    for _ in range(LOOK):
        beat.look()
    assert not beats()


def test_a_core_that_went_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {100_000})
    looked((20.0, 20.0), (20.0, 20.0)).stop()


@pytest.mark.cc
@pytest.mark.parametrize("computes", [True, False])
def test_a_stream_measures_what_computes(
    bundle_path: os.PathLike[str], computes: bool
) -> None:
    def stage(shot: Shot) -> object:
        end = time.thread_time() + 0.004
        while computes and time.thread_time() < end:
            pass
        time.sleep(0 if computes else 0.004)
        return shot.value

    frames = (tiny_model.image(i) for i in range(3 * LOOK))
    with (
        Session(bundle_path) as session,
        session.stream(frames, before=[("a", stage), ("b", stage)]) as shots,
    ):
        seen = [bool(beats()) for _ in shots]
    assert any(seen) == computes
