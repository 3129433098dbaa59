"""An HTTP server for anybody: many connections, slow ones, malformed requests.

It prints nothing.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Optional, Set, Tuple
from urllib.parse import parse_qs, urlsplit

MOST_CONNECTIONS = 64
REQUEST_S = 30.0
"""Seconds in which a request must have come, in however many pieces."""
MOST_BYTES = 1 << 12
"""Of a request's body."""


class Listener(ThreadingHTTPServer):
    """Beyond MOST_CONNECTIONS, whoever comes is sent away."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *address_and_handler: Any) -> None:
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._open: Set[socket.socket] = set()
        super().__init__(*address_and_handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in a thread of its own, if one is free."""
        # Not blocking: this thread is the one that accepts all connections.
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread was started that would release it.
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a request, and know its connection meanwhile."""
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._free.release()

    def hang_up(self) -> None:
        """End the open connections, so that their other ends notice."""
        # A copy, since the connections' threads remove theirs meanwhile.
        for one in list(self._open):
            with contextlib.suppress(OSError):  # it has gone by itself
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: strangers' text does not belong on a terminal."""


class Asked(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S

    def setup(self) -> None:
        """Begin to read, with a limit for the whole request."""
        super().setup()
        self._timely = _Timely(self.connection)
        # The base class's file has a limit for each piece, not for all of a request.
        self.rfile = io.BufferedReader(self._timely)

    def handle_one_request(self) -> None:
        """Read a request, whose time runs from the first wait for it on."""
        self._timely.until = time.monotonic() + REQUEST_S
        super().handle_one_request()

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
        """Return the request's body; b"" where there is none, or it is too large.

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
        return self.rfile.read(int(length))


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
