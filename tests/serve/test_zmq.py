"""Frigate's detector `zmq`: its own plugin as the client, and malformed messages."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from edgec_runtime.errors import DeviceError, InputError
from edgec_runtime.serve.detector import Detector
from edgec_runtime.serve.zmq_service import ZmqService, picture_of, rows_of
from numpy.typing import NDArray

from tests.serve.conftest import Detect, Picture
from tests.waiting import LIMIT_S

HEAD = {"shape": [1, 96, 96, 3], "dtype": "uint8"}


@pytest.fixture
def service(detector: Detector) -> Iterator[ZmqService]:
    with ZmqService("tcp://127.0.0.1:*", detector) as served:
        yield served


class Client:
    """A client of the type REQ, as Frigate is one."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.REQ)
        self.socket.setsockopt(zmq.RCVTIMEO, round(1e3 * LIMIT_S))
        self.socket.connect(address)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._context.destroy(0)

    def ask(self, *parts: bytes) -> tuple[dict[str, Any], NDArray[np.float32]]:
        self.socket.send_multipart(parts)
        head, *rows = self.socket.recv_multipart()
        data = rows[0] if rows else b""
        return json.loads(head), np.frombuffer(data, np.float32).reshape(-1, 6)

    def detect(self, picture: Picture) -> NDArray[np.float32]:
        head = {**HEAD, "shape": [1, *picture.shape]}
        return self.ask(json.dumps(head).encode(), picture.tobytes())[1]


def expected(picture: Picture, detect: Detect) -> NDArray[np.float32]:
    return rows_of(detect(picture), picture.shape[1], picture.shape[0])


def test_rows_are_those_of_a_session(
    service: ZmqService, detect: Detect, pictures: list[Picture]
) -> None:
    with Client(service.address) as client:
        found = 0
        for picture in pictures:
            rows = client.detect(picture)
            assert np.array_equal(rows, expected(picture, detect))
            found += int((rows[:, 1] > 0).sum())
        assert found >= len(pictures)


def test_pictures_of_other_forms(
    service: ZmqService, detect: Detect, pictures: list[Picture]
) -> None:
    """Channels in front, floats from 0 to 1, no dimension in front, another size."""
    picture = pictures[0]
    right = expected(picture, detect)
    planes = np.ascontiguousarray(np.moveaxis(picture, 2, 0))[None]
    floats = (picture / 255).astype(np.float32)
    with Client(service.address) as client:
        for array in (planes, floats, picture):
            head = {"shape": list(array.shape), "dtype": array.dtype.name}
            _, rows = client.ask(json.dumps(head).encode(), array.tobytes())
            assert np.array_equal(rows, right)
        large = picture.repeat(3, axis=0).repeat(2, axis=1)
        assert np.array_equal(client.detect(large), expected(large, detect))


def test_twenty_cameras_at_once(
    service: ZmqService, detector: Detector, detect: Detect, pictures: list[Picture]
) -> None:
    right = [expected(picture, detect) for picture in pictures]
    wrong: list[int] = []

    def camera(number: int) -> None:
        with Client(service.address) as client:
            for k in range(20):
                i = (number + k) % len(pictures)
                if not np.array_equal(client.detect(pictures[i]), right[i]):
                    wrong.append(number)

    threads = [threading.Thread(target=camera, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert detector.figures.counts() == {
        "received": 400,
        "answered": 400,
        "dropped": 0,
        "failed": 0,
        "refused": 0,
    }


def test_the_network_is_there_whatever_its_name(service: ZmqService) -> None:
    with Client(service.address) as client:
        answer, _ = client.ask(b'{"model_request": true, "model_name": "x.onnx"}')
        assert answer == {"model_available": True, "model_loaded": True}
        answer, rows = client.ask(b'{"model_data": true, "model_name": "x"}', b"onnx")
        assert "network of its own" in answer["error"]
        assert not rows.any()


@pytest.mark.parametrize(
    ("head", "data", "error"),
    [
        (b"", b"", "does not begin with a JSON object"),
        (b"[1]", b"", "does not begin with a JSON object"),
        (b"[" * 4000, b"", "does not begin with a JSON object"),
        (b"{" + b" " * 5000 + b"}", b"", "does not begin with a JSON object"),
        (b'{"shape": [1, 2, 2, 3], "dtype": "object"}', b"", "the type 'object'"),
        (b'{"shape": "x", "dtype": "uint8"}', b"", "the shape 'x'"),
        (b'{"shape": [true, 2, 3], "dtype": "uint8"}', b"", "the shape [True"),
        (b'{"shape": [-1, 2, 3], "dtype": "uint8"}', b"", "the shape [-1"),
        (b'{"shape": [2, 2, 4], "dtype": "uint8"}', b"", "the shape [2, 2, 4]"),
        (b'{"shape": [9999999, 9999999, 3], "dtype": "uint8"}', b"", "the shape"),
        (b'{"shape": [2, 2, 3], "dtype": "uint8"}', b"12345678901", "11 bytes"),
    ],
)
def test_a_bad_message_gets_one_answer(
    service: ZmqService, detector: Detector, head: bytes, data: bytes, error: str
) -> None:
    with Client(service.address) as client:
        answer, rows = client.ask(head, data)
        assert error in answer["error"]
        assert rows.shape == (20, 6)
        assert not rows.any()
        assert detector.figures.refused == 1
        # the next one is served
        assert client.ask(b'{"model_request": true}')[0]["model_loaded"]


def test_random_messages(
    service: ZmqService, detect: Detect, pictures: list[Picture]
) -> None:
    """Whatever comes, from whatever kind of socket, a picture is detected afterwards."""
    rng = random.Random(7)
    good = [json.dumps(HEAD).encode(), pictures[0].tobytes()]
    context = zmq.Context()
    try:
        for kind in (zmq.DEALER, zmq.REQ):
            for _ in range(150):
                socket = context.socket(kind)
                socket.setsockopt(zmq.LINGER, 500)
                socket.connect(service.address)
                parts = [bytearray(p) for p in good[: rng.randrange(1, 3)]]
                part = rng.choice(parts)
                for _ in range(rng.randrange(4)):
                    part[rng.randrange(len(part))] = rng.randrange(256)
                del part[rng.randrange(len(part) + 1) :]
                socket.send_multipart([bytes(p) for p in parts])
                socket.close()
        with Client(service.address) as client:
            rows = client.detect(pictures[0])
            assert np.array_equal(rows, expected(pictures[0], detect))
    finally:
        context.destroy(0)


def test_an_address_that_is_taken(service: ZmqService, detector: Detector) -> None:
    taken = f"^cannot listen at {re.escape(service.address)}: Address already in use$"
    with pytest.raises(DeviceError) as caught:
        ZmqService(service.address, detector)
    assert re.search(taken, caught.value.what)
    assert "5555" not in (caught.value.hint or "")
    with pytest.raises(InputError, match="not an address of ZeroMQ"):
        ZmqService("127.0.0.1:5555", detector)


def test_too_large_a_picture() -> None:
    with pytest.raises(InputError, match="shape"):
        picture_of({"shape": [1, 30000, 30000, 3], "dtype": "uint8"}, b"")


@pytest.mark.shared
def test_the_plugin_of_frigate(
    service: ZmqService,
    detect: Detect,
    pictures: list[Picture],
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its plugin gets the rows of a session, also after the service was away."""
    plugin = frigate_plugin("zmq_ipc", shared, monkeypatch)
    config = types.SimpleNamespace(
        endpoint=service.address,
        request_timeout_ms=round(1e3 * LIMIT_S),
        linger_ms=0,
        model=types.SimpleNamespace(
            path="/config/shapes.onnx",
            width=96,
            height=96,
            model_type=types.SimpleNamespace(name="ssd"),
        ),
    )
    client = plugin.ZmqIpcDetector(config)
    for picture in pictures:
        rows = client.detect_raw(picture[None])
        assert np.array_equal(rows, expected(picture, detect))


def frigate_plugin(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> types.ModuleType:
    """Return one of Frigate's plugins, with stubs for the rest of Frigate."""
    monkeypatch.syspath_prepend(str(shared / "peers" / "frigate"))
    stubs: dict[str, dict[str, object]] = {
        "frigate.const": {"DEFAULT_ATTRIBUTE_LABEL_MAP": {}, "MODEL_CACHE_DIR": ""},
        "frigate.plus": {"PlusApi": object},
        "frigate.util": {},
        "frigate.util.builtin": {
            "generate_color_palette": lambda n: [],
            "load_labels": lambda *a, **k: {},
        },
    }
    for module, values in stubs.items():
        stub = types.ModuleType(module)
        vars(stub).update(values)
        monkeypatch.setitem(sys.modules, module, stub)
    base = "frigate.detectors.plugins"
    for module in [m for m in sys.modules if m.startswith("frigate.detectors")]:
        monkeypatch.delitem(sys.modules, module)
    return importlib.import_module(f"{base}.{name}")
