"""A stick that is pulled out and put in again while pictures come: in a session, a webcam,
a program and a service no picture is lost, every output is the C twin's, and the stick is
used again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import requests
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.descriptors import BOOT
from edgec_devices.stick.faults import PHASES, Fault, What
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import add_compiled
from edgec_runtime import Session
from edgec_runtime.serve.http_service import PATH, predictions
from edgec_runtime.stick import firmware
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import Show, ShownFrame
from edgec_runtime.webcam.sources import Source
from onnx import TensorProto, helper, numpy_helper, save

import edgec
from fixtures.shapes.pictures import scenes
from tests import builds
from tests.conftest import ROOT
from tests.serve.test_http import png
from tests.stick import driving
from tests.stick.driving import Array
from tests.stick.plugged import Plugged, environment, plugged
from tests.stick.test_driver import FIRMWARE_FROM
from tests.toolchain.stand_in_edgetpu_compiler import StandInEdgetpuCompiler

FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
TASK = "shapes.edgec-task.json"
HEIGHT, WIDTH = 96, 128
PICTURES = 16
"""Different pictures."""
BACK_S = 120.0
"""Longest time until the stick is used again."""
PAUSE_S = 0.005
"""Between pictures of the webcam."""
LONGEST = 20000
"""Most pictures of a storm."""
PROGRAM_S = 4.0, 8.0, 16.0
"""Seconds in which a program runs, by the number of faults: it looks for the stick 2, 4 and
8 s after an opening that failed, the first time perhaps before it has seen the stick.
"""
ABSENCES_S = 0.01, 0.05, 0.3
LOST = sorted(PHASES[What.UNPLUG], key=lambda phase: phase.value)


@dataclass(frozen=True)
class Bundle:
    """A bundle of edgec, and the programs that its stick knows.

    Attributes:
        path: the bundle
        book: the programs
    """

    path: Path
    book: ProgramBook


def bundle(board: str = "host", task: str = "image") -> Bundle:
    """A convolution from picture to picture, compiled by the stand-in compiler."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        weights = rng.normal(0, 0.2, (3, 3, 3, 3)).astype(np.float32)
        shape = 1, 3, HEIGHT, WIDTH
        x, y = (
            helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"
        )
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")]
        )
        opsets = [helper.make_opsetid("", 17)]
        save(helper.make_model(graph, opset_imports=opsets), folder / "m.onnx")
        np.savez(folder / "c.npz", x=rng.random((8, *shape[1:])).astype(np.float32))
        compiled(folder, board, task, "0_1")

    return known_bundle(builds.once(f"bundle of storms {board} {task}", make))


def detector() -> Bundle:
    """The detector of shapes, compiled by the stand-in compiler."""

    def make(folder: Path) -> None:
        for name, to in (("shapes.onnx", "m.onnx"), (TASK, "m.edgec-task.json")):
            shutil.copy(ROOT / "fixtures" / "shapes" / name, folder / to)
        given = np.stack([scene.picture for scene in scenes(8, seed=6)])
        given = (given.transpose(0, 3, 1, 2) / 255).astype(np.float32)
        np.savez(folder / "c.npz", input=given)
        compiled(folder, "host")

    return known_bundle(builds.once("detector of storms", make))


def compiled(
    folder: Path, board: str, task: str | None = None, preprocess: str | None = None
) -> None:
    """Compile m.onnx of a folder, with the calibration c.npz, and unpack its segments."""
    compiler = StandInEdgetpuCompiler(folder / "compiler")
    edgec.compile(
        folder / "m.onnx",
        f"{board}+coral",
        folder / "m.edgec",
        calibrate=folder / "c.npz",
        edgetpu="all",
        quantize="fast",
        task=task,
        preprocess=preprocess,
        edgetpu_compiler=str(compiler.program),
        cc="cc" if board == "host" else None,
    )
    with zipfile.ZipFile(folder / "m.edgec") as archive:
        archive.extractall(folder)


def known_bundle(folder: Path) -> Bundle:
    """The bundle of a folder, with the programs of its segments."""
    book = ProgramBook()
    segments = sorted(folder.glob("segments/*_edgetpu.tflite"))
    assert segments
    for path in segments:
        add_compiled(book, path, path.with_name(path.name.replace("_edgetpu", "")))
    return Bundle(folder / "m.edgec", book)


def pictures(seed: int, count: int) -> Array:
    """Any pictures: uint8 [count, height, width, 3]."""
    shape = count, HEIGHT, WIDTH, 3
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@dataclass(frozen=True)
class Storm:
    """A stick that is unplugged at any time, and up to twice more at any phase after that.

    Attributes:
        after_s: seconds until the first time
        absence_s: seconds that it then takes
        faults: the other times
    """

    after_s: float
    absence_s: float
    faults: list[Fault]

    @classmethod
    def drawn(cls, seed: int) -> Storm:
        """Any one; the same for the same seed."""
        r = random.Random(seed)
        faults = [
            Fault(What.UNPLUG, r.choice(LOST), r.randrange(1, 9), r.choice(ABSENCES_S))
            for _ in range(r.randrange(3))
        ]
        return cls(r.random() * 0.05, r.choice(ABSENCES_S), faults)

    def happen(self, stick: Stick) -> None:
        """Let it come over a stick."""
        time.sleep(self.after_s)
        stick.plan(self.faults)
        stick.unplug(self.absence_s)


@contextmanager
def used(folder: Path, made: Bundle) -> Iterator[tuple[Stick, Plugged]]:
    """A stick that knows the bundle, and a process that has it."""
    with (
        Stick.serve(made.book, StickOptions(firmware=True)) as stick,
        plugged(stick, folder, **FIRMWARE) as process,
    ):
        yield stick, process


def losses(stick: Stick) -> int:
    """How often it was at the boot loader after the start: it lost its supply."""
    return sum(
        line == f"appears as {BOOT[0]:04x}:{BOOT[1]:04x}" for line in stick.lines
    )


# ---- a session
# --------------------------------------------------------------------------------------


def twin_outputs(made: Bundle, inputs: list[Array]) -> list[Array]:
    """The outputs of inferences without a stick."""
    driving.open_session(made.path, {"tpu": "c"})
    outputs = [driving.run_session([x])[0][0].copy() for x in inputs]
    driving.close_session()
    return outputs


def session_storms(
    process: Plugged, stick: Stick, made: Bundle, seeds: range
) -> tuple[int, int]:
    """Storms over a session; AssertionError if something does not hold.

    Returns:
        the numbers of inferences and of unpluggings
    """
    inputs = [
        (p[None].transpose(0, 3, 1, 2) / 255).astype(np.float32)
        for p in pictures(0, PICTURES)
    ]
    expected = twin_outputs(made, inputs)
    process.call(driving.open_session, made.path, {"driver": "own"})
    count = 0
    for seed in seeds:
        storms = threading.Thread(target=Storm.drawn(seed).happen, args=(stick,))
        before = losses(stick)
        storms.start()
        end = time.monotonic() + BACK_S
        row = 0
        while row < 10 or losses(stick) == before:
            assert time.monotonic() < end, (seed, stick.lines[-10:])
            i = count % PICTURES
            (output,), backend = process.call(driving.run_session, [inputs[i]])
            np.testing.assert_array_equal(output, expected[i], err_msg=f"seed {seed}")
            row = row + 1 if backend == "delegate" else 0
            count += 1
        storms.join()
    process.call(driving.close_session)
    return count, losses(stick)


# ---- a webcam
# --------------------------------------------------------------------------------------


def shown(made: Path, count: int, stop: Path, tpu: str) -> list[bytes]:
    """The hashes of the pictures that a webcam shows, one for each of its source.

    count: how many pictures come at most. stop: no more come when this file is there
    """
    given = pictures(0, PICTURES)
    hashes: list[bytes] = []
    numbers = itertools.count()

    def frames(_: Source) -> Iterator[CameraFrame]:
        for i in range(count):
            if stop.exists():
                return
            time.sleep(PAUSE_S)
            next(numbers)
            yield CameraFrame.of(given[i % PICTURES])

    def seen(picture: ShownFrame) -> None:
        assert picture.number == len(hashes) + 1
        hashes.append(hashlib.sha256(picture.after.tobytes()).digest())

    source = Source("pictures", False, 1 / PAUSE_S, frames)
    play(Show(source, {"m": str(made)}, smooth=False, tpu=tpu), None, None, print, seen)
    assert len(hashes) == next(numbers)
    return hashes


def inputs_of(stick: Stick) -> int:
    """How many inputs the stick has got."""
    return sum(line.startswith("packet input") for line in stick.lines)


def webcam_storms(
    process: Plugged, stick: Stick, made: Bundle, seeds: range, stop: Path
) -> tuple[int, int]:
    """Storms over a webcam; AssertionError if something does not hold.

    stop: a file that is not there yet

    Returns:
        the numbers of pictures and of unpluggings
    """
    expected = shown(made.path, PICTURES, stop, "c")
    with ThreadPoolExecutor(1) as worker:
        job = worker.submit(
            process.call, shown, made.path, len(seeds) * LONGEST, stop, "auto"
        )
        try:
            for seed in seeds:
                again(stick, job)
                Storm.drawn(seed).happen(stick)
            again(stick, job)
        finally:
            stop.touch()
        hashes = job.result(BACK_S)
    assert len(set(expected)) == PICTURES
    for i, one in enumerate(hashes):
        assert one == expected[i % PICTURES], i
    return len(hashes), losses(stick)


def again(stick: Stick, job: Future[Any]) -> None:
    """Wait until the stick is used: ten more inputs come."""
    before = inputs_of(stick)
    end = time.monotonic() + BACK_S
    while inputs_of(stick) < before + 10:
        assert not job.done(), job.exception()
        assert time.monotonic() < end, stick.lines[-10:]
        time.sleep(0.01)


# ---- a program
# --------------------------------------------------------------------------------------


def program_storms(
    program: Path, made: Bundle, seeds: range, folder: Path
) -> tuple[int, int]:
    """Storms over the C program of a bundle; AssertionError if something does not hold.

    Each launch has a stick of its own and makes inferences for some seconds; its last
    output is compared, of an inference on the stick, which has come back. The drivers of
    programs give every output in schedules.py.

    Returns:
        the numbers of inferences and of unpluggings
    """
    x = (pictures(0, 1).transpose(0, 3, 1, 2) / 255).astype(np.float32)
    np.save(folder / "in.npy", x)
    command = [str(program), "--json", "--input", str(folder / "in.npy")]
    twin = {"EDGEC_EDGETPU_DRIVER": "none"}
    subprocess.run([*command, "--output", str(folder / "c")], env=twin, check=True)
    count, lost = 0, 0
    for seed in seeds:
        storm = Storm.drawn(seed)
        options = ["--runs", "262144", "--seconds", str(PROGRAM_S[len(storm.faults)])]
        place = folder / str(seed)
        place.mkdir()
        with (
            Stick.serve(made.book, StickOptions(firmware=True)) as stick,
            environment(stick, place, **FIRMWARE) as variables,
        ):
            storms = threading.Thread(target=storm.happen, args=(stick,))
            storms.start()
            done = subprocess.run(
                [*command, *options, "--output", str(folder / "out")],
                env=variables,
                capture_output=True,
                text=True,
                timeout=2 * BACK_S,
            )
            storms.join()
            lines = stick.lines
        assert done.returncode == 0, (seed, done.stderr)
        count += len(json.loads(done.stdout)["total"])
        lost += losses(stick)
        outputs = [np.load(folder / n / "output0.npy") for n in ("out", "c")]
        np.testing.assert_array_equal(outputs[0], outputs[1], err_msg=f"seed {seed}")
        last = max(i for i, line in enumerate(lines) if line.startswith("appears"))
        back = any(line.startswith("packet input") for line in lines[last:])
        assert back, (seed, lines[last:], done.stderr)
        print(f"storm {seed}, {count} inferences, {lost} times unplugged", flush=True)
    return count, lost


# ---- a service
# --------------------------------------------------------------------------------------


def predictions_of_the_twin(made: Bundle, given: list[Array]) -> list[Any]:
    """DeepStack's list of objects for each picture, by a session without a stick."""
    found = []
    with Session(made.path, tpu="c") as session:
        for picture in given:
            result = session.result(picture)
            assert isinstance(result, Boxes)
            found.append(predictions(result.boxes, 0))
    return found


@contextmanager
def served(made: Bundle, variables: dict[str, str]) -> Iterator[str]:
    """The service of a bundle in a process of its own; its address, for DeepStack."""
    words = ["-m", "edgec_runtime.serve", str(made.path), "--deepstack", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, *words],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1].rstrip(";")
        assert address.endswith(PATH)
        yield address
        process.terminate()
        assert process.wait(BACK_S) == 0
    finally:
        process.kill()
        process.wait()


def service_storms(
    address: str, stick: Stick, made: Bundle, seeds: range
) -> tuple[int, int]:
    """Storms over a service; AssertionError if something does not hold.

    Returns:
        the numbers of pictures and of unpluggings
    """
    given = [scene.picture for scene in scenes(PICTURES, seed=5)]
    expected = predictions_of_the_twin(made, given)
    assert sum(map(len, expected)) >= PICTURES
    files = [png(picture) for picture in given]
    count = 0
    for seed in seeds:
        storms = threading.Thread(target=Storm.drawn(seed).happen, args=(stick,))
        lost = losses(stick)
        storms.start()
        end = time.monotonic() + BACK_S
        used = False
        while not used:
            assert time.monotonic() < end, (seed, stick.lines[-10:])
            before, over = inputs_of(stick), not storms.is_alive()
            for file, right in zip(files, expected, strict=True):
                answer = requests.post(address, files={"image": file}, timeout=BACK_S)
                assert answer.json()["predictions"] == right, (seed, answer.text)
                count += 1
            used = over and losses(stick) > lost and inputs_of(stick) >= before + 10
        print(
            f"storm {seed}, {count} pictures, {losses(stick)} times unplugged",
            flush=True,
        )
    return count, losses(stick)
