"""Sends a bundle over a connection: only the parts that the device lacks, from the last good byte on."""

from __future__ import annotations

import hashlib
import re
import struct
import time
import zipfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import Bundle, BundleError

from edgec_devices.protocol import Connection, Head

PIECE = 1 << 15
SMALL = 512  # a smaller file costs more as a part with a hash than as glue
MAX_APP = 64


@dataclass(frozen=True)
class Recipe:
    """How the device puts the bundle together: parts (offset, bytes, sha256), and all bytes that are in none."""

    data: bytes
    sha256: str
    parts: tuple[tuple[int, int, str], ...]
    glue: bytes
    app: str

    @staticmethod
    def of(path: Path, app: str | None = None) -> Recipe:
        """Of a bundle, checked as a whole first.  app: the folder on the device; default is the model's name."""
        with Bundle.open(path) as bundle:
            name = app or app_name(bundle.manifest.name)
        data = path.read_bytes()
        parts = []
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.file_size >= SMALL:
                    name_size, extra_size = struct.unpack_from("<HH", data, entry.header_offset + 26)
                    start = entry.header_offset + 30 + name_size + extra_size
                    content = data[start : start + entry.file_size]
                    parts.append((start, len(content), hashlib.sha256(content).hexdigest()))
        parts.sort()
        ends = [0, *(offset + size for offset, size, _ in parts)]
        glue = b"".join(data[end:start] for end, start in zip(ends, [*(p[0] for p in parts), len(data)], strict=True))
        if len(glue) + sum(p[1] for p in parts) != len(data):
            raise BundleError("the bundle changed while it was read", at=str(path), hint="try again")
        return Recipe(data, hashlib.sha256(data).hexdigest(), tuple(parts), glue, name)


def app_name(model: str) -> str:
    """A model's name as that of a folder on a device."""
    plain = re.sub(r"[^A-Za-z0-9_.+@-]+", "-", model).strip(".-+@")
    return plain[:MAX_APP] or "model"


@dataclass(frozen=True)
class Sending:
    """How far it is.  done, total: bytes of the bundle that the device lacked; wire: compressed bytes that arrived."""

    done: int
    total: int
    wire: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second on the line."""
        return self.wire / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds still to go, as far as one can tell."""
        return self.seconds * (self.total - self.done) / self.done if self.done else float("inf")


@dataclass(frozen=True)
class Sent:
    """What came of it.  slot: where the bundle is now; same: it was there already."""

    slot: str
    same: bool
    sending: Sending


def send(
    connection: Connection,
    recipe: Recipe,
    scratch: bool = False,
    progress: Callable[[Sending], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Sent:
    """Puts the bundle beside the slots, where it can be run.  Raises what the device says.

    scratch: it is not to become a slot, so any place that has it will do; otherwise only the active slot.
    """
    start = clock()
    begun = _begin(connection, recipe, scratch)
    if "same" in begun:
        return Sent(str(begun["same"]), True, Sending(0, 0, 0, clock() - start))
    total, wire = _send_lacking(connection, recipe, begun["lacks"], progress, clock, start)
    installed, _ = connection.request("install", b"", _hashing_s(recipe), app=recipe.app)
    sending = Sending(total, total, wire, clock() - start)
    progress(sending)
    return Sent(str(installed["slot"]), False, sending)


def send_parts(
    connection: Connection, recipe: Recipe, progress: Callable[[Sending], None] = lambda _: None
) -> tuple[int, int]:
    """Sends what the device lacks of anything, and no more.  Returns those bytes, and those on the line."""
    begun = _begin(connection, recipe, False)
    return _send_lacking(connection, recipe, begun["lacks"], progress, time.monotonic, time.monotonic())


def _hashing_s(recipe: Recipe) -> float:
    return 60.0 + len(recipe.data) / 1e6


def _begin(connection: Connection, recipe: Recipe, scratch: bool) -> Head:
    what = {"sha256": recipe.sha256, "bytes": len(recipe.data), "parts": recipe.parts}
    return connection.request("begin", recipe.glue, _hashing_s(recipe), app=recipe.app, recipe=what, scratch=scratch)[0]


def _send_lacking(
    connection: Connection,
    recipe: Recipe,
    lacks: list[tuple[int, int, str]],
    progress: Callable[[Sending], None],
    clock: Callable[[], float],
    start: float,
) -> tuple[int, int]:
    """From the last good byte of each part.  Returns bytes of the bundle and bytes on the line."""
    jobs = []
    for index, there, sha256 in lacks:
        offset, size, _ = recipe.parts[index]
        good = sha256 == hashlib.sha256(recipe.data[offset : offset + there]).hexdigest()
        jobs.append((index, offset, there if good else 0, size))
    total = sum(size - there for _, _, there, size in jobs)
    wire = done = 0
    under_way: deque[tuple[int, int]] = deque()  # wire bytes up to a piece's end, and the bytes of the bundle in it
    for index, offset, there, size in jobs:
        for at in range(there, size, PIECE):
            piece = recipe.data[offset + at : offset + min(at + PIECE, size)]
            wire += connection.post("put", piece, app=recipe.app, part=index, at=at)
            under_way.append((wire, len(piece)))
            while under_way and under_way[0][0] <= wire - connection.backlog:
                done += under_way.popleft()[1]
            progress(Sending(done, total, wire - connection.backlog, clock() - start))
    return total, wire
