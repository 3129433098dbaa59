"""The program for cameras, built for this machine: it finds in raw frames what `edgec run`
finds in the same picture, and its page answers whatever it is asked.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, Session, write_bundle
from edgec_runtime.model.inputs import prepared
from numpy.typing import NDArray
from PIL import Image

import edgec
from edgec.errors import InputError
from tests.exporting import other_networks
from tests.exporting.camera_apps import (
    PATIENCE,
    App,
    app_of,
    call,
    check_same,
    frame_of,
    photo,
    running,
    shapes,
    shapes_of_a_board,
)

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
    app.make()
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


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", other_networks.NAMES)
def test_other_networks(name: str, tmp_path: Path) -> None:
    app_of(name).check(frame_of(photo(128, 96)), tmp_path)


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
def test_zig_builds_it_for_the_board() -> None:
    """Run as on the board, it finds the same."""
    app, frame = shapes_of_a_board(), frame_of(photo(320, 240))
    words = ["--frames", "-", "--format", frame.format]
    command = ["qemu-aarch64", "-cpu", "cortex-a72", str(app.program), *words]
    line = json.loads(call(app.folder, *command, data=frame.data))
    (here,) = shapes().lines(frame)
    check_same({"boxes": line["boxes"]}, {"boxes": here["boxes"]})
