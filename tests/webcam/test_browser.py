"""The page as Chromium shows it: it moves, slides, switches, counts and tells, and
nobody else's page sees it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.webcam import server as server_module
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.show import WATCHED, Show
from edgec_runtime.webcam.sources import open_source
from PIL import Image

from tests.waiting import LIMIT_S, until

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install playwright"
)
Page = Any

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MS = 1e3 * LIMIT_S
"""That a page may take on a machine that has a lot to do."""
OURS = "willReadFrequently"
"""In what Chromium says of reading the pixels of a canvas, which only the tests do."""
PIXELS = """([x, y]) => {
  const c = document.getElementById("canvas");
  return [...c.getContext("2d").getImageData(Math.floor(x * c.width), Math.floor(y * c.height), 1, 1).data.slice(0, 3)];
}"""
CHOSEN = (
    """(name) => document.querySelector("#effects input:checked")?.value === name"""
)
READ = """async (url) => {
  const told = {};
  told.figures = await fetch(url).then((a) => a.text(), (e) => e.name);
  told.picture = await new Promise((done) => {
    const image = new Image();
    image.onload = () => done(`${image.width}`);
    image.onerror = () => done("error");
    image.src = url.replace("/figures", "/picture");
  });
  told.switched = await fetch(url.replace("/figures", "/switch"), { method: "POST", mode: "no-cors",
    body: JSON.stringify({ bundle: "same" }) }).then((a) => a.type, (e) => e.name);
  const frame = document.createElement("iframe");
  frame.src = url.replace("/figures", "/");
  const loaded = new Promise((done) => { frame.onload = done; });
  document.body.append(frame);
  await loaded;
  try { told.frame = frame.contentDocument === null ? "none" : frame.contentDocument.body.innerText; }
  catch (e) { told.frame = e.name; }
  return told;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a window of a width: the page, and what it logged or failed
    with.
    """
    pages: list[Page] = []

    def open_(url: str, width: int = 1280) -> tuple[Page, list[str]]:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(MS)
        pages.append(page)
        logged: list[str] = []
        page.on(
            "console",
            lambda message: (
                logged.append(message.text) if OURS not in message.text else None
            ),
        )
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.goto(url)
        return page, logged

    yield open_
    for page in pages:
        page.close()


@pytest.fixture
def show(dark: Path, bundles: list[Path], photos: Path) -> Iterator[Show]:
    """Black is made of gray; a segmentation of what is bright is the other bundle."""
    named = {p.stem: str(p) for p in (dark, *bundles[:2])}
    show = Show(open_source(str(photos)), named, playback=WATCHED)
    thread = threading.Thread(target=lambda: [None for _ in show])
    thread.start()
    yield show
    show.stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def _until(page: Page, script: str, argument: Any = None) -> None:
    page.wait_for_function(script, arg=argument, timeout=MS)


def _shows(page: Page) -> None:
    _until(page, "() => document.getElementById('canvas').width === 64")


def _changes(page: Page, what: str) -> None:
    """A value of the page is soon another one."""
    before = page.evaluate(what)
    _until(
        page,
        f"(before) => JSON.stringify(({what})()) !== JSON.stringify(before)",
        before,
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_the_picture_moves_and_numbers_are_new(
    server: Server, opened: Any, width: int, tmp_path: Path
) -> None:
    page, logged = opened(server.url, width)
    _shows(page)
    _changes(page, f"() => ({PIXELS})([0.1, 0.5])")  # a brighter photo
    for name in ("fps", "stages", "dropped"):
        _until(
            page,
            "(name) => !['', '–'].includes(document.getElementById(name).textContent)",
            name,
        )
    _changes(page, "() => document.getElementById('stages').textContent")
    assert float(page.inner_text("#fps")) > 0
    assert "prepare" in page.inner_text("#stages")
    assert page.inner_text("#found") == "a picture of 32 x 24 pixels"
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert not page.inner_text("#message")
    beside = (
        page.locator("#big").bounding_box()["x"]
        > page.locator("#stage").bounding_box()["x"] + 300
    )
    assert beside is (width == 1280)
    page.screenshot(path=tmp_path / f"page-{width}.png")
    assert logged == []


def test_the_slider_parts_before_from_after(server: Server, opened: Any) -> None:
    page, logged = opened(server.url)
    _shows(page)
    parted = f"""([x, before]) => {{
      const [r] = ({PIXELS})([x, 0.5]);
      return before ? r >= 16 : r < 8;
    }}"""
    for x, before in ((0.25, True), (0.75, False)):
        _until(page, parted, [x, before])
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    assert abs(int(page.input_value("#split")) - 900) <= 2
    _until(page, parted, [0.75, True])
    page.locator("#split").focus()
    page.keyboard.press("Home")
    _until(page, parted, [0.25, False])
    assert logged == []


def test_bundle_and_effect_are_switched(
    server: Server, show: Show, opened: Any
) -> None:
    page, logged = opened(server.url)
    _shows(page)
    offers = (
        "(names) => [...document.querySelectorAll('#effects input')].map((o) => "
        "o.value).join() === names"
    )
    _until(page, offers, "overlay,cartoon")
    page.check("#effects input[value=cartoon]", force=True)
    _until(page, CHOSEN, "cartoon")
    page.select_option("#bundle", "bright")
    _until(page, offers, "overlay,blur")
    assert show.choice[:2] == ("bright", "overlay")
    _until(
        page,
        "() => document.getElementById('found').textContent.includes('of the picture: "
        "mask')",
    )
    page.check("#effects input[value=blur]", force=True)
    _until(page, f"() => ({PIXELS})([0.75, 0.5])[0] >= 16")  # no longer black
    # the page shows the choice before the server has it
    until(lambda: show.choice[:2] == ("bright", "blur"), "the server has the choice")
    _until(page, CHOSEN, "blur")
    assert (page.inner_text("#refused"), logged) == ("", [])


def test_effects_have_previews_and_take_a_picture_of_ones_own(
    server: Server, show: Show, opened: Any, tmp_path: Path
) -> None:
    page, logged = opened(server.url, 390)
    _shows(page)
    page.select_option("#bundle", "bright")
    _until(page, "() => document.querySelectorAll('#effects img').length === 2")
    loaded = (
        "() => [...document.querySelectorAll('#effects img')].every((i) => "
        "i.naturalWidth === 168)"
    )
    _until(page, loaded)
    red = np.zeros((30, 40, 3), np.uint8)
    red[..., 0] = 200
    Image.fromarray(red).save(tmp_path / "red.png")
    page.set_input_files("#file", tmp_path / "red.png")
    _until(page, CHOSEN, "replace=your picture 1")
    _until(page, f"() => ({PIXELS})([0.75, 0.5])[1] < 40")
    _until(page, loaded)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    (tmp_path / "no.png").write_text("no picture")
    page.set_input_files("#file", tmp_path / "no.png")
    _until(
        page,
        "() => document.getElementById('refused').textContent.includes('cannot be read')",
    )
    assert not page.is_visible("#neutral")
    # Chromium itself logs the answer 400.
    assert [text for text in logged if "400" not in text] == []


def test_it_records_a_video_and_fills_the_screen(server: Server, opened: Any) -> None:
    page, logged = opened(server.url)
    _shows(page)
    page.click("#full")
    _until(page, "() => document.fullscreenElement !== null")
    page.evaluate("() => document.exitFullscreen()")
    with page.expect_download(timeout=MS) as download:
        page.click("#record")
        _until(page, "() => document.getElementById('recording').textContent !== ''")
    file = Path(download.value.path())
    # Matroska, which WebM is, or MP4.
    head = file.read_bytes()[:12]
    assert head[:4] == b"\x1a\x45\xdf\xa3" or head[4:8] == b"ftyp"
    assert file.stat().st_size > 1000
    assert logged == []


def test_before_and_after_stand_side_by_side(server: Server, opened: Any) -> None:
    page, logged = opened(server.url, 390)
    _shows(page)
    page.click("#beside")
    _until(page, "() => document.getElementById('canvas').width === 128")
    # Gray on the left, black on the right, and no white line between.
    _until(page, f"() => ({PIXELS})([0.25, 0.5])[0] >= 16")
    for x in (0.51, 0.75):
        assert page.evaluate(f"() => ({PIXELS})([{x}, 0.5])")[0] < 8
    assert not page.is_visible("#split")
    stage, after = (page.locator(i).bounding_box() for i in ("#stage", "#after"))
    assert after["x"] - stage["x"] == pytest.approx(stage["width"] / 2 + 8, abs=2)
    assert after["width"] < stage["width"] / 4
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390

    page.click("#beside")
    _shows(page)
    assert page.is_visible("#split")
    assert logged == []


@pytest.mark.parametrize(("beside", "width"), [(False, 64), (True, 128)])
def test_a_snapshot_is_what_is_seen(
    server: Server, opened: Any, beside: bool, width: int
) -> None:
    page, logged = opened(server.url)
    _shows(page)
    if beside:
        page.click("#beside")
    with page.expect_download(timeout=MS) as download:
        page.click("#snapshot")
    assert download.value.suggested_filename == "edgec.jpg"
    with Image.open(download.value.path()) as snapshot:
        assert (snapshot.format, snapshot.size) == ("JPEG", (width, 48))
        pixels = np.asarray(snapshot)
    assert pixels[24, width // 4].min() >= 12
    assert pixels[24, 3 * width // 4].max() < 12
    assert logged == []


@pytest.mark.parametrize(
    ("celsius", "throttled", "says"),
    [
        (None, None, ""),
        (48.2, None, "48 °C\ntemperature"),
        (48.2, True, "48 °C\nthrottled now"),
        (None, False, "not throttled\nthe board"),
    ],
)
def test_temperature_is_left_out_where_nothing_tells_it(
    server: Server,
    opened: Any,
    monkeypatch: pytest.MonkeyPatch,
    celsius: float | None,
    throttled: bool | None,
    says: str,
) -> None:
    told = {"celsius": celsius, "throttled": throttled}
    monkeypatch.setattr(server_module._HEAT, "glance", lambda: told)
    page, _ = opened(server.url)
    _until(page, "() => document.getElementById('dropped').textContent !== '–'")
    assert page.is_visible("#warmth") is bool(says)
    assert page.inner_text("#big").endswith(says or "dropped")


def test_it_says_what_is_wrong(server: Server, show: Show, opened: Any) -> None:
    page, _ = opened(server.url)
    _shows(page)
    says = "(text) => document.getElementById('message').textContent.includes(text)"
    show.source.lost = "/dev/video0 gives no frames"
    _until(page, says, "/dev/video0 gives no frames; it is waited for")
    show.source.lost = ""
    _until(page, "() => document.getElementById('message').textContent === ''")
    server.__exit__(None, None, None)
    _until(page, says, "edgec webcam has stopped")


def test_a_wrong_token_shows_nothing(server: Server, opened: Any, browser: Any) -> None:
    page = browser.new_page()
    answer = page.goto(server.url[:-1])
    assert (answer.status, "the token is not the one" in page.inner_text("body")) == (
        403,
        True,
    )
    page.close()


def test_a_page_of_another_origin_reads_nothing(
    server: Server, show: Show, opened: Any
) -> None:
    """Even with the token."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>another")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page, _ = opened(f"http://127.0.0.1:{other.server_address[1]}/")
        told = page.evaluate(READ, server.url.replace("/?", "/figures?"))
        other.shutdown()
    assert (told["figures"], told["picture"]) == ("TypeError", "error")
    assert told["frame"] in ("none", "SecurityError")
    assert show.choice.bundle == "dark"
