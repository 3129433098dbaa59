"""What stands on a device for good: modes under any umask, a service that verifies what
it starts, a signed runtime.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from edgec_devices.flash import flash, rollback
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.signing import (
    new_key,
    public_path,
    sign,
    sign_runtime,
    sign_wheel,
    trust,
)
from edgec_devices.stream import stream_for
from edgec_devices.transfer import Assembly
from edgec_devices.wheel import Wheel
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Disk
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.requests import RunRequest

from tests.devices.attack_files import MAIN, Files
from tests.devices.test_agent import put_all
from tests.devices.test_service import UNIT, bundle, stand_in

pytest.importorskip("cryptography")
pytestmark = pytest.mark.cc


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o027, 0o077])
def test_nothing_of_ours_can_be_written_by_others(
    tmp_path: Path,
    root: Path,
    program: Path,
    key: Path,
    monkeypatch: pytest.MonkeyPatch,
    mask: int,
) -> None:
    monkeypatch.setenv("EDGEC_UNITS", str(tmp_path / "deep" / "units"))
    monkeypatch.setenv("EDGEC_ROOT", str(root / "deep" / "root"))
    stand_in(tmp_path, monkeypatch)
    before = os.umask(mask)
    try:
        one, two = (bundle(tmp_path / f"{n}.edgec", program, n.encode()) for n in "12")
        assert trust(public_path(key), ["local:"])[0].ok
        for path in (one, two):
            sign(path, key)
            assert flash(path, ["local:"], FlashOptions(service=True))[0].ok
        assert rollback(["local:"])[0].ok
    finally:
        os.umask(before)
    made = [
        *root.rglob("*"),
        *(tmp_path / "deep").rglob("*"),
        one,
        two,
        key,
        public_path(key),
    ]
    assert len(made) > 15
    for path in made:
        assert path.is_symlink() or not stat.S_IMODE(path.lstat().st_mode) & 0o022, path


def test_folders_that_an_older_version_left_open(
    tmp_path: Path, root: Path, program: Path
) -> None:
    assert flash(bundle(tmp_path / "1.edgec", program), ["local:"])[0].ok
    (root / "trusted").mkdir()
    made = [root, *root.rglob("*")]
    for path in made:
        if not path.is_symlink() and path.name != "lock":
            path.chmod(0o777)
    with Connection(stream_for("local:")) as c:
        c.request("status", {})
    assert [p for p in made if not p.is_symlink() and p.stat().st_mode & 0o022] == []


def test_folders_that_are_everybodys_stay_so(tmp_path: Path) -> None:
    """EDGEC_ROOT=/tmp, or what is no folder at all: nobody asked for its mode to
    change.
    """
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    for name, mode in (("tmp", 0o1777), ("pipe", 0o666)):
        Service(str(tmp_path / name))
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_modules_where_it_is_started_are_not_its_own(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder may hold a json.py of its user."""
    home = tmp_path / "home"
    home.mkdir()
    for name in (
        "os",
        "zlib",
        "json",
        "struct",
        "select",
        "zipfile",
        "tempfile",
        "hashlib",
        "subprocess",
        "edgec",
    ):
        (home / f"{name}.py").write_text(
            f"import sys; sys.exit('{name}.py of somebody')"
        )
    monkeypatch.chdir(home)
    path = bundle(tmp_path / "1.edgec", program)
    assert flash(path, ["local:"], FlashOptions(health="p95<=10s"))[0].what.startswith(
        "flashed"
    )
    for name in ("edgec_runtime", "numpy"):
        (home / f"{name}.py").write_text(
            f"import sys; sys.exit('{name}.py of somebody')"
        )
    done = flash(path, ["local:"], FlashOptions(with_runtime=True))[0]
    assert "runtime 0.1.0" in done.what, done


def test_a_root_that_is_not_absolute(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEC_ROOT", "here/deep")
    path = bundle(tmp_path / "1.edgec", program)
    assert flash(path, ["local:"], FlashOptions(health="p95<=10s"))[0].what.startswith(
        "flashed"
    )
    assert (tmp_path / "here/deep/tiny/current/model.edgec").is_file()


def test_what_a_program_leaves_in_the_place_of_its_output(
    tmp_path: Path, program: Path
) -> None:
    """A pipe would be read for ever, and the application stay locked."""

    def put(
        make: Callable[[Path], object],
    ) -> Callable[..., subprocess.CompletedProcess[bytes]]:
        def execute(
            command: list[str], **_: object
        ) -> subprocess.CompletedProcess[bytes]:
            make(Path(command[command.index("--output") + 1], "output0.npy"))
            return subprocess.CompletedProcess(command, 0, b"", b"")

        return execute

    def large(path: Path) -> None:
        with path.open("wb") as f:
            f.truncate(1 << 33)

    service = Service(str(tmp_path / "root"))
    pack = bundle(tmp_path / "1.edgec", program)
    app = App(str(tmp_path / "root"), "tiny", Disk())
    put_all(app, Assembly.of(pack))
    app.install()
    app.activate()
    app.close()
    for make, what in (
        (os.mkfifo, "plain file"),
        (large, "more than"),
        (lambda p: p.symlink_to("/etc/hostname"), "links"),
    ):
        service.execute = put(make)
        with pytest.raises(OSError, match=what):
            service.run(RunRequest("tiny", limit=5, outputs=1), b"")
    service.close()


def test_a_service_starts_nothing_that_was_changed(
    tmp_path: Path,
    root: Path,
    program: Path,
    key: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEC_UNITS", str(tmp_path / "units"))
    stand_in(tmp_path, monkeypatch)
    trust(public_path(key), ["local:"])
    path = bundle(tmp_path / "1.edgec", program)
    sign(path, key)
    assert flash(path, ["local:"], FlashOptions(service=True))[0].ok
    text = (tmp_path / "units" / UNIT).read_text()
    first = shlex.split(
        next(x for x in text.splitlines() if x.startswith("ExecStartPre=")).partition(
            "="
        )[2]
    )
    assert subprocess.run(first, env={}, capture_output=True).returncode == 0, (
        "as systemd would, without our environment"
    )
    main = root / "tiny" / "current" / MAIN
    main.chmod(0o755)
    main.write_bytes(main.read_bytes() + b"!")
    done = subprocess.run(first, env={}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "slot a of tiny is empty or damaged" in done.stderr
    error = flash(path, ["local:"], FlashOptions(service=True))[0]
    assert error.ok, "the next flash mends it"
    assert subprocess.run(first, env={}, capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_signed_runtime(tmp_path: Path, root: Path, program: Path, key: Path) -> None:
    trust(public_path(key), ["local:"])
    path = bundle(tmp_path / "1.edgec", program)
    sign(path, key)
    refused = flash(path, ["local:"], FlashOptions(with_runtime=True))[0].error
    assert isinstance(refused, InputError)
    assert "the wheel is not signed" in refused.what
    assert "edgec sign --runtime" in str(refused.hint)
    made = sign_runtime(tmp_path, key)
    done = flash(path, ["local:"], FlashOptions(wheels=[made]))[0]
    assert done.ok, done
    assert "runtime 0.1.0" in done.what
    new_key(tmp_path / "other")
    sign_wheel(Wheel.of(made), made, tmp_path / "other")
    assert (
        "was there already"
        in flash(path, ["local:"], FlashOptions(wheels=[made]))[0].what
    )
    Disk().remove(str(root / "tiny" / "site"))
    refused = flash(path, ["local:"], FlashOptions(wheels=[made]))[0].error
    assert isinstance(refused, InputError)
    assert "is signed with SHA256:" in refused.what


def test_an_older_version_has_to_be_allowed(
    tmp_path: Path, root: Path, program: Path, key: Path
) -> None:
    trust(public_path(key), ["local:"])
    old, new = (bundle(tmp_path / f"{n}.edgec", program, n.encode()) for n in "12")
    sign(old, key, counter=1)
    sign(new, key, counter=2)
    assert flash(new, ["local:"])[0].ok
    refused = flash(old, ["local:"])[0].error
    assert refused is not None
    assert (
        refused.what == "the bundle's counter is 1, and 2 was active here: it is older"
    )
    assert "--allow-downgrade" in str(refused.hint)
    assert (
        flash(old, ["local:"], FlashOptions(allow_downgrade=True))[0].what
        == "flashed, slot b"
    )
    assert flash(old, ["local:"])[0].ok, "from then on it counts"
    assert flash(new, ["local:"])[0].ok
    assert rollback(["local:"])[0].ok, "the version before may always be gone back to"
    assert flash(old, ["local:"])[0].ok, "it is active"


def test_what_the_attacks_use_is_what_a_device_takes(
    tmp_path: Path, root: Path
) -> None:
    """Or they would be refused for another reason than they say."""
    (tmp_path / "files").mkdir()
    files = Files.make(tmp_path / "files")
    (tmp_path / "b.edgec").write_bytes(files.bundles["v3"])
    assert trust(public_path(files.key), ["local:"])[0].ok
    assert flash(tmp_path / "b.edgec", ["local:"])[0].ok
    app = App(str(root), "tiny", Disk())
    assert app.program("a")[0].endswith(f"/a/bin/{machine_target()}/main")
    (tmp_path / "b.edgec").write_bytes(files.bundles["other key 3"])
    assert not isinstance(
        flash(tmp_path / "b.edgec", ["local:"])[0].error, (DeviceError, type(None))
    )
