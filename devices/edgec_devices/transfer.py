"""Sends a bundle over a connection: the missing parts, from the last good byte on."""

from __future__ import annotations

import hashlib
import re
import struct
import time
import zipfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from edgec_runtime import Bundle, BundleError, DeviceError, InputError
from edgec_runtime.device_end.requests import (
    BEGIN,
    INSTALL,
    PUT,
    BeginAnswer,
    BeginRequest,
    InstallRequest,
    PutRequest,
)

from edgec_devices.boards import HOST, Board, Target
from edgec_devices.protocol import Connection

PIECE = 1 << 15
"""Bytes of a message."""
MIN_PART = 512
"""Bytes of a file below which a part with a hash costs more than glue."""
MAX_APP = 64
"""Characters of the name of an application."""
COMPARING = "comparing"
SENDING = "sending"
WRITING = "writing and checking"


@dataclass(frozen=True)
class Assembly:
    """The recipe by which a device assembles a bundle.

    Attributes:
        data: the bundle
        sha256: its hash
        parts: (offset, bytes, SHA-256) of each part
        glue: all bytes that are in no part
        app: the application on the device
        board: the board that the bundle was compiled for, if it is one
    """

    data: bytes
    sha256: str
    parts: tuple[tuple[int, int, str], ...]
    glue: bytes
    app: str
    board: Board | None = None

    @staticmethod
    def of(path: Path, app: str | None = None) -> Assembly:
        """Return the recipe of a bundle, which is checked as a whole first.

        `app` is the folder on the device; the model's name by default.
        """
        with Bundle.open(path) as bundle:
            name = app or app_name(bundle.manifest.name)
            board = _board_of(bundle.manifest.target)
        data = path.read_bytes()
        parts = []
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.file_size >= MIN_PART:
                    start = _content_offset(data, entry)
                    content = data[start : start + entry.file_size]
                    digest = hashlib.sha256(content).hexdigest()
                    parts.append((start, len(content), digest))
        # A zip file may list its entries in another order than they lie in.
        parts.sort()

        glue = b""
        end = 0
        for offset, size, _ in parts:
            glue += data[end:offset]
            end = offset + size
        glue += data[end:]
        # Overlapping parts are no bundle of edgec's either.
        if len(glue) + sum(size for _, size, _ in parts) != len(data):
            raise BundleError(
                "the bundle changed while it was read", at=str(path), hint="try again"
            )
        digest = hashlib.sha256(data).hexdigest()
        return Assembly(data, digest, tuple(parts), glue, name, board)


def _content_offset(data: bytes, entry: zipfile.ZipInfo) -> int:
    """Return where the content of a zip entry begins.

    The local header has 30 bytes; at 26 are the sizes of the name and the extra field
    behind it (PKWARE's APPNOTE.TXT, 4.3.7).
    """
    header = entry.header_offset
    name_size, extra_size = struct.unpack_from("<HH", data, header + 26)
    start: int = header + 30 + name_size + extra_size
    return start


def app_name(model: str) -> str:
    """Return a model's name as the name of a folder on a device."""
    # Other characters could leave the folder, or mean something to a shell.
    plain = re.sub(r"[^A-Za-z0-9_.+@-]+", "-", model).strip(".-+@")
    return plain[:MAX_APP] or "model"


@dataclass(frozen=True)
class Sending:
    """The progress of a transfer.

    Attributes:
        done: bytes of the missing parts that have arrived
        total: bytes of the missing parts
        wire: compressed bytes that have arrived
        seconds: time since the start, s
        step: the step that is under way
        turn: its number in the job, from 1
        steps: the number of steps of the job; 0: they are not counted
    """

    done: int = 0
    total: int = 0
    wire: int = 0
    seconds: float = 0.0
    step: str = SENDING
    turn: int = 0
    steps: int = 0

    @property
    def rate(self) -> float:
        """Return the bytes per second on the line."""
        return self.wire / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Return the estimated time to go, s; inf at the start."""
        if self.done:
            return self.seconds * (self.total - self.done) / self.done
        return float("inf")


@dataclass(frozen=True)
class Sent:
    """The result of a transfer.

    Attributes:
        slot: the slot of the bundle
        same: whether the bundle was there already
        sending: the progress at the end
    """

    slot: str
    same: bool
    sending: Sending


def _board_of(target: str) -> Board | None:
    """Return the board of a bundle's target; None for a board that is not known here."""
    try:
        board = Target.parse(target).board
    except InputError:
        return None
    return None if board.name == HOST else board


def send(
    connection: Connection,
    recipe: Assembly,
    scratch: bool = False,
    progress: Callable[[Sending], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    downgrade: bool = False,
) -> Sent:
    """Put a bundle beside the slots, where it can be run; raises the device's errors.

    Args:
        connection: connection to the device
        recipe: the bundle
        scratch: whether it will not become a slot, so that any place that has it will
            do; otherwise only the active slot counts
        progress: called as bytes arrive
        clock: returns the time, s
        downgrade: whether a signed bundle may be older than the device's
    """
    start = clock()
    progress(Sending(step=COMPARING))
    answer = _begin(connection, recipe, scratch)
    # The device has it: nothing is sent, installed or checked again.
    if answer.same is not None:
        return Sent(answer.same, True, Sending(0, 0, 0, clock() - start))
    total, wire = _send_lacking(
        connection, recipe, answer.lacks, progress, clock, start
    )
    sending = Sending(total, total, wire, clock() - start)
    progress(replace(sending, step=WRITING))
    installed, _ = connection.ask(
        INSTALL, InstallRequest(recipe.app, downgrade), limit=_hashing_s(recipe)
    )
    sending = replace(sending, seconds=clock() - start)
    return Sent(installed.slot, False, sending)


def send_parts(
    connection: Connection,
    recipe: Assembly,
    progress: Callable[[Sending], None] = lambda _: None,
) -> tuple[int, int]:
    """Send only the missing parts of data.

    Returns the bytes of the parts, and the bytes on the line.
    """
    answer = _begin(connection, recipe, False)
    return _send_lacking(
        connection, recipe, answer.lacks, progress, time.monotonic, time.monotonic()
    )


def _hashing_s(recipe: Assembly) -> float:
    """Return a limit for a slow device to write and hash the data, s."""
    return 60.0 + len(recipe.data) / 1e6


def _begin(connection: Connection, recipe: Assembly, scratch: bool) -> BeginAnswer:
    """Ask the device which parts it lacks; raises DeviceError for a senseless answer."""
    what = {"sha256": recipe.sha256, "bytes": len(recipe.data), "parts": recipe.parts}
    begin = BeginRequest(recipe.app, what, scratch)
    answer, _ = connection.ask(BEGIN, begin, recipe.glue, _hashing_s(recipe))
    # The numbers become indices below.
    numbers = [number for number, _, _ in answer.lacks]
    valid = len(set(numbers)) == len(numbers)
    for number, received, _ in answer.lacks:
        is_part = 0 <= number < len(recipe.parts)
        if not is_part or not 0 <= received <= recipe.parts[number][1]:
            valid = False
    if not valid:
        problem = "the device asks for parts that the bundle does not have"
        raise DeviceError(problem, at=connection.stream.url, hint="try again")
    return answer


def _send_lacking(
    connection: Connection,
    recipe: Assembly,
    lacks: Sequence[tuple[int, int, str]],
    progress: Callable[[Sending], None],
    clock: Callable[[], float],
    start: float,
) -> tuple[int, int]:
    """Send missing parts, each from its last good byte.

    Returns the bytes of the parts, and the bytes on the line.
    """
    jobs = []
    total = 0
    for index, received, sha256 in lacks:
        offset, size, _ = recipe.parts[index]
        begin = recipe.data[offset : offset + received]
        # Bytes with another hash are of no use: the part is sent from its start.
        first = received if sha256 == hashlib.sha256(begin).hexdigest() else 0
        jobs.append((index, first))
        total += size - first

    tally = _Tally(connection, total, progress, clock, start)
    for index, first in jobs:
        offset, size, _ = recipe.parts[index]
        # In pieces, so that progress is seen, and another attempt goes on within a part.
        for at in range(first, size, PIECE):
            piece = recipe.data[offset + at : offset + min(at + PIECE, size)]
            sent = partial(tally.sent, len(piece))
            connection.post(
                PUT, PutRequest(recipe.app, index, at), piece, sent, tally.report
            )
    connection.settle(meanwhile=tally.report)
    return tally.total, tally.wire


class _Tally:
    """Counts the bytes that have arrived, by the acknowledgements of the device."""

    def __init__(
        self,
        connection: Connection,
        total: int,
        progress: Callable[[Sending], None],
        clock: Callable[[], float],
        start: float,
    ) -> None:
        self.total = total
        self.wire = 0
        self._connection = connection
        self._progress = progress
        self._clock = clock
        self._start = start
        self._done = 0
        self._reported = 0
        # Of each piece: wire bytes before it, wire bytes of it, and its own bytes.
        self._under_way: deque[tuple[int, int, int]] = deque()

    def sent(self, size: int, wire: int) -> None:
        """Record that a piece of `size` bytes is under way, in `wire` bytes on the line."""
        self._under_way.append((self.wire, wire, size))
        self.wire += wire

    def report(self) -> None:
        """Report the progress, if there is any."""
        arrived = self.wire - self._connection.backlog
        while self._under_way and sum(self._under_way[0][:2]) <= arrived:
            self._done += self._under_way.popleft()[2]

        # Of the first piece that is under way, a share has arrived.
        done = self._done
        if self._under_way:
            before, wire, size = self._under_way[0]
            done += size * max(arrived - before, 0) // wire
        # Progress never goes back, not even by rounding.
        if done > self._reported:
            self._reported = done
            seconds = self._clock() - self._start
            self._progress(Sending(done, self.total, arrived, seconds))
