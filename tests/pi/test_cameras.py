"""V4L2 cameras of the whole emulated machine: formats, outputs, the page through ssh, a
cable that is pulled.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.machine import Machine
from PIL import Image

import edgec
from tests.catalogue.networks import fetched
from tests.conftest import whole_machine
from tests.pi import usb_camera
from tests.webcam.conftest import compiled
from tests.webcam.test_on import Typed

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install playwright"
)
pytestmark = [pytest.mark.pi, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds, of a machine that is emulated beside other tests."""
USB = f"/dev/v4l/by-id/usb-1d6b_{usb_camera.NAME.replace(' ', '_')}-video-index0"

READS = """
import json, sys
sys.path[:0] = sys.argv[2:]
from edgec_runtime.webcam.v4l2 import Camera
found = {}
for format in sys.argv[1].split():
    camera = Camera("/dev/video0", format, (320, 180))
    frames = [camera.read() for _ in range(3)]
    found[format] = [camera.size, frames[0].format, [int(frames[-1].rgb()[:, x].mean()) for x in (10, 310)]]
    camera.close()
print(json.dumps(found))
"""

WRITES = """
import json, sys
sys.path[:0] = sys.argv[1:]
import numpy as np
from edgec_runtime.webcam.video_output import VideoOutput
with VideoOutput("/dev/video1") as output:
    for level in range(0, 250, 25):
        output.write(np.full((360, 640, 3), level, np.uint8))
print("written")
"""


@pytest.fixture(scope="module")
def machine(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    with whole_machine(
        tmp_path_factory.mktemp("machine"), release, cameras=True
    ) as machine:
        machine.run(
            "sudo busybox modprobe vivid n_devs=1 node_types=0x101 && sudo udevadm settle",
            PATIENCE,
        )
        yield machine


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(
        tmp_path_factory.mktemp("bundle"),
        "same",
        "Relu",
        (1, 3, 24, 32),
        "image",
        "pi4",
    )


@pytest.fixture
def url(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EDGEC_SSH_CONFIG", str(machine.ssh_config))
    return machine.ssh_url


def soon(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.5)


def picture(shown: Typed) -> bytes:
    """The page's newest; empty while there is none."""
    with urllib.request.urlopen(
        shown.url.replace("/?", "/picture?"), timeout=PATIENCE
    ) as answer:
        found: bytes = answer.read()
        return found


def python(machine: Machine, text: str, *words: str) -> str:
    """Of a program in the guest, with the runtime that was put there, where nothing may
    be added.
    """
    sites = machine.run("echo /home/pi/.edgec/*/site/*/").split()
    quoted = " ".join(f"'{w}'" for w in (*words, *sites))
    return machine.run(f"python3 -B - {quoted} <<'END'\n{text}\nEND", PATIENCE)


def test_figures_of_a_camera(machine: Machine, url: str, bundle: Path) -> None:
    """Then its formats, with the runtime that the first show has put there, and frames
    to an output.
    """
    shown = edgec.webcam([bundle], on=url, display=False, frames=3, timeout=PATIENCE)
    assert shown.figures.delivered == 3
    assert shown.figures.stages[0].name == "capture"
    assert shown.found == {"image": {"width": 32, "height": 24}}
    found = json.loads(python(machine, READS, "yuyv nv12 rgb bgr gray"))
    assert {name: row[:2] for name, row in found.items()} == {
        name: [[320, 180], name] for name in ("yuyv", "nv12", "rgb", "bgr", "gray")
    }
    # of the color bars, white is first and black last
    for left, right in (row[2] for row in found.values()):
        assert left > right + 60
    assert python(machine, WRITES).strip() == "written"
    there = edgec.webcam(
        [bundle],
        on=url,
        virtual_camera="/dev/video1",
        display=False,
        frames=2,
        timeout=PATIENCE,
    )
    assert there.figures.delivered == 2


SHOWS = """() => document.getElementById("canvas").width > 320
    && document.getElementById("fps").textContent !== "–" """


def seen_in_chromium(address: str, screenshot: Path) -> dict[str, str]:
    """Texts of the page when it has a picture and a rate; a picture of it is written."""
    with sync_api.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_function(SHOWS, timeout=1000 * PATIENCE)
        page.screenshot(path=screenshot)
        names = ("source", "message", "stages")
        texts: dict[str, str] = {name: page.inner_text(f"#{name}") for name in names}
        texts["effect"] = page.locator("#effects input:checked").first.input_value()
        chromium.close()
        return texts


@pytest.mark.browser
def test_an_avatar_over_ssh(machine: Machine, url: str, tmp_path: Path) -> None:
    """The networks, the portrait and its points go there, and the page has the
    portrait, as Chromium shows it: a test picture without a face lets it rest.
    """
    for name in ("face-near", "face-mesh"):
        fetched(name)
    faces = tmp_path / "faces.edgec"
    edgec.compile("models:faces", "pi4", output=faces)
    portrait = ROOT / "fixtures" / "portraits" / "cat.png"
    shown = Typed(faces, "--effect", f"avatar={portrait}", on=url)
    try:
        soon(lambda: picture(shown)[:2] == b"\xff\xd8", "the page has no picture")
        both = np.asarray(Image.open(io.BytesIO(picture(shown)))).astype(int)
        figures = shown.figures()
        page = seen_in_chromium(shown.url, tmp_path / "page.png")
    finally:
        os.killpg(shown.process.pid, signal.SIGINT)
        shown.process.communicate(timeout=PATIENCE)
    assert page["message"] == ""
    assert page["effect"].startswith("avatar=")
    assert "cascade" in page["stages"]
    assert figures["renewable"]
    assert [s["name"] for s in figures["stream"]["stages"]][1] == "cascade"
    after = both[:, both.shape[1] // 2 :]
    cat = np.asarray(Image.open(portrait).convert("RGB").resize(after.shape[1::-1]))
    assert np.abs(after - cat).mean() < 8


def goes_on_after(
    shown: Typed, unplug: Callable[[], object], plug: Callable[[], object]
) -> bytes:
    """The page says that the camera is gone, and the stream resumes when it is there
    again; all of it ends then.

    Its first picture.
    """
    try:
        soon(lambda: picture(shown)[:2] == b"\xff\xd8", "the page has no picture")
        first = picture(shown)
        unplug()
        soon(
            lambda: "gives no frames" in shown.figures()["lost"],
            "the page does not say that the camera is gone",
        )
        plug()
        soon(lambda: shown.figures()["lost"] == "", "the camera does not come back")
        before = shown.figures()["stream"]["captured"]
        soon(
            lambda: shown.figures()["stream"]["captured"] > before + 2,
            "the stream does not go on",
        )
        os.killpg(shown.process.pid, signal.SIGINT)
        out, err = shown.process.communicate(timeout=PATIENCE)
        assert shown.process.returncode == 0, err
        assert json.loads(out)["captured"] > before
        return first
    finally:
        if shown.process.poll() is None:
            os.killpg(shown.process.pid, signal.SIGKILL)
            shown.process.communicate()


@pytest.mark.sweep(0)
def test_a_camera_is_unplugged_and_comes_back(
    machine: Machine, url: str, bundle: Path
) -> None:
    driver = "/sys/bus/platform/drivers/vivid"
    shown = Typed(bundle, "--timeout", PATIENCE, on=url)
    goes_on_after(
        shown,
        lambda: machine.run(f"echo vivid.0 | sudo tee {driver}/unbind"),
        lambda: machine.run(f"echo vivid.0 | sudo tee {driver}/bind"),
    )
    assert (
        machine.run(
            "pgrep -f [e]dgec_runtime.webcam || ls -d /tmp/edgec-* || echo none"
        ).strip()
        == "none"
    )


def plug_usb(machine: Machine) -> None:
    """The camera of usb_camera.py."""
    machine.run(
        "sudo sh -c 'setsid python3 -B /tmp/usb_camera.py >/tmp/usb_camera.log 2>&1 & "
        "echo $! >/tmp/usb_camera.pid'"
    )
    machine.run(
        f"for i in $(seq 300); do test -e {USB} && exit; sleep 0.2; done; "
        "cat /tmp/usb_camera.log; exit 1"
    )


@pytest.fixture
def usb(machine: Machine) -> Iterator[Machine]:
    data = base64.b64encode(Path(usb_camera.__file__).read_bytes()).decode()
    machine.run(f"echo {data} | base64 -d > /tmp/usb_camera.py")
    machine.run(
        "sudo busybox modprobe uvcvideo && sudo busybox modprobe vhci_hcd", PATIENCE
    )
    plug_usb(machine)
    yield machine
    unplug_usb(machine)


def unplug_usb(machine: Machine) -> None:
    machine.run(
        "sudo kill $(cat /tmp/usb_camera.pid); for i in $(seq 300); "
        f"do test -e {USB} || exit 0; sleep 0.2; done"
    )


@pytest.mark.sweep(0)
def test_a_usb_camera_gives_jpeg(usb: Machine, url: str, bundle: Path) -> None:
    """uvcvideo's MJPEG: its format, its colors on the page, and a cable that is pulled."""
    source = f"{USB}?format=jpeg"
    told = edgec.webcam(
        [bundle], source, on=url, display=False, frames=3, timeout=PATIENCE
    )
    assert told.figures.delivered == 3
    assert told.found == {"image": {"width": 32, "height": 24}}
    found = json.loads(python(usb, READS.replace("/dev/video0", USB), "jpeg"))["jpeg"]
    size = (usb_camera.WIDTH, usb_camera.HEIGHT)
    of = (usb_camera.LEFT, usb_camera.RIGHT)
    assert found[:2] == [list(size), "rgb"]
    assert found[2] == pytest.approx([sum(c) / 3 for c in of], abs=3)
    shown = Typed(bundle, "--source", source, "--timeout", PATIENCE, on=url)
    page = goes_on_after(shown, lambda: unplug_usb(usb), lambda: plug_usb(usb))
    pixels = np.asarray(Image.open(io.BytesIO(page)).convert("RGB"))
    # of the frame and of the result
    for part, color in zip(np.array_split(pixels, 4, axis=1), of * 2, strict=True):
        inner = part[:, part.shape[1] // 4 : part.shape[1] * 3 // 4]
        assert inner.mean(axis=(0, 1)) == pytest.approx(color, abs=12)
