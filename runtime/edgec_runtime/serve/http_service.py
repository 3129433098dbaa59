"""Answers the HTTP interface of DeepStack and CodeProject.AI, and tells figures.

    POST /v1/vision/detection   form with `image` (JPEG or PNG), perhaps `api_key` and
                                `min_confidence`
    GET  /health                JSON
    GET  /metrics               the text format of Prometheus

DeepStack's answer: {"success": true, "predictions": [{"label", "confidence", "x_min",
"y_min", "x_max", "y_max"}]}, in pixels of the picture
(https://docs.deepstack.cc/object-detection).
"""

from __future__ import annotations

import email.message
import hmac
import io
import json
import threading
import time
from typing import Any, Dict, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, EdgecError, InputError
from ..vision.tasks.instances import Box
from ..webcam.listening import Listener, RequestHandler
from .detector import MOST_PIXELS, Detector

Array = NDArray[Any]
PATH = "/v1/vision/detection"
MOST_BYTES = 8 << 20
"""Largest size of a request's body."""
_MOST_FIELDS = 32
"""Largest number of fields of a form."""
_MOST_HEAD_BYTES = 4096
"""Bytes of the lines before a field, of which no more is read."""
_MOST_SIDE = 8192
_MOST_SCANS = 64
"""More than any camera's JPEG has; each one costs the decoder a pass over all pixels."""
_ANSWER_S = 30.0


class HttpService:
    """Answers at an address from threads of its own; a context manager.

    Args:
        host, port: the address; port 0 for any
        detector: detects the objects
        key: the api_key that a client needs; "" for none

    Raises DeviceError if the address cannot be taken.
    """

    def __init__(self, host: str, port: int, detector: Detector, key: str = "") -> None:
        try:
            self._http = _Http((host, port), _Handler)
        except (OSError, ValueError, TypeError) as e:
            # Names that no host can have are not all refused by the system.
            raise DeviceError(
                f"cannot listen at {host}:{port}: {getattr(e, 'strerror', None) or e}",
                hint="give an address of this machine with another port, or end what "
                "listens there",
            ) from e
        self._http.detector = detector
        self._http.key = key
        self._http.decoding = threading.Lock()
        self.address = "{}:{}".format(*self._http.server_address[:2])
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="edgec-http", daemon=True
        )

    def __enter__(self) -> HttpService:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._http.connections.hang_up()
        self._thread.join()


class _Http(Listener):
    detector: Detector
    key: str
    decoding: threading.Lock


class _Handler(RequestHandler):
    server: _Http

    def do_GET(self) -> None:
        """Answer with health or figures."""
        self.body()
        path, _ = self.target()
        detector = self.server.detector
        if path == "/metrics":
            text = detector.figures.text(detector.waiting)
            self._send(200, "text/plain; version=0.0.4", text.encode())
        elif path == "/health":
            self._send_json(200, health(detector))
        else:
            # No picture came, so it is none among those that were refused.
            self._send_error(404, f"there is no {path} to GET; pictures are POSTed")

    def do_POST(self) -> None:
        """Answer with the objects of a picture."""
        path, _ = self.target()
        if path != PATH:
            self.body()
            self._refuse(404, f"there is no {path}; pictures go to {PATH}")
            return
        kind = self.headers.get("Content-Type", "")
        try:
            form = read_form(kind, self.body(MOST_BYTES))
            key = form.get("api_key", b"")
            if (
                not hmac.compare_digest(key, self.server.key.encode())
                and self.server.key
            ):
                self._refuse(403, "the api_key is not that of this service")
                return
            self.know()
            least = _confidence(form.get("min_confidence", b"0"))
            start = time.monotonic()
            # A large picture takes 350 MB until it is decoded, so it is one at a time.
            with self.server.decoding:
                picture = decode(form.get("image", b""))
                answer = self.server.detector.submit(picture)
            del picture, form
        except InputError as e:
            self._refuse(400, e.what)
            return
        try:
            boxes = answer.result(_ANSWER_S)
        except Exception as e:
            what = e.what if isinstance(e, EdgecError) else f"no answer: {e}"
            self._send_error(503, what)
            return
        self._send_json(
            200,
            {
                "success": True,
                "predictions": predictions(boxes, least),
                "duration": round(time.monotonic() - start, 4),
            },
        )

    def _refuse(self, code: int, what: str) -> None:
        self.server.detector.figures.refused += 1
        self._send_error(code, what)

    def _send_error(self, code: int, what: str) -> None:
        self._send_json(code, {"success": False, "error": what, "predictions": []})

    def _send_json(self, code: int, value: Dict[str, Any]) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(self, code: int, kind: str, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def health(detector: Detector) -> Dict[str, Any]:
    """Return the state of a detector in JSON's types."""
    figures = detector.figures
    return {
        "status": "ok",
        "network": detector.name,
        **figures.counts(),
        "waiting": detector.waiting,
        "inference_ms": round(figures.inference_ms, 3),
    }


def predictions(boxes: Sequence[Box], least: float) -> "list[Dict[str, Any]]":
    """Return DeepStack's list of the boxes with a score of `least` or more."""
    found = []
    for box in boxes:
        if box.score >= least:
            x1, y1, x2, y2 = (round(corner) for corner in box.corners)
            found.append(
                {
                    "label": box.label,
                    "confidence": round(box.score, 4),
                    "x_min": x1,
                    "y_min": y1,
                    "x_max": x2,
                    "y_max": y2,
                }
            )
    return found


def read_form(kind: str, body: bytes) -> Dict[str, bytes]:
    """Return the fields of a multipart form (RFC 7578).

    Args:
        kind: the value of Content-Type
        body: the request's body

    Raises InputError if it is not such a form.
    """
    if not kind.lower().startswith("multipart/form-data") or not body:
        raise InputError(
            f"the body is not a form of at most {MOST_BYTES >> 20} MB",
            hint="send multipart/form-data with the field image",
        )
    boundary = _parameter(kind, "boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))
    # What stands before the first boundary and after the last is for nobody. The parser
    # of the standard library takes a minute for a body of boundaries alone.
    if not boundary or not 3 <= len(parts) <= 2 + _MOST_FIELDS:
        raise InputError(
            f"the form does not have 1 to {_MOST_FIELDS} fields",
            hint="send the field image, and perhaps api_key and min_confidence",
        )
    return dict(_field(part) for part in parts[1:-1])


def _field(part: bytes) -> "tuple[str, bytes]":
    """Return the name and the content of a part of a form.  Raises InputError."""
    head, empty, data = part.partition(b"\r\n\r\n")
    lines = head[:_MOST_HEAD_BYTES].split(b"\r\n")
    names = [
        _parameter(value.decode("utf-8", "replace"), "name")
        for name, _, value in (line.partition(b":") for line in lines)
        if name.strip().lower() == b"content-disposition"
    ]
    if not empty or len(names) != 1:
        raise InputError("a part of the form has no name", hint="send form-data")
    return names[0], data


def _parameter(value: str, name: str) -> str:
    """Return a parameter of a header's value, "" if it has none."""
    header = email.message.Message()
    header["Content-Type"] = value.replace("\r", " ").replace("\n", " ")
    text = header.get_param(name)
    return text if isinstance(text, str) else ""


def _confidence(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(
            f"min_confidence is {text[:20]!r}", hint="send a number from 0 to 1"
        )
    return value


def decode(data: bytes) -> Array:
    """Return the picture of a JPEG or PNG, uint8 [height, width, 3].

    It is decoded in this process, since another one would take longer than the
    inference; so its size and passes are limited before.

    Raises InputError.
    """
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "Pillow is needed to read pictures, and is not there",
            hint="pip install pillow",
        ) from None
    if not data:
        raise InputError("the form has no image", hint="send the field image")
    if data.count(b"\xff\xda") > _MOST_SCANS:
        raise InputError(
            f"the picture has more than {_MOST_SCANS} passes", hint="save it again"
        )
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as file:
            pixels = file.width * file.height
            if max(file.size) <= _MOST_SIDE and pixels <= MOST_PIXELS:
                if file.mode.startswith("I"):
                    # Pillow would cut 16 bits of grey at 255.
                    grey = (np.asarray(file) >> 8).astype(np.uint8)
                    return np.repeat(grey[..., None], 3, axis=2)
                return np.asarray(file.convert("RGB"))
    except Exception as e:
        # Pillow's decoders raise a dozen kinds of exceptions for a damaged file.
        raise InputError(
            "the picture cannot be read: it is not a JPEG or PNG, or damaged",
            hint="send another one",
        ) from e
    raise InputError(
        f"the picture has a side above {_MOST_SIDE}, or more than "
        f"{MOST_PIXELS // 1_000_000} million pixels",
        hint="make it smaller",
    )


def port_of(text: str) -> "tuple[str, int]":
    """Return host and port of HOST:PORT.  Raises InputError."""
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not host
        or not (port.isascii() and port.isdigit() and len(port) < 6)
    ):
        raise InputError(
            f"{text!r} is not an address", hint="give HOST:PORT, as 127.0.0.1:8100"
        )
    if int(port) > 65535:
        raise InputError(f"{port} is not a port", hint="give 0 to 65535")
    return host.strip("[]"), int(port)
