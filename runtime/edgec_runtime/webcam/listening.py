"""An HTTP server for anybody: many connections, slow ones, malformed requests.

Whoever has not shown the token is a stranger, and strangers take no place from those
who have.  It prints nothing.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Optional, Tuple
from urllib.parse import parse_qs, urlsplit

MOST_KNOWN = 32
"""Connections that have shown the token."""
MOST_STRANGERS = 32
"""Connections that have not."""
MOST_OF_ADDRESS = 16
"""Strangers' connections of one address."""
REQUEST_S = 30.0
"""Seconds in which a request must have come, in however many pieces."""
STRANGER_S = 5.0
"""The same of a stranger's, with which each connection begins."""
MOST_HEAD_BYTES = 16 << 10
"""Of a request's first line and headers."""
MOST_BYTES = 1 << 12
"""Of a request's body."""
_LEFTOVER = 1 << 16


class Connections:
    """The open connections, each kind in the order of their last requests.

    Where a kind has no free place, its first connection ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strangers: Dict[socket.socket, str] = {}
        self._known: Dict[socket.socket, str] = {}

    def enter(self, connection: socket.socket, address: str) -> None:
        """Add a stranger's connection from an address."""
        with self._lock:
            same = [c for c, other in self._strangers.items() if other == address]
            # The address's own first: who comes from others loses nothing by it.
            if len(same) >= MOST_OF_ADDRESS:
                _end(same[0])
                del self._strangers[same[0]]
            _make_room(self._strangers, MOST_STRANGERS)
            self._strangers[connection] = address

    def know(self, connection: socket.socket) -> None:
        """Take a connection as one that has shown the token, now."""
        with self._lock:
            for places in (self._strangers, self._known):
                address = places.pop(connection, None)
                if address is not None:
                    _make_room(self._known, MOST_KNOWN)
                    self._known[connection] = address

    def knows(self, connection: socket.socket) -> bool:
        """Return whether a connection has shown the token."""
        return connection in self._known

    def leave(self, connection: socket.socket) -> None:
        """Remove a connection that has ended."""
        with self._lock:
            for places in (self._strangers, self._known):
                places.pop(connection, None)

    def hang_up(self) -> None:
        """End all connections, so that their other ends notice."""
        with self._lock:
            for connection in (*self._strangers, *self._known):
                _end(connection)


def _make_room(places: Dict[socket.socket, str], most: int) -> None:
    if len(places) >= most:
        first = next(iter(places))
        _end(first)
        del places[first]


def _end(connection: socket.socket) -> None:
    """End a connection, and with it all that its thread waits for."""
    with contextlib.suppress(OSError):  # it has gone by itself
        connection.shutdown(socket.SHUT_RDWR)


class Listener(ThreadingHTTPServer):
    """Serves each connection in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    # Of connections that wait to be accepted; each beyond them waits for a second.
    request_queue_size = 512

    def __init__(self, *address_and_handler: Any) -> None:
        self.connections = Connections()
        super().__init__(*address_and_handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        # That of a socket in a folder is "".
        self.connections.enter(request, "".join(client_address[:1]))
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread was started that would do it.
            self.connections.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: strangers' text does not belong on a terminal."""


class Asked(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S

    def setup(self) -> None:
        """Begin to read, with limits for the whole request."""
        super().setup()
        self._timely = _Timely(self.connection)
        # The base class's file has a limit for each piece, not for all of a request.
        self._lines = _HeadLines(self._timely)
        self.rfile = self._lines

    def handle_one_request(self) -> None:
        """Read a request, whose time runs from the first wait for it on."""
        known = self.server.connections.knows(self.connection)
        self._timely.until = time.monotonic() + (REQUEST_S if known else STRANGER_S)
        self._lines.left = MOST_HEAD_BYTES
        try:
            super().handle_one_request()
        except LineTooLong:
            # Of the headers the base class has it answered; this is the first line.
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)

    def finish(self) -> None:
        """Say that nothing more comes, and let the other end finish, too.

        The system resets a connection that is closed with bytes unread, and with them
        goes the answer that says why they were not read.
        """
        super().finish()
        leftover = bytearray(_LEFTOVER)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self._timely.readinto(leftover):
                pass

    def know(self) -> None:
        """Take whoever asks as one who has shown the token."""
        self.server.connections.know(self.connection)
        self._timely.until = time.monotonic() + REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: strangers' text does not belong on a terminal."""

    def asked(self) -> Tuple[str, Dict[str, str]]:
        """Return path and query; "" and nothing for an invalid address."""
        try:
            url = urlsplit(self.path)
            return url.path, {k: v[0] for k, v in parse_qs(url.query).items()}
        except ValueError:
            return "", {}

    def body(self, most: int = MOST_BYTES) -> bytes:
        """Return the request's body; b"" where there is none, or it is too large, or
        its sender is gone before its end.

        What is not read ends the connection: it would be taken for the next request.

        Args:
            most: bytes that are read
        """
        length = self.headers.get("Content-Length", "0")
        # int() takes signs, spaces and underscores too, and each such length could be
        # read differently by a proxy.
        plain = (
            length.isascii()
            and length.isdigit()
            and len(length) < 9
            and "Transfer-Encoding" not in self.headers
        )
        if not plain or int(length) > most:
            self.close_connection = True
            return b""
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else b""


class _HeadLines(io.BufferedReader):
    """What a connection receives; its lines have so many bytes left.

    Raises LineTooLong at the line that exceeds them.
    """

    left = 0

    def readline(self, size: Optional[int] = -1) -> bytes:
        line = super().readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise LineTooLong("head")
        return line


class _Timely(io.RawIOBase):
    """What a socket receives until a time: a byte now and then keeps no connection
    open.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> Optional[int]:
        left = self.until - time.monotonic()
        if left <= 0:
            raise socket.timeout("the request took too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(into)
        finally:
            # The answer is written to the same socket, whose limit is not what is left
            # here.
            self._connection.settimeout(REQUEST_S)
