"""Serves the web page of a show: the frame before and after the effect, figures, and
controls.

By default it listens on the loopback address only. Every request has to have the token
of the page's URL, and this server's name as Host, so that neither another user of the
machine nor a page of another origin can see or change anything.
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
from .listening import Listener, RequestHandler
from .show import Show, ShownFrame
from .uploads import MAX_UPLOAD_BYTES, decode_upload

Array = NDArray[Any]

PAGE = Path(__file__).with_name("page.html")
WAIT_S = 2.0
"""Seconds after which a request for a newer picture is answered without one."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' blob:; "
    "img-src data: blob:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server:
    """Serves the page of a show from its own threads; a context manager.

    Args:
        show: the show
        host: an address, or the path of a Unix socket to make
        port: the port; 0 for any

    Attributes:
        token: the token that every request needs
        url: the URL of the page with the token; without the address for a Unix socket
    """

    def __init__(self, show: Show, host: str = LOOPBACK, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        try:
            self._http: _Http
            if host.startswith("/"):
                self._http = _SocketFile(host)
            else:
                self._http = _Http((host, port), _Handler)
        except (OSError, ValueError, TypeError) as e:
            # Names that no host can have are not all refused by the system.
            raise DeviceError(
                f"cannot listen on {host}:{port}: {getattr(e, 'strerror', None) or e}",
                hint="give another --port",
            ) from e
        self._http.show = show
        self._http.token = self.token
        self._http.uploading = threading.Lock()
        is_public = not host.startswith("/") and host not in (LOOPBACK, "localhost")
        # The names by which others reach a public address are not known here.
        self._http.names = None if is_public else (LOOPBACK, "localhost")
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="edgec-page", daemon=True
        )
        name = host if host not in ("0.0.0.0", "::") else socket.gethostname()
        if host.startswith("/"):
            base = ""
        else:
            base = f"http://{name}:{self._http.server_address[1]}"
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
        # No new connection can come now; this ends threads that wait for a request.
        self._http.connections.hang_up()
        self._thread.join()


class _Http(Listener):
    show: Show
    token: str
    uploading: threading.Lock
    """Locked while an uploaded picture is decoded."""
    names: Optional[Tuple[str, ...]]
    """The Host values that a request may have; None for any."""


class _SocketFile(_Http):
    # Not every system on which this module is imported has AF_UNIX.
    address_family = getattr(socket, "AF_UNIX", socket.AF_INET)

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__((LOOPBACK, 0), _Handler)

    def server_bind(self) -> None:
        """Bind the socket's path; HTTP gets a placeholder for the server's name."""
        self.socket.bind(self._path)
        self.server_name = LOOPBACK
        self.server_port = 0


class _Handler(RequestHandler):
    server: _Http

    def do_GET(self) -> None:
        """Answer with the page, a picture, a preview of an effect, or the figures."""
        path, query = self.target()
        allowed = self._is_allowed(query)
        # A body left unread would be taken for the next request of the connection.
        self.body()
        if not allowed:
            self._refuse()
        elif path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif path == "/picture":
            last = query.get("seen", "0")
            self._picture(
                int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
            )
        elif path == "/preview":
            self._preview(query.get("effect", ""))
        elif path == "/figures":
            self._send_json(200, figures(self.server.show))
        else:
            self._send_json(404, {"error": f"there is no {path}"})

    def do_POST(self) -> None:
        """Switch the bundle or effect, take a picture, or renew the neutral face."""
        path, query = self.target()
        actions: Dict[str, Callable[[], None]] = {
            "/switch": self._switch,
            "/portrait": self._take_picture,
            "/neutral": self._renew,
        }
        if not self._is_allowed(query):
            self.body()
            self._refuse()
        elif path not in actions:
            self.body()
            self._send_json(404, {"error": f"there is no {path}"})
        else:
            try:
                actions[path]()
            except EdgecError as e:
                self._send_error_json(e)
            else:
                self._send_json(200, {})

    def _switch(self) -> None:
        """Switch as a body of {"bundle": …, "effect": …} says.  Raises EdgecError."""
        try:
            choice = json.loads(self.body())
            bundle, effect = (choice.get(k) for k in ("bundle", "effect"))
            if not all(x is None or isinstance(x, str) for x in (bundle, effect)):
                raise ValueError
        # The body is not JSON, not an object, or nested too deeply for the parser.
        except (ValueError, AttributeError, RecursionError) as e:
            what = "the body does not name a bundle or an effect"
            raise InputError(what, hint='send {"bundle": …, "effect": …}') from e
        self.server.show.switch(bundle, effect)

    def _take_picture(self) -> None:
        """Show the effect with the picture in the body.  Raises EdgecError."""
        # A small board has memory and time to decode one picture at once, not several.
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
        """Return whether a request has the token, an allowed Host, and no other Origin.

        If so, its connection is no longer a stranger's.
        """
        host = self.headers.get("Host") or ""
        # For a foreign name that resolves to this machine (DNS rebinding), a browser
        # would let the page of that name read the answers.
        is_own = (
            self.server.names is None or host.rsplit(":", 1)[0] in self.server.names
        )
        is_own = (
            is_own and self.headers.get("Origin", f"http://{host}") == f"http://{host}"
        )
        # The comparison takes the same time however much of a token is right.
        token = query.get("token", "").encode()
        allowed = is_own and hmac.compare_digest(token, self.server.token.encode())
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
            picture = self.server.show.preview(effect)
        except EdgecError as e:
            self._send_error_json(e)
            return
        if picture is None:
            self._send(204, "image/jpeg", b"")
        else:
            self._send(200, "image/jpeg", encode_jpeg(picture))

    def _picture(self, last: int) -> None:
        """Send a JPEG with the newest frame before and after the effect, side by side.

        Headers have its number, and the width of the left part in pixels.

        Args:
            last: the number of the picture that the page shows already
        """
        frame = self.server.show.newer(last, WAIT_S)
        if frame is None:
            self._send(204, "image/jpeg", b"")
            return
        headers = {
            "X-Number": str(frame.number),
            "X-Before": str(frame.before.shape[1]),
        }
        self._send(200, "image/jpeg", encode_jpeg(_side_by_side(frame)), headers)

    def _send_error_json(self, error: EdgecError) -> None:
        """Send the message and the hint of an error."""
        text = error.what if error.hint is None else f"{error.what}: {error.hint}"
        self._send_json(400, {"error": text})

    def _send_json(self, code: int, value: Dict[str, Any]) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(
        self,
        code: int,
        kind: str,
        body: bytes,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        try:
            self.send_response(code)
            for name, text in {
                **_HEADERS,
                **(headers or {}),
                "Content-Type": kind,
            }.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # the client has closed the connection
            self.close_connection = True


def figures(show: Show) -> Dict[str, Any]:
    """Return the figures beside the picture."""
    stream, lines, choice = show.figures(), show.found()[0], show.choice
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
        "stream": None if stream is None else stream.as_dict(),
        **_HEAT.glance(),
    }


class Heat:
    """The temperature of this machine, and whether its clock is lowered now."""

    def __init__(self, sensors: Optional[Sensors] = None) -> None:
        self._sensors = Sensors() if sensors is None else sensors
        self._flags: Optional[int] = None
        self._last_call = -TOOL_EVERY_S
        self._lock = threading.Lock()

    def glance(self) -> Dict[str, Any]:
        """Return "celsius", and "throttled", whether the clock is lowered.

        Each is None if the machine does not tell it.
        """
        vitals = self._sensors.glance()
        flags = vitals["throttled"]
        # If only a process can tell the firmware's flags, one such process at a time
        # runs for all requests.
        with self._lock:
            since = time.monotonic() - self._last_call
            if self._sensors.asks and since >= TOOL_EVERY_S:
                self._flags = self._sensors.flags()[0]
                self._last_call = time.monotonic()
            flags = self._flags if flags is None else flags
        signs = [
            None if flags is None else bool(flags & FLAGS_NOW),
            vitals["undervoltage"],
            vitals["cooling"],
        ]
        known = [bool(x) for x in signs if x is not None]
        return {
            "celsius": vitals["celsius"],
            "throttled": any(known) if known else None,
        }


_HEAT = Heat()


def _side_by_side(frame: ShownFrame) -> Array:
    """Return the frame before and after the effect side by side, uint8 [H, W, 3]."""
    height = max(frame.before.shape[0], frame.after.shape[0])
    return np.concatenate(
        [_padded(x, height) for x in (frame.before, frame.after)], axis=1
    )


def _padded(picture: Array, height: int) -> Array:
    """Return a picture with black rows above and below, up to a height."""
    above = (height - picture.shape[0]) // 2
    return np.pad(picture, ((above, height - picture.shape[0] - above), (0, 0), (0, 0)))
