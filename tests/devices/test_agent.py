"""The device end's folder: what is written when, and what it refuses.

Many broken lines and cut powers: faults.py.
"""

from __future__ import annotations

import errno
import json
import os
import random
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.transfer import Assembly
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.bundles import MAX_BUNDLE_BYTES, machine_target
from edgec_runtime.device_end.disk import Disk, Refused, digest, refusal
from edgec_runtime.device_end.reception import App, WritePlan
from edgec_runtime.device_end.requests import RunRequest
from edgec_runtime.device_end.wire import HELLO, Frame

from tests.devices import faults
from tests.devices.disks import QuickDisk
from tests.devices.faults import fake_program, make_bundle
from tests.runtime import tiny_model


@pytest.fixture
def old(tmp_path: Path) -> Assembly:
    return make_bundle(
        tmp_path / "old.edgec", fake_program(3000, random.Random(1)), b"s" * 2000
    )


@pytest.fixture
def new(tmp_path: Path) -> Assembly:
    return make_bundle(
        tmp_path / "new.edgec", fake_program(4000, random.Random(2)), b"s" * 2000
    )


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(str(tmp_path / "root"), "tiny", QuickDisk())


def plan(recipe: Assembly) -> WritePlan:
    what = {
        "sha256": recipe.sha256,
        "bytes": len(recipe.data),
        "parts": [list(p) for p in recipe.parts],
    }
    return WritePlan(what, recipe.glue)


def put_all(app: App, recipe: Assembly) -> int:
    """Announces and sends; how many parts were lacking."""
    app.lock()
    lacks = app.begin(plan(recipe))
    for index, there, _ in lacks:
        offset, size, _ = recipe.parts[index]
        app.put(index, there, recipe.data[offset + there : offset + size])
    return len(lacks)


def flash(app: App, recipe: Assembly) -> int:
    lacking = put_all(app, recipe)
    app.install()
    app.activate()
    return lacking


def tree(folder: str) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(d, n), folder)
        for d, _, names in os.walk(folder)
        for n in names
    )


def test_two_slots_and_a_link(app: App, old: Assembly, new: Assembly) -> None:
    assert flash(app, old) == 3
    program, weights = (
        f"bin/{machine_target()}/{name}" for name in ("main", "weights.bin")
    )
    assert tree(app.path) == sorted(
        ["lock", f"a/{program}", f"a/{weights}", "a/model.edgec", "a/slot.json"]
    )
    assert Path(app.at("a", weights)).read_bytes() == tiny_model.WEIGHTS
    assert stat.S_IMODE(os.stat(app.at("a", weights)).st_mode) == 0o644
    assert os.stat(app.at("current", program)).st_mode & stat.S_IXUSR
    # manifest and program; the file that both have is copied on the device
    assert flash(app, new) == 2
    assert (
        os.readlink(app.at("current")),
        digest(app.at("current", "model.edgec")),
    ) == ("b", new.sha256)
    assert app.rollback() == "a"
    assert digest(app.at("current", "model.edgec")) == old.sha256
    assert app.rollback() == "b"
    assert flash(app, old) == 0
    assert app.active() == "a"


def test_a_cut_transfer_goes_on_where_it_stopped(
    tmp_path: Path, app: App, old: Assembly, new: Assembly
) -> None:
    flash(app, old)
    lacking = [i for i, _, _ in app.begin(plan(new))]
    first, last = (new.parts[i] for i in lacking)
    app.put(lacking[0], 0, new.data[first[0] : first[0] + first[1]])
    app.put(lacking[1], 0, new.data[last[0] : last[0] + 1000])
    again = App(str(tmp_path / "root"), "tiny", QuickDisk())  # a later run
    assert again.begin(plan(new)) == [
        (lacking[1], 1000, faults.digest_of(new.data[last[0] : last[0] + 1000]))
    ]
    again.put(lacking[1], 1000, new.data[last[0] + 1000 : last[0] + last[1]])
    again.install()
    again.activate()
    assert again.whole("b")


def test_what_another_bundle_left_is_thrown_away(
    app: App, old: Assembly, new: Assembly
) -> None:
    put_all(app, old)
    app.begin(plan(new))
    assert set(os.listdir(app.at("incoming"))) <= {p[2] for p in new.parts}


def test_wrong_bytes_never_get_a_slot(app: App, old: Assembly, new: Assembly) -> None:
    flash(app, old)
    for index, _, _ in app.begin(plan(new)):
        app.put(index, 0, bytes(new.parts[index][1]))
    with pytest.raises(Refused, match="does not have its sha256"):
        app.install()
    assert app.active() == "a"
    assert app.whole("a")
    assert app.whole("b") is None
    assert flash(app, new) == 2


def test_a_slot_that_changed_is_not_run_and_not_gone_back_to(
    app: App, old: Assembly, new: Assembly
) -> None:
    flash(app, old)
    flash(app, new)
    with open(app.at("a", "bin", machine_target(), "main"), "ab") as f:
        f.write(b"!")
    with pytest.raises(Refused, match="no whole earlier version"):
        app.rollback()
    with pytest.raises(Refused, match="empty or damaged"):
        app.program("try")
    with pytest.raises(Refused, match="empty or damaged"):
        app.program("a")
    assert app.status().slots["a"] is None
    assert app.active() == "b"
    assert flash(app, old) == 0  # its bundle is still good, so nothing is sent


def test_parts_of_a_slot_are_hashed_before_they_are_used(
    app: App, old: Assembly, new: Assembly
) -> None:
    flash(app, old)
    with open(app.at("a", "model.edgec"), "r+b") as f:
        f.seek(
            next(
                offset
                for offset, size, sha256 in old.parts
                if sha256 in {p[2] for p in new.parts}
            )
        )
        f.write(b"rot")
    assert put_all(app, new) == 3
    app.install()
    app.activate()
    assert app.whole("b")


def test_one_host_at_a_time(tmp_path: Path, app: App, old: Assembly) -> None:
    flash(app, old)
    other = App(str(tmp_path / "root"), "tiny", QuickDisk())
    with pytest.raises(Refused, match="somebody else is flashing"):
        other.lock()
    app.close()
    other.lock()
    other.close()


def test_try_touches_no_slot(app: App, old: Assembly, new: Assembly) -> None:
    flash(app, old)
    flash(app, new)
    put_all(app, old)
    app.install()
    assert app.whole("try")
    assert app.active() == "b"
    app.discard()
    assert app.whole("try") is None
    with pytest.raises(Refused, match="empty or damaged"):
        app.activate()
    assert app.rollback() == "a"
    assert app.whole("a")
    assert app.whole("b")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", ".ssh", "a" * 65, "a\n", None, 5, "a b"],
)
def test_names_that_leave_the_folder(tmp_path: Path, name: Any) -> None:
    with pytest.raises(Refused, match="cannot be the name"):
        App(str(tmp_path), name, Disk())


GOOD = {"sha256": "0" * 64, "bytes": 10, "parts": [[2, 5, "1" * 64]]}


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "../../etc/passwd"},
        {"bytes": MAX_BUNDLE_BYTES + 1},
        {"bytes": True},
        {"parts": [[2, 5, "/etc/passwd"]]},
        {"parts": [[-2, 5, "1" * 64]]},
        {"parts": [[2, 50, "1" * 64]]},
        {"parts": [[2, 4, "1" * 64], [3, 1, "2" * 64]]},
        {"parts": [[2, 5]]},
        {"parts": None},
        {"parts": [[0.5, 5, "1" * 64]]},
        {"parts": [[0, 0, "1" * 64]] * 5000},
    ],
)
def test_recipes_that_are_none(change: dict[str, Any]) -> None:
    WritePlan(GOOD, b"x" * 5)
    with pytest.raises(Refused, match="impossible"):
        WritePlan({**GOOD, **change}, b"x" * 5)
    with pytest.raises(Refused):
        WritePlan(GOOD, b"x" * 6)


@pytest.mark.parametrize(
    "piece",
    [(5, 0, b"x"), (-1, 0, b"x"), (0, 1, b"x"), (0, -1, b"x"), (0, 0, b"x" * 9999)],
)
def test_pieces_that_fit_nowhere(
    app: App, old: Assembly, piece: tuple[int, int, bytes]
) -> None:
    app.lock()
    app.begin(plan(old))
    with pytest.raises(Refused, match="a piece"):
        app.put(*piece)
    assert tree(app.at("incoming")) == []


def hostile(
    tmp_path: Path, change: Callable[[zipfile.ZipFile, dict[str, Any]], None]
) -> Assembly:
    """A zip that Bundle.open would never let through, as a lying host would send it."""
    path = tmp_path / "bad.zip"
    target = machine_target()
    with zipfile.ZipFile(path, "w") as z:
        program = fake_program(700, random.Random(3))
        info = {"sha256": faults.digest_of(program), "bytes": len(program)}
        manifest = {
            "name": "x",
            "programs": {target: "p"},
            "libraries": {},
            "files": {"p": info},
        }
        z.writestr("p", program)
        change(z, manifest)
        z.writestr("manifest.json", json.dumps(manifest))
    data = path.read_bytes()
    return Assembly(data, faults.digest_of(data), (), data, "tiny")


def _link(z: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    info = zipfile.ZipInfo("q")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    z.writestr(info, "/etc/passwd")


def _bomb(z: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    z.writestr(zipfile.ZipInfo("q"), bytes(1 << 22), zipfile.ZIP_DEFLATED)


def _many(z: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    for i in range(4100):
        z.writestr(f"f{i}", b"")


def _other_code(z: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    other = next(t for t in ("linux-armv7", "linux-aarch64") if t != machine_target())
    code = fake_program(10, random.Random(1), other)
    z.writestr("q", code)
    manifest["programs"] = {machine_target(): "q"}
    manifest["files"]["q"] = {"sha256": faults.digest_of(code), "bytes": len(code)}


Change = Callable[[zipfile.ZipFile, dict[str, Any]], None]
HOSTILE: list[tuple[Change, str]] = [
    (lambda z, m: z.writestr("../../evil", "x"), "unsafe file"),
    (lambda z, m: z.writestr("/etc/evil", "x"), "unsafe file"),
    (lambda z, m: z.writestr("a/.hidden", "x"), "unsafe file"),
    (_link, "unsafe file"),
    (_bomb, "unsafe file"),
    (_many, "more than it can"),
    (_other_code, "is not code for"),
    (lambda z, m: m["programs"].update({machine_target(): "../p"}), "is damaged"),
    (
        lambda z, m: m.update(programs={"linux-z80": "p"}),
        "no code for .*; it has linux-z80",
    ),
    (lambda z, m: m.update(programs=5), "is damaged"),
    (lambda z, m: m.update(weights=5), "is damaged"),
    (lambda z, m: m.update(weights={machine_target(): "none.bin"}), "is damaged"),
    (
        lambda z, m: m["files"]["p"].update(sha256="0" * 64),
        "other bytes than were written",
    ),
]


@pytest.mark.parametrize(("change", "what"), HOSTILE)
def test_hostile_bundles(
    tmp_path: Path,
    app: App,
    old: Assembly,
    change: Callable[[zipfile.ZipFile, dict[str, Any]], None],
    what: str,
) -> None:
    flash(app, old)
    bad = hostile(tmp_path, change)
    before = tree(str(tmp_path / "root" / "tiny" / "a"))
    with pytest.raises(Refused, match=what):
        flash(app, bad)
    assert (app.active(), tree(app.at("a"))) == ("a", before)
    assert app.whole("b") is None
    assert not list(tmp_path.rglob("evil"))
    flash(app, old)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_disks_that_refuse(number: int) -> None:
    found = refusal(OSError(number, os.strerror(number), "/x/y"))
    assert found.kind == "device"
    assert found.what == f"{os.strerror(number)} (/x/y)"
    assert found.hint


def test_a_full_disk_is_seen_before_anything_is_sent(
    app: App, old: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.lock()
    real = os.statvfs(app.path)
    small = os.statvfs_result((real[0], 1024, real[2], real[3], 4, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    with pytest.raises(Refused, match=r"MB free, .* MB are needed"):
        app.begin(plan(old))


def test_a_session_of_another_host_forgets_the_plan(tmp_path: Path) -> None:
    service = Service(str(tmp_path / "root"))
    service.app = App(service.root, "x", Disk())
    service.app.lock()
    service.receive(Frame(HELLO, 9, 0, b"{").encode(), 0)
    assert service.app is None


def test_run_ends_a_program_that_hangs(tmp_path: Path, app: App, old: Assembly) -> None:
    flash(app, old)
    app.close()

    def hang(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    service = Service(str(tmp_path / "root"), execute=hang)
    with pytest.raises(Refused, match="did not end within 5 s"):
        service.run(RunRequest("tiny", limit=5), b"")
    service.close()


@pytest.mark.parametrize(
    "seed", [77217, 426093, 426752]
)  # a wheel gone after a power cut; half a part; no wheels
def test_faults_that_were_found(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_UNITS", "")
    assert faults.run_cases(range(seed, seed + 1), tmp_path)


def test_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind a few times; `make faults` runs 2,000."""
    monkeypatch.setenv("EDGEC_UNITS", "")  # which this sets
    seen = faults.run_cases(range(88), tmp_path)
    assert sum(seen.values()) == 88
    for kind in faults.cases():
        assert any(what.startswith(kind) for what in seen), kind
    assert sum(n for what, n in seen.items() if "flashed" not in what) > 15, (
        "the faults do not hit"
    )
