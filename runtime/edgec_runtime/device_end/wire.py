"""Frames and reliable delivery over any byte stream, for both ends (docs/protocol.md).

This file, agent.py and what that imports are the device end.  The host sends them over
the link as one file and starts it there, so a device needs nothing but Python, 3.9 or
later: they import the standard library and each other.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

PROTOCOL = 1

# ---- framing
# --------------------------------------------------------------------------------------

FLAG = b"~"
ESCAPE = b"}"
FLIP = 0x20
# What something on the way may eat, change or act on: NUL, ^A (screen), ^C, ^D, LF, CR,
# ^O, XON, XOFF, ^Z, ^\, ^] (telnet), DEL and 0xFF (telnet, PARMRK).  They are stuffed,
# so one that arrives was put in on the way.
INSERTED = bytes(
    (0x00, 0x01, 0x03, 0x04, 0x0A, 0x0D, 0x0F, 0x11, 0x13, 0x1A, 0x1C, 0x1D, 0x7F, 0xFF)
)
_STUFFING = [
    (bytes((c,)), ESCAPE + bytes((c ^ FLIP,))) for c in ESCAPE + FLAG + INSERTED
]
_HEADER = struct.Struct(">BII")
HELLO = 1
DATA = 2
LAST = 3
ACK = 4
BYE = 5
FROM_DEVICE = 0x80
MAX_CHUNK = 1 << 14


class Frame(NamedTuple):
    """kind: HELLO to BYE, with FROM_DEVICE set by the device.  session: chosen at
    random by the host.
    """

    kind: int
    session: int
    seq: int
    payload: bytes

    def encode(self) -> bytes:
        """Return the frame as it travels.

        That is ~ stuffed(kind, session, seq, payload, CRC-32) ~.
        """
        body = _HEADER.pack(*self[:3]) + self.payload
        body += struct.pack(">I", zlib.crc32(body))
        for plain, stuffed in _STUFFING:
            body = body.replace(plain, stuffed)
        return FLAG + body + FLAG


class Decoder:
    """Finds whole frames in a stream.

    It skips echo, prompts, kernel messages and damaged frames.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames with their ends in `data`."""
        *bodies, rest = (self._rest + data).split(FLAG)
        self._rest = rest if len(rest) <= 3 * MAX_CHUNK else b""
        for body in bodies:
            frame = _decode(body)
            if frame is not None:
                yield frame


def _decode(body: bytes) -> Optional[Frame]:
    first, *escaped = body.translate(None, INSERTED).split(ESCAPE)
    if not all(escaped):
        return None
    plain = first + b"".join(bytes((e[0] ^ FLIP,)) + e[1:] for e in escaped)
    if (
        len(plain) < _HEADER.size + 4
        or struct.pack(">I", zlib.crc32(plain[:-4])) != plain[-4:]
    ):
        return None
    kind, session, seq = _HEADER.unpack_from(plain)
    return Frame(kind, session, seq, plain[_HEADER.size : -4])


# ---- delivery
# --------------------------------------------------------------------------------------

AHEAD = 256  # frames that a receiver keeps before a missing one comes
MAX_MESSAGE = 1 << 26


class _Sent:
    """A frame on its way.  order: when it was sent last, counted in frames.  due: to be
    sent again.
    """

    def __init__(self, kind: int, payload: bytes) -> None:
        self.kind = kind
        self.payload = payload
        self.at = 0.0
        self.order = 0
        self.tries = 0
        self.due = False


class Delivery:
    """Messages, whole and in order, over a stream that loses, doubles and damages.

    It has no clock and does no I/O.

    What arrived goes into receive(), what is to be written comes out of poll(), which
    wants to be called again at wake().  Times are seconds of any clock.  chunk: payload
    bytes of a frame, window: frames on the way at once, rate: bytes per second that the
    line carries, for the first time limits.
    """

    def __init__(self, device: bool, greeting: bytes, session: int = 0) -> None:
        self.device = device
        self.greeting = greeting
        self._decoder = Decoder()
        self._past: Set[int] = set()
        self.closed = False
        self.heard = 0.0
        self.tune(1024, 8, 1e4)
        self._reset(session)

    def tune(self, chunk: int, window: int, rate: float) -> None:
        """Fits it to a line."""
        self.chunk = min(max(chunk, 64), MAX_CHUNK)
        self.window = min(max(window, 1), AHEAD)
        self._rate = rate if rate >= 100.0 else 100.0  # of NaN, too

    def _reset(self, session: int) -> None:
        self.session = session
        self.peer: Optional[bytes] = None  # the other end's greeting, once it came
        self.messages: Deque[bytes] = deque()
        self.backlog = 0  # payload bytes that the other end has not acknowledged
        self._queue: Deque[_Sent] = deque()
        self._flight: Dict[int, _Sent] = {}
        self._seq = self._order = self._want = self._size = 0
        self._early: Dict[int, Tuple[int, bytes]] = {}
        self._parts: List[bytes] = []
        self._ack = False
        self._greet_at = float("inf") if self.device else 0.0
        self._moved = 0.0
        self._flying = 0
        self._round = -1.0
        self._spread = 0.0
        self._backoff = 1

    def send(self, message: bytes) -> None:
        """Queue a message, cut into chunks."""
        for i in range(0, max(len(message), 1), self.chunk):
            last = i + self.chunk >= len(message)
            self._queue.append(
                _Sent(LAST if last else DATA, message[i : i + self.chunk])
            )
        self.backlog += len(message)

    @property
    def idle(self) -> bool:
        """Whether everything sent has arrived."""
        return not self._queue and not self._flight

    @property
    def moved(self) -> float:
        """When the other end last acknowledged something new."""
        return self._moved

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the stream; whole messages are then in `messages`."""
        for kind, session, seq, payload in self._decoder.feed(data):
            if bool(kind & FROM_DEVICE) == self.device:
                continue  # our own, come back from a console that echoes
            kind &= ~FROM_DEVICE
            if kind == HELLO:
                self._greeted(session, payload)
            if session != self.session or self.peer is None:
                continue  # of an earlier run
            self.heard = now
            if kind == ACK:
                self._acknowledged(seq, payload, now)
            elif kind in (DATA, LAST):
                self._arrived(kind, seq, payload)
            elif kind == BYE:
                self.closed = True

    def _greeted(self, session: int, payload: bytes) -> None:
        if self.device and session != self.session and session not in self._past:
            self._past.add(self.session)
            self._reset(session)
        if session == self.session:
            self.peer = payload
            self._greet_at = 0.0 if self.device else float("inf")

    def _arrived(self, kind: int, seq: int, payload: bytes) -> None:
        self._ack = True
        if self._want <= seq < self._want + AHEAD:
            self._early[seq] = (kind, payload)
        while self._want in self._early:
            kind, payload = self._early.pop(self._want)
            self._want += 1
            self._parts.append(payload)
            self._size += len(payload)
            if self._size > MAX_MESSAGE:
                self.closed = True
            if kind == LAST:
                self.messages.append(b"".join(self._parts))
                self._parts = []
                self._size = 0

    def _acknowledged(self, want: int, bits: bytes, now: float) -> None:
        more = int.from_bytes(bits, "little")
        newest = 0
        for seq in [
            s
            for s in self._flight
            if s < want or (s > want and more >> (s - want - 1) & 1)
        ]:
            sent = self._flight.pop(seq)
            self.backlog -= len(sent.payload)
            self._flying -= len(sent.payload)
            newest = max(newest, sent.order)
            self._moved = now
            self._backoff = 1
            if sent.tries == 1:
                took = now - sent.at
                if self._round < 0:
                    self._spread = took / 2
                else:
                    self._spread = 0.75 * self._spread + 0.25 * abs(took - self._round)
                if self._round < 0:
                    self._round = took
                else:
                    self._round = 0.875 * self._round + 0.125 * took
        for sent in self._flight.values():
            if sent.order < newest:
                # a line keeps the order, so what was sent before one that arrived is
                # lost
                sent.due = True

    def _limit(self) -> float:
        """When the oldest frame on the way counts as lost."""
        if not self._flight:
            return float("inf")
        # By what is on the way and the line's rate until answers were timed, and then
        # not much longer than that.
        longest = 1.0 + 2 * self._flying / self._rate
        timed = max(0.25, self._round + 4 * self._spread) * self._backoff
        oldest = next(iter(self._flight.values()))
        return max(oldest.at, self._moved) + (
            longest if self._round < 0 else min(timed, 2 * longest)
        )

    def wake(self) -> float:
        """When poll() has something to do even if nothing arrives."""
        return min(self._greet_at, self._limit())

    def poll(self, now: float) -> bytes:
        """Return the bytes to write now."""
        out: List[bytes] = []
        if now >= self._greet_at:
            self._greet_at = float("inf") if self.device else now + 1.0
            out.append(self._frame(HELLO, 0, self.greeting))
        if self.peer is None:
            return b"".join(out)
        if self._ack:
            self._ack = False
            bits = sum(1 << (seq - self._want - 1) for seq in self._early)
            out.append(
                self._frame(
                    ACK,
                    self._want,
                    bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
                )
            )
        if now >= self._limit():
            next(iter(self._flight.values())).due = True
            self._backoff = min(2 * self._backoff, 16)
        while self._queue and len(self._flight) < self.window:
            self._flight[self._seq] = sent = self._queue.popleft()
            sent.due = True
            self._flying += len(sent.payload)
            self._seq += 1
        for seq, sent in self._flight.items():
            if sent.due:
                self._order += 1
                sent.at = now
                sent.order = self._order
                sent.tries = sent.tries + 1
                sent.due = False
                out.append(self._frame(sent.kind, seq, sent.payload))
        return b"".join(out)

    def beat(self, now: float) -> bytes:
        """Return a sign of life, for an end without messages."""
        self._ack = True
        return self.poll(now)

    def bye(self) -> bytes:
        """Return the last frame of a session."""
        self.closed = True
        return self._frame(BYE, 0, b"")

    def _frame(self, kind: int, seq: int, payload: bytes) -> bytes:
        """Return a frame of this session as bytes."""
        # The direction is part of the kind, so that an end never takes its own echo.
        direction = FROM_DEVICE * self.device
        frame = Frame(kind | direction, self.session, seq, payload)
        return frame.encode()


def pack(head: Dict[str, Any], blob: bytes = b"") -> bytes:
    """Return a message: a line of JSON and bytes, compressed."""
    # JSON escapes line ends, so that the first one ends the head.
    line = json.dumps(head).encode() + b"\n"
    return zlib.compress(line + blob)


def unpack(message: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Return the head and the bytes of a message.

    Raises ValueError for bytes that `pack` does not make, and for a message that grows
    beyond MAX_MESSAGE.
    """
    unzip = zlib.decompressobj()
    # A few bytes may unpack to gigabytes.
    try:
        text = unzip.decompress(message, MAX_MESSAGE)
    except zlib.error as e:
        raise ValueError(str(e)) from e
    line, _, blob = text.partition(b"\n")
    try:
        head = json.loads(line.decode())
    except RecursionError as e:
        raise ValueError("a message nests too deep") from e
    if not unzip.eof or not isinstance(head, dict):
        raise ValueError("not a message")
    return head, blob
