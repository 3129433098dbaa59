"""`edgec serve` as a process, MQTT, and pictures that come too fast."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from edgec_runtime import Session
from edgec_runtime.errors import InputError
from edgec_runtime.serve.detector import Detector, DroppedError
from edgec_runtime.serve.http_service import PATH
from edgec_runtime.serve.mqtt_service import MqttService
from edgec_runtime.serve.service import ServeSettings
from edgec_runtime.serve.zmq_service import ZmqService
from PIL import Image

import edgec
from tests.conftest import ROOT
from tests.serve.conftest import Detect, Picture
from tests.serve.test_zmq import Client, expected
from tests.waiting import LIMIT_S, until

ADDRESSES = ("--zmq", "tcp://127.0.0.1:*", "--deepstack", "127.0.0.1:0")


@contextmanager
def served(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A service as a process, and the lines that it printed when it was ready."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            number = sum(word in ("--zmq", "--deepstack", "--mqtt") for word in command)
            lines: list[str] = []
            # Progress stands before the addresses on a slow machine.
            while number:
                line = process.stdout.readline()
                assert line, lines
                lines.append(line)
                number -= "://" in line or line.startswith("MQTT")
            yield process, lines
        finally:
            process.kill()


@pytest.mark.parametrize("module", ["edgec", "edgec_runtime"])
def test_a_process(
    module: str, shapes: Path, pictures: list[Picture], detect: Detect
) -> None:
    verb = ["edgec", "serve"] if module == "edgec" else ["edgec_runtime.serve"]
    command = [sys.executable, "-m", *verb, str(shapes), *ADDRESSES]
    with served(command) as (process, lines):
        text = "".join(lines)
        zmq_address = re.search(r"tcp://\S+", text)
        http_address = re.search(r"http://[0-9.:]+", text)
        assert zmq_address
        assert http_address
        with Client(zmq_address[0]) as client:
            rows = client.detect(pictures[0])
        assert np.array_equal(rows, expected(pictures[0], detect))
        file = io.BytesIO()
        Image.fromarray(pictures[1]).save(file, "PNG")
        answer = requests.post(
            http_address[0] + PATH, files={"image": file.getvalue()}, timeout=LIMIT_S
        )
        assert len(answer.json()["predictions"]) == len(detect(pictures[1]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        if module == "edgec":
            assert process.stdout is not None
            assert "2 received, 2 answered, 0 dropped" in process.stdout.read()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "no address"),
        ({"mqtt": "mqtt://127.0.0.1"}, "no picture can come"),
        ({"deepstack": "8100"}, "not an address"),
        ({"deepstack": "127.0.0.1:0", "mqtt": "http://h"}, "not the URL of a broker"),
        ({"deepstack": "127.0.0.1:0", "queue": 0}, "0 places"),
        ({"zmq": "tcp://127.0.0.1:*", "api_key": "k"}, "ZeroMQ has no key"),
    ],
)
def test_options_that_cannot_be(
    shapes: Path, options: dict[str, Any], error: str
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(InputError, match=error):
        edgec.serve(shapes, **options)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_network_that_detects_nothing(tmp_path: Path) -> None:
    edgec.compile(ROOT / "fixtures/digits/digits.onnx", output=tmp_path / "a.edgec")
    with (
        Session(tmp_path / "a.edgec") as session,
        pytest.raises(InputError, match="needs that of detection"),
    ):
        Detector(session, 1)


def test_the_oldest_is_dropped(shapes: Path, pictures: list[Picture]) -> None:
    with Session(shapes) as session:
        detector = Detector(session, places=3)
        answers = [detector.submit(picture) for picture in pictures[:8]]
        # nothing was detected so far: the first five have made room
        for answer in answers[:5]:
            with pytest.raises(DroppedError, match="3 newer ones"):
                answer.result(0)
        with detector:
            assert all(answer.result(LIMIT_S) is not None for answer in answers[5:])
        with pytest.raises(DroppedError, match="the service ends"):
            detector.submit(pictures[0]).result(0)
        assert detector.figures.dropped == 6


def test_a_cancelled_picture_stops_nobody(
    shapes: Path, pictures: list[Picture]
) -> None:
    with Session(shapes) as session:
        detector = Detector(session, places=2)
        answers = [detector.submit(picture) for picture in pictures[:2]]
        assert all(answer.cancel() for answer in answers)
        # The first has no room any more, and the second is not wanted.
        last = detector.submit(pictures[2])
        with detector:
            assert last.result(LIMIT_S) is not None
        assert detector.figures.dropped == 2


def test_large_pictures_leave_fewer_places(shapes: Path) -> None:
    """What waits is bounded by its pixels too: 48 million, two of the largest."""
    large = np.zeros((4000, 5000, 3), np.uint8)
    with Session(shapes) as session:
        detector = Detector(session, places=32)
        answers = [detector.submit(large) for _ in range(4)]
        assert detector.waiting == 2
        for answer in answers[:2]:
            with pytest.raises(DroppedError, match="2 newer ones"):
                answer.result(0)


def test_the_last_answers_arrive(shapes: Path, pictures: list[Picture]) -> None:
    """Pictures that wait when the service is ended are answered before it ends."""
    head = json.dumps({"shape": [1, 96, 96, 3], "dtype": "uint8"}).encode()
    with Session(shapes) as session, ExitStack() as clients:
        detector = Detector(session, places=32)
        with ZmqService("tcp://127.0.0.1:*", detector) as service:
            asking = [clients.enter_context(Client(service.address)) for _ in range(12)]
            for client, picture in zip(asking, pictures, strict=True):
                client.socket.send_multipart([head, picture.tobytes()])
            until(lambda: detector.waiting == 12, "all wait")
            with detector:
                pass
        for client in asking:
            answer, rows = client.socket.recv_multipart()
            assert "error" not in json.loads(answer)
            assert any(rows)


def test_settings_without_an_address() -> None:
    ServeSettings(zmq="tcp://127.0.0.1:1").check()
    with pytest.raises(InputError, match="no address"):
        ServeSettings(api_key="a").check()


class Broker:
    """A broker of MQTT 3.1.1 for one client: it takes what is published, or refuses
    the connection with a return code that is not 0.
    """

    def __init__(self, code: int = 0) -> None:
        self._code = code
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.messages: list[tuple[str, str]] = []
        self.will = ""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def wait_for(self, topic: str) -> str:
        """Return the first message of a topic."""
        until(lambda: topic in dict(self.messages), f"a message of {topic}")
        return next(text for name, text in self.messages if name == topic)

    def wait_for_end(self) -> None:
        """Return when all is read that the client has sent, which has ended."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        stream = connection.makefile("rb")
        while kind := stream.read(1):
            size, shift = 0, 0
            while True:
                byte = stream.read(1)[0]
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            body = stream.read(size)
            if kind[0] >> 4 == 1:
                connection.sendall(bytes((0x20, 2, 0, self._code)))
            elif kind[0] >> 4 == 3:
                length = int.from_bytes(body[:2], "big")
                topic, rest = body[2 : 2 + length].decode(), body[2 + length :]
                if kind[0] & 6:
                    connection.sendall(b"\x40\x02" + rest[:2])
                    rest = rest[2:]
                self.messages.append((topic, rest.decode()))


def test_mqtt(shapes: Path, pictures: list[Picture], detect: Detect) -> None:
    """Home Assistant learns of the sensor, and of the objects of a picture."""
    broker = Broker()
    command = [sys.executable, "-m", "edgec_runtime.serve", str(shapes)]
    url = f"mqtt://user:word@127.0.0.1:{broker.port}"
    with served([*command, *ADDRESSES[:2], "--mqtt", url]) as (process, lines):
        sensor = json.loads(
            broker.wait_for("homeassistant/sensor/edgec_shapes/objects/config")
        )
        assert sensor["availability_topic"] == "edgec/shapes/available"
        assert broker.wait_for("edgec/shapes/available") == "online"
        address = re.search(r"tcp://\S+", "".join(lines))
        assert address
        with Client(address[0]) as client:
            client.detect(pictures[0])
        message = json.loads(broker.wait_for(sensor["state_topic"]))
        right = [b.label for b in detect(pictures[0])]
        assert [o["label"] for o in message["objects"]] == right
        assert message["count"] == len(right)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    broker.wait_for_end()
    assert broker.messages[-1] == ("edgec/shapes/available", "offline")


@pytest.mark.parametrize("code", [4, 5])
def test_a_broker_that_refuses(code: int, detector: Detector) -> None:
    """A password that is wrong or forgotten is said, once."""
    broker = Broker(code)
    lines = said_by(f"mqtt://127.0.0.1:{broker.port}", detector)
    assert len(lines) == 1
    assert lines[0].startswith(f"the broker 127.0.0.1:{broker.port} refuses")
    assert broker.messages == []


def test_a_broker_that_is_away(detector: Detector) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    lines = said_by(f"mqtt://127.0.0.1:{port}", detector)
    assert lines[0].startswith(f"the broker 127.0.0.1:{port} is away")


def test_a_library_that_is_too_old(tmp_path: Path) -> None:
    """Debian 12 has paho-mqtt 1.6, which has no `enums`."""
    old = tmp_path / "paho" / "mqtt"
    old.mkdir(parents=True)
    for path in (old.parent / "__init__.py", old / "__init__.py", old / "client.py"):
        path.touch()
    options = ("--zmq", "tcp://127.0.0.1:1", "--mqtt", "mqtt://h")
    done = subprocess.run(
        [sys.executable, "-m", "edgec_runtime.serve.command_line", *options],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "paho-mqtt is needed for --mqtt, and is not there or too old" in done.stderr


def said_by(url: str, detector: Detector) -> list[str]:
    """What a service that publishes to a broker says within its first attempt."""
    lines: list[str] = []
    with MqttService(url, detector, lines.append):
        until(lambda: lines, "it says something of the broker")
        # Its next attempt comes after a second.
        time.sleep(0.2)
        return list(lines)
