"""Sends a bundle over a connection: only the parts that the device lacks, from the last
good byte on.
"""

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

from edgec_runtime import Bundle, BundleError, DeviceError

from edgec_devices import answers
from edgec_devices.protocol import Connection

PIECE = 1 << 15
SMALL = 512  # a smaller file costs more as a part with a hash than as glue
MAX_APP = 64


@dataclass(frozen=True)
class Assembly:
    """How the device puts the bundle together: parts (offset, bytes, sha256), and all
    bytes that are in none.
    """

    data: bytes
    sha256: str
    parts: tuple[tuple[int, int, str], ...]
    glue: bytes
    app: str

    @staticmethod
    def of(path: Path, app: str | None = None) -> Assembly:
        """Of a bundle, checked as a whole first.  app: the folder on the device;
        default is the model's name.
        """
        with Bundle.open(path) as bundle:
            name = app or app_name(bundle.manifest.name)
        data = path.read_bytes()
        parts = []
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.file_size >= SMALL:
                    name_size, extra_size = struct.unpack_from(
                        "<HH", data, entry.header_offset + 26
                    )
                    start = entry.header_offset + 30 + name_size + extra_size
                    content = data[start : start + entry.file_size]
                    parts.append(
                        (start, len(content), hashlib.sha256(content).hexdigest())
                    )
        parts.sort()
        ends = [0, *(offset + size for offset, size, _ in parts)]
        glue = b"".join(
            data[end:start]
            for end, start in zip(
                ends, [*(p[0] for p in parts), len(data)], strict=True
            )
        )
        if len(glue) + sum(p[1] for p in parts) != len(data):
            raise BundleError(
                "the bundle changed while it was read", at=str(path), hint="try again"
            )
        return Assembly(
            data, hashlib.sha256(data).hexdigest(), tuple(parts), glue, name
        )


def app_name(model: str) -> str:
    """A model's name as that of a folder on a device."""
    plain = re.sub(r"[^A-Za-z0-9_.+@-]+", "-", model).strip(".-+@")
    return plain[:MAX_APP] or "model"


@dataclass(frozen=True)
class Sending:
    """How far it is.  done, total: bytes of the bundle that the device lacked; wire:
    compressed bytes that arrived.

    step: what is being done.
    """

    done: int = 0
    total: int = 0
    wire: int = 0
    seconds: float = 0.0
    step: str = "sending"

    @property
    def rate(self) -> float:
        """Bytes per second on the line."""
        return self.wire / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds still to go, as far as one can tell."""
        if self.done:
            return self.seconds * (self.total - self.done) / self.done
        return float("inf")


@dataclass(frozen=True)
class Sent:
    """What came of it.  slot: where the bundle is now; same: it was there already."""

    slot: str
    same: bool
    sending: Sending


def send(
    connection: Connection,
    recipe: Assembly,
    scratch: bool = False,
    progress: Callable[[Sending], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    downgrade: bool = False,
) -> Sent:
    """Puts the bundle beside the slots, where it can be run.

    Raises what the device says.

    scratch: it is not to become a slot, so any place that has it will do; otherwise
    only the active slot. downgrade: a signed bundle may be older than what the device
    had.
    """
    start = clock()
    progress(Sending(step="comparing"))
    begun = _begin(connection, recipe, scratch)
    if begun.same is not None:
        return Sent(begun.same, True, Sending(0, 0, 0, clock() - start))
    total, wire = _send_lacking(connection, recipe, begun.lacks, progress, clock, start)
    sending = Sending(total, total, wire, clock() - start)
    progress(replace(sending, step="writing and checking"))
    installed, _ = connection.ask(
        "install",
        answers.Installed,
        b"",
        _hashing_s(recipe),
        app=recipe.app,
        allow_downgrade=downgrade,
    )
    sending = replace(sending, seconds=clock() - start)
    return Sent(installed.slot, False, sending)


def send_parts(
    connection: Connection,
    recipe: Assembly,
    progress: Callable[[Sending], None] = lambda _: None,
) -> tuple[int, int]:
    """Sends what the device lacks of anything, and no more.

    Returns those bytes, and those on the line.
    """
    begun = _begin(connection, recipe, False)
    return _send_lacking(
        connection, recipe, begun.lacks, progress, time.monotonic, time.monotonic()
    )


def _hashing_s(recipe: Assembly) -> float:
    return 60.0 + len(recipe.data) / 1e6


def _begin(connection: Connection, recipe: Assembly, scratch: bool) -> answers.Begun:
    what = {"sha256": recipe.sha256, "bytes": len(recipe.data), "parts": recipe.parts}
    limit = _hashing_s(recipe)
    begun, _ = connection.ask(
        "begin",
        answers.Begun,
        recipe.glue,
        limit,
        app=recipe.app,
        recipe=what,
        scratch=scratch,
    )
    there_are = all(
        0 <= i < len(recipe.parts) and 0 <= there <= recipe.parts[i][1]
        for i, there, _ in begun.lacks
    )
    if not there_are or len({i for i, _, _ in begun.lacks}) != len(begun.lacks):
        what_is = "the device says that it lacks parts that there are not"
        raise DeviceError(what_is, at=connection.stream.url, hint="try again")
    return begun


def _send_lacking(
    connection: Connection,
    recipe: Assembly,
    lacks: Sequence[tuple[int, int, str]],
    progress: Callable[[Sending], None],
    clock: Callable[[], float],
    start: float,
) -> tuple[int, int]:
    """From the last good byte of each part.

    Returns bytes of the bundle and bytes on the line.
    """
    jobs = []
    for index, there, sha256 in lacks:
        offset, size, _ = recipe.parts[index]
        good = (
            sha256 == hashlib.sha256(recipe.data[offset : offset + there]).hexdigest()
        )
        jobs.append((index, offset, there if good else 0, size))
    tally = _Tally(
        connection,
        sum(size - there for _, _, there, size in jobs),
        progress,
        clock,
        start,
    )
    for index, offset, there, size in jobs:
        for at in range(there, size, PIECE):
            piece = recipe.data[offset + at : offset + min(at + PIECE, size)]
            sent = partial(tally.sent, len(piece))
            connection.post(
                "put", piece, sent, tally.tell, app=recipe.app, part=index, at=at
            )
    connection.settle(meanwhile=tally.tell)
    return tally.total, tally.wire


class _Tally:
    """How much of what was sent has arrived, by what the device acknowledged of it."""

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
        self._done = self._told = 0
        # wire bytes before a piece and in it, and its own
        self._under_way: deque[tuple[int, int, int]] = deque()

    def sent(self, size: int, wire: int) -> None:
        """A piece of the bundle, in so many bytes on the line, is under way."""
        self._under_way.append((self.wire, wire, size))
        self.wire += wire

    def tell(self) -> None:
        """Says how far it is, if it is further than before."""
        arrived = self.wire - self._connection.backlog
        while self._under_way and sum(self._under_way[0][:2]) <= arrived:
            self._done += self._under_way.popleft()[2]
        before, wire, size = self._under_way[0] if self._under_way else (arrived, 1, 0)
        done = self._done + size * max(arrived - before, 0) // wire
        if done > self._told:
            self._told = done
            self._progress(
                Sending(done, self.total, arrived, self._clock() - self._start)
            )
