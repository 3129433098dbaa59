"""The page of a show, on this machine alone unless another address is asked for: the picture, before and after,
figures, and what may be switched.

Every request wants the token that is in the page's address, and a Host that is this server's, so that neither another
user of the machine nor a page of another origin sees or changes anything.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Optional, Tuple, Type
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from ..camera import encode_jpeg
from ..device_end.vitals import FLAGS_NOW, Sensors
from ..errors import DeviceError, EdgecError, InputError
from .show import Picture, Show

Array = NDArray[Any]

PAGE = Path(__file__).with_name("page.html")
LOOPBACK = "127.0.0.1"
WAIT_S = 2.0
"""That a request for a newer picture may take."""
MOST_BYTES = 1 << 12
"""Of a request's body."""
_SENSORS = Sensors()
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' blob:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """Serves the page of a show from threads of its own; url: with the token."""

    def __init__(self, show: Show, host: str = LOOPBACK, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        try:
            self._http = _Http((host, port), _Handler)
        except OSError as e:
            raise DeviceError(f"cannot listen on {host}:{port}: {e.strerror}", hint="give another --port") from e
        self._http.show, self._http.token = show, self.token
        self._http.names = None if host not in (LOOPBACK, "localhost") else (LOOPBACK, "localhost")
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="edgec-page", daemon=True)
        named = host if host not in ("0.0.0.0", "::") else _own_address()
        self.url = f"http://{named}:{self._http.server_address[1]}/?token={self.token}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    show: Show
    token: str
    names: Optional[Tuple[str, ...]]
    """Whom a request may address; None where the address is one that others reach."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the show's."""

    def do_GET(self) -> None:
        """The page, a picture or the figures."""
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        if not self._allowed(query.get("token", "")):
            return
        if url.path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif url.path == "/picture":
            seen = query.get("seen", "0")
            self._picture(int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 16 else 0)
        elif url.path == "/figures":
            self._send_json(200, figures(self.server.show))
        else:
            self._send_json(404, {"error": f"there is no {url.path}"})

    def do_POST(self) -> None:
        """Another bundle or effect."""
        url = urlsplit(self.path)
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(int(length)) if length.isdigit() and int(length) <= MOST_BYTES else b""
        if not self._allowed(parse_qs(url.query).get("token", [""])[0]):
            return
        if url.path != "/switch":
            self._send_json(404, {"error": f"there is no {url.path}"})
            return
        try:
            wish = json.loads(body)
            bundle, effect = (wish.get(k) for k in ("bundle", "effect"))
            if not all(x is None or isinstance(x, str) for x in (bundle, effect)):
                raise ValueError
            if effect is not None and "=" in effect and effect != self.server.show.effect:
                raise InputError("a page names no files", hint="start it with that effect")
            self.server.show.switch(bundle, effect)
            self._send_json(200, {})
        except (ValueError, AttributeError, RecursionError):
            self._send_json(400, {"error": 'the body is {"bundle": …, "effect": …}'})
        except EdgecError as e:
            self._send_json(400, {"error": e.what})

    def _allowed(self, token: str) -> bool:
        """Refuses, and tells so, whoever does not know the token, or reaches this by a name that is not its own."""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        mine = self.server.names is None or host in self.server.names
        if mine and hmac.compare_digest(token.encode(), self.server.token.encode()):
            return True
        self._send_json(403, {"error": "the token is not the one that edgec webcam printed"})
        return False

    def _picture(self, seen: int) -> None:
        """A JPEG of before and after, side by side; its number, and where before ends, are headers."""
        found = self.server.show.newer(seen, WAIT_S)
        if found is None:
            self._send(204, "image/jpeg", b"")
            return
        more = {"X-Number": str(found.number), "X-Before": str(found.before.shape[1])}
        self._send(200, "image/jpeg", encode_jpeg(_beside(found)), more)

    def _send_json(self, code: int, value: Dict[str, Any]) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(self, code: int, kind: str, body: bytes, more: Optional[Dict[str, str]] = None) -> None:
        try:
            self.send_response(code)
            for name, text in {**_HEADERS, **(more or {}), "Content-Type": kind}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # whoever asked is gone
            self.close_connection = True


def figures(show: Show) -> Dict[str, Any]:
    """What the page shows beside the picture."""
    found, lines = show.figures(), show.found()[0]
    vitals = _SENSORS.glance()
    return {
        "source": show.source.name,
        "lost": show.source.lost,
        "bundles": list(show.bundles),
        "bundle": show.on,
        "effect": show.effect,
        "found": lines,
        "stream": None if found is None else found.as_dict(),
        "celsius": vitals["celsius"],
        "throttled": None if vitals["throttled"] is None else bool(vitals["throttled"] & FLAGS_NOW),
    }


def _beside(picture: Picture) -> Array:
    """Both at the height of the larger; the other in the middle of black."""
    height = max(picture.before.shape[0], picture.after.shape[0])
    return np.concatenate([_to_height(x, height) for x in (picture.before, picture.after)], axis=1)


def _to_height(picture: Array, height: int) -> Array:
    above = (height - picture.shape[0]) // 2
    return np.pad(picture, ((above, height - picture.shape[0] - above), (0, 0), (0, 0)))


def _own_address() -> str:
    """How others may reach this machine."""
    return socket.gethostname()
