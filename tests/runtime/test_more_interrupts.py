"""A KeyboardInterrupt at any moment of further public calls: the next call works."""

from __future__ import annotations

import itertools
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from edgec_runtime import Session
from edgec_runtime.cascade.result import CascadeResult
from edgec_runtime.serve.detector import Detector
from edgec_runtime.vision.tasks.instances import Box
from edgec_runtime.webcam.show import Playback, Show
from edgec_runtime.webcam.sources import open_source
from PIL import Image

import edgec
from tests.cascade.objects import Thing, scene
from tests.cascade.objects import bundle as cascade_bundle
from tests.runtime import tiny_model
from tests.runtime.test_interrupts import HANGS_S, counts, interrupt, left, right
from tests.shapes import bundle as shapes_bundle
from tests.waiting import until

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"


@counts(2000)
def test_a_measurement_and_a_reset(bundle_path: Path, times: int) -> None:
    with Session(bundle_path, tpu="c") as s:

        def measure() -> None:
            s.reset()
            assert len(s.time(runs=2).total) == 3
            right(s.run({"image": tiny_model.image(7)}), 7)

        interrupt(measure, measure, times, 5e-3)


@counts(1000)
def test_the_frames_of_a_cascade_that_follows_objects(times: int) -> None:
    """Objects keep their numbers, which no interrupted frame makes double."""
    frames = itertools.cycle(scene(Thing(60 + i, 60), Thing(130, 80)) for i in range(9))
    with Session(cascade_bundle()) as s, s.stream(frames) as shots:

        def take() -> None:
            result = s.result_of(next(shots))
            assert isinstance(result, CascadeResult)
            numbers = [one.identity for one in result.objects]
            assert len(numbers) == len({*numbers}) == 2

        interrupt(take, take, times, 2e-2)
    until(lambda: not left(), "threads of a stream are left")


@counts(1000)
def test_a_detector_that_is_served(times: int) -> None:
    """Its thread goes on. A Future's own lock is not safe from interrupts: a queue is."""
    picture = np.zeros((96, 96, 3), np.uint8)
    boxes: SimpleQueue[tuple[Box, ...]] = SimpleQueue()
    with Session(shapes_bundle()) as s, Detector(s, places=4) as detector:
        detector.watchers.append(boxes.put)

        def detect() -> None:
            detector.submit(picture)
            assert boxes.get(timeout=HANGS_S) == ()

        interrupt(detect, detect, times, 5e-3)
        until(lambda: detector.waiting == 0, "all are detected")


@counts(200)
def test_a_show(tmp_path: Path, times: int) -> None:
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")

    def watch() -> None:
        source = open_source(str(tmp_path))
        show = Show(source, {"shapes": str(shapes_bundle())}, playback=Playback())
        try:
            assert len(list(show)) == 1
        finally:
            show.stop()

    interrupt(watch, watch, times, 5e-2)
    until(lambda: not left(), "threads of a show are left")


@pytest.mark.slow
@pytest.mark.cc
def test_a_compile(tmp_path: Path) -> None:
    """A bundle is there whole, and nothing beside it."""
    output = tmp_path / "out" / "digits.edgec"
    output.parent.mkdir()

    def compile_digits() -> None:
        edgec.compile(DIGITS, "host", output=output)

    def check() -> None:
        assert {*output.parent.iterdir()} <= {output}
        if output.exists():
            Session(output).close()

    interrupt(compile_digits, check, 20, 3.0)
    compile_digits()
    check()


@counts(200)
def test_an_explanation(times: int) -> None:
    def explain() -> None:
        assert edgec.explain(DIGITS, "pi4").report

    interrupt(explain, explain, times // 10, 0.2)
