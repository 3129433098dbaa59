"""DeepStack's interface: Frigate's plugin as the client, figures, malformed requests."""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from edgec_runtime.errors import DeviceError, InputError
from edgec_runtime.serve.detector import Detector
from edgec_runtime.serve.http_service import (
    PATH,
    HttpService,
    decode,
    port_of,
    read_form,
)
from PIL import Image

from fixtures.shapes.pictures import NAMES
from tests.serve.conftest import Detect, Picture
from tests.serve.test_zmq import frigate_plugin
from tests.waiting import LIMIT_S

KEY = "a key"


@pytest.fixture
def service(detector: Detector) -> Iterator[HttpService]:
    with HttpService("127.0.0.1", 0, detector, KEY) as served:
        yield served


def png(picture: Picture) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def post(service: HttpService, image: bytes, **fields: str) -> requests.Response:
    return requests.post(
        f"http://{service.address}{PATH}",
        data={"api_key": KEY, **fields},
        files={"image": image},
        timeout=LIMIT_S,
    )


def test_predictions_are_those_of_a_session(
    service: HttpService, detect: Detect, pictures: list[Picture]
) -> None:
    for picture in pictures:
        answer = post(service, png(picture)).json()
        assert answer["success"]
        right = [
            (box.label, round(box.score, 4), *(round(c) for c in box.corners))
            for box in detect(picture)
        ]
        fields = ("label", "confidence", "x_min", "y_min", "x_max", "y_max")
        assert [tuple(p[f] for f in fields) for p in answer["predictions"]] == right
    least = max(box.score for box in detect(picture))
    few = post(service, png(picture), min_confidence=str(least - 1e-3)).json()
    assert 1 <= len(few["predictions"]) < 1 + len(right)


def test_figures(
    service: HttpService, detector: Detector, pictures: list[Picture]
) -> None:
    post(service, png(pictures[0]))
    post(service, b"damaged")
    # A browser's questions are no pictures.
    for path in ("/", PATH):
        page = requests.get(f"http://{service.address}{path}", timeout=LIMIT_S)
        assert page.status_code == 404
        assert "pictures are POSTed" in page.json()["error"]
    health = requests.get(f"http://{service.address}/health", timeout=LIMIT_S).json()
    assert health["status"] == "ok"
    assert (health["answered"], health["refused"]) == (1, 1)
    text = requests.get(f"http://{service.address}/metrics", timeout=LIMIT_S).text
    assert 'edgec_pictures_total{outcome="answered"} 1\n' in text
    assert 'edgec_latency_seconds_bucket{le="+Inf"} 1\n' in text
    assert "edgec_waiting 0\n" in text


def test_a_key(service: HttpService, pictures: list[Picture]) -> None:
    answer = post(service, png(pictures[0]), api_key="another")
    assert answer.status_code == 403
    assert "api_key" in answer.json()["error"]


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (b"", "no image"),
        (b"GIF89a", "not a JPEG or PNG"),
        (b"\xff\xd8" + b"\xff\xda" * 100, "more than 64 passes"),
    ],
)
def test_a_bad_picture(service: HttpService, image: bytes, error: str) -> None:
    answer = post(service, image)
    assert answer.status_code == 400
    assert error in answer.json()["error"]


def test_pictures_that_need_much_memory() -> None:
    file = io.BytesIO()
    Image.new("L", (1, 9000)).save(file, "PNG")
    with pytest.raises(InputError, match="side above 8192"):
        decode(file.getvalue())
    file = io.BytesIO()
    Image.new("1", (8000, 8000)).save(file, "PNG")
    with pytest.raises(InputError, match="24 million pixels"):
        decode(file.getvalue())


def test_pictures_of_sixteen_bits(pictures: list[Picture]) -> None:
    """A grey PNG of 16 bits is the one of 8 bits, and not white where it is above 255."""
    grey = pictures[0].mean(axis=2).astype(np.uint8)
    assert np.array_equal(decode(png(grey.astype(np.uint16) * 257)), decode(png(grey)))


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\n\r\n" * 900_000,
        b"".join(
            b"--x\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % i
            for i in range(3000)
        ),
        b"--x\r\nContent-Disposition: form-data\r\nno empty line\r\n--x--\r\n",
        b"--x\r\n\r\nno name\r\n--x--\r\n",
        b"no boundary",
    ],
)
def test_a_form_of_another_kind(body: bytes) -> None:
    """However many parts there are, within each other or not, it is refused at once."""
    start = time.process_time()
    with pytest.raises(InputError, match="form"):
        read_form("multipart/form-data; boundary=x", body)
    assert time.process_time() - start < 5


def test_fields_of_a_form() -> None:
    """Contents are taken as they are, quoted names and boundaries too."""
    data = bytes(range(256)) + b"\r\n--y"
    body = b"".join(
        [
            b'ignored\r\n--a b\r\ncontent-DISPOSITION: form-data; name="image";',
            b' filename="a; \\"b\\".png"\r\nContent-Type: image/png\r\n\r\n' + data,
            b"\r\n--a b\r\nContent-Disposition: form-data; name=api_key\r\n\r\nk",
            b"\r\n--a b--\r\nignored",
        ]
    )
    form = read_form('Multipart/Form-Data; boundary="a b"', body)
    assert form == {"image": data, "api_key": b"k"}


def test_two_lengths_of_a_body(service: HttpService) -> None:
    """A proxy might believe the other one."""
    connection = http.client.HTTPConnection(service.address, timeout=LIMIT_S)
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", "4")
    connection.putheader("Content-Length", "5")
    connection.endheaders(b"--x-")
    assert connection.getresponse().status == 400


def test_random_requests(
    service: HttpService, detect: Detect, pictures: list[Picture]
) -> None:
    """Each ends with an answer or the end of the connection, and the next is served."""
    rng = random.Random(3)
    host, port = service.address.split(":")
    body = (
        b'--x\r\nContent-Disposition: form-data; name="api_key"\r\n\r\na key\r\n'
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        + png(pictures[0])
        + b"\r\n--x--\r\n"
    )
    good = (
        f"POST {PATH} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    statuses = set[bytes]()
    for _ in range(200):
        request = bytearray(good)
        for _ in range(rng.randrange(3)):
            request[rng.randrange(rng.choice((120, len(good))))] = rng.randrange(256)
        with socket.create_connection((host, int(port)), LIMIT_S) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            statuses.add(connection.makefile("rb").readline()[:12])
    assert b"HTTP/1.1 200" in statuses
    assert b"HTTP/1.1 400" in statuses
    assert not any(b" 500" in status for status in statuses)
    assert len(post(service, png(pictures[0])).json()["predictions"]) == len(
        detect(pictures[0])
    )


def test_a_body_that_is_too_large(service: HttpService) -> None:
    connection = http.client.HTTPConnection(service.address, timeout=LIMIT_S)
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert "at most 8 MB" in json.loads(answer.read())["error"]


def test_addresses(service: HttpService, detector: Detector) -> None:
    assert port_of("127.0.0.1:80") == ("127.0.0.1", 80)
    assert port_of("[::1]:80") == ("::1", 80)
    for text in ("80", ":80", "a:b", "a:99999", "a:-1"):
        with pytest.raises(InputError, match="not a"):
            port_of(text)
    with pytest.raises(DeviceError, match="cannot listen"):
        HttpService(*port_of(service.address), detector)


@pytest.mark.shared
def test_the_plugin_of_frigate(
    detector: Detector,
    detect: Detect,
    pictures: list[Picture],
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sends JPEGs, so that its rows are those of the pictures that these give."""
    plugin = frigate_plugin("deepstack", shared, monkeypatch)
    with HttpService("127.0.0.1", 0, detector) as service:
        labels = dict(enumerate(NAMES))
        config: Any = types.SimpleNamespace(
            api_url=f"http://{service.address}{PATH}",
            api_timeout=LIMIT_S,
            api_key="",
            model=types.SimpleNamespace(merged_labelmap=labels),
        )
        client = plugin.DeepStack(config)
        for picture in pictures:
            rows = client.detect_raw(picture[None])
            with io.BytesIO() as file:
                Image.fromarray(picture).save(file, "JPEG")
                right = detect(np.asarray(Image.open(file)))
            assert [int(r[0]) for r in rows if r[1]] == [b.index for b in right]
            for row, box in zip(rows, right, strict=False):
                x1, y1, x2, y2 = (round(c) / 96 for c in box.corners)
                assert np.allclose(row[2:], (y1, x1, y2, x2))


@pytest.mark.parametrize("host", ["a..b", "\udcff", "a\0b", "a" * 100])
def test_a_host_that_cannot_be(detector: Detector, host: str) -> None:
    with pytest.raises(DeviceError, match="cannot listen at"):
        HttpService(host, 0, detector)
