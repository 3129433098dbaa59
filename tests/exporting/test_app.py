"""The program for cameras, built for this machine: it finds in raw frames what `edgec run`
finds in the same picture, and its page answers whatever it is asked.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, Session, write_bundle
from edgec_runtime.model.inputs import prepared
from edgec_runtime.vision.camera import CameraFrame
from numpy.typing import NDArray
from PIL import Image

import edgec
from edgec.errors import InputError
from tests import builds
from tests.cli.verbs import edgec as verb
from tests.conftest import ROOT
from tests.exporting.detectors import detector
from tests.interpreters import networks
from tests.shapes import bundle as shapes_bundle

FIXTURES = ROOT / "fixtures"
Picture = NDArray[np.uint8]
PATIENCE = 60.0
"""Seconds, on a busy machine."""
RSS_MB = 30
"""The most memory of the program for the fixture network."""

pytestmark = [
    pytest.mark.cc,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("make") and shutil.which("gcc")),
        reason="no make or gcc: apt-get install make gcc",
    ),
]


@dataclass(frozen=True)
class Frame:
    """A raw frame: its bytes, as --format names it, and the picture that it shows."""

    data: bytes
    format: str
    picture: Picture


def photo(width: int, height: int) -> Picture:
    with Image.open(FIXTURES / "photos" / "chelsea.jpg") as image:
        small = image.convert("RGB").resize((width, height))
    return np.asarray(small, np.uint8).copy()


def planes(picture: Picture) -> list[Picture]:
    """Y [H, W], U and V [H, W] of a picture, by BT.601."""
    red, green, blue = (picture[..., i].astype(float) for i in range(3))
    y = 16 + (65.738 * red + 129.057 * green + 25.064 * blue) / 256
    u = 128 + (-37.945 * red - 74.494 * green + 112.439 * blue) / 256
    v = 128 + (112.439 * red - 94.154 * green - 18.285 * blue) / 256
    return [np.clip(np.rint(plane), 0, 255).astype(np.uint8) for plane in (y, u, v)]


def frame_of(picture: Picture, fourcc: str = "YUYV") -> Frame:
    """The frame of a picture with even sides, uint8 [H, W, 3]."""
    y, u, v = planes(picture)
    shared = np.where(np.arange(y.shape[1]) % 2 == 0, u, np.roll(v, 1, 1))
    shown = {
        "YUYV": CameraFrame("yuyv", (np.stack([y, shared], -1),)),
        "NV12": CameraFrame("nv12", (y, shared[::2])),
        "YU12": CameraFrame("nv12", (y, shared[::2])),
        "RGB3": CameraFrame("rgb", (picture,)),
        "BGR3": CameraFrame("bgr", (np.ascontiguousarray(picture[..., ::-1]),)),
        "GREY": CameraFrame("gray", (y,)),
    }[fourcc]
    data = b"".join(plane.tobytes() for plane in shown.planes)
    if fourcc == "YU12":
        pairs = shown.planes[1].reshape(len(y) // 2, -1, 2)
        data = b"".join(p.tobytes() for p in (y, pairs[..., 0], pairs[..., 1]))
    height, width = y.shape
    return Frame(data, f"{width}x{height}:{fourcc}", shown.rgb())


def call(folder: Path, *command: str, data: bytes = b"") -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, input=data)
    err = done.stderr.decode()
    assert done.returncode == 0, err[-3000:]
    assert "warning" not in err, err
    return done.stdout.decode()


class App:
    """An exported program.

    folder: has the bundle, as net.edgec, and the program's folder, app
    """

    def __init__(self, folder: Path) -> None:
        self.bundle = folder / "net.edgec"
        self.folder = folder / "app"
        self.program = self.folder / "app"

    def build(self) -> None:
        edgec.export(self.bundle, app=self.folder)
        call(self.folder, "make", f"CC={shutil.which('gcc')}")

    def lines(self, frame: Frame, *words: str, frames: int = 1) -> list[dict[str, Any]]:
        """The lines for a frame that is given so many times."""
        options = ["--frames", "-", "--format", frame.format, *words]
        data = frame.data * frames
        text = call(self.folder, str(self.program), *options, data=data)
        return [json.loads(line) for line in text.splitlines()]

    def fails(self, *words: str) -> tuple[int, str]:
        """The exit code and the message of a call."""
        command = [str(self.program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert not done.stdout
        assert re.fullmatch(r"error: .*\n  hint: .*\n", done.stderr), done.stderr
        return done.returncode, done.stderr

    def check(self, frame: Frame, folder: Path) -> None:
        """It says of a frame what `edgec run` says of its picture."""
        path = folder / "frame.png"
        Image.fromarray(frame.picture).save(path)
        done = verb("run", self.bundle, "--input", path, "--json", cwd=folder)
        assert done.code == 0, done.err
        (line,) = self.lines(frame)
        assert line.pop("frame") == 1
        assert line.pop("ms") > 0
        check_same(line, json.loads(done.out))


def check_same(line: dict[str, Any], result: dict[str, Any]) -> None:
    """The same but for a last digit, which Python rounds from wider numbers."""
    assert line.keys() == result.keys()
    ((rows, expected),) = ((line[key], result[key]) for key in line)
    assert len(rows) == len(expected) > 0
    for row, other in zip(rows, expected, strict=True):
        assert row.keys() == other.keys()
        assert (row["label"], row["class"]) == (other["label"], other["class"])
        assert row["score"] == pytest.approx(other["score"], abs=1.01e-4)
        assert row.get("box") == pytest.approx(other.get("box"), abs=0.0101)


def _shapes(to: Path) -> None:
    shutil.copy(shapes_bundle(), to / "net.edgec")
    App(to).build()


def shapes() -> App:
    return App(builds.once("app shapes", _shapes))


def app_of(name: str, model: Path, **options: Any) -> App:
    """The program of a model, built once a run."""

    def make(to: Path) -> None:
        edgec.compile(model, "host", to / "net.edgec", **options)
        App(to).build()

    return App(builds.once(f"app {name}", make))


# ---- what it finds


@pytest.mark.parametrize("fourcc", ["YUYV", "NV12", "YU12", "RGB3", "BGR3", "GREY"])
def test_it_finds_what_run_finds(fourcc: str, tmp_path: Path) -> None:
    shapes().check(frame_of(photo(452, 300), fourcc), tmp_path)


FITS = [
    {},
    {"resize": "crop", "crop": 0.875, "filter": "bicubic"},
    {"resize": "letterbox", "filter": "area"},
    {"resize": "letterbox", "position": "topleft", "filter": "nearest"},
]


@pytest.mark.parametrize("fit", FITS)
def test_a_network_without_a_task_gives_figures_of_its_outputs(
    fit: dict[str, Any], tmp_path: Path
) -> None:
    """For each way to prepare frames: those of the outputs for the input that Python has
    prepared in that way.

    Only network.h is another one: the rest of the program stays as it is built.
    """
    built = shapes()
    fields, files = parts(built)
    del fields["task"]
    fields["preprocess"]["input"].update(fit)
    write_bundle(tmp_path / "net.edgec", fields, files)
    app = App(tmp_path)
    edgec.export(app.bundle, app=tmp_path / "other")
    shutil.copytree(built.folder, app.folder)
    shutil.copy(tmp_path / "other" / "network.h", app.folder)
    call(app.folder, "make", f"CC={shutil.which('gcc')}")
    with Bundle.open(app.bundle) as bundle, Session(built.bundle) as session:
        for size in ((320, 240), (90, 300)):
            frame = frame_of(photo(*size))
            outputs = session.run(
                {"input": prepared(bundle.manifest, "input", frame.picture)}
            )
            check_figures(app.lines(frame)[0]["outputs"], outputs)


def check_figures(
    rows: Sequence[dict[str, Any]], outputs: Mapping[str, NDArray[Any]]
) -> None:
    assert [row["name"] for row in rows] == list(outputs)
    for row, values in zip(rows, outputs.values(), strict=True):
        assert row["shape"] == list(values.shape)
        figures = [row["min"], row["max"], row["mean"]]
        expected = [values.min(), values.max(), values.mean()]
        assert figures == pytest.approx(expected, rel=1e-4, abs=1e-5)


def parts(app: App) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files of a bundle, for a changed one."""
    with Bundle.open(app.bundle) as bundle:
        return bundle.manifest_fields(), {n: bundle.read(n) for n in bundle.names}


def _yolo(folder: Path) -> App:
    """In a letterbox; its task is in its file."""
    return app_of("yolo", detector(folder / "yolo.onnx"))


def _ssd(folder: Path) -> App:
    """A network that picks its boxes."""
    model, task = folder / "heads.tflite", folder / "task.json"
    model.write_bytes(networks.tflite("heads"))
    task.write_text(json.dumps({"format": "tflite-ssd", "threshold": 0.1}))
    return app_of("ssd", model, task=str(task))


def _digits(folder: Path) -> App:
    """An int8 classifier of grey pictures."""
    digits = FIXTURES / "digits"
    return app_of(
        "digits",
        digits / "digits.onnx",
        calibrate=digits / "digits_calibration.npz",
        task="classification",
        quantize="fast",
    )


@pytest.mark.sweep(1)
@pytest.mark.parametrize("make", [_yolo, _ssd, _digits])
def test_other_networks(make: Callable[[Path], App], tmp_path: Path) -> None:
    make(tmp_path).check(frame_of(photo(128, 96)), tmp_path)


# ---- how it runs


def test_it_is_small_static_and_soon_ready(record_property: Any) -> None:
    app, frame = shapes(), frame_of(photo(640, 480))
    assert b"/lib" not in app.program.read_bytes()[:4096], "no interpreter is named"
    with running(app, frame, "--page", "127.0.0.1:0") as run:
        picture = run.get("picture.jpg")
        assert picture
        status = Path(f"/proc/{run.process.pid}/status").read_text()
    (kib,) = map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))
    (first_ms,) = map(float, re.findall(r"first result after (\d+) ms", run.err))
    record_property("figures", f"VmHWM {kib} kB, first result after {first_ms} ms")
    print(f"VmHWM {kib} kB, first result after {first_ms} ms")
    assert kib < RSS_MB * 1024


def test_frames_of_a_file_one_after_the_other(tmp_path: Path) -> None:
    app, frame = shapes(), frame_of(photo(96, 96))
    lines = app.lines(frame, "--threads", "1", frames=5)
    assert [line.pop("frame") for line in lines] == [1, 2, 3, 4, 5]
    assert len({json.dumps(line["boxes"]) for line in lines}) == 1
    (tmp_path / "raw").write_bytes(frame.data * 5)
    words = ["--frames", str(tmp_path / "raw"), "--format", frame.format]
    text = call(tmp_path, str(app.program), *words, "--count", "2")
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully(end: signal.Signals) -> None:
    with running(shapes(), frame_of(photo(96, 96)), "--page", "127.0.0.1:0") as run:
        run.get("result")
        run.process.send_signal(end)
        assert run.process.wait(PATIENCE) == 0
    assert "left out" in run.err


def test_it_ends_where_nobody_reads_its_lines(tmp_path: Path) -> None:
    app, frame = shapes(), frame_of(photo(96, 96))
    (tmp_path / "raw").write_bytes(frame.data * 2000)
    words = f"--frames raw --format {frame.format}"
    text = call(tmp_path, "sh", "-c", f"{app.program} {words} | head -1")
    assert json.loads(text)["frame"] == 1


MISTAKES = {
    "--nonsense": (2, "not an option"),
    "--count 0": (2, "number from 1"),
    "--format 640": (2, "not a size"),
    "--format 640x480:MJPG": (2, "not a size"),
    "--format 9999x480:YUYV": (2, "1 to 8192"),
    "--frames raw": (2, "without a --format"),
    "--frames raw --format 641x480:YUYV": (2, "share colours"),
    "--frames /nowhere --format 640x480:YUYV": (2, "cannot read"),
    "--frames / --format 640x480:YUYV": (2, "cannot read"),
    "--page 127.0.0.1": (2, "not an address"),
    "--page 0.0.0.0:8080": (2, "anybody in the network"),
    "--any-address": (2, "about a --page"),
    "--camera /dev/null": (2, "not a camera"),
    "--camera /dev/nowhere": (1, "cannot open"),
    "--threads 9": (2, "number from 1 to 2"),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_message(words: str) -> None:
    code, what = MISTAKES[words]
    found, message = shapes().fails(*words.split())
    assert found == code
    assert what in message


def test_a_file_that_ends_within_a_frame_says_so(tmp_path: Path) -> None:
    frame = frame_of(photo(96, 96))
    (tmp_path / "raw").write_bytes(frame.data[:-1])
    words = ["--frames", str(tmp_path / "raw"), "--format", frame.format]
    code, message = shapes().fails(*words)
    assert code == 2
    assert "ends within a frame" in message


# ---- its page


class Run:
    """A program that is given a frame again and again; `err` is there when it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], frame: Frame) -> None:
        self.process = process
        self.err = ""
        assert process.stderr is not None
        (self.port,) = re.findall(
            rb"http://127.0.0.1:(\d+)/", process.stderr.readline()
        )
        self._feeder = threading.Thread(target=self._feed, args=(frame.data,))
        self._feeder.start()

    def _feed(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            while self.process.poll() is None:
                self.process.stdin.write(data)
                self.process.stdin.flush()
                time.sleep(0.01)
        except OSError:  # it has ended
            pass

    def get(self, path: str, **headers: str) -> bytes:
        address = f"http://127.0.0.1:{int(self.port)}/{path}"
        request = urllib.request.Request(address, headers=headers)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    body: bytes = answer.read()
                    return body
            except urllib.error.HTTPError as e:
                # There may be no result yet.
                if e.code != 503 or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def raw(self, data: bytes) -> bytes:
        """What is answered to these bytes, after which nothing comes."""
        with socket.create_connection(("127.0.0.1", int(self.port)), PATIENCE) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                answer = b""
                while part := s.recv(65536):
                    answer += part
                return answer
            except OSError:  # it was closed
                return b""

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        self._feeder.join(PATIENCE)
        assert self.process.stderr is not None
        self.err = self.process.stderr.read().decode()


@contextmanager
def running(app: App, frame: Frame, *words: str) -> Iterator[Run]:
    command = [str(app.program), "--frames", "-", "--format", frame.format, *words]
    pipe = subprocess.PIPE
    with open(os.devnull, "wb") as lines:
        process = subprocess.Popen(command, stdin=pipe, stdout=lines, stderr=pipe)
    try:
        run = Run(process, frame)
        yield run
        run.end()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def test_the_page_shows_result_and_picture() -> None:
    app, frame = shapes(), frame_of(photo(200, 150))
    (line,) = app.lines(frame)
    with running(app, frame, "--page", "127.0.0.1:0") as run:
        assert b"<canvas>" in run.get("")
        assert json.loads(run.get("result"))["boxes"] == line["boxes"]
        # Twice: the second one is of a later frame.
        for _ in range(2):
            with Image.open(io.BytesIO(run.get("picture.jpg"))) as image:
                shown = np.asarray(image.convert("RGB"), np.int64)
            assert shown.shape == frame.picture.shape
            assert np.abs(shown - frame.picture).mean() < 4
        address = f"http://127.0.0.1:{int(run.port)}/stream"
        with urllib.request.urlopen(address, timeout=PATIENCE) as stream:
            kind = stream.headers["Content-Type"]
            assert kind == "multipart/x-mixed-replace; boundary=frame"
            assert stream.read(50_000).count(b"--frame\r\n") >= 2


def test_the_page_refuses_what_it_does_not_have() -> None:
    with running(shapes(), frame_of(photo(96, 96)), "--page", "127.0.0.1:0") as run:
        run.get("result")
        requests = {
            b"GET /other HTTP/1.1\r\n\r\n": b"404",
            b"POST /result HTTP/1.1\r\n\r\n": b"405",
            b"GET /result\r\n\r\n": b"400",
            b"GET /\0 HTTP/1.1\r\n\r\n": b"400",
            b"GET / HTTP/1.1\r\nX: " + b"y" * 4000: b"431",
            b"GET /result HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n": b"403",
            b"GET /result HTTP/1.1\r\nHost: 127.0.0.1.example\r\n\r\n": b"403",
            b"GET /result HTTP/1.1\r\nhost: localhost:99\r\n\r\n": b"200",
        }
        for request, code in requests.items():
            assert run.raw(request).startswith(b"HTTP/1.1 " + code), request


def test_malformed_requests_do_not_end_it() -> None:
    draw = random.Random(53)
    words = [b"GET ", b"/", b"result", b"/stream", b" HTTP/1.1", b"\r\n", b"\r\n\r\n"]
    with running(shapes(), frame_of(photo(96, 96)), "--page", "127.0.0.1:0") as run:
        run.get("result")
        for _ in range(100):
            parts = [
                draw.choice([*words, draw.randbytes(draw.randint(0, 3000))])
                for _ in range(draw.randint(0, 8))
            ]
            answer = run.raw(b"".join(parts))
            assert not answer or answer.startswith(b"HTTP/1.1 ")
        assert json.loads(run.get("result"))["boxes"] is not None


def test_idle_clients_do_not_keep_others_out_for_long() -> None:
    """More than there is room for: an idle one is closed after ten seconds."""
    with running(shapes(), frame_of(photo(96, 96)), "--page", "127.0.0.1:0") as run:
        place = ("127.0.0.1", int(run.port))
        idle = [socket.create_connection(place, PATIENCE) for _ in range(20)]
        until = time.monotonic() + PATIENCE
        answer = b""
        while not answer and time.monotonic() < until:
            answer = run.raw(b"GET /result HTTP/1.1\r\n\r\n")
            time.sleep(0.2)
        assert answer.startswith(b"HTTP/1.1 200")
        for client in idle:
            client.close()


# ---- the files


def test_networks_of_other_kinds_are_refused(tmp_path: Path) -> None:
    fields, files = parts(shapes())
    del fields["task"]
    fields["preprocess"] = {}
    write_bundle(tmp_path / "net.edgec", fields, files)
    with pytest.raises(InputError, match="not a picture") as e:
        edgec.export(tmp_path / "net.edgec", app=tmp_path / "app")
    assert e.value.hint
    assert not (tmp_path / "app").exists()


@pytest.mark.arm
def test_zig_builds_it_for_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as on the board, it finds the same."""

    def make(to: Path) -> None:
        model = FIXTURES / "shapes" / "shapes.onnx"
        edgec.compile(model, "pi4", to / "net.edgec", threads=4)

    app = App(tmp_path)
    shutil.copy(builds.once("app pi4", make) / "net.edgec", app.bundle)
    edgec.export(app.bundle, app=app.folder)
    monkeypatch.setenv("ZIG", f"{sys.executable} -m ziglang")
    call(app.folder, "make", "CC=./zig-cc -target aarch64-linux-musl")
    frame = frame_of(photo(320, 240))
    words = ["--frames", "-", "--format", frame.format]
    command = ["qemu-aarch64", "-cpu", "cortex-a72", str(app.program), *words]
    line = json.loads(call(tmp_path, *command, data=frame.data))
    (here,) = shapes().lines(frame)
    check_same({"boxes": line["boxes"]}, {"boxes": here["boxes"]})
