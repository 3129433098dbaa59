"""What somebody does who reaches the port of a show's page but does not know its token,
or does and sends anything.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from edgec_runtime.webcam import listening
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.uploads import MAX_UPLOAD_BYTES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.waiting import LIMIT_S, until
from tests.webcam.pictures import encoded, gradient
from tests.webcam.requests import (
    UNSENT,
    NoShow,
    connected,
    gets_figures,
    known_connection,
    reads_half,
    request,
    say,
)

LONG = 1 << 17
TOTAL_RETRANS = 100
"""Place of tcpi_total_retrans in linux/tcp.h's struct tcp_info, bytes."""


@pytest.fixture(scope="module")
def show() -> NoShow:
    return NoShow()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stranger is sent away for its silence."""
    monkeypatch.setattr(listening, "STRANGER_S", 2 * LIMIT_S)


@pytest.fixture(scope="module")
def server(show: NoShow) -> Iterator[Server]:
    with Server(show) as server:  # type: ignore[arg-type]
        yield server


def _alive(server: Server) -> None:
    answer = say(server, request(server, "GET", "/figures"))
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]


REQUESTS: dict[str, tuple[str, dict[str, str], bytes, tuple[int, ...]]] = {
    "an address that is none": ("GET http://[", {}, b"", (400, 403)),
    "two slashes": ("GET //[::1", {}, b"", (400, 403, 404)),
    "out of the folder": ("GET /../../../etc/passwd", {}, b"", (404,)),
    "out of the folder, quoted": ("GET /%2e%2e/%2e%2e/etc/passwd", {}, b"", (404,)),
    "a file beside the page": ("GET /server.py", {}, b"", (404,)),
    "digits of another script": (
        "POST /switch",
        {"Content_Length": "\xb2"},
        b"",
        (400,),
    ),
    "a negative length": ("POST /switch", {"Content_Length": "-1"}, b"{}", (400,)),
    "an endless length": (
        "POST /switch",
        {"Content_Length": "9" * 4000},
        b"{}",
        (400,),
    ),
    "in pieces": (
        "POST /switch",
        {"Transfer_Encoding": "chunked"},
        b"2\r\n{}\r\n0\r\n\r\n",
        (400,),
    ),
    "a nested body": ("POST /switch", {"Content_Length": "4000"}, b"[" * 4000, (400,)),
    "a body that is no text": (
        "POST /switch",
        {"Content_Length": "2"},
        b"\xff\xfe",
        (400,),
    ),
    "a length that cuts the body": (
        "POST /switch",
        {"Content_Length": "19"},
        b'{"effect":"cartoon"}',
        (400,),
    ),
    "another host": ("GET /figures", {"Host": "evil.example"}, b"", (403,)),
    "a host that ends alike": (
        "GET /figures",
        {"Host": "localhost.evil.example:80"},
        b"",
        (403,),
    ),
    "no picture": ("POST /portrait", {}, b"", (400,)),
    "a picture that is text": (
        "POST /portrait",
        {"Content_Length": "4000"},
        b"<svg/>" * 700,
        (400,),
    ),
    "a picture larger than allowed": (
        "POST /portrait",
        {"Content_Length": "99999999"},
        b"\xff\xd8\xff",
        (400,),
    ),
    "a picture of a foreign page": (
        "POST /portrait",
        {"Origin": "http://evil.example", "Content_Length": "3"},
        b"\xff\xd8\xff",
        (403,),
    ),
    "the neutral face for a foreign page": (
        "POST /neutral",
        {"Origin": "http://evil.example", "Content_Length": "0"},
        b"",
        (403,),
    ),
    "a method of its own": ("PROPFIND /", {}, b"", (501,)),
    "a long header": ("GET /figures", {"X": "x" * LONG}, b"", (431,)),
    "many headers": ("GET /figures", {f"X{i}": "x" for i in range(200)}, b"", (431,)),
    "a long address": (f"GET /{'x' * LONG}", {}, b"", (414,)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_that_no_page_of_ours_makes(
    server: Server, show: NoShow, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    line, headers, body, codes = REQUESTS[name]
    method, path = line.split(" ", 1)
    show.switched.clear()
    answer = say(server, request(server, method, path, body, **headers))
    # else it may be closed before all of it was sent
    if len(line) + len(str(headers)) < LONG or answer:
        assert answer.startswith(
            tuple(f"HTTP/1.1 {code} ".encode() for code in codes)
        ), answer[:200]
    assert b"root:" not in answer
    assert b"import " not in answer
    assert not show.switched
    assert capfd.readouterr() == ("", "")
    _alive(server)


def test_what_is_not_read_is_no_next_request(server: Server, show: NoShow) -> None:
    show.switched.clear()
    hidden = request(
        server, "POST", "/switch", b'{"bundle": "tiny"}', Content_Length="18"
    )
    for more in (
        {"Content_Length": "5000"},
        {"Content_Length": "x"},
        {"Transfer_Encoding": "chunked"},
    ):
        for method, path in (("POST", "/switch"), ("GET", "/figures")):
            asked = request(server, method, path, b"", **more).replace(
                b"Connection: close\r\n", b""
            )
            answer = say(server, asked + hidden)
            assert answer.count(b"HTTP/1.1 ") == 1
            assert b"Connection: close" in answer
    assert not show.switched


def test_without_the_token_nothing_is_told(server: Server) -> None:
    for token in (
        "",
        "x",
        server.token[:-1],
        server.token + "x",
        server.token.upper(),
        "%00",
        "\xe9",
    ):
        for path in ("/", "/picture", "/figures"):
            asked = (
                f"GET {path}?token={token} HTTP/1.1\r\nHost: "
                "localhost\r\nConnection: "
                "close\r\n\r\n"
            )
            assert say(server, asked.encode("latin-1")).startswith(b"HTTP/1.1 403 ")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes(
    server: Server, capfd: pytest.CaptureFixture[str], data: bytes, after: bool
) -> None:
    say(
        server,
        request(server, "POST", "/switch", Content_Length="3") + data
        if after
        else data + b"\r\n\r\n",
    )
    _alive(server)
    assert capfd.readouterr() == ("", "")


def test_one_who_is_slow_is_sent_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then keeps no connection."""
    monkeypatch.setattr(listening, "STRANGER_S", 0.4)
    with connected(server) as s:
        try:
            for _ in range(600):
                s.sendall(b"G")
                time.sleep(0.05)
        except OSError:
            return
    pytest.fail("it was listened to for half a minute")


def test_silent_ones_are_sent_away_before_the_owner(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known_connection(server) as owner:
        monkeypatch.setattr(listening, "STRANGER_S", 0.4)
        with connected(server) as stranger:
            assert stranger.recv(1) == b""
        assert gets_figures(server, owner)


@pytest.mark.usefixtures("patient")
def test_many_at_once(server: Server) -> None:
    before = threading.active_count()
    with ExitStack() as opened:
        for i in range(300):
            opened.enter_context(connected(server, f"127.0.0.{2 + i % 4}"))
        _has_at_most_threads(before + listening.MOST_STRANGERS)
    _has_at_most_threads(before + 2)
    _alive(server)


def _has_at_most_threads(most: int) -> None:
    """Threads of connections that were ended take a moment to see that."""
    until(lambda: threading.active_count() <= most, f"at most {most} threads")


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")
def test_they_are_accepted_at_once(server: Server) -> None:
    """Else each beyond those that wait does so for seconds, and then tries again."""
    with ExitStack() as opened:
        for _ in range(300):
            connection = opened.enter_context(connected(server))
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            assert struct.unpack_from("I", info, TOTAL_RETRANS)[0] == 0


@pytest.mark.usefixtures("patient")
def test_the_owner_has_a_place(server: Server) -> None:
    """Before strangers came, beside them, and while more come; it waits for none."""
    with known_connection(server) as owner, ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(connected(server))
        start = time.monotonic()
        for _ in range(20):
            assert gets_figures(server, owner)
            with known_connection(server):
                opened.enter_context(connected(server))
        assert time.monotonic() - start < listening.STRANGER_S


@pytest.mark.usefixtures("patient")
def test_an_address_takes_no_place_of_another(server: Server) -> None:
    with ExitStack() as opened:
        other = opened.enter_context(connected(server, "127.0.0.3"))
        for _ in range(100):
            opened.enter_context(connected(server, "127.0.0.2"))
        time.sleep(0.3)
        other.sendall(request(server, "GET", "/figures"))
        assert other.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_the_owner_has_no_more_than_a_share(server: Server) -> None:
    before = threading.active_count()
    with ExitStack() as opened:
        first = opened.enter_context(known_connection(server))
        for _ in range(listening.MOST_KNOWN + 5):
            newest = opened.enter_context(known_connection(server))
        _has_at_most_threads(before + listening.MOST_KNOWN + 1)
        assert first.recv(1) == b""
        assert gets_figures(server, newest)


@pytest.mark.parametrize("size", [1000, 60_000])
def test_heads_are_small(server: Server, size: int) -> None:
    """With or without the token, which is within them."""
    most = listening.MOST_HEAD_BYTES
    for length, code in ((most // 2, 200), (most + 1, 431), (97 * size, 431)):
        count = min(97, length // min(size, length // 2))
        lines = "".join(f"X-{i}: {'x' * (length // count)}\r\n" for i in range(count))
        asked = request(server, "GET", "/figures").replace(
            b"\r\n\r\n", f"\r\n{lines}\r\n".encode()
        )
        assert say(server, asked).startswith(f"HTTP/1.1 {code} ".encode())


def test_what_is_too_large_is_answered(server: Server) -> None:
    """To one who reads only after all was sent."""
    data = bytes(MAX_UPLOAD_BYTES + 1)
    asked = request(
        server, "POST", "/portrait", data, Content_Length=str(len(data))
    ).replace(b"Connection: close\r\n", b"")
    for _ in range(5):
        with connected(server) as s:
            s.sendall(asked)
            answer = b""
            while came := s.recv(1 << 16):
                answer += came
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"larger than 8 MB" in answer


def test_one_picture_at_a_time(server: Server, show: NoShow) -> None:
    """The next is read when the one before it was, or its sender is gone."""
    picture = encoded(gradient(), "PNG")
    asked = request(
        server, "POST", "/portrait", picture, Content_Length=str(len(picture))
    )
    show.switched.clear()
    with reads_half(server, asked) as first:
        answer = say(server, asked)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"another picture is being read: send this one again" in answer
        first.sendall(asked[-UNSENT:])
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    with reads_half(server, asked):
        pass
    for _ in range(2):
        assert say(server, asked).startswith(b"HTTP/1.1 200 ")
    assert show.switched == 3 * [(40, 60, 3)]
