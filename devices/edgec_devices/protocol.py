"""Speaks the host's side of the protocol (docs/protocol.md) over any stream."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from edgec_runtime import BundleError, DeviceError, EdgecError, InputError
from edgec_runtime.device_end.requests import A, Command, R, decode, encode
from edgec_runtime.device_end.wire import PROTOCOL, Delivery, pack, unpack
from msgspec import convert

from edgec_devices.decoding import from_json
from edgec_devices.stream import ByteStream, LinkLost, device_end

NEEDS_AGENT = 1
"""The oldest device end that this host can work with."""
REQUEST_S = 60.0
"""Limit of a request, s."""
MARGIN_S = 10.0
"""Time of an answer on the line beyond the device's own time, s."""
GREET_TIMEOUTS = 5
"""Timeouts of the stream that may pass before the greeting in spite of progress."""
SUPPOSED_S = 4.0
"""Time in which a supposed device end must greet after its first byte, s."""
ONE_WAY = 3
"""Timeouts of the stream that may pass if the device is heard but hears nothing."""
KINDS: dict[str, type[EdgecError]] = {
    "input": InputError,
    "bundle": BundleError,
    "device": DeviceError,
}
Head = dict[str, Any]

_NONSENSE = "is it an edgec device? update edgec, then try again"


class Connection:
    """A conversation with the device end; as a context manager it ends the stream.

    Args:
        stream: the stream, which belongs to the connection
        clock: returns the time, s; a simulated one in tests
        seed: seed of the session's number
        greet: whether to start the device end
    """

    def __init__(
        self,
        stream: ByteStream,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
        greet: bool = True,
    ) -> None:
        self.stream = stream
        self._clock = clock
        self._random = random.Random(seed)
        self._last_id = 0
        self._received = 0
        self._quiet_from = clock()
        self._delivery = self._new_delivery()
        if greet:
            try:
                self._open()
            except BaseException:
                stream.close()
                raise

    def _new_delivery(self) -> Delivery:
        """Return the transport of a new session."""
        stream = self.stream
        greeting = {
            "protocol": [PROTOCOL, PROTOCOL],
            "chunk": stream.chunk,
            "window": stream.window,
            "rate": stream.rate,
        }
        # Another number for each session: late chunks of an older one are ignored.
        session = self._random.randrange(1, 1 << 32)
        delivery = Delivery(False, json.dumps(greeting).encode(), session)
        delivery.tune(stream.chunk, stream.window, stream.rate)
        return delivery

    def _open(self) -> None:
        """Start the device end of this version."""
        self.stream.start()
        if self._greet().get("sha256") != device_end()[1]:
            # One of another version was left running on the console.
            self.stream.write(self._delivery.bye())
            self.stream.start(again=True)
            self._delivery = self._new_delivery()
            self._greet()

    def _greet(self) -> Head:
        """Return the greeting; raises DeviceError if the device end does not fit."""
        self._wait_for_greeting()
        assert self._delivery.peer is not None
        message = "the device end's greeting"
        peer = from_json(
            self._delivery.peer,
            dict[str, Any],
            message,
            self.stream.url,
            "try again",
            DeviceError,
        )
        try:
            low, high, agent = convert(
                [*peer.get("protocol", ()), peer.get("agent")], tuple[int, int, int]
            )
        except (TypeError, ValueError) as e:
            raise DeviceError(
                f"the device end greets strangely: {e}",
                at=self.stream.url,
                hint="try again",
            ) from e
        if not low <= PROTOCOL <= high or agent < NEEDS_AGENT:
            message = (
                f"the device end is edgec-agent {agent} with protocol {low} to "
                f"{high}; this edgec speaks {PROTOCOL}"
            )
            raise DeviceError(
                message,
                at=self.stream.url,
                hint=f"needs edgec-agent >= {NEEDS_AGENT}; update edgec",
            )
        return peer

    def _wait_for_greeting(self) -> None:
        """Wait for the greeting as long as there is progress.

        A slow board may take a minute for the login and the start of Python.
        """
        stream = self.stream
        timeout = stream.timeout
        moved = self._clock()
        began = moved
        look = began + SUPPOSED_S
        progress = (-1, -1)
        while self._delivery.peer is None:
            now = self._clock()
            if progress != (self._received, stream.stirs):
                progress = (self._received, stream.stirs)
                moved = now
            where = f" ({stream.stage})" if stream.stage else ""
            if now >= moved + timeout:
                message = (
                    f"the device end did not answer: nothing moved for {timeout:g} "
                    f"s{where}"
                )
                raise DeviceError(message, at=stream.url, hint=stream.silence_hint)
            if now >= began + GREET_TIMEOUTS * timeout:
                message = (
                    "the device end did not answer in "
                    f"{GREET_TIMEOUTS * timeout:g} "
                    f"s, though something came{where}"
                )
                raise DeviceError(message, at=stream.url, hint=stream.silence_hint)
            if stream.supposed and self._received and now >= look:
                # The answer comes from no device end: it is a console after all.
                stream.start()
                moved = self._clock()
                look = moved + SUPPOSED_S
            self._turn(moved + timeout)

    @property
    def backlog(self) -> int:
        """Return the bytes that the device has not acknowledged."""
        return self._delivery.backlog

    def post(
        self,
        command: Command[R, Any],
        request: R,
        blob: bytes = b"",
        sent: Callable[[int], None] = lambda _: None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a request without an answer.

        Waits while more than two windows are under way, so that the line is never idle.

        Args:
            command: the command
            request: the fields of the request
            blob: data of the request
            sent: called with the request's bytes on the line
            meanwhile: called as some of them arrive
        """
        sent(self._send(command.name, blob, encode(request)))
        self.settle(2 * self.stream.chunk * self.stream.window, meanwhile)

    def settle(
        self, room: int = 1, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until fewer than `room` bytes are under way.

        Raises the errors of the device.
        """
        while True:
            patience = 0.0 if self.backlog < room else 1.0
            self._turn(self._clock() + patience)
            self._answer(0)
            meanwhile()
            if self.backlog < room:
                return

    def request(
        self,
        do: str,
        fields: Head,
        blob: bytes = b"",
        limit: float = REQUEST_S,
        beats: bool = False,
    ) -> tuple[Head, bytes]:
        """Send a request of any fields and return its answer; raises the device's errors.

        Args:
            do: name of the request
            fields: fields of the request
            blob: data of the request
            limit: time of the device for the request, s
            beats: whether the device end gives signs of life during the request;
                LinkLost is raised if it does not
        """
        # The device end gives a sign of life every 2 s while it runs a program.
        silent = self.stream.timeout
        limit = max(limit, silent)
        self._send(do, blob, fields)
        since = self._clock()
        until = since + limit + MARGIN_S
        while True:
            answer = self._answer(self._last_id)
            if answer is not None:
                return answer
            # A large request takes its time on a slow line.
            # The device's time begins when it has the whole request.
            if not self._delivery.idle:
                until = self._clock() + limit + MARGIN_S
            heard = max(since, self._delivery.heard)
            if beats and self._delivery.idle and self._clock() >= heard + silent:
                message = (
                    f"the device has said nothing for {silent:g} s while it ran a "
                    "program"
                )
                raise LinkLost(
                    message,
                    at=self.stream.url,
                    hint="check cable and power, then try again",
                )
            if self._clock() >= until:
                hint = "look at the device; what was sent is kept"
                raise DeviceError(
                    f'no answer to "{do}" within {limit:.0f} s',
                    at=self.stream.url,
                    hint=hint,
                )
            # With signs of life expected, silence is looked for every second.
            self._turn(until if not beats else min(until, self._clock() + 1.0))

    def ask(
        self,
        command: Command[R, A],
        request: R,
        blob: bytes = b"",
        limit: float = REQUEST_S,
        beats: bool = False,
    ) -> tuple[A, bytes]:
        """Send the request of a command and return its answer.

        Raises DeviceError for an answer of another shape. See `request`.
        """
        fields = encode(request)
        head, rest = self.request(command.name, fields, blob, limit, beats)
        try:
            return decode(head, command.answer), rest
        except (ValueError, RecursionError) as e:
            message = f'the device answers "{command.name}" with nonsense: {e!s:.200}'
            raise DeviceError(message, at=self.stream.url, hint=_NONSENSE) from e

    def _send(self, do: str, blob: bytes, fields: Head) -> int:
        """Queue a request, and return its bytes on the line."""
        self._last_id += 1
        message = pack({"do": do, "id": self._last_id, **fields}, blob)
        self._delivery.send(message)
        return len(message)

    def _answer(self, wanted: int) -> tuple[Head, bytes] | None:
        """Return the answer of a request if it has come.

        Raises the errors of the device.
        """
        while self._delivery.messages:
            try:
                head, blob = unpack(self._delivery.messages.popleft())
            except ValueError as e:
                raise DeviceError(
                    f"an answer cannot be read: {e!s:.200}",
                    at=self.stream.url,
                    hint="try again",
                ) from e
            if "error" in head:
                if isinstance(head["error"], dict):
                    error = head["error"]
                else:
                    error = {"what": f"{head['error']!r:.200}"}
                raise KINDS.get(str(error.get("kind")), DeviceError)(
                    str(error.get("what")),
                    at=self.stream.url,
                    hint=str(error.get("hint")),
                )
            if head.get("id") == wanted:
                return head, blob
        return None

    def _turn(self, until: float) -> None:
        """Write due data and wait for received data, at most until `until`."""
        delivery = self._delivery
        now = self._clock()
        out = delivery.poll(now)
        if out:
            self.stream.write(out)
        data = self.stream.read(max(min(delivery.wake(), until) - self._clock(), 0.0))
        now = self._clock()
        if data:
            self._received += len(data)
            delivery.receive(data, now)
        if delivery.closed:
            hint = "it ends by itself when it hears nothing for a while; try again"
            raise LinkLost("the device end said goodbye", at=self.stream.url, hint=hint)
        if delivery.idle or delivery.peer is None:
            self._quiet_from = now
        patience = (
            self.stream.timeout
            + 4 * delivery.chunk * delivery.window / self.stream.rate
        )
        hint = "check cable and power, then try again: it goes on where it stopped"
        if now - max(self._quiet_from, delivery.heard) > patience:
            raise LinkLost(
                f"the device has not answered for {patience:.0f} s",
                at=self.stream.url,
                hint=hint,
            )
        # The device is heard, but it hears nothing.
        if now - max(self._quiet_from, delivery.moved) > ONE_WAY * patience:
            message = (
                f"nothing has reached the device for {ONE_WAY * patience:.0f} s, "
                "though it answers"
            )
            raise LinkLost(message, at=self.stream.url, hint=hint)

    def close(self) -> None:
        """Say goodbye if the device still listens, and end the stream."""
        try:
            if self._delivery.peer is not None and not self._delivery.closed:
                self.stream.write(self._delivery.bye())
        except EdgecError:
            pass
        finally:
            self.stream.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
