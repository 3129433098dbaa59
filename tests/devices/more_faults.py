"""More faults than those of a line: what is cut, full, hung, rotten, or done by two at
once (faults.py runs them).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from edgec_devices.flash import execute
from edgec_devices.protocol import Connection
from edgec_devices.transfer import Assembly
from edgec_runtime import EdgecError
from edgec_runtime.device_end.disk import Disk, Refused
from edgec_runtime.device_end.reception import App, WritePlan
from edgec_runtime.device_end.requests import STATUS, Empty, RunRequest

from tests.devices import disks, faults

if TYPE_CHECKING:
    from tests.devices.faults import Pair, World

Kind = Callable[["Case"], str]


class Case:
    """A device with two versions, `older` and `old`, the latter active.  new: what is
    to be flashed.
    """

    def __init__(self, seed: int, pair: Pair, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.pair = pair
        self.folder = folder
        self.seed = seed
        shutil.copytree(pair.folder / "two versions", folder / "root", symlinks=True)
        (folder / "trash").mkdir()
        self.world: World = faults.World(folder / "root", self.rng)

    @property
    def new(self) -> Assembly:
        """The third version."""
        return self.pair.new

    def app(self, disk: Disk | None = None) -> App:
        """The application's folder, as the device end has it."""
        return App(str(self.world.root), self.new.app, disk or disks.QuickDisk())

    def brittle(self, most: int) -> disks.BrittleDisk:
        """A disk that dies somewhere within so many operations."""
        return disks.BrittleDisk(
            self.rng.randint(0, most), self.rng, self.folder / "trash"
        )

    def try_new(self) -> None:
        """The new version is in `try`."""
        app = self.app()
        recipe = {
            "sha256": self.new.sha256,
            "bytes": len(self.new.data),
            "parts": self.new.parts,
        }
        app.lock()
        for index, there, _ in app.begin(WritePlan(recipe, self.new.glue)):
            offset, size, _ = self.new.parts[index]
            app.put(index, there, self.new.data[offset + there : offset + size])
        app.install()
        app.close()

    def cut(self, work: Callable[[App], object], most: int) -> bool:
        """Whether the work was cut; then perhaps without what was not synced."""
        app = self.app()
        app.lock()
        disk = self.brittle(most)
        app.disk = disk
        try:
            work(app)
        except disks.Killed:
            if self.rng.random() < 0.6:
                disk.power_cut()
            return True
        finally:
            app.close()
        return False

    def boot(self, disk: Disk | None = None) -> None:
        """A device end on what is there."""
        self.world.disk = disk or disks.QuickDisk()
        self.world.boot()

    def versions(self) -> tuple[str, str]:
        """Of the active slot and of the other one."""
        app = self.app()
        names = {r.sha256: name for name, r in self.pair.named().items()}
        active = app.active()
        assert active, f"seed {self.seed}: no slot is active"
        found = []
        for slot in (active, app.inactive()):
            state = app.whole(slot)
            found.append(names[state["sha256"]] if state else "damaged")
        return found[0], found[1]

    def flash(self, **options: Any) -> str:
        """The new version, over a line without faults; what came of it."""
        stream = faults.SimStream(self.world, faults.Faults(), faults.Faults())
        try:
            return faults.flash_over(stream, self.new, self.seed, **options)
        except EdgecError as e:
            return f"refused: {e.what}"


BEFORE = ("old", "older")
AFTER = ("new", "old")
BACK = ("older", "old")


def run_kind(kind: str, seed: int, pair: Pair, folder: Path) -> str:
    """One case: what happened.

    AssertionError where something is wrong, also when all is whole again and flashed.
    """
    case = Case(seed, pair, folder)
    said = KINDS[kind](case)
    assert case.world.now < 7200, f"seed {seed}, {kind}: it took {case.world.now:.0f} s"
    case.boot()
    active, earlier = case.versions()
    again = case.flash()
    assert again.startswith(("flashed", "was there")), f"seed {seed}, {kind}: {again}"
    kept = case.versions()
    assert kept[0] == "new", f"seed {seed}, {kind}: {kept}"
    if "damaged" not in (active, earlier) and active != "new":
        assert kept[1] == active, f"seed {seed}, {kind}: {active} was lost"
    _go_back(case, kept, f"seed {seed}, {kind}")
    others = [
        case.world.commands.get(d) for d in set(case.world.executed) - pair.programs
    ]
    assert not others, f"seed {seed}, {kind}: something else was executed: {others}"
    return f"{kind}: {said}"


def _go_back(case: Case, kept: tuple[str, str], where: str) -> None:
    """The earlier version is reachable, or it is said that it is gone."""
    assert case.world.service
    case.world.service.close()
    app = case.app()
    app.lock()
    said = ""
    try:
        app.rollback()
    except Refused as e:
        said = e.what
    finally:
        app.close()
    if said:
        assert kept[1] == "damaged", where
        assert "no whole earlier version" in said, where
    else:
        assert case.versions() == kept[::-1], where


def main() -> None:
    """Of faults.py, which is another module when it is started as a program."""
    faults.main()


def _switch(case: Case) -> str:
    case.try_new()
    was_cut = case.cut(lambda app: app.activate(), 14)
    case.boot()
    found = case.versions()
    assert found in (BEFORE, AFTER), f"seed {case.seed}: {found}"
    return f"{'cut' if was_cut else 'done'}, {found[0]}"


def _rollback(case: Case) -> str:
    case.cut(lambda app: app.rollback(), 6)
    case.boot()
    found = case.versions()
    assert found in (BEFORE, BACK), f"seed {case.seed}: {found}"
    return found[0]


def _recovery(case: Case) -> str:
    case.try_new()
    case.cut(lambda app: app.activate(), 12)
    cuts = 0
    for _ in range(case.rng.randint(1, 4)):
        disk = case.brittle(8)
        try:
            case.boot(disk)
        except disks.Killed:
            cuts += 1
            if case.rng.random() < 0.6:
                disk.power_cut()
    case.boot()
    found = case.versions()
    assert found in (BEFORE, AFTER), f"seed {case.seed}: {found}"
    return f"{cuts} times, {found[0]}"


class FullDisk(disks.QuickDisk):
    """So many bytes fit; what is removed makes room again."""

    def __init__(self, room: int) -> None:
        self.room = room

    def _take(self, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= size

    def mkdir(self, path: str) -> None:
        self._take(0 if os.path.isdir(path) else 512)
        super().mkdir(path)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        some = data[: max(self.room, 0)]
        super().write(path, offset, some, mode)
        self._take(len(data))

    def link(self, target: str, path: str) -> None:
        self._take(256)
        super().link(target, path)

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            freed = sum(p.lstat().st_size for p in Path(path).rglob("*"))
        else:
            freed = 0
        super().remove(path)
        self.room += freed


def _full(case: Case) -> str:
    case.boot(FullDisk(case.rng.randint(0, 60_000)))
    said = case.flash()
    assert said.startswith("flashed") or "No space left" in said, said
    case.boot()
    found = case.versions()
    assert found == (AFTER if said.startswith("flashed") else BEFORE), (
        f"seed {case.seed}: {found} after {said}"
    )
    return said.split(":")[0]


def _two_hosts(case: Case) -> str:
    case.boot()
    other = Case.__new__(Case)
    at = case.rng.randint(1, 10)
    other.__dict__.update(case.__dict__, world=faults.World(case.world.root, case.rng))
    said: list[str] = []

    class Both(faults.SimStream):
        writes = 0

        def write(self, data: bytes) -> None:
            self.writes += 1
            if self.writes == at:
                other.boot()
                said.append(other.flash())
                assert other.world.service
                other.world.service.close()
            super().write(data)

    try:
        first = faults.flash_over(
            Both(case.world, faults.Faults(), faults.Faults()), case.new, case.seed
        )
    except EdgecError as e:
        first = f"refused: {e.what}"
    for one in (first, *said):
        assert (
            one.startswith(("flashed", "was there"))
            or "somebody else is flashing" in one
        ), one
    case.world.executed += other.world.executed
    assert case.versions() == AFTER
    assert case.world.service
    case.world.service.close()
    return (
        f"{first.split(',')[0]} beside "
        f"{said[0].split(',')[0].split(':')[0] if said else 'nobody'}"
    )


def _hung(case: Case) -> str:
    def hang(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        case.world.now += 20.0  # the device end gives signs of life in the meantime
        raise subprocess.TimeoutExpired(command, options["timeout"])

    case.world.execute = hang  # type: ignore[method-assign]
    case.boot()
    said = case.flash()
    del case.world.execute
    assert said.startswith("refused: "), said
    found = case.versions()
    assert found == BEFORE, f"seed {case.seed}: {found}"
    assert case.world.service
    case.world.service.close()
    return said[9:40]


def _clock(case: Case) -> str:
    """Of the wall, which is only written down, and of the monotonic one, which leaps
    where a machine sleeps.
    """
    case.boot()
    at = case.rng.randint(1, 40)
    leap = case.rng.choice([0.0, 5.0, 100.0, 6000.0])

    class Leaping(faults.SimStream):
        reads = 0

        def read(self, timeout: float) -> bytes:
            self.reads += 1
            if self.reads == at:
                self.world.now += leap
            return super().read(timeout)

    with mock.patch("time.time", return_value=case.rng.choice([0.0, -1e9, 1e9, 1e12])):
        try:
            said = faults.flash_over(
                Leaping(case.world, faults.Faults(), faults.Faults()),
                case.new,
                case.seed,
            )
        except EdgecError as e:
            said = f"refused: {e.what}"
    found = case.versions()
    assert found in (BEFORE, AFTER), f"seed {case.seed}: {found}"
    case.world.now = 0.0
    assert case.world.service
    case.world.service.close()
    return f"{leap:g} s, {said.split(',')[0][:40]}"


def _rot(case: Case) -> str:
    """A bit of one file or several; then the device is asked to run what it has."""
    files = [
        p
        for p in sorted((case.world.root / case.new.app).rglob("*"))
        if p.is_file() and not p.is_symlink()
    ]
    for path in case.rng.sample(files, case.rng.choice([1, 1, 1, 2])):
        data = bytearray(path.read_bytes())
        if data:
            data[case.rng.randrange(len(data))] ^= 1 << case.rng.randrange(8)
            path.chmod(0o755)
            path.write_bytes(data)
    case.boot()
    said = []
    stream = faults.SimStream(case.world, faults.Faults(), faults.Faults())
    with Connection(stream, lambda: case.world.now, case.seed) as c:
        c.ask(STATUS, Empty())
        for slot in ("a", "b"):
            with contextlib.suppress(EdgecError):
                execute(c, RunRequest(case.new.app, slot, ["--runs", "1"]))
                said.append(slot)
    assert case.world.service
    case.world.service.close()
    return f"{len(said)} of 2 versions run"


from tests.devices import odd_faults  # noqa: E402 - which is made of what is above

KINDS: Mapping[str, Kind] = {
    "switch cut": _switch,
    "rollback cut": _rollback,
    "recovery cut": _recovery,
    "disk full": _full,
    "two hosts": _two_hosts,
    "hung program": _hung,
    "clock": _clock,
    "rot": _rot,
    **odd_faults.KINDS,
}
