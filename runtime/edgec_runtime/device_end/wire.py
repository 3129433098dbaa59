"""Implements frames and reliable delivery over any byte stream, for both ends
(docs/protocol.md).

This file, agent.py and the modules that it imports are the device end.  The host sends
them over the link as one file and starts it there.  They import only the standard
library and each other, so that a device needs just Python 3.9 or later.
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
# Bytes that a terminal or program between the ends may drop, change or act on: NUL, ^A
# (screen), ^C, ^D, LF, CR, ^O, XON, XOFF, ^Z, ^\, ^] (telnet), DEL and 0xFF (telnet,
# PARMRK).  They are sent escaped, so one that arrives was inserted between the ends.
INSERTED = bytes(
    (0x00, 0x01, 0x03, 0x04, 0x0A, 0x0D, 0x0F, 0x11, 0x13, 0x1A, 0x1C, 0x1D, 0x7F, 0xFF)
)
_ESCAPES = [
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
    """A frame.

    Attributes:
        kind: HELLO to BYE, plus FROM_DEVICE if the device sends it
        session: a random number that the host has chosen
        seq: the number of a frame with data; the next expected one for ACK, otherwise 0
        payload: its bytes
    """

    kind: int
    session: int
    seq: int
    payload: bytes

    def encode(self) -> bytes:
        """Return the bytes of the frame: ~ escaped(kind, session, seq, payload, CRC-32) ~."""
        body = _HEADER.pack(*self[:3]) + self.payload
        body += struct.pack(">I", zlib.crc32(body))
        for plain, escaped in _ESCAPES:
            body = body.replace(plain, escaped)
        return FLAG + body + FLAG


class Decoder:
    """Extracts the frames from a stream, and skips everything else.

    That may be echo, prompts, kernel messages and damaged frames.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that are complete with `data`."""
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

AHEAD = 256  # frames that a receiver stores while an earlier one is missing
MAX_MESSAGE = 1 << 26


class _OutgoingFrame:
    """A frame that is not acknowledged yet.

    Attributes:
        kind: DATA, or LAST for the end of a message
        payload: its bytes
        at: time of the last transmission
        order: number of frames sent in this session up to the last transmission
        tries: number of transmissions
        due: whether it has to be sent, for the first time or again
    """

    def __init__(self, kind: int, payload: bytes) -> None:
        self.kind = kind
        self.payload = payload
        self.at = 0.0
        self.order = 0
        self.tries = 0
        self.due = False


class Delivery:
    """Delivers messages whole and in order over a stream that may lose, repeat or damage
    bytes.

    It has no clock and does no I/O: the caller gives arrived bytes to receive(), writes
    those that poll() returns, and calls poll() again at wake().  Times are seconds of
    any clock.

    Args:
        device: whether this is the device's end
        greeting: the payload of its HELLO
        session: the host's random number for the session
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
        """Adapt to a line.

        Args:
            chunk: payload of a frame, bytes
            window: number of frames that may be unacknowledged at once
            rate: bytes per second of the line, for time limits until a round trip has
                been measured
        """
        self.chunk = min(max(chunk, 64), MAX_CHUNK)
        self.window = min(max(window, 1), AHEAD)
        self._rate = rate if rate >= 100.0 else 100.0  # also if it is NaN

    def _reset(self, session: int) -> None:
        self.session = session
        self.peer: Optional[bytes] = None  # the other end's greeting after its arrival
        self.messages: Deque[bytes] = deque()
        self.backlog = 0  # payload bytes that the other end has not acknowledged
        self._queue: Deque[_OutgoingFrame] = deque()
        self._flight: Dict[int, _OutgoingFrame] = {}
        self._seq = self._order = self._next = self._size = 0
        self._early: Dict[int, Tuple[int, bytes]] = {}
        self._parts: List[bytes] = []
        self._ack = False
        self._greet_at = float("inf") if self.device else 0.0
        self._moved = 0.0
        self._unacknowledged_bytes = 0
        self._round_trip = -1.0
        self._deviation = 0.0
        self._backoff = 1

    def send(self, message: bytes) -> None:
        """Queue a message, cut into chunks."""
        for i in range(0, max(len(message), 1), self.chunk):
            last = i + self.chunk >= len(message)
            self._queue.append(
                _OutgoingFrame(LAST if last else DATA, message[i : i + self.chunk])
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
                continue  # a frame of this end, echoed by a console
            kind &= ~FROM_DEVICE
            if kind == HELLO:
                self._receive_hello(session, payload)
            if session != self.session or self.peer is None:
                continue  # a frame of an earlier session
            self.heard = now
            if kind == ACK:
                self._receive_ack(seq, payload, now)
            elif kind in (DATA, LAST):
                self._receive_data(kind, seq, payload)
            elif kind == BYE:
                self.closed = True

    def _receive_hello(self, session: int, payload: bytes) -> None:
        if self.device and session != self.session and session not in self._past:
            self._past.add(self.session)
            self._reset(session)
        if session == self.session:
            self.peer = payload
            self._greet_at = 0.0 if self.device else float("inf")

    def _receive_data(self, kind: int, seq: int, payload: bytes) -> None:
        self._ack = True
        if self._next <= seq < self._next + AHEAD:
            self._early[seq] = (kind, payload)
        while self._next in self._early:
            kind, payload = self._early.pop(self._next)
            self._next += 1
            self._parts.append(payload)
            self._size += len(payload)
            if self._size > MAX_MESSAGE:
                self.closed = True
            if kind == LAST:
                self.messages.append(b"".join(self._parts))
                self._parts = []
                self._size = 0

    def _receive_ack(self, expected: int, bits: bytes, now: float) -> None:
        received = int.from_bytes(bits, "little")
        newest = 0
        for seq in [
            s
            for s in self._flight
            if s < expected or (s > expected and received >> (s - expected - 1) & 1)
        ]:
            frame = self._flight.pop(seq)
            self.backlog -= len(frame.payload)
            self._unacknowledged_bytes -= len(frame.payload)
            newest = max(newest, frame.order)
            self._moved = now
            self._backoff = 1
            if frame.tries == 1:
                seconds = now - frame.at
                if self._round_trip < 0:
                    self._deviation = seconds / 2
                else:
                    self._deviation = 0.75 * self._deviation + 0.25 * abs(
                        seconds - self._round_trip
                    )
                if self._round_trip < 0:
                    self._round_trip = seconds
                else:
                    self._round_trip = 0.875 * self._round_trip + 0.125 * seconds
        for frame in self._flight.values():
            if frame.order < newest:
                # A line keeps the order, so a frame that was sent before an acknowledged
                # one is lost.
                frame.due = True

    def _limit(self) -> float:
        """Return the time at which the oldest unacknowledged frame counts as lost."""
        if not self._flight:
            return float("inf")
        # Until a round trip has been measured, the line's rate gives the limit, and later
        # an upper bound of it.
        longest = 1.0 + 2 * self._unacknowledged_bytes / self._rate
        timed = max(0.25, self._round_trip + 4 * self._deviation) * self._backoff
        oldest = next(iter(self._flight.values()))
        return max(oldest.at, self._moved) + (
            longest if self._round_trip < 0 else min(timed, 2 * longest)
        )

    def wake(self) -> float:
        """Return the time at which poll() has to be called even if nothing arrives."""
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
            bits = sum(1 << (seq - self._next - 1) for seq in self._early)
            out.append(
                self._frame(
                    ACK,
                    self._next,
                    bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
                )
            )
        if now >= self._limit():
            next(iter(self._flight.values())).due = True
            self._backoff = min(2 * self._backoff, 16)
        while self._queue and len(self._flight) < self.window:
            self._flight[self._seq] = frame = self._queue.popleft()
            frame.due = True
            self._unacknowledged_bytes += len(frame.payload)
            self._seq += 1
        for seq, frame in self._flight.items():
            if frame.due:
                self._order += 1
                frame.at = now
                frame.order = self._order
                frame.tries = frame.tries + 1
                frame.due = False
                out.append(self._frame(frame.kind, seq, frame.payload))
        return b"".join(out)

    def beat(self, now: float) -> bytes:
        """Return the bytes of a sign of life, for an end without messages."""
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
    """Return a compressed message: a line of JSON, and the bytes of a blob."""
    # JSON escapes line ends, so that the first one ends the head.
    line = json.dumps(head).encode() + b"\n"
    # The longest search costs weights nothing, and saves slow lines some text.
    return zlib.compress(line + blob, 9)


def unpack(message: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Return the head and the blob of a message.

    Raises ValueError if the bytes are not such a message, or if it is longer than
    MAX_MESSAGE.
    """
    unzip = zlib.decompressobj()
    # The limit is necessary, since a few bytes may unpack to gigabytes.
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
