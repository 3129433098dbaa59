"""The page of a show, on this machine alone unless another address is asked for: the
picture, before and after, figures, and what may be switched.

Every request wants the token that is in the page's address, and a Host that is this
server's, so that neither another user of the machine nor a page of another origin sees
or changes anything.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Tuple, Type

import numpy as np
from numpy.typing import NDArray

from ..device_end.vitals import FLAGS_NOW, TOOL_EVERY_S, Sensors
from ..errors import DeviceError, EdgecError, InputError
from ..vision.camera import encode_jpeg
from . import LOOPBACK
from .listening import Asked, Listener
from .show import Show, ShownFrame
from .uploads import MAX_UPLOAD_BYTES, decode_upload

Array = NDArray[Any]

PAGE = Path(__file__).with_name("page.html")
WAIT_S = 2.0
"""Seconds that a request for a newer picture may take."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' blob:; "
    "img-src data: blob:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """Serves the page of a show from threads of its own; url: with the token.

    host: an address, or the path of a socket that is made, which leads to no port.
    """

    def __init__(self, show: Show, host: str = LOOPBACK, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        try:
            self._http: _Http
            if host.startswith("/"):
                self._http = _SocketFile(host)
            else:
                self._http = _Http((host, port), _Handler)
        except OSError as e:
            raise DeviceError(
                f"cannot listen on {host}:{port}: {e.strerror}",
                hint="give another --port",
            ) from e
        self._http.show = show
        self._http.token = self.token
        self._http.uploading = threading.Lock()
        others = not host.startswith("/") and host not in (LOOPBACK, "localhost")
        # The names by which others reach a public address are not known here.
        self._http.names = None if others else (LOOPBACK, "localhost")
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="edgec-page", daemon=True
        )
        named = host if host not in ("0.0.0.0", "::") else _own_address()
        if host.startswith("/"):
            base = ""
        else:
            base = f"http://{named}:{self._http.server_address[1]}"
        self.url = f"{base}/?token={self.token}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        # Only now, when no new connection can come; it ends waits for another request.
        self._http.connections.hang_up()
        self._thread.join()


class _Http(Listener):
    show: Show
    token: str
    uploading: threading.Lock
    """Is held while a picture is read."""
    names: Optional[Tuple[str, ...]]
    """Return the Host values a request may have; None for a public address."""


class _SocketFile(_Http):
    # not on every system that this file is read on
    address_family = getattr(socket, "AF_UNIX", socket.AF_INET)

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__((LOOPBACK, 0), _Handler)

    def server_bind(self) -> None:
        """Bind the socket's path; the names that HTTP wants are made up."""
        self.socket.bind(self._path)
        self.server_name = LOOPBACK
        self.server_port = 0


class _Handler(Asked):
    server: _Http

    def do_GET(self) -> None:
        """The page, a picture, a preview of an effect, or the figures."""
        path, query = self.asked()
        allowed = self._is_allowed(query)
        # A body left unread would be taken for the next request of the connection.
        self.body()
        if not allowed:
            self._refuse()
        elif path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif path == "/picture":
            seen = query.get("seen", "0")
            self._picture(
                int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 16 else 0
            )
        elif path == "/preview":
            self._preview(query.get("effect", ""))
        elif path == "/figures":
            self._send_json(200, figures(self.server.show))
        else:
            self._send_json(404, {"error": f"there is no {path}"})

    def do_POST(self) -> None:
        """Switch to another bundle or effect, take a picture, or the neutral face."""
        path, query = self.asked()
        changes: Dict[str, Callable[[], None]] = {
            "/switch": self._switch,
            "/portrait": self._take_picture,
            "/neutral": self._renew,
        }
        if not self._is_allowed(query):
            self.body()
            self._refuse()
        elif path not in changes:
            self.body()
            self._send_json(404, {"error": f"there is no {path}"})
        else:
            try:
                changes[path]()
            except EdgecError as e:
                self._send_error_of(e)
            else:
                self._send_json(200, {})

    def _switch(self) -> None:
        """Carry out {"bundle": …, "effect": …}.  Raises EdgecError."""
        try:
            wish = json.loads(self.body())
            bundle, effect = (wish.get(k) for k in ("bundle", "effect"))
            if not all(x is None or isinstance(x, str) for x in (bundle, effect)):
                raise ValueError
        # No JSON, no object, or brackets nested too deeply for the parser.
        except (ValueError, AttributeError, RecursionError) as e:
            what = "the body does not name a bundle or an effect"
            raise InputError(what, hint='send {"bundle": …, "effect": …}') from e
        self.server.show.switch(bundle, effect)

    def _take_picture(self) -> None:
        """Show the effect with the picture in the body.  Raises EdgecError."""
        # A small board has the memory and the time to read one, not several.
        if not self.server.uploading.acquire(blocking=False):
            self.close_connection = True  # the body stays unread
            raise InputError(
                "another picture is being read", hint="send this one again"
            )
        try:
            self.server.show.upload(decode_upload(self.body(MAX_UPLOAD_BYTES)))
        finally:
            self.server.uploading.release()

    def _renew(self) -> None:
        """Take the neutral face anew."""
        self.body()
        self.server.show.renew()

    def _is_allowed(self, query: Dict[str, str]) -> bool:
        """Return whether a request knows the token, reached this by a name that is its
        own, and is of no page of another origin: its connection is no stranger's then.
        """
        named = self.headers.get("Host") or ""
        # A foreign name that resolves to this machine (DNS rebinding) would let its
        # page read the answers: browsers see one origin.
        mine = self.server.names is None or named.rsplit(":", 1)[0] in self.server.names
        mine = (
            mine and self.headers.get("Origin", f"http://{named}") == f"http://{named}"
        )
        # In constant time, so that answers do not tell how much of a token is right.
        token = query.get("token", "").encode()
        allowed = mine and hmac.compare_digest(token, self.server.token.encode())
        if allowed:
            self.know()
        return allowed

    def _refuse(self) -> None:
        self._send_json(
            403, {"error": "the token is not the one that edgec webcam printed"}
        )

    def _preview(self, effect: str) -> None:
        """Send a small JPEG of the newest frame with an effect."""
        try:
            found = self.server.show.preview(effect)
        except EdgecError as e:
            self._send_error_of(e)
            return
        if found is None:
            self._send(204, "image/jpeg", b"")
        else:
            self._send(200, "image/jpeg", encode_jpeg(found))

    def _picture(self, seen: int) -> None:
        """A JPEG of before and after, side by side; its number, and where before ends,
        are headers.
        """
        found = self.server.show.newer(seen, WAIT_S)
        if found is None:
            self._send(204, "image/jpeg", b"")
            return
        more = {"X-Number": str(found.number), "X-Before": str(found.before.shape[1])}
        self._send(200, "image/jpeg", encode_jpeg(_beside(found)), more)

    def _send_error_of(self, error: EdgecError) -> None:
        """Send what is wrong, and what to do about it."""
        told = error.what if error.hint is None else f"{error.what}: {error.hint}"
        self._send_json(400, {"error": told})

    def _send_json(self, code: int, value: Dict[str, Any]) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(
        self, code: int, kind: str, body: bytes, more: Optional[Dict[str, str]] = None
    ) -> None:
        try:
            self.send_response(code)
            for name, text in {
                **_HEADERS,
                **(more or {}),
                "Content-Type": kind,
            }.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # whoever asked is gone
            self.close_connection = True


def figures(show: Show) -> Dict[str, Any]:
    """Return the figures beside the picture."""
    found, lines, choice = show.figures(), show.found()[0], show.choice
    return {
        "source": show.source.name,
        "lost": show.source.lost,
        "bundles": list(show.bundles),
        "bundle": choice.bundle,
        "effects": show.effects(choice.task),
        "effect": choice.effect,
        "renewable": show.renewable,
        "pictures": show.takes_pictures(),
        "found": lines,
        "stream": None if found is None else found.as_dict(),
        **_HEAT.glance(),
    }


class Heat:
    """Temperature of this machine, and whether it is slowed down now, as far as it
    tells.
    """

    def __init__(self, sensors: Optional[Sensors] = None) -> None:
        self._sensors = Sensors() if sensors is None else sensors
        self._word: Optional[int] = None
        self._asked = -TOOL_EVERY_S
        self._lock = threading.Lock()

    def glance(self) -> Dict[str, Any]:
        """celsius; throttled: None where nothing tells."""
        seen = self._sensors.glance()
        flags = seen["throttled"]
        # one question at a time, of a process, where the firmware's flags are in no
        # file
        with self._lock:
            if self._sensors.asks and time.monotonic() - self._asked >= TOOL_EVERY_S:
                self._word = self._sensors.flags()[0]
                self._asked = time.monotonic()
            flags = self._word if flags is None else flags
        told = [
            None if flags is None else bool(flags & FLAGS_NOW),
            seen["undervoltage"],
            seen["cooling"],
        ]
        known = [bool(x) for x in told if x is not None]
        return {"celsius": seen["celsius"], "throttled": any(known) if known else None}


_HEAT = Heat()


def _beside(picture: ShownFrame) -> Array:
    """Return both pictures side by side, at the height of the higher one."""
    height = max(picture.before.shape[0], picture.after.shape[0])
    return np.concatenate(
        [_to_height(x, height) for x in (picture.before, picture.after)], axis=1
    )


def _to_height(picture: Array, height: int) -> Array:
    above = (height - picture.shape[0]) // 2
    return np.pad(picture, ((above, height - picture.shape[0] - above), (0, 0), (0, 0)))


def _own_address() -> str:
    """How others may reach this machine."""
    return socket.gethostname()
