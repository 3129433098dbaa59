"""Answers Frigate's detector of the type `zmq`.

A request is a message of two parts: JSON with `shape`, `dtype` and perhaps
`model_request` or `model_data`, and the bytes of the picture. The answer is JSON with
`shape` [20, 6] and `dtype` float32, and 20 rows of class, score, top, left, bottom and
right, the last four from 0 to 1; rows without an object are zero
(frigate/detectors/plugins/zmq_ipc.py of blakeblackshear/frigate, 0.17).
"""

from __future__ import annotations

import json
import queue
import socket
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, EdgecError, InputError
from ..vision.tasks.instances import Box
from .detector import MOST_PIXELS, Detector

Array = NDArray[Any]
ROWS = 20
COLUMNS = 6
_MOST_BYTES = 3 * MOST_PIXELS
"""Largest size of a part of a message: ZeroMQ closes the connection at a larger one."""
_MOST_HEAD_BYTES = 4096
_LINGER_MS = 500
"""How long the last answers may take to their clients."""
_MOST_QUEUED = 4
"""Largest number of messages that ZeroMQ keeps for each client, which sends the next one
after an answer."""


def rows_of(boxes: Sequence[Box], width: int, height: int) -> Array:
    """Return Frigate's rows of the best boxes, float32 [20, 6].

    Args:
        boxes: the boxes, the best first
        width, height: of their picture, in pixels
    """
    rows = np.zeros((ROWS, COLUMNS), np.float32)
    sides = (width, height, width, height)
    for i, box in enumerate(boxes[:ROWS]):
        left, top, right, bottom = np.divide(box.corners, sides).clip(0, 1)
        rows[i] = (box.index, box.score, top, left, bottom, right)
    return rows


def picture_of(head: Dict[str, Any], data: bytes) -> Array:
    """Return the picture of a request, uint8 [height, width, 3].

    It may have one more dimension of 1 in front, its channels in front of its rows, and
    float32 from 0 to 1.

    Raises InputError for anything else.
    """
    shape, kind = head.get("shape"), head.get("dtype")
    if kind not in ("uint8", "float32"):
        raise InputError(f"the picture has the type {kind!r}", hint="send uint8")
    if not isinstance(shape, list) or not all(
        type(side) is int and 0 < side <= MOST_PIXELS for side in shape
    ):
        raise InputError(f"the picture has the shape {shape!r}", hint="send integers")
    if len(shape) == 4 and shape[0] == 1:
        shape = shape[1:]
    count = 1
    for side in shape:
        count *= side
    if len(shape) != 3 or 3 not in (shape[0], shape[2]) or count > 3 * MOST_PIXELS:
        raise InputError(
            f"the picture has the shape {shape}", hint="send [1, height, width, 3]"
        )
    dtype = np.dtype(kind)
    if len(data) != count * dtype.itemsize:
        raise InputError(
            f"the picture has {len(data)} bytes, and its shape needs "
            f"{count * dtype.itemsize}",
            hint="send all of it",
        )
    picture = np.frombuffer(data, dtype).reshape(shape)
    if shape[2] != 3:
        picture = np.moveaxis(picture, 0, 2)
    if kind == "float32":
        picture = (np.nan_to_num(picture).clip(0, 1) * 255).round().astype(np.uint8)
    return np.ascontiguousarray(picture)


class ZmqService:
    """Answers at a ZeroMQ address from a thread of its own; a context manager.

    Args:
        address: tcp://127.0.0.1:5555 or ipc:///run/edgec.sock
        detector: detects the objects

    Raises:
        DeviceError: the address cannot be taken, or pyzmq is not installed
        InputError: it is not an address
    """

    def __init__(self, address: str, detector: Detector) -> None:
        try:
            import zmq
        except ImportError:
            raise DeviceError(
                "pyzmq is needed to answer over ZeroMQ, and is not there",
                hint="pip install pyzmq",
            ) from None
        self._zmq = zmq
        self._detector = detector
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MOST_BYTES)
        self._socket.setsockopt(zmq.RCVHWM, _MOST_QUEUED)
        self._socket.setsockopt(zmq.SNDHWM, _MOST_QUEUED)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as e:
            self._context.destroy(0)
            if "://" not in address:
                raise InputError(
                    f"{address!r} is not an address of ZeroMQ",
                    hint="give tcp://HOST:PORT, as tcp://127.0.0.1:5555",
                ) from e
            # pyzmq writes the address behind the system's words: it stands before them.
            raise DeviceError(
                f"cannot listen at {address}: {zmq.strerror(e.errno or 0)}",
                hint="give an address of this machine with another port, or end what "
                "listens there",
            ) from e
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._answers: "queue.SimpleQueue[List[bytes]]" = queue.SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._ends = False
        self._thread = threading.Thread(
            target=self._work, name="edgec-zmq", daemon=True
        )

    def __enter__(self) -> ZmqService:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends = True
        self._wake.send(b"x")
        self._thread.join()
        self._context.destroy(_LINGER_MS)
        self._wake.close()
        self._woken.close()

    def _work(self) -> None:
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        while not self._ends:
            ready = dict(poller.poll())
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            self._send_answers()
            if self._socket in ready:
                self._request(self._socket.recv_multipart())
        # those of the pictures that waited when the service was ended
        self._send_answers()

    def _send_answers(self) -> None:
        while not self._answers.empty():
            self._socket.send_multipart(self._answers.get())

    def _request(self, frames: List[bytes]) -> None:
        """Handle a message: the client's number, an empty part, and what it sent."""
        if len(frames) < 3 or frames[1]:
            # Not a socket of the type REQ: there is no way to answer it.
            self._detector.figures.refused += 1
            return
        route, parts = frames[:2], frames[2:]
        try:
            head = _head(parts[0])
            if "model_request" in head:
                # Its own network is the one that serves, whatever the client calls it.
                known = {"model_available": True, "model_loaded": True}
                self._answer([*route, json.dumps(known).encode()])
                return
            if "model_data" in head:
                raise InputError(
                    "the service has a network of its own",
                    hint="leave the model out, and send pictures",
                )
            if len(parts) != 2:
                raise InputError(f"the message has {len(parts)} parts", hint="send 2")
            picture = picture_of(head, parts[1])
        except Exception as e:
            # Whatever a client sends, it gets one answer, and the next one is served.
            self._detector.figures.refused += 1
            self._answer([*route, *_encoded(rows_of((), 1, 1), e)])
            return
        size = (picture.shape[1], picture.shape[0])
        answer = self._detector.submit(picture)
        answer.add_done_callback(partial(self._done, route, size))

    def _done(
        self,
        route: List[bytes],
        size: Tuple[int, int],
        answer: "Future[Tuple[Box, ...]]",
    ) -> None:
        error = answer.exception()
        boxes = () if error else answer.result()
        self._answer([*route, *_encoded(rows_of(boxes, *size), error)])

    def _answer(self, frames: List[bytes]) -> None:
        self._answers.put(frames)
        self._wake.send(b"x")


def _head(data: bytes) -> Dict[str, Any]:
    """Return the JSON object in front of a picture.  Raises InputError."""
    try:
        if len(data) > _MOST_HEAD_BYTES:
            raise ValueError
        head = json.loads(data)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise InputError(
            "the message does not begin with a JSON object",
            hint='send {"shape": [1, 320, 320, 3], "dtype": "uint8"}',
        )
    return head


def _encoded(rows: Array, error: Optional[BaseException]) -> List[bytes]:
    """Return the parts of an answer; the text of an error stands beside its rows."""
    head: Dict[str, Any] = {"shape": [ROWS, COLUMNS], "dtype": "float32"}
    if error is not None:
        head["error"] = error.what if isinstance(error, EdgecError) else str(error)
    return [json.dumps(head).encode(), rows.tobytes()]
