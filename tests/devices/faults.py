"""A device in this process behind a line that does everything wrong, with a simulated
clock: all of it from a seed.

python -m tests.devices.faults --cases 2000 --seed 1      # what `make faults` runs;
more_faults.py: more kinds
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from edgec_devices.flash import HEALTH, FlashJob, flash_one
from edgec_devices.protocol import Connection
from edgec_devices.stream import ByteStream, LinkLost, device_end
from edgec_devices.transfer import Assembly
from edgec_runtime import EdgecError, write_bundle
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Disk, digest
from edgec_runtime.device_end.elf import MACHINES
from edgec_runtime.device_end.reception import App

from tests.devices.disks import BrittleDisk, Killed, QuickDisk
from tests.runtime import tiny_model

NOISE = (
    b"\r\n[  12.345678] usb 1-1: new high-speed USB device\r\n",
    b"\r\npi@raspberrypi:~$ ",
    b"~}~\x00\xff",
    b"\r\n",
)


@dataclass
class Faults:
    """Of one direction; probabilities are per byte (flip, drop) or per write.  cut:
    bytes until nothing passes.
    """

    flip: float = 0.0
    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    noise: float = 0.0
    crlf: bool = False
    cut: float = float("inf")

    def apply(self, data: bytes, rng: random.Random) -> bytes:
        """What arrives of it."""
        keep = data[: int(max(0, min(len(data), self.cut)))]
        self.cut -= len(data)
        if self.flip or self.drop:
            keep = self._damage(keep, rng)
        if rng.random() < self.double:
            keep += keep
        if rng.random() < self.noise:
            at = rng.randrange(len(keep) + 1)
            keep = keep[:at] + rng.choice(NOISE) + keep[at:]
        return keep.replace(b"\n", b"\r\n") if self.crlf else keep

    def _damage(self, data: bytes, rng: random.Random) -> bytes:
        out = bytearray(data)
        at = 0
        while True:
            at += int(rng.expovariate(self.flip + self.drop)) + 1
            if at >= len(out):
                return bytes(out)
            if rng.random() * (self.flip + self.drop) < self.flip:
                out[at] ^= 1 << rng.randrange(8)
            else:
                del out[at]


@dataclass
class World:
    """The clock and the device; both outlast a connection."""

    root: Path
    rng: random.Random
    disk: Disk = field(default_factory=lambda: QuickDisk())
    now: float = 0.0
    service: Service | None = None
    executed: list[str] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def boot(self) -> None:
        """A device end on the folder as it is."""
        if self.service:
            self.service.close()
        self.service = Service(str(self.root), self.disk, self.execute, device_end()[1])

    def execute(
        self, command: list[str], **_: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """In place of subprocess.run; notes which bytes would have been executed."""
        self.executed.append(digest(command[0]))
        self.commands[self.executed[-1]] = command
        runs = int(command[command.index("--runs") + 1])
        return subprocess.CompletedProcess(
            command,
            0,
            (b'{"warmup": 0, "total": [' + b"1000000, " * (runs - 1) + b"1000000]}"),
            b"",
        )


class SimStream(ByteStream):
    """A serial line to the world's device.  silent: a device that is gone just says no
    more; else the stream ends.
    """

    chunk = 1024
    window = 8

    def __init__(
        self,
        world: World,
        up: Faults,
        down: Faults,
        rate: float = 11520.0,
        echo: bool = False,
        silent: bool = True,
    ) -> None:
        self.url = "sim:"
        self.rate = rate
        self.world = world
        self.up = up
        self.down = down
        self.echo = echo
        self.silent = silent
        self._events: list[tuple[float, int, bool, bytes]] = []
        self._count = 0
        self._free = {True: 0.0, False: 0.0}
        self.sent = {True: 0, False: 0}

    def start(self, again: bool = False) -> None:
        """It runs already, as after a host that was killed."""

    def write(self, data: bytes) -> None:
        """Onto the line."""
        self._send(True, data)
        if self.echo:
            self._send(False, data)

    def _send(self, to_device: bool, data: bytes) -> None:
        w = self.world
        faults = self.up if to_device else self.down
        start = max(w.now, self._free[to_device])
        self._free[to_device] = start + len(data) / self.rate
        self.sent[to_device] += len(data)
        data = faults.apply(data, w.rng)
        late = w.rng.random() * 3 if w.rng.random() < faults.delay else 0.001
        if data:
            self._count += 1
            heapq.heappush(
                self._events,
                (self._free[to_device] + late, self._count, to_device, data),
            )

    def read(self, timeout: float) -> bytes:
        """Lets time pass until something comes or the timeout is over."""
        w = self.world
        end = self.world.now + timeout
        while True:
            came = b""
            while self._events and self._events[0][0] <= w.now:
                _, _, to_device, data = heapq.heappop(self._events)
                if to_device:
                    self._to_device(data)
                else:
                    came += data
            self._poll_device()
            if came:
                return came
            if w.now >= end:
                return b""
            wake = w.service.delivery.wake() if w.service else end
            w.now = max(
                w.now, min(end, wake, self._events[0][0] if self._events else end)
            )

    def _to_device(self, data: bytes) -> None:
        if self.world.service:
            try:
                self.world.service.receive(data, self.world.now)
            except Killed:
                self.world.service.close()
                self.world.service = None
                if not self.silent:
                    raise LinkLost("the stream ended", at=self.url) from None

    def _poll_device(self) -> None:
        if self.world.service:
            out = self.world.service.delivery.poll(self.world.now)
            if out:
                self._send(False, out)

    def close(self) -> None:
        """What is still on the line is lost."""
        self._events.clear()


def fake_program(size: int, rng: random.Random, target: str | None = None) -> bytes:
    """Bytes that pass for a program of this machine, or of another."""
    target = target or machine_target()
    wide = target != "linux-armv7"
    total = size + 256
    head = (
        b"\x7fELF"
        + bytes((2 if wide else 1, 1, 1))
        + bytes(9)
        + struct.pack("<HHI", 2, MACHINES[target], 1)
    )
    if wide:
        head += struct.pack("<QQQIHHHHHH", 64, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, total, total, 4096)
    else:
        head += struct.pack("<IIIIHHHHHH", 52, 52, 0, 0, 52, 32, 1, 0, 0, 0)
        head += struct.pack("<IIIIIIII", 1, 0, 0, 0, total, total, 5, 4096)
    return head.ljust(256, b"\0") + rng.randbytes(size)


def make_bundle(path: Path, program: bytes, shared: bytes) -> Assembly:
    """A small bundle: a program, and bytes that two bundles can have in common."""
    manifest, files = tiny_model.parts()
    name = f"bin/{machine_target()}/main"
    manifest["programs"][machine_target()] = name
    tiny_model.use_weights(manifest, files, machine_target())
    write_bundle(
        path, manifest, {**files, name: program, "segments/shared.tflite": shared}
    )
    return Assembly.of(path)


@dataclass(frozen=True)
class Pair:
    """An old and a new bundle, and folders of devices with the old one active, and with
    one older beside it.
    """

    folder: Path
    old: Assembly
    new: Assembly
    older: Assembly
    programs: frozenset[str]
    wire: Mapping[bool, int]

    def named(self) -> dict[str, Assembly]:
        """The versions, by how old they are."""
        return {"older": self.older, "old": self.old, "new": self.new}

    @staticmethod
    def make(folder: Path) -> Pair:
        """Written to a folder; the same for all seeds."""
        rng = random.Random(0)
        shared = rng.randbytes(3000)
        programs = [fake_program(6000 + 1500 * i, rng) for i in (0, 2, 1)]
        old, new, older = (
            make_bundle(folder / f"{i}.edgec", p, shared)
            for i, p in enumerate(programs)
        )
        world = World(folder / "template", rng)
        world.boot()
        flash_over(SimStream(world, Faults(), Faults()), old)
        assert world.service
        world.service.close()
        shutil.copytree(world.root, folder / "measured", symlinks=True)
        two = World(folder / "two versions", rng)
        for recipe in (older, old):
            two.boot()
            flash_over(SimStream(two, Faults(), Faults()), recipe)
        assert two.service
        two.service.close()
        measured = World(folder / "measured", rng)
        measured.boot()
        stream = SimStream(measured, Faults(), Faults())
        flash_over(stream, new)
        return Pair(
            folder,
            old,
            new,
            older,
            frozenset(digest_of(p) for p in programs),
            stream.sent,
        )


def digest_of(data: bytes) -> str:
    """sha256."""
    return hashlib.sha256(data).hexdigest()


def flash_over(stream: SimStream, recipe: Assembly, seed: int = 0) -> str:
    """Flashes with a health check."""
    with Connection(stream, lambda: stream.world.now, seed) as connection:
        job = FlashJob(recipe, HEALTH.parse("p95<=40ms"))
        return flash_one(connection, job, lambda _: None).what


OF_A_FLASH = (
    "line",
    "cut",
    "one way",
    "host killed",
    "device killed",
    "power cut",
    "disk error",
)


def cases() -> tuple[str, ...]:
    """The kinds, in the order in which seeds take turns."""
    return (*OF_A_FLASH, *more_faults.KINDS)


def run_case(seed: int, pair: Pair, folder: Path) -> str:
    """One case: breaks a flash, checks the folder, flashes again.

    Returns what happened.  AssertionError if wrong.
    """
    rng = random.Random(seed)
    kinds = cases()
    kind = kinds[seed % len(kinds)]
    if kind not in OF_A_FLASH:
        return more_faults.run_kind(kind, seed, pair, folder)
    root = folder / "root"
    shutil.copytree(pair.folder / "template", root, symlinks=True)
    (folder / "trash").mkdir()
    world = World(root, rng)
    brittle = None
    up = Faults()
    down = Faults()
    echo = False
    if kind == "line":
        for f in (up, down):
            f.flip, f.drop = rng.choice([(0, 0), (3e-4, 0), (0, 3e-4), (2e-4, 2e-4)])
            f.double, f.delay, f.noise = (rng.choice([0, 0.1]) for _ in range(3))
            f.crlf = rng.random() < 0.3
        echo = rng.random() < 0.3
    elif kind == "one way":  # from some moment on only the other direction works
        (up if rng.random() < 0.5 else down).cut = (
            rng.random() * sum(pair.wire.values()) / 2
        )
        echo = rng.random() < 0.2
    elif kind == "cut":
        upwards = rng.random() < 0.7
        # at every 1 %
        (up if upwards else down).cut = (
            pair.wire[upwards] * (seed // len(kinds) % 100) / 100
        )
    elif kind != "host killed":
        if kind == "disk error":
            error = OSError(rng.choice([28, 30, 5]), "the disk refuses")
        else:
            error = None
        brittle = BrittleDisk(rng.randint(0, 45), rng, folder / "trash", error)
    world.disk = brittle or world.disk
    world.boot()
    stream = SimStream(world, up, down, echo=echo, silent=rng.random() < 0.5)
    if kind == "host killed":
        stream = _Deadly(stream, rng.randint(1, 25))
    said = ""
    try:
        said = flash_over(stream, pair.new, seed)
    except EdgecError as e:
        said = f"refused: {e.what}"
    except Killed:
        said = "killed"
    stream.close()
    if kind == "power cut" and brittle:
        brittle.power_cut()
    assert world.now < 7200, f"seed {seed}, {kind}: it took {world.now:.0f} s"
    done = said.startswith("flashed")
    _check(world, pair, done, f"seed {seed}, {kind}: {said}")
    world.disk = QuickDisk()
    if world.service is None or kind in ("power cut", "disk error"):
        world.boot()
    again = flash_over(SimStream(world, Faults(), Faults()), pair.new, seed + 1)
    assert again.startswith(("flashed", "was there")), again
    _check(world, pair, True, f"seed {seed}, {kind}: second flash")
    assert world.service
    world.service.close()
    return f"{kind}: {said}"


class _Deadly(SimStream):
    """A host that dies at one of its writes."""

    def __init__(self, stream: SimStream, left: int) -> None:
        super().__init__(stream.world, stream.up, stream.down)
        self._left = left

    def write(self, data: bytes) -> None:
        self._left -= 1
        if self._left == 0:
            super().write(data[: len(data) // 2])
        if self._left <= 0:
            raise Killed
        super().write(data)


def _check(world: World, pair: Pair, new: bool, case: str) -> None:
    app = App(str(world.root), pair.new.app, Disk())
    active = app.active()
    assert active, f"{case}: no slot is active"
    state = app.whole(active)
    assert state, f"{case}: the active slot is not whole"
    wanted = {pair.new.sha256} if new else {pair.new.sha256, pair.old.sha256}
    assert state["sha256"] in wanted, f"{case}: the active slot is another's"
    assert set(world.executed) <= pair.programs, f"{case}: something else was executed"
    for folder, _, names in os.walk(world.root):
        for name in names:
            assert stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) in (
                stat.S_IFREG,
                stat.S_IFLNK,
            )


def run_cases(seeds: range, base: Path) -> dict[str, int]:
    """All of them; how often each thing happened."""
    (base / "pair").mkdir()
    pair = Pair.make(base / "pair")
    seen: dict[str, int] = {}
    units = {"EDGEC_UNITS": str(base / "units")}  # not those of this machine
    for seed in seeds:
        folder = base / "case"
        folder.mkdir()
        try:
            with mock.patch.dict(os.environ, units):
                said = run_case(seed, pair, folder)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
        key = said.split(",")[0][:70]
        seen[key] = seen.get(key, 0) + 1
    return seen


def main() -> None:
    """Prints what happened how often; the first case that goes wrong ends it with its
    seed.
    """
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    print(f"seeds {chosen.seed} to {chosen.seed + chosen.cases - 1}", flush=True)
    with tempfile.TemporaryDirectory(prefix="edgec-faults-") as base:
        for what, n in sorted(
            run_cases(
                range(chosen.seed, chosen.seed + chosen.cases), Path(base)
            ).items()
        ):
            print(f"{n:5}  {what}")


from tests.devices import more_faults  # noqa: E402 - which is made of what is above

if __name__ == "__main__":
    more_faults.main()  # the same module under its own name
