"""The page of a show: pictures, figures, switches; who may ask for them; and what a browser makes of it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.errors import DeviceError
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import open_source
from PIL import Image

from tests.report.test_explain_browser import FLAGS

pytestmark = pytest.mark.slow


@pytest.fixture
def show(bundles: list[Path], photos: Path) -> Iterator[Show]:
    show = Show(open_source(str(photos)), {p.stem: str(p) for p in bundles[:2]}, loop=True, pace=True)
    thread = threading.Thread(target=lambda: [None for _ in show])
    thread.start()
    yield show
    show.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def server(show: Show) -> Iterator[Server]:
    with Server(show) as server:
        yield server


def _ask(server: Server, path: str, query: str = "", body: bytes | None = None, **headers: str) -> Any:
    base, token = server.url.split("/?token=")
    request = urllib.request.Request(f"{base}{path}?token={token}{query}", body, headers)
    return urllib.request.urlopen(request, timeout=20)


def _refused(server: Server, code: int, *words: Any, **headers: str) -> str:
    with pytest.raises(urllib.error.HTTPError) as e:
        _ask(server, *words, **headers)  # type: ignore[arg-type]
    assert e.value.code == code
    told: str = json.loads(e.value.read())["error"]
    return told


def test_pictures_are_before_and_after_of_one_frame(server: Server) -> None:
    seen = 0
    for _ in range(3):
        answer = _ask(server, "/picture", f"&seen={seen}")
        assert int(answer.headers["X-Number"]) > seen
        seen = int(answer.headers["X-Number"])
        both = np.asarray(Image.open(io.BytesIO(answer.read()))).astype(int)
        cut = int(answer.headers["X-Before"])
        before, after = both[24, 2 : cut - 2].mean(), both[24, cut + 2 : -2].mean()
        assert abs(before - after) < 4


def test_figures_and_switches(server: Server, show: Show) -> None:
    figures = json.load(_ask(server, "/figures"))
    assert (figures["bundles"], figures["bundle"], figures["effect"]) == (["same", "bright"], "same", "overlay")
    assert _ask(server, "/switch", body=b'{"bundle": "bright", "effect": "blur"}').status == 200
    assert (show.on, show.effect) == ("bright", "blur")
    assert "no bundle" in _refused(server, 400, "/switch", "", b'{"bundle": "other"}')
    assert "names no files" in _refused(server, 400, "/switch", "", b'{"effect": "replace=/etc/passwd"}')
    assert "the body is" in _refused(server, 400, "/switch", "", b"[" * 4000)
    assert "there is no /x" in _refused(server, 404, "/x")


def test_nobody_else_may_ask(server: Server) -> None:
    base, token = server.url.split("/?token=")
    for path in ("/", "/picture", "/figures", "/?token=", f"/?token={token}x", "/figures?token=%ff"):
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(base + path, timeout=20)
        assert e.value.code == 403
    assert "token" in _refused(server, 403, "/figures", Host="example.com")
    assert "Access-Control-Allow-Origin" not in _ask(server, "/figures", Origin="http://example.com").headers


def test_a_port_that_is_taken(server: Server, show: Show) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(DeviceError, match=f"cannot listen on 127.0.0.1:{port}"):
        Server(show, port=port)


def _dom(url: str, folder: Path, width: int, until: str) -> tuple[str, str]:
    """The page's document once it has a text, and what the browser logged."""
    for ms in (6000, 20000, 60000):
        dom, log = _visited(url, folder / str(ms), width, ms)
        if until in dom:
            break
    return dom, log


def _visited(url: str, folder: Path, width: int, ms: int) -> tuple[str, str]:
    flags = [f for f in FLAGS.split() if not f.startswith("--window-size")]
    more = [f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"]
    command = ["chromium", *flags, *more, f"--virtual-time-budget={ms}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it(server: Server, width: int, tmp_path: Path) -> None:
    dom, log = _dom(server.url, tmp_path, width, 'width="64" height="48"')
    assert log == ""
    assert '<canvas id="canvas" width="64" height="48"' in dom
    fps = re.search(r'id="fps">([^<]*)<', dom)
    assert fps is not None
    assert float(fps[1]) > 0
    assert "<td>prepare</td>" in dom
    assert '<option value="bright">' in dom
    assert 'role="alert"></div>' in dom


@pytest.mark.browser
def test_a_browser_says_that_it_has_stopped(show: Show, tmp_path: Path) -> None:
    for ms in (30000, 100000, 300000):  # of the page's own time, which stands still while it waits for an answer
        server = Server(show)
        server.__enter__()
        threading.Timer(ms / 20000, lambda s=server: s.__exit__(None, None, None)).start()
        dom, _ = _visited(server.url, tmp_path / str(ms), 1280, ms)
        if "edgec webcam has stopped" in dom:
            return
    pytest.fail("the page does not say that its server has stopped")
