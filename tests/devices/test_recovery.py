"""A switch, a rollback and a recovery, cut after each of their disk operations: what is
then active and reachable.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from edgec_devices.transfer import Assembly
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Disk, Refused, plain, refusal
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.requests import Empty
from edgec_runtime.device_end.slots import SLOTS

from tests.devices.disks import Killed, QuickDisk
from tests.devices.faults import fake_program, make_bundle
from tests.devices.test_agent import flash, put_all


class Dying(QuickDisk):
    """Dies before operation number `left`."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def mkdir(self, path: str) -> None:
        self._step()
        super().mkdir(path)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        self._step()
        super().write(path, offset, data, mode)

    def sync(self, path: str) -> None:
        self._step()
        super().sync(path)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def link(self, target: str, path: str) -> None:
        self._step()
        super().link(target, path)

    def remove(self, path: str) -> None:
        """File by file."""
        if plain(path, folder=True):
            for name in sorted(os.listdir(path)):
                self.remove(os.path.join(path, name))
        if os.path.lexists(path):
            self._step()
            os.rmdir(path) if plain(path, folder=True) else os.unlink(path)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Assembly]:
    folder = tmp_path_factory.mktemp("versions")
    return [
        make_bundle(
            folder / f"{i}.edgec", fake_program(600, random.Random(i)), b"s" * 600
        )
        for i in range(4)
    ]


def prepared(root: Path, versions: list[Assembly], there: int) -> None:
    """So many versions flashed, and the next one in `try`."""
    app = App(str(root), "tiny", QuickDisk())
    for recipe in versions[:there]:
        flash(app, recipe)
    put_all(app, versions[there])
    app.install()
    app.close()


def seen(root: Path, versions: list[Assembly]) -> tuple[int | None, int | None]:
    """The active version, and the one that rollback goes to, None where there is none."""
    app = App(str(root), "tiny", QuickDisk())
    number = {v.sha256: i for i, v in enumerate(versions)}
    found = []
    for slot in (app.active(), app.inactive() if app.active() else None):
        state = app.whole(slot) if slot else None
        found.append(number[state["sha256"]] if state else None)
    return found[0], found[1]


def cut(root: Path, after: int, work: Callable[[App], object]) -> bool:
    """Whether it was cut."""
    app = App(str(root), "tiny", QuickDisk())
    app.lock()
    app.disk = Dying(after)
    try:
        work(app)
    except Killed:
        return True
    finally:
        app.close()
    return False


def boot(root: Path) -> None:
    Service(str(root), QuickDisk()).close()


@pytest.mark.parametrize("there", [0, 1, 2])
def test_a_switch_that_is_cut(
    tmp_path: Path, versions: list[Assembly], there: int
) -> None:
    """before: the version that is active, and the one before it; after: the new one,
    and that which was active.
    """
    prepared(tmp_path / "template", versions, there)
    numbers = [None, None, *range(there)]
    before = (numbers[-1], numbers[-2])
    after = (there, numbers[-1])
    states = []
    for k in range(100):
        root = tmp_path / str(k)
        shutil.copytree(tmp_path / "template", root, symlinks=True)
        was_cut = cut(root, k, lambda app: app.activate())
        boot(root)
        states.append(seen(root, versions))
        assert states[-1] in (before, after), f"cut after {k} operations"
        check_rollback(root, versions)
        if not was_cut:
            break
    assert states == sorted(states, key=lambda s: s == after), (
        "once it is made, it stays made"
    )
    assert states[0] == before
    assert states[-1] == after
    assert k > 5


def check_rollback(root: Path, versions: list[Assembly]) -> None:
    """It goes to the earlier version, or says that there is none, and the next flash
    works.
    """
    active, earlier = seen(root, versions)
    app = App(str(root), "tiny", QuickDisk())
    app.lock()
    if earlier is None:
        with pytest.raises(Refused, match="no whole earlier version"):
            app.rollback()
    else:
        app.rollback()
        assert seen(root, versions) == (earlier, active)
    active, _ = seen(root, versions)
    flash(app, versions[3])
    assert seen(root, versions) == (3, active)
    assert not [n for n in os.listdir(app.path) if n.endswith((".old", ".new"))]
    app.close()


def test_a_rollback_that_is_cut(tmp_path: Path, versions: list[Assembly]) -> None:
    prepared(tmp_path / "template", versions, 2)
    for k in range(100):
        root = tmp_path / str(k)
        shutil.copytree(tmp_path / "template", root, symlinks=True)
        was_cut = cut(root, k, lambda app: app.rollback())
        boot(root)
        assert seen(root, versions) in ((1, 0), (0, 1)), f"cut after {k} operations"
        if not was_cut:
            break
        check_rollback(root, versions)
    assert seen(root, versions) == (0, 1)


def test_a_recovery_that_is_cut(tmp_path: Path, versions: list[Assembly]) -> None:
    """Each cut of the switch, and then each cut of what puts it right."""
    prepared(tmp_path / "template", versions, 2)
    tried = 0
    for k in range(100):
        first = tmp_path / str(k)
        shutil.copytree(tmp_path / "template", first, symlinks=True)
        if not cut(first, k, lambda app: app.activate()):
            break
        for j in range(100):
            root = tmp_path / f"{k}-{j}"
            shutil.copytree(first, root, symlinks=True)
            try:
                Service(str(root), Dying(j)).close()
                was_cut = False
            except Killed:
                was_cut = True
            boot(root)
            assert seen(root, versions) in ((1, 0), (2, 1)), (
                f"cut after {k}, its recovery after {j}"
            )
            tried += 1
            shutil.rmtree(root)
            if not was_cut:
                break
    assert tried > 20


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("name", ["model.edgec", "slot.json", "bin"])
def test_rot_never_costs_the_version_that_is_whole(
    tmp_path: Path, versions: list[Assembly], slot: str, name: str
) -> None:
    """The next flash goes over the damaged slot, whichever it is."""
    prepared(tmp_path, versions, 2)
    place = next(
        p
        for p in sorted((tmp_path / "tiny" / slot).rglob("*"))
        if name in p.as_posix() and p.is_file()
    )
    data = bytearray(place.read_bytes())
    # the former is in the bundle's sha256
    data[20 if name == "slot.json" else len(data) // 2] ^= 1
    place.write_bytes(data)
    app = App(str(tmp_path), "tiny", QuickDisk())
    app.lock()
    good = [s for s in SLOTS if app.whole(s)]
    assert good == [s for s in SLOTS if s != slot]
    kept = app.whole(good[0])
    assert kept
    flash(app, versions[2])
    assert seen(tmp_path, versions)[0] == 2
    assert app.whole(good[0]) == kept, "the only whole version was written over"
    app.close()


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    """Something else in the place of a file, link or folder."""
    Disk().remove(str(path))
    make(path)


def _link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def _terabyte(path: Path) -> None:
    """Of nothing: whoever reads it does so for an hour."""
    with path.open("wb") as f:
        f.truncate(1 << 40)


def _far(other: Path) -> str:
    """Another slot's, with its parts where no file has bytes."""
    return json.dumps(
        {
            "parts": [
                [10**30, size, sha256]
                for _, size, sha256 in json.loads(other.read_text())["parts"]
            ]
        }
    )


PART = "incoming/0"  # of the bundle that comes next

ODD: dict[str, tuple[str, Callable[[Path], object]]] = {
    "current points nowhere": ("current", _link("zzz")),
    "current is a folder": ("current", Path.mkdir),
    "a slot is a link": ("a", _link("/tmp")),
    "incoming is a file": ("incoming", Path.touch),
    "incoming is a link": ("incoming", _link("/tmp")),
    "new is a link": ("new", _link("/tmp")),
    "slot.json is nested": ("a/slot.json", lambda p: p.write_text("[" * 200_000)),
    "slot.json is a list": ("a/slot.json", lambda p: p.write_text("[]")),
    "slot.json has odd parts": (
        "a/slot.json",
        lambda p: p.write_text('{"sha256": 1, "parts": [[], [{}, 2, 3], 7]}'),
    ),
    "slot.json has a part at infinity": (
        "a/slot.json",
        lambda p: p.write_text('{"parts": [[1e400, 2, "0"]]}'),
    ),
    "slot.json has parts beyond any disk": (
        "a/slot.json",
        lambda p: p.write_text(_far(p.parent.parent / "b/slot.json")),
    ),
    "current.new is a folder": ("current.new", Path.mkdir),
    "old is a file": ("a.old", Path.touch),
    "old is another slot": ("b.old", lambda p: shutil.copytree(p.parent / "a", p)),
    "the counter is junk": ("counter", lambda p: p.write_bytes(b"\xff")),
    "try is a file": ("try", Path.touch),
    "slot.json is a pipe": ("a/slot.json", os.mkfifo),
    "slot.json is a terabyte": ("a/slot.json", _terabyte),
    "a program is a terabyte": (f"a/bin/{machine_target()}/main", _terabyte),
    "a program is a pipe": (f"a/bin/{machine_target()}/main", os.mkfifo),
    "a bundle is a terabyte": ("a/model.edgec", _terabyte),
    "a bundle is a pipe": ("a/model.edgec", os.mkfifo),
    "the counter is a pipe": ("counter", os.mkfifo),
    "a part is a pipe": (PART, os.mkfifo),
    "a part is a link": (PART, _link("/etc/hostname")),
    "a part is a folder": (PART, Path.mkdir),
    "the lock is a pipe": ("lock", os.mkfifo),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_things_on_the_disk(
    tmp_path: Path, versions: list[Assembly], what: str
) -> None:
    prepared(tmp_path, versions, 2)
    name, make = ODD[what]
    (tmp_path / "tiny/incoming").mkdir()
    _instead(
        tmp_path
        / "tiny"
        / (f"incoming/{versions[3].parts[0][2]}" if name == PART else name),
        make,
    )
    boot(tmp_path)
    service = Service(str(tmp_path), QuickDisk())
    assert service.status(Empty(), b"").apps
    app = App(str(tmp_path), "tiny", QuickDisk())
    app.lock()
    flash(app, versions[3])
    assert seen(tmp_path, versions)[0] == 3
    app.close()


@pytest.mark.parametrize("make", [Path.mkdir, _link("/tmp"), _link("nowhere")])
def test_a_lock_that_is_none(tmp_path: Path, make: Callable[[Path], object]) -> None:
    (tmp_path / "tiny").mkdir()
    make(tmp_path / "tiny/lock")
    with pytest.raises((IsADirectoryError, OSError), match="lock") as e:
        App(str(tmp_path), "tiny", QuickDisk()).lock()
    assert "something else stands in its place" in refusal(e.value).hint


def test_each_entry_of_a_folder_is_on_the_disk_before_it_is_relied_on(
    tmp_path: Path, versions: list[Assembly]
) -> None:
    """Between a change of the application's folder and the end of each request, the
    folder was synced.
    """
    dirty: set[str] = set()

    class Watching(Disk):
        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            dirty.add(os.path.dirname(path))

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            dirty.update((os.path.dirname(old), os.path.dirname(new)))

        def sync(self, path: str) -> None:
            super().sync(path)
            dirty.discard(path)

    root = tmp_path / "deep" / "root"
    app = App(str(root), "tiny", Watching())
    for recipe in versions[:3]:
        put_all(app, recipe)
        app.install()
        assert not {d for d in dirty if "/new" not in d}
        app.activate()
        assert not {d for d in dirty if os.path.isdir(d)}
    app.rollback()
    assert not {d for d in dirty if os.path.isdir(d)}
