"""edgec webcam --on: the show runs at the device end, the page comes through the link,
and all of it ends together.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from edgec_devices import remote_show
from edgec_devices.links.local import LocalStream
from edgec_devices.protocol import Connection
from edgec_devices.remote_show import RemoteShow, show_on
from edgec_devices.signing import new_key, sign, trust
from edgec_devices.stream import LinkLost
from edgec_runtime import BundleError, DeviceError, EdgecError, InputError
from edgec_runtime.device_end.remote_show import page_folder
from edgec_runtime.device_end.requests import ShowState
from PIL import Image

import edgec
from tests.catalogue.networks import fetched
from tests.cli.verbs import edgec as typed
from tests.devices.test_running import gone

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_figures_come_back(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    words = (bundles[1], "--on", "local:", "--source", photos, "--no-display")
    done = typed("webcam", *words, "--frames", 5, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["delivered"], told["dropped"]) == (5, 0)
    assert [s["name"] for s in told["stages"]][:2] == ["capture", "prepare"]
    assert told["result"]["areas"][0]["label"] == "mask"
    shown = edgec.webcam(bundles[1:2], str(photos), on="local:", display=False)
    assert (shown.figures.delivered, shown.figures.stages[0].name) == (9, "capture")
    assert shown.text().startswith("9 frames, 0 dropped, ")


def test_a_background_of_this_machine(
    bundles: list[Path], photos: Path, tmp_path: Path
) -> None:
    shutil.copy(photos / "8.png", tmp_path / "beach.png")
    words = (
        bundles[1],
        "--on",
        "local:",
        "--source",
        photos,
        "--no-display",
        "--effect",
    )
    assert typed("webcam", *words, "replace=beach.png", cwd=tmp_path).code == 0
    assert (
        "cannot read none.png: No such file"
        in typed("webcam", *words, "replace=none.png", cwd=tmp_path).err
    )


def test_a_portrait_of_this_machine_and_its_points(tmp_path: Path) -> None:
    """A cup, in which no network finds a face, with the points of a cat's."""
    for name in ("face-near", "face-mesh"):
        fetched(name)
    edgec.compile("models:faces", output=tmp_path / "faces.edgec")
    portraits = Path(__file__).parents[2] / "fixtures" / "portraits"
    with Image.open(portraits.parent / "photos" / "cup.jpg") as cup:
        cup.resize((640, 480)).save(tmp_path / "cup.jpg")
    shutil.copy(portraits / "cat.json", tmp_path / "cup.json")
    face = portraits.parent / "photos" / "astronaut_face.jpg"
    words = ("faces.edgec", "--on", "local:", "--source", face, "--no-display")
    done = typed("webcam", *words, "--effect", "avatar=cup.jpg", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "468 points" in done.out
    (tmp_path / "cup.json").unlink()
    done = typed("webcam", *words, "--effect", "avatar=cup.jpg", cwd=tmp_path)
    assert "no face was found in the portrait" in done.err


def test_what_the_device_refuses(
    bundles: list[Path], photos: Path, tmp_path: Path
) -> None:
    for words, said in (
        ((bundles[0], "--source", "none.mp4"), "no such file: "),
        ((bundles[2], "--source", photos), "does not say what its outputs mean"),
        (
            (bundles[0], "--source", photos, "--effect", "blur"),
            "blur is for a segmentation",
        ),
        (("--demo",), "--demo is for this machine"),
        ((bundles[0], "--host", "0.0.0.0"), "--host is for this machine"),
        ((bundles[0], "--out", tmp_path), "--out is for this machine"),
        ((bundles[0], bundles[0]), "two bundles are of one name"),
    ):
        done = typed("webcam", *words, "--on", "local:", cwd=tmp_path)
        assert done.code == 2
        assert said in done.err
    done = typed("webcam", bundles[0], "--on", "serial:///dev/ttyS0", cwd=tmp_path)
    assert "this link cannot carry a page" in done.err


def test_only_what_is_signed_is_shown(
    bundles: list[Path], photos: Path, tmp_path: Path, root: Path
) -> None:
    fields = {"source": str(photos), "effect": "overlay"}
    show_on("local:", RemoteShow(bundles[:1], fields), print)
    new_key(tmp_path / "key")
    assert trust(tmp_path / "key.pub", ["local:"])[0].ok
    with pytest.raises(BundleError, match="is not signed"):
        show_on("local:", RemoteShow(bundles[:1], fields), print)
    sign(bundles[0], tmp_path / "key", tmp_path / "signed.edgec")
    # the runtime, which came before the key
    with pytest.raises(InputError, match="not signed"):
        show_on("local:", RemoteShow([tmp_path / "signed.edgec"], fields), print)
    (root / "trusted").rename(root / "no-more")
    next(root.glob("*/site/*/edgec_runtime/webcam/page.html")).write_text("another")
    with pytest.raises(DeviceError, match="is damaged"):
        show_on("local:", RemoteShow(bundles[:1], fields), print)


class Typed:
    """`edgec webcam --on …` as a person has it in a terminal: a process group that
    hears Ctrl-C.
    """

    def __init__(self, *words: object, on: str = "local:") -> None:
        command = [
            sys.executable,
            "-m",
            "edgec",
            "webcam",
            *map(str, words),
            "--on",
            on,
            "--port",
            "0",
            "--json",
        ]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self.url = ""
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line):
                self.url = found[0]
                break
        assert self.url, said

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.load(
            urllib.request.urlopen(self.url.replace("/?", "/figures?"), timeout=30)
        )
        return found

    def until_frame(self) -> None:
        until = time.monotonic() + 60
        while not (stream := self.figures()["stream"]) or not stream["delivered"]:
            assert time.monotonic() < until
            time.sleep(0.05)

    def children(self) -> list[int]:
        """Processes below it: the device end, what that started."""
        found = []
        todo = [self.process.pid]
        while todo:
            pid = todo.pop()
            below = [
                int(w)
                for t in Path(f"/proc/{pid}/task").glob("*/children")
                for w in t.read_text().split()
            ]
            found += below
            todo += below
        return found


@pytest.fixture
def shown(bundles: list[Path], photos: Path) -> Iterator[Typed]:
    typed = Typed(*bundles[:2], "--source", photos)
    yield typed
    if typed.process.poll() is None:
        os.killpg(typed.process.pid, signal.SIGKILL)
    typed.process.communicate()


def test_the_page_comes_through_and_ctrl_c_ends_it_there(shown: Typed) -> None:
    with urllib.request.urlopen(shown.url, timeout=30) as page:
        assert b"<canvas" in page.read()
    assert shown.figures()["bundles"] == ["same", "bright"]
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(shown.url + "x", timeout=30)
    below = shown.children()
    assert len(below) >= 3, "the device end, a guard and the show"
    shown.until_frame()
    os.killpg(shown.process.pid, signal.SIGINT)
    out, err = shown.process.communicate(timeout=60)
    assert shown.process.returncode == 0, err
    assert json.loads(out)["delivered"] > 0
    assert all(gone(pid) for pid in below)


def test_ctrl_c_before_the_first_frame_is_no_error() -> None:
    """As the webcam there ends then: without a word."""
    with pytest.raises(KeyboardInterrupt):
        remote_show._last(ShowState(said="", status=130, error_output=""), [], "local:")


@pytest.mark.parametrize("which", ["device end", "host"])
def test_a_show_ends_with_whoever_started_it(shown: Typed, which: str) -> None:
    below = shown.children()
    os.kill(below[0] if which == "device end" else shown.process.pid, signal.SIGKILL)
    _, err = shown.process.communicate(timeout=60)
    if which == "device end":
        assert shown.process.returncode == 1
        assert "the device end stopped" in err
    assert all(gone(pid) for pid in below)


def test_a_show_that_is_killed_is_an_error(shown: Typed) -> None:
    show = next(
        p
        for p in shown.children()
        if b"edgec_runtime.webcam" in Path(f"/proc/{p}/cmdline").read_bytes()
    )
    os.kill(show, signal.SIGKILL)
    _, err = shown.process.communicate(timeout=60)
    assert shown.process.returncode == 1
    assert "the webcam ended with status -9" in err


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"said": 7, "status": None, "error_output": ""}, "nonsense"),
        ({"said": "{}\n", "status": 0, "error_output": ""}, "ended with status 0"),
        (
            {"said": '{"figures": 3}\n', "status": 0, "error_output": ""},
            "what the webcam says is damaged",
        ),
        (
            {"said": "x" * (2 << 20), "status": None, "error_output": ""},
            "says 2097152 bytes",
        ),
        (
            {
                "said": '{"url": "/?token=\\u001b[2J"}\n',
                "status": None,
                "error_output": "",
            },
            "where its page is",
        ),
        (
            {
                "said": '{"error": {"kind": "?", "what": "w"}}\n',
                "status": 1,
                "error_output": "",
            },
            "error: w",
        ),
    ],
)
def test_a_device_that_lies(
    lie: dict[str, object],
    said: str,
    bundles: list[Path],
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = Connection.request

    def lied(self: Connection, do: str, *rest: object, **fields: object) -> object:
        found = request(self, do, *rest, **fields)  # type: ignore[arg-type]
        return (lie, b"") if do == "shown" else found

    monkeypatch.setattr(Connection, "request", lied)
    with pytest.raises(EdgecError) as e:
        show_on("local:", RemoteShow(bundles[:1], {"source": str(photos)}), print)
    assert said in str(e.value)


def test_a_page_that_does_not_come_through(
    bundles: list[Path], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgec_devices.remote_show._free_port", lambda: 9)
    carry = LocalStream.carry_page
    monkeypatch.setattr(LocalStream, "carry_page", lambda self, port: carry(self, 0))
    with pytest.raises(DeviceError, match="the page does not come through the link"):
        show_on(
            "local:", RemoteShow(bundles[:1], {"source": str(photos)}, port=0), print
        )


def test_a_link_that_is_silent(
    bundles: list[Path], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, as a device is whose network is gone: an error within the timeout and
    some.
    """

    streams: list[LocalStream] = []
    start = LocalStream.start

    def started(self: LocalStream, again: bool = False) -> None:
        streams.append(self)
        start(self, again)

    def stop(text: str) -> None:
        process = streams[0]._process
        if process is not None and "watch at" in text:
            process.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(LocalStream, "start", started)
    began = time.monotonic()
    with pytest.raises(LinkLost, match="has not answered"):
        show_on(
            "local:",
            RemoteShow(bundles[:1], {"source": str(photos)}, port=0),
            stop,
            timeout=2.0,
        )
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "name", ["", "../x", "A" * 32, "0" * 31, "0" * 33, "0" * 31 + "/"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Exception, match="not a name of a show"):
        page_folder(name)
