"""The page of a show over HTTP: pictures, figures, switches, and who may ask for them."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from edgec_runtime.errors import DeviceError
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.show import Show
from PIL import Image

from tests.waiting import LIMIT_S

pytestmark = pytest.mark.slow


def _ask(
    server: Server,
    path: str,
    query: str = "",
    body: bytes | None = None,
    **headers: str,
) -> Any:
    base, token = server.url.split("/?token=")
    request = urllib.request.Request(
        f"{base}{path}?token={token}{query}", body, headers
    )
    return urllib.request.urlopen(request, timeout=LIMIT_S)


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
        before = both[24, 2 : cut - 2].mean()
        after = both[24, cut + 2 : -2].mean()
        assert abs(before - after) < 4


def test_figures_and_switches(server: Server, show: Show) -> None:
    figures = json.load(_ask(server, "/figures"))
    assert (figures["bundles"], figures["bundle"], figures["effect"]) == (
        ["same", "bright"],
        "same",
        "overlay",
    )
    assert (
        _ask(server, "/switch", body=b'{"bundle": "bright", "effect": "blur"}').status
        == 200
    )
    assert show.choice[:2] == ("bright", "blur")
    assert json.load(_ask(server, "/figures"))["effects"] == ["overlay", "blur"]
    assert "no bundle" in _refused(server, 400, "/switch", "", b'{"bundle": "other"}')
    assert "names no files" in _refused(
        server, 400, "/switch", "", b'{"effect": "replace=/etc/passwd"}'
    )
    assert "the body does not" in _refused(server, 400, "/switch", "", b"[" * 4000)
    assert "there is no /x" in _refused(server, 404, "/x")


def test_nobody_else_may_ask(server: Server) -> None:
    base, token = server.url.split("/?token=")
    for path in (
        "/",
        "/picture",
        "/figures",
        "/?token=",
        f"/?token={token}x",
        "/figures?token=%ff",
    ):
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(base + path, timeout=LIMIT_S)
        assert e.value.code == 403
    assert "token" in _refused(server, 403, "/figures", Host="example.com")
    assert "token" in _refused(
        server, 403, "/switch", "", b"{}", Origin="http://example.com"
    )
    assert _ask(server, "/switch", body=b"{}", Origin=base).status == 200
    assert "Access-Control-Allow-Origin" not in _ask(server, "/figures").headers


def test_a_port_that_is_taken(server: Server, show: Show) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(DeviceError, match=f"cannot listen on 127.0.0.1:{port}"):
        Server(show, port=port)


def test_previews_and_uploads(server: Server, photos: Path) -> None:
    """Of the newest frame, and of a picture that was sent."""
    answer = _until_there(server, "/preview", "&effect=overlay")
    small = np.asarray(Image.open(io.BytesIO(answer)))
    assert small.shape == (126, 168, 3)
    # A page asks for effects of the last bundle until it learns of a switch.
    assert _ask(server, "/preview", "&effect=blur").status == 204
    assert json.load(_ask(server, "/figures"))["pictures"] is False
    _ask(server, "/switch", body=b'{"bundle": "bright"}')
    assert json.load(_ask(server, "/figures"))["pictures"] is True
    # Nor does it show a file of this machine.
    file = f"&effect=replace={photos / '0.png'}"
    assert _ask(server, "/preview", file).status == 204

    buffer = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), 200, np.uint8)).save(buffer, "PNG")
    assert _ask(server, "/portrait", body=buffer.getvalue()).status == 200
    figures = json.load(_ask(server, "/figures"))
    assert figures["effect"] == "replace=your picture 1"
    assert "cannot be read" in _refused(server, 400, "/portrait", "", b"GIF89a")
    assert json.load(_ask(server, "/figures"))["effect"] == figures["effect"]
    assert _ask(server, "/neutral", body=b"").status == 200


def _until_there(server: Server, path: str, query: str) -> bytes:
    """What the page gets, once there is a frame."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        answer: bytes = _ask(server, path, query).read()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{path} gives nothing")


@pytest.mark.parametrize("host", ["a..b", "\udcff", "a\0b", "/tmp/" + "a" * 200])
def test_a_host_that_cannot_be(host: str) -> None:
    with pytest.raises(DeviceError, match="cannot listen on") as e:
        Server(cast(Show, None), host)
    assert "None" not in e.value.what
