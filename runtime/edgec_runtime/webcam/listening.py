"""An HTTP server that withstands many connections, slow ones and malformed requests.

A connection is a stranger's until a request on it has the token. Strangers have places
of their own, so that they cannot keep others out.  The server prints nothing.
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
"""Largest number of connections that have shown the token."""
MOST_STRANGERS = 32
"""Largest number of connections that have not."""
MOST_OF_ADDRESS = 16
"""Largest number of strangers' connections from one address."""
REQUEST_S = 30.0
"""Seconds in which a whole request has to arrive, in however many pieces."""
STRANGER_S = 5.0
"""The same for a stranger's request."""
MOST_HEAD_BYTES = 16 << 10
"""Largest size of a request's first line and headers."""
MOST_BYTES = 1 << 12
"""Largest size of a request's body."""
_UNREAD = 1 << 16


class Connections:
    """The open connections, strangers' and others, each in the order of last requests.

    If there are too many of a kind, the one with the oldest request is ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strangers: Dict[socket.socket, str] = {}
        self._known: Dict[socket.socket, str] = {}

    def enter(self, connection: socket.socket, address: str) -> None:
        """Add a stranger's connection from an address."""
        with self._lock:
            same = [c for c, other in self._strangers.items() if other == address]
            # An address with too many connections loses one of its own, so that it
            # takes no place from other addresses.
            if len(same) >= MOST_OF_ADDRESS:
                _end(same[0])
                del self._strangers[same[0]]
            _make_room(self._strangers, MOST_STRANGERS)
            self._strangers[connection] = address

    def know(self, connection: socket.socket) -> None:
        """Note that a connection has shown the token."""
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
        """Shut down the sockets of all clients, who then see the end of their answers."""
        with self._lock:
            for connection in (*self._strangers, *self._known):
                _end(connection)


def _make_room(places: Dict[socket.socket, str], most: int) -> None:
    if len(places) >= most:
        first = next(iter(places))
        _end(first)
        del places[first]


def _end(connection: socket.socket) -> None:
    """Shut down a client's socket, so that the thread that reads from it goes on."""
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class Listener(ThreadingHTTPServer):
    """Serves each connection in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    # number of connections that wait to be accepted; others try again after a second
    request_queue_size = 512

    def __init__(self, *address_and_handler: Any) -> None:
        self.connections = Connections()
        super().__init__(*address_and_handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        # The address of a Unix socket is "".
        self.connections.enter(request, "".join(client_address[:1]))
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread was started, which would otherwise do it at its end.
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


class RequestHandler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S

    def setup(self) -> None:
        """Prepare to read, with limits for a whole request."""
        super().setup()
        self._receiver = _Receiver(self.connection)
        # The file of the base class has a time limit for each piece of a request only.
        self._lines = _HeadLines(self._receiver)
        self.rfile = self._lines

    def handle_one_request(self) -> None:
        """Read and answer a request; its time includes the wait for its first byte."""
        known = self.server.connections.knows(self.connection)
        self._receiver.until = time.monotonic() + (REQUEST_S if known else STRANGER_S)
        self._lines.left = MOST_HEAD_BYTES
        try:
            super().handle_one_request()
        except LineTooLong:
            # The first line is too long; for headers the base class answers itself.
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)

    def finish(self) -> None:
        """Close the sending side, and read until the client closes its side.

        The system would reset a connection that is closed with bytes unread, and the
        client would not get the answer, which tells why they were not read.
        """
        super().finish()
        unread = bytearray(_UNREAD)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self._receiver.readinto(unread):
                pass

    def know(self) -> None:
        """Note that this connection has shown the token."""
        self.server.connections.know(self.connection)
        self._receiver.until = time.monotonic() + REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: strangers' text does not belong on a terminal."""

    def target(self) -> Tuple[str, Dict[str, str]]:
        """Return the path and the query of the URL; "" and {} if it is invalid."""
        try:
            url = urlsplit(self.path)
            return url.path, {k: v[0] for k, v in parse_qs(url.query).items()}
        except ValueError:
            return "", {}

    def body(self, most: int = MOST_BYTES) -> bytes:
        """Return the body of the request; b"" if there is none or it is incomplete.

        The body is not read if it is too large; the connection ends then, since the
        bytes would be taken for the next request.

        Args:
            most: its largest size in bytes
        """
        lengths = self.headers.get_all("Content-Length", ["0"])
        length = lengths[0]
        # int() takes signs, spaces and underscores too, and each such length could be
        # read differently by a proxy.
        plain = (
            len(lengths) == 1
            and length.isascii()
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
    """Reads the lines of a head; raises LineTooLong when they exceed `left` bytes."""

    left = 0

    def readline(self, size: Optional[int] = -1) -> bytes:
        line = super().readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise LineTooLong("head")
        return line


class _Receiver(io.RawIOBase):
    """Reads a socket up to a deadline.

    So a client that sends a byte now and then cannot keep a connection open.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left = self.until - time.monotonic()
        if left <= 0:
            raise socket.timeout("the request took too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            # The answer is written to the same socket, with a time limit of its own.
            self._connection.settimeout(REQUEST_S)
