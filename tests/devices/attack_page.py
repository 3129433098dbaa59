"""The attacks on the page of a webcam: of one who reaches its port but does not know its
token, and by pictures that its owner is given to send.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from unittest import mock

import numpy as np
from edgec_runtime import InputError
from edgec_runtime.webcam import listening, uploads
from edgec_runtime.webcam.server import Server

from tests.devices.attack_files import Case, Host
from tests.webcam.pictures import encoded, many_scans
from tests.webcam.requests import NoShow, connected, request, say

HEAD = "a stranger's headers"
STRANGERS = "the strangers' connections"
ADDRESS = "an address's connections"
TIME = "a stranger's time"
SIZE = "a picture's size"
DECODER = "the limits of a picture's process"
ONE = "one picture at a time"
OPEN_S = 0.5
"""Seconds between two looks at a connection."""
LOOKS = 10
"""After them a connection that was not sent away is taken for one that stays."""


def page() -> Iterator[Case]:
    """All of them."""
    attacks: dict[str, tuple[str, Callable[[Server], bytes]]] = {
        "headers of 6 MB": (HEAD, _headers),
        "silent connections from eight addresses": (STRANGERS, _silent),
        "connections that push another address's out": (ADDRESS, _pushing),
        "a byte now and then": (TIME, _slow),
        "a picture that is a line": (SIZE, partial(_picture, _line)),
        "a picture that takes memory": (DECODER, partial(_picture, _large)),
        "a picture that takes time": (DECODER, partial(_picture, many_scans)),
        "a picture before another ended": (ONE, _half),
    }
    for name, (check, attack) in attacks.items():
        yield Case(f"the page: {name}", (check,), partial(_served, attack))


def _served(attack: Callable[[Server], bytes], h: Host) -> None:
    """Raise InputError with what the server answers to an attack, if it refuses it."""
    # A part of what is usual, so that little is enough to exceed it.
    limits = uploads.LIMITS._replace(memory=100 << 20, seconds=1)
    with (
        mock.patch.object(uploads, "LIMITS", limits),
        Server(NoShow()) as server,  # type: ignore[arg-type]
    ):
        refusal = attack(server)
        served = say(server, request(server, "GET", "/figures"))
    assert served.startswith(b"HTTP/1.1 200 "), "its owner is not served"
    if refusal:
        raise InputError(refusal.decode(), hint="send what the page sends")


def _headers(server: Server) -> bytes:
    lines = {f"X{i}": "x" * 60_000 for i in range(97)}
    answer = say(server, request(server, "GET", "/", b"", **lines))
    return _first_line(answer) if answer.startswith(b"HTTP/1.1 431 ") else b""


def _patient() -> AbstractContextManager[object]:
    """So that no stranger is sent away for its silence."""
    return mock.patch.object(listening, "STRANGER_S", 60.0)


def _silent(server: Server) -> bytes:
    with _patient(), ExitStack() as opened:
        silent = [
            opened.enter_context(connected(server, f"127.0.0.{2 + i % 8}"))
            for i in range(96)
        ]
        for connection in silent:
            connection.setblocking(False)
        for _ in range(LOOKS):
            time.sleep(OPEN_S)
            gone = sum(map(_is_ended, silent))
            if gone >= 64:
                return f"{gone} of {len(silent)} are sent away".encode()
    return b""


def _is_ended(connection: socket.socket) -> bool:
    """Return whether the other end of a connection has ended it."""
    with suppress(BlockingIOError):
        return connection.recv(1) == b""
    return False


def _pushing(server: Server) -> bytes:
    with _patient(), ExitStack() as opened:
        other = opened.enter_context(connected(server, "127.0.0.2"))
        for _ in range(96):
            opened.enter_context(connected(server, "127.0.0.3"))
        time.sleep(OPEN_S)
        try:
            other.sendall(request(server, "GET", "/figures"))
            return _first_line(other.recv(1 << 16))
        except OSError:
            return b""


def _slow(server: Server) -> bytes:
    start = time.monotonic()
    # A tenth of its time, so that the attack need not last.
    short = mock.patch.object(listening, "STRANGER_S", 0.1 * listening.STRANGER_S)
    with short, connected(server) as s:
        try:
            while time.monotonic() < start + LOOKS * OPEN_S:
                s.sendall(b"G")
                time.sleep(0.05)
        except OSError:
            return b"it is sent away"
    return b""


def _picture(data: Callable[[], bytes], server: Server) -> bytes:
    body = data()
    asked = request(server, "POST", "/portrait", body, Content_Length=str(len(body)))
    answer = say(server, asked)
    return b"" if answer.startswith(b"HTTP/1.1 200 ") else answer.split(b"\r\n")[-1]


def _line() -> bytes:
    return encoded(np.zeros((10_000, 1), np.uint8), "PNG")


def _large() -> bytes:
    return encoded(np.zeros((3000, 8000, 4), np.uint8), "PNG", compress_level=1)


def _half(server: Server) -> bytes:
    body = encoded(np.zeros((40, 30), np.uint8), "PNG")
    asked = request(server, "POST", "/portrait", body, Content_Length=str(len(body)))
    with connected(server) as first:
        first.sendall(asked[:-20])
        for _ in range(LOOKS):
            time.sleep(OPEN_S)
            if refusal := _picture(lambda: body, server):
                return refusal
    return b""


def _first_line(answer: bytes) -> bytes:
    return answer.split(b"\r\n")[0]
