"""Faults of other kinds: a disk that lies, wheels and keys that are cut, odd things on
the disk, requests that are nonsense, and a device with a key whose switch is cut
(faults.py runs them, and more_faults.py checks what is left).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_devices.transfer import Assembly
from edgec_devices.wheel import Wheel
from edgec_runtime import EdgecError
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.disk import Disk, Refused
from edgec_runtime.device_end.reception import App, WritePlan
from edgec_runtime.device_end.requests import Empty
from edgec_runtime.device_end.slots import SLOTS
from edgec_runtime.device_end.trust import trusted
from edgec_runtime.device_end.wheels import WheelSite

from tests.devices import disks, faults
from tests.devices.more_faults import AFTER, BEFORE, Case, Kind

if TYPE_CHECKING:
    from tests.devices.faults import Pair

HANGS_S = 60


def _lying(case: Case) -> str:
    """The disk writes another bit than it was given, and says nothing."""
    rng, left = case.rng, case.rng.randint(0, 25)

    class Lying(disks.QuickDisk):
        writes = 0

        def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
            self.writes += 1
            if self.writes == left and data:
                damaged = bytearray(data)
                damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                data = bytes(damaged)
            super().write(path, offset, data, mode)

    case.boot(Lying())
    said = case.flash()
    case.boot()
    found = case.versions()
    assert found in (BEFORE, AFTER, ("old", "damaged")), (
        f"seed {case.seed}: {found} after {said}"
    )
    assert not said.startswith("flashed") or found == AFTER, (
        f"seed {case.seed}: {found} after {said}"
    )
    return said[:30]


def _no_room_for_files(case: Case) -> str:
    """Too many open files, no memory, and the like, at one operation."""
    error = OSError(case.rng.choice((4, 11, 12, 23, 24, 122)), "the system refuses")
    disk = disks.BrittleDisk(
        case.rng.randint(0, 45), case.rng, case.folder / "trash", error
    )
    case.boot(disk)
    said = case.flash()
    assert said.startswith("flashed") or "the system refuses" in said, said
    case.boot()
    found = case.versions()  # a switch that is done may meet it in what comes after
    assert found == AFTER or (found == BEFORE and said.startswith("refused")), (
        f"seed {case.seed}: {found}, {said}"
    )
    return said[:30]


def _odd(case: Case) -> str:
    """Somewhere in the folder stands what nobody expects there; it is flashed, run and
    gone back all the same.
    """
    base = case.world.root / case.new.app
    files = [p.relative_to(base) for p in sorted(base.rglob("*"))]
    files += [
        Path(n)
        for n in (
            "new",
            "incoming",
            "try",
            "a.old",
            "counter",
            "site",
            "current.new",
            "lock",
        )
    ]
    parts = [Path("incoming", p[2]) for p in case.new.parts]
    name = case.rng.choice([*files, *parts])
    kind, make = case.rng.choice(list(ODD.items()))
    (base / name).parent.mkdir(exist_ok=True)
    Disk().remove(str(base / name))
    make(base / name)
    with _within(HANGS_S):
        with contextlib.suppress(Refused, OSError):
            case.boot()
        said = case.flash() if case.world.service else "refused"
    assert said.startswith(("flashed", "refused", "was there")), said
    assert case.world.service
    case.world.service.close()
    if not said.startswith("refused"):
        return f"{kind}: flashed"
    if (base / name).is_symlink() or not (base / name).is_dir():
        Disk().remove(str(base / name))  # whoever is told does this
    else:
        shutil.rmtree(base / name)
    return f"{kind}: refused"


def _endless(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)


ODD: Mapping[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "full folder": lambda p: (p / "deep").mkdir(parents=True),
    "empty": Path.touch,
    "link to nothing": lambda p: p.symlink_to("nothing"),
    "link to itself": lambda p: p.symlink_to(p.name),
    "link to /": lambda p: p.symlink_to("/"),
    "terabyte": _endless,
    "text": lambda p: p.write_text("[" * 100_000),
}


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    def hung(*_: object) -> None:
        raise AssertionError("the device end hung")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


REQUESTS = (
    "info",
    "begin",
    "put",
    "install",
    "activate",
    "discard",
    "rollback",
    "trust",
    "site",
    "unpack",
    "adopt",
    "status",
    "run",
    "nothing",
    "__class__",
)
FIELDS = (
    "app",
    "slot",
    "recipe",
    "part",
    "at",
    "options",
    "limit",
    "inputs",
    "outputs",
    "wheels",
    "session",
    "check",
)


def _nonsense(case: Case) -> str:
    """A host that sends anything, between requests that make sense: all is answered,
    nothing else is executed.
    """
    case.boot()
    service = case.world.service
    assert service
    rng = case.rng
    answers = 0
    for _ in range(rng.randint(5, 40)):
        do = rng.choice(REQUESTS)
        head: dict[str, Any] = {
            k: _value(case) for k in rng.sample(FIELDS, rng.randint(0, 5))
        }
        if rng.random() < 0.7:
            head["app"] = case.new.app
        if (
            do in ("activate", "rollback", "trust", "install", "discard")
            and head.get("app") == case.new.app
        ):
            continue  # these may do what they say
        with contextlib.suppress(
            Refused,
            OSError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
        ):
            getattr(service, f"do_{do}", lambda *_: None)(
                {"do": do, "id": 1, **head}, rng.randbytes(rng.randint(0, 99))
            )
        answers += 1
    case.boot()
    assert case.versions() == BEFORE, f"seed {case.seed}"
    return "answered" if answers else "nothing asked"


def _value(case: Case) -> Any:
    r = case.rng
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        1,
        1 << 40,
        1 << 80,
        0.5,
        float("nan"),
        float("inf"),
        "",
        "a",
        "b",
        "try",
        "..",
        "../b",
        "/",
        "\0",
        "x" * 300,
        [],
        {},
        [[0, 5, "0" * 64]],
        ["--runs", "1"],
        ["--output", "/"],
        "0" * 64,
        b"x".hex(),
        {
            "sha256": "0" * 64,
            "bytes": r.randint(-1, 99),
            "parts": [[0, r.randint(-1, 9), "0" * 64]],
        },
    ]
    return r.choice([*odd, [r.choice(odd)], {"a": r.choice(odd)}])


def _wheels(case: Case) -> str:
    """A wheel that is unpacked and adopted is cut; those that are used are whole, or
    there are none.
    """
    wheels = [_wheel(text) for text in (b"one", b"two")]
    for wheel in wheels[: case.rng.randint(0, 1)]:
        _put(case, wheel, Disk())
    was_cut = False
    with contextlib.suppress(disks.Killed):
        was_cut = True
        disk = case.brittle(60)
        _put(case, wheels[1], disk)
        was_cut = False
    if was_cut and case.rng.random() < 0.6:
        disk.power_cut()
    case.boot()
    app = case.app()
    site = WheelSite(app)
    site.environment(site.active())  # raises where one is damaged
    site.there()
    for wheel in wheels:
        _put(case, wheel, Disk())
        assert site.active() == [_sha(wheel)]
    assert case.versions() == BEFORE
    return "cut" if was_cut else "done"


def _wheel(text: bytes) -> Wheel:
    from tests.devices.attack_files import wheel

    return wheel(text, None)


def _sha(wheel: Wheel) -> str:
    return faults.digest_of(wheel.data)


def _put(case: Case, wheel: Wheel, disk: Disk) -> None:
    """As a host does."""
    app = case.app()
    app.lock()
    app.disk = disk
    try:
        site = WheelSite(
            app,
            lambda command, **_: subprocess.CompletedProcess(command, 0, b"0.1.0", b""),
        )
        data = wheel.data
        if _sha(wheel) not in site.there():
            recipe = {
                "sha256": _sha(wheel),
                "bytes": len(data),
                "parts": [[0, len(data), _sha(wheel)]],
            }
            for index, _, _ in app.begin(WritePlan(recipe, b"")):
                app.put(index, 0, data)
            site.unpack(b"")
        site.adopt([_sha(wheel)])
    finally:
        app.close()


def _keys(case: Case) -> str:
    """A key that comes to be trusted is cut: it is, or it is not, and a key that is
    there stays.
    """
    first, second = (f"ssh-ed25519 {_blob(n)} key {n}\n".encode() for n in (1, 2))
    case.boot()
    assert case.world.service
    if had := case.rng.random() < 0.5:
        case.world.service.trust(Empty(), first)
    disk = case.brittle(8)
    was_cut = True
    service = Service(str(case.world.root), disk)
    with contextlib.suppress(disks.Killed):
        service.trust(Empty(), second)
        was_cut = False
    if was_cut and case.rng.random() < 0.6:
        disk.power_cut()
    found = [k.comment for k in trusted(str(case.world.root))]
    wanted = [["key 1", "key 2"], ["key 1"]] if had else [["key 2"], []]
    assert sorted(found) in (wanted if was_cut else wanted[:1]), (
        f"seed {case.seed}: {found}"
    )
    service.close()
    Disk().remove(str(case.world.root / "trusted"))
    return "cut" if was_cut else "done"


def _blob(n: int) -> str:
    import base64

    from edgec_runtime.device_end import trust

    return base64.b64encode(trust._blob(bytes([n]) * 32)).decode()


def _signed(pair: Pair) -> tuple[Path, tuple[Assembly, ...]]:
    """A key, and the three versions signed with it: counters 10, 20, 30."""
    from edgec_devices.signing import new_key, sign

    key = pair.folder / "key"
    paths = [pair.folder / f"signed {i}.edgec" for i in range(3)]
    if not key.exists():
        new_key(key)
        for i, (path, recipe) in enumerate(
            zip(paths, pair.named().values(), strict=True)
        ):
            path.write_bytes(recipe.data)
            sign(path, key, app=recipe.app, counter=10 * (i + 1))
    return key, tuple(map(Assembly.of, paths))


def _with_a_key(case: Case) -> str:
    """A signed switch is cut: what is active is signed, no older than what was, and the
    newer one can be flashed.
    """
    from edgec_devices.signing import public_path

    key, versions = _signed(case.pair)
    root = case.folder / "signed root"
    world = faults.World(root, case.rng)
    world.boot()
    assert world.service
    world.service.trust(Empty(), public_path(key).read_bytes())
    for recipe in versions[:2]:
        world.boot()
        faults.flash_over(
            faults.SimStream(world, faults.Faults(), faults.Faults()), recipe
        )
    disk = case.brittle(70)
    world.disk = disk
    was_cut = True
    try:
        world.boot()
        faults.flash_over(
            faults.SimStream(world, faults.Faults(), faults.Faults()), versions[2]
        )
        was_cut = False
    except (disks.Killed, EdgecError):
        if case.rng.random() < 0.6:
            disk.power_cut()
    world.disk = disks.QuickDisk()
    world.boot()
    app = App(str(root), case.new.app, disks.QuickDisk())
    active = app.active()
    assert active is not None
    found = app.verified(active)
    assert found.signature is not None
    assert found.signature.counter in ((20, 30) if was_cut else (30,)), (
        f"seed {case.seed}"
    )
    assert sum(app.whole(s) is not None for s in SLOTS) == 2, f"seed {case.seed}"
    for recipe, good in (
        (versions[0], False),
        (versions[2], True),
        (versions[1], False),
    ):
        world.boot()
        with contextlib.suppress(EdgecError):
            faults.flash_over(
                faults.SimStream(world, faults.Faults(), faults.Faults()), recipe
            )
            assert good, f"seed {case.seed}: an older version was taken"
            continue
        assert not good, f"seed {case.seed}: the new version was refused"
    assert world.service
    world.service.close()
    assert set(world.executed) <= case.pair.programs
    return "cut" if was_cut else "done"


KINDS: Mapping[str, Kind] = {
    "disk lies": _lying,
    "system refuses": _no_room_for_files,
    "odd file": _odd,
    "nonsense": _nonsense,
    "wheel cut": _wheels,
    "key cut": _keys,
    "signed cut": _with_a_key,
}
