"""Delivery over lines that lose, double, delay and reflect, on a simulated clock; the
greeting and its versions.
"""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.flash import FlashOutcome, each
from edgec_devices.protocol import Connection
from edgec_devices.stream import LinkLost, device_end
from edgec_devices.transfer import Assembly, send
from edgec_runtime import BundleError, DeviceError, InputError
from edgec_runtime.device_end import wire
from edgec_runtime.device_end.agent import HANDLERS, Service
from edgec_runtime.device_end.requests import BEGIN, STATUS, BeginAnswer, Empty
from edgec_runtime.device_end.wire import (
    ACK,
    DATA,
    FROM_DEVICE,
    HELLO,
    LAST,
    PROTOCOL,
    Decoder,
    Delivery,
    Frame,
    pack,
)

from tests.devices.faults import Faults, SimStream, World


def pair() -> tuple[Delivery, Delivery]:
    """A host and a device that have greeted each other at time 0."""
    host = Delivery(False, b"host", 5)
    device = Delivery(True, b"device")
    device.receive(host.poll(0), 0)
    host.receive(device.poll(0), 0)
    assert (host.peer, device.peer) == (b"device", b"host")
    return host, device


def world(tmp_path: Path) -> World:
    w = World(tmp_path / "root", random.Random(0))
    w.boot()
    return w


def connect(
    w: World, up: Faults | None = None, down: Faults | None = None, **options: Any
) -> Connection:
    stream = SimStream(w, up or Faults(), down or Faults(), **options)
    return Connection(stream, lambda: w.now, seed=3)


def test_messages_arrive_whole_and_in_order() -> None:
    host, device = pair()
    messages = [b"", b"a", b"b" * 1024, b"c" * 5000]
    for m in messages:
        host.send(m)
    for now in range(5):
        device.receive(host.poll(now), now)
        host.receive(device.poll(now), now)
    assert list(device.messages) == messages
    assert host.idle
    assert host.backlog == 0


def test_only_what_was_lost_is_sent_again() -> None:
    host, device = pair()
    host.send(bytes(5 * 1024))
    frames = list(Decoder().feed(host.poll(1)))
    assert [f.seq for f in frames] == [0, 1, 2, 3, 4]
    device.receive(b"".join(f.encode() for f in frames if f.seq not in (1, 3)), 1)
    (ack,) = Decoder().feed(device.poll(1))
    assert (ack.kind & ~FROM_DEVICE, ack.seq, ack.payload) == (ACK, 1, bytes([0b101]))
    host.receive(ack.encode(), 1)
    assert [f.seq for f in Decoder().feed(host.poll(1))] == [1, 3]


def test_the_last_frame_is_sent_again_after_a_time_that_grows() -> None:
    host, _ = pair()
    host.send(b"x")
    assert len(list(Decoder().feed(host.poll(0)))) == 1
    times = []
    now = 0.0
    for _ in range(4):
        now = host.wake()
        assert list(Decoder().feed(host.poll(now)))
        times.append(now)
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    assert 0.9 < gaps[0] < 1.2
    assert all(g < 3 for g in gaps)


def test_time_limits_follow_the_line() -> None:
    (slow, _), (fast, _) = pair(), pair()
    for d, rate in ((slow, 960.0), (fast, 1e6)):
        d.tune(1024, 8, rate)
        d.send(bytes(8192))
        d.poll(0)
    assert slow.wake() > 8192 / 960
    assert fast.wake() < 1.1


def test_doubles_echoes_and_strangers_are_dropped() -> None:
    host, device = pair()
    host.send(b"once")
    sent = host.poll(1)
    device.receive(sent + sent, 1)
    assert list(device.messages) == [b"once"]
    host.receive(sent, 1)  # its own, reflected by a console
    assert not host.messages
    device.receive(
        Frame(LAST, 4, 1, b"earlier run").encode()
        + Frame(DATA, 5, 9999, b"far ahead").encode(),
        1,
    )
    assert list(device.messages) == [b"once"]


def test_a_new_host_takes_over_and_the_old_one_cannot_come_back() -> None:
    _, device = pair()
    device.receive(Frame(DATA, 5, 0, b"half a mess").encode(), 1)
    device.receive(Frame(HELLO, 6, 0, b"new host").encode(), 2)
    device.receive(Frame(LAST, 6, 0, b"fresh").encode(), 2)
    device.receive(Frame(HELLO, 5, 0, b"host").encode(), 3)  # held up on the way
    device.receive(Frame(LAST, 5, 1, b"age").encode(), 3)
    assert (device.session, list(device.messages)) == (6, [b"fresh"])


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"[" * 9000,
        b"[]",
        b"\xff",
        b'{"chunk": 1024, "window": 8, "rate": NaN}',
        b'{"chunk": Infinity, "window": 8, "rate": 1}',
        b'{"chunk": 1024, "window": 8, "rate": 1' + b"0" * 400 + b"}",
        b'{"chunk": -1, "window": {}, "rate": null}',
    ],
    ids=lambda g: f"{g[-20:]!r}",
)
def test_a_host_that_greets_with_nonsense_is_answered(
    tmp_path: Path, greeting: bytes
) -> None:
    service = Service(str(tmp_path / "root"))
    service.receive(Frame(HELLO, 7, 0, greeting).encode(), 0.0)
    service.receive(Frame(LAST, 7, 0, pack({"do": "info", "id": 1})).encode(), 0.0)
    said = [f.kind & ~FROM_DEVICE for f in Decoder().feed(service.delivery.poll(0.0))]
    assert LAST in said
    assert service.delivery.wake() > 0.0  # a number, also of a line whose rate is none


def test_a_message_without_end_closes_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE", 100_000)
    _, device = pair()
    for seq in range(100):
        assert not device.closed
        device.receive(Frame(DATA, 5, seq, b"x" * 1000).encode(), 1)
    device.receive(Frame(DATA, 5, 100, b"x").encode(), 1)
    assert device.closed


@pytest.mark.parametrize("seed", range(30))
def test_any_bad_line(seed: int) -> None:
    rng = random.Random(seed)
    bad = Faults(flip=2e-4, drop=1e-4, double=0.1, noise=0.2, crlf=True)
    host, device = pair()
    sent = [rng.randbytes(rng.randrange(4000)) for _ in range(12)]
    for m in sent:
        host.send(m)
        device.send(m[::-1])
    now = 0.0
    while not (host.idle and device.idle):
        device.receive(bad.apply(host.poll(now), rng), now)
        host.receive(bad.apply(device.poll(now), rng), now)
        now += 0.05
        assert now < 300
    assert list(device.messages) == sent
    assert list(host.messages) == [m[::-1] for m in sent]


# ---- the greeting and requests


def test_info(tmp_path: Path) -> None:
    with connect(world(tmp_path), echo=True) as c:
        info, _ = c.request("info", {})
    assert info["target"].startswith("linux-")
    assert info["page"] in (4096, 16384, 65536)
    assert info["free"] > 0


def test_errors_of_the_device_are_ours(tmp_path: Path) -> None:
    with connect(world(tmp_path)) as c:
        with pytest.raises(InputError, match="cannot be the name"):
            c.request("rollback", {"app": "../x"})
        with pytest.raises(DeviceError, match="has no 'dance'") as e:
            c.request("dance", {})
        assert str(e.value.hint).startswith("needs edgec-agent >")
        with pytest.raises(BundleError, match="impossible"):
            c.request(
                "begin",
                {"app": "x", "recipe": {"sha256": "0" * 64, "bytes": 5, "parts": []}},
            )
        with pytest.raises(InputError, match='"run" cannot be read: it has no app'):
            c.request("run", {})
        for inputs in ([1.5], ["1"], "x", {"a": 1}, [True]):
            with pytest.raises(InputError, match="cannot be read: inputs is"):
                c.request("run", {"app": "x", "inputs": inputs})
        assert c.request("status", {})[0]["apps"] == []  # and it is still there


@pytest.mark.parametrize(
    ("greeting", "what"),
    [
        (
            {"protocol": [PROTOCOL + 1, PROTOCOL + 2], "agent": 1},
            "with protocol 2 to 3; this edgec speaks 1",
        ),
        ({"protocol": [PROTOCOL, PROTOCOL], "agent": 0}, "edgec-agent 0"),
        ({}, "greets strangely"),
    ],
)
def test_versions(tmp_path: Path, greeting: dict[str, Any], what: str) -> None:
    w = world(tmp_path)
    assert w.service
    w.service.delivery.greeting = json.dumps(greeting).encode()
    with pytest.raises(DeviceError, match=what) as e:
        connect(w)
    if "agent" in greeting:
        assert "needs edgec-agent >= 1" in str(e.value.hint)


def test_an_agent_of_another_version_is_replaced(tmp_path: Path) -> None:
    w = world(tmp_path)
    w.service = Service(str(w.root), sha="another")
    restarted = []

    class Console(SimStream):
        def start(self, again: bool = False) -> None:
            restarted.append(again)
            if again:
                self.read(1.0)
                assert w.service
                assert w.service.delivery.closed
                w.boot()

    with Connection(Console(w, Faults(), Faults()), lambda: w.now, 3) as c:
        assert c.request("info", {})[0]["target"]
    assert restarted == [False, True]


def test_a_dead_device_is_told_from_a_slow_one(tmp_path: Path) -> None:
    w = world(tmp_path)
    with connect(w) as c:
        w.service = None
        start = w.now
        with pytest.raises(LinkLost, match="has not answered for") as e:
            c.request("info", {})
        assert 30 < w.now - start < 40
        assert "goes on where it stopped" in str(e.value.hint)
    with pytest.raises(DeviceError, match="nothing moved for 30 s"):
        connect(w)


@pytest.mark.parametrize("upwards", [True, False])
def test_a_line_of_which_one_direction_is_lost_ends_within_limits(
    tmp_path: Path, upwards: bool
) -> None:
    """The device may go on sending its answer for ever, since nothing tells it that it
    came.
    """
    w = world(tmp_path)
    up = Faults()
    down = Faults()
    with connect(w, up, down) as c:
        c.request("info", {})
        (up if upwards else down).cut = 0
        assert w.service
        w.service.delivery.send(pack({"id": 0, "of": "which nobody acknowledges"}))
        start = w.now
        with pytest.raises(
            LinkLost, match="has reached the device" if upwards else "has not answered"
        ):
            c.request("status", {}, limit=300.0)
        assert w.now - start < 150


NONSENSE = [
    {"slot": 7},
    {"active": "a", "service": 3},
    {"apps": {}},
    {"apps": [{"app": "x", "active": "a", "slots": {"a": []}}]},
    {"error": None},
    {"error": {"kind": [], "what": {}}},
    {"error": []},
]


@pytest.mark.parametrize(
    "nonsense",
    [*NONSENSE, "[" * 200_000, "\xff", "{", "5", '{"id": 1e999}', '{"id": NaN}'],
)
def test_nonsense_spoils_the_result_of_one_device_alone(
    tmp_path: Path, nonsense: dict[str, Any] | str
) -> None:
    w = world(tmp_path)
    assert w.service

    def answer(message: bytes) -> None:
        if isinstance(nonsense, dict):
            text = json.dumps({**nonsense, "id": 1})
        else:
            text = nonsense
        assert w.service
        w.service.delivery.send(zlib.compress(text.encode("latin-1") + b"\n"))

    w.service._answer = answer  # type: ignore[method-assign]
    good = world(tmp_path / "good")

    def one(url: str) -> FlashOutcome:
        with connect(w if url == "local:" else good) as c:
            return FlashOutcome(url, str(c.ask(STATUS, Empty())[0]))

    bad, fine = each(["local:", "local:c"], one)
    assert isinstance(bad.error, DeviceError), bad
    assert bad.error.hint
    assert fine.ok


@pytest.mark.parametrize(
    "lacks",
    [
        [[0, 0, ""]] * 1000,
        [[9, 0, ""]],
        [[-1, 0, ""]],
        [[0, -1, ""]],
        [[0, 1 << 40, ""]],
    ],
)
def test_a_device_that_asks_for_parts_without_end(
    tmp_path: Path, lacks: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(tmp_path)
    assert w.service
    begun = BeginAnswer(lacks=[tuple(row) for row in lacks])
    monkeypatch.setitem(HANDLERS, BEGIN, lambda *_: begun)
    part = b"x" * 10_000
    sha256 = hashlib.sha256(part).hexdigest()
    with (
        connect(w) as c,
        pytest.raises(
            DeviceError, match="asks for parts that the bundle does not have"
        ),
    ):
        send(c, Assembly(part, sha256, ((0, len(part), sha256),), b"", "tiny"))
    assert w.now < 30


def test_the_device_end_is_one_file_of_the_standard_library() -> None:
    source, sha = device_end()
    assert device_end()[1] == sha
    compile(source, "agent", "exec")
    seconds = len(zlib.compress(source, 9)) * 10 / 115_200
    assert seconds < 4, "at 115200 baud, ten bits a byte"


def test_an_answer_may_come_at_once(tmp_path: Path) -> None:
    """With the very turn that wrote the request, as on a fast pipe."""
    w = world(tmp_path)

    class Instant(SimStream):
        def write(self, data: bytes) -> None:
            super().write(data)
            for _ in range(3):  # there, done, and back
                w.now += 0.01
                self._came += super().read(0.0)

        _came = b""

        def read(self, timeout: float) -> bytes:
            came = self._came
            self._came = b""
            return came or super().read(timeout)

    with Connection(Instant(w, Faults(), Faults(), rate=1e9), lambda: w.now, 3) as c:
        start = w.now
        assert c.request("info", {})[0]["target"]
        assert w.now - start < 5
