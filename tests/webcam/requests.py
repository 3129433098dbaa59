"""What reaches the port of a show's page: requests, connections, and a show of nothing
behind the page.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from edgec_runtime.errors import InputError
from edgec_runtime.webcam.server import Server
from edgec_runtime.webcam.show import Choice

from tests.waiting import LIMIT_S, until

UNSENT = 20
"""Bytes of a picture that reads_half does not send."""


class NoShow:
    """A show of nothing; it counts what it is asked for."""

    bundles = {"tiny": "tiny.edgec"}
    choice = Choice("tiny", "overlay", "image")
    source = SimpleNamespace(name="none", lost=0)
    renewable = False

    def __init__(self) -> None:
        self.switched: list[Any] = []

    def newer(self, seen: int, timeout: float) -> None:
        return None

    def figures(self) -> None:
        return None

    def effects(self, task: str) -> list[str]:
        return ["overlay"]

    def takes_pictures(self) -> bool:
        return True

    def preview(self, name: str) -> None:
        return None

    def renew(self) -> None:
        self.switched.append("renewed")

    def upload(self, picture: Any) -> None:
        self.switched.append(picture.shape)

    def found(self) -> tuple[list[str], dict[str, Any]]:
        return [], {}

    def switch(self, bundle: str | None, effect: str | None) -> None:
        self.switched.append((bundle, effect))
        if bundle not in (None, *self.bundles):
            raise InputError("no such bundle", hint="another")


def request(
    server: Server, method: str, path: str, body: bytes = b"", **headers: str
) -> bytes:
    """A request with the token, the last of its connection."""
    host = {"Host": f"localhost:{urlsplit(server.url).port}", **headers}
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in host.items())
    return (
        f"{method} {path}?token={server.token} HTTP/1.1\r\n{lines}Connection: "
        "close\r\n\r\n".encode("latin-1")
        + body
    )


def say(server: Server, data: bytes) -> bytes:
    """What the server answers until it closes, or says no more for a while."""
    with connected(server) as s:
        found = b""
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while came := s.recv(1 << 16):
                found += came
        except OSError:
            pass
        return found


def connected(server: Server, address: str = "127.0.0.1") -> socket.socket:
    """From an address of the loopback network."""
    to = ("127.0.0.1", urlsplit(server.url).port or 0)
    return socket.create_connection(to, LIMIT_S, (address, 0))


@contextmanager
def reads_half(server: Server, upload: bytes) -> Iterator[socket.socket]:
    """A connection of which the server reads a picture whose end is missing.

    Afterwards the server knows that the sender is gone.

    Args:
        server: the server
        upload: a whole request with a picture
    """
    uploading = server._http.uploading
    with connected(server) as connection:
        connection.sendall(upload[:-UNSENT])
        until(uploading.locked, "the server reads the picture")
        yield connection
    until(lambda: not uploading.locked(), "the server reads no picture")


def known_connection(server: Server) -> socket.socket:
    """A connection that has shown the token."""
    connection = connected(server)
    assert gets_figures(server, connection)
    return connection


def gets_figures(server: Server, connection: socket.socket) -> bool:
    """Whether a connection gets them, and stays."""
    asked = request(server, "GET", "/figures")
    connection.sendall(asked.replace(b"Connection: close\r\n", b""))
    answer = HTTPResponse(connection)
    answer.begin()
    return answer.status == 200 and b"source" in answer.read()
