"""The exported program for cameras, built for this machine and for a board; raw frames; a
program that runs while a test asks its page.
"""

from __future__ import annotations

import json
import os
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.vision.camera import CameraFrame
from numpy.typing import NDArray
from PIL import Image

import edgec
from tests import builds
from tests.cli.verbs import edgec as verb
from tests.conftest import ROOT
from tests.exporting import other_networks
from tests.shapes import bundle as shapes_bundle

FIXTURES = ROOT / "fixtures"
Picture = NDArray[np.uint8]
PATIENCE = 60.0
"""Seconds, on a busy machine."""


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


def call(
    folder: Path,
    *command: str,
    data: bytes = b"",
    environment: dict[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, input=data, env=environment
    )
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

    def build(self, compiler: str = "gcc") -> None:
        edgec.export(self.bundle, app=self.folder)
        self.make(compiler)

    def make(self, compiler: str = "gcc") -> None:
        environment = {**os.environ, "ZIG": f"{sys.executable} -m ziglang"}
        call(self.folder, "make", f"CC={compiler}", environment=environment)

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


def app_of(name: str) -> App:
    """The program of one of the other networks, built once a run."""

    def make(to: Path) -> None:
        shutil.copy(other_networks.bundle(name), to / "net.edgec")
        App(to).build()

    return App(builds.once(f"app {name}", make))


def _shapes_of_a_board(to: Path) -> None:
    model = FIXTURES / "shapes" / "shapes.onnx"
    edgec.compile(model, "pi4", to / "net.edgec", threads=4)
    App(to).build("./zig-cc -target aarch64-linux-musl")


def shapes_of_a_board() -> App:
    """The program for a Pi 4, which runs by qemu-aarch64 alone."""
    return App(builds.once("app pi4", _shapes_of_a_board))


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
