"""What must be refused, through a real device end in a process of its own: a message
with a hint, exit code 1 or 2, and the device as it was.  Refused logins and host keys:
test_ssh.py, test_serial.py.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edgec_devices.flash import FlashJob, flash_one
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for
from edgec_devices.transfer import Assembly
from edgec_runtime import BundleError, DeviceError, EdgecError
from edgec_runtime.device_end.bundles import machine_target

from tests.cli import verbs
from tests.devices import faults
from tests.devices.test_agent import HOSTILE, Change, hostile
from tests.devices.test_flash import bundle, cli

pytestmark = pytest.mark.cc

Snapshot = dict[str, bytes | str]
OTHER_TARGET = next(
    t for t in ("linux-armv7", "linux-aarch64") if t != machine_target()
)


def snapshot(root: Path) -> Snapshot:
    """Everything that is in the device's folder, what is under way apart."""
    found: Snapshot = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and not {"incoming", "new", "try"} & set(
            path.relative_to(root).parts
        ):
            found[name] = path.read_bytes()
    return found


def edgec(*args: str | Path) -> tuple[int, str]:
    """The command line: exit code and what it said."""
    done = verbs.edgec(*args, cwd=Path.cwd())
    assert "Traceback" not in done.err
    return done.code, done.err


class Machine:
    """A device with a version that works, and a next one."""

    def __init__(self, root: Path, tmp: Path, program: Path) -> None:
        self.root = root
        self.tmp = tmp
        self.old = bundle(tmp / "old.edgec", program)
        self.new = bundle(tmp / "new.edgec", program, os.urandom(200_000))
        assert edgec("flash", self.old, "--on", "local:")[0] == 0
        self.before = snapshot(root)

    def refuses(self, code: int, *words: str, args: tuple[str | Path, ...]) -> None:
        """The command says these words and a hint, ends with this code, and changes
        nothing.
        """
        found, said = edgec(*args)
        assert found == code, said
        assert "hint: " in said
        for word in words:
            assert word in said
        self.unchanged()

    def unchanged(self) -> None:
        """The device is as it was, and nothing has left its folder."""
        assert snapshot(self.root) == self.before
        assert not list(self.tmp.rglob("evil*"))

    def recovers(self) -> None:
        """The next flash succeeds."""
        assert edgec("flash", self.new, "--on", "local:", "--health", "p50<=1s")[0] == 0
        assert (
            self.root / "tiny" / "current" / "model.edgec"
        ).read_bytes() == self.new.read_bytes()


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> Machine:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    return Machine(tmp_path / "root", tmp_path, program)


# ---- bundles


def _renamed(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda z: z.writestr(name, b"x")


def _bomb(z: zipfile.ZipFile) -> None:
    z.writestr(zipfile.ZipInfo("bomb"), bytes(64 << 20), zipfile.ZIP_DEFLATED)


def _link(z: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("link")
    info.create_system = 3
    info.external_attr = 0o120777 << 16
    z.writestr(info, "/etc/passwd")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_renamed("../../evil"), "unsafe name"),
        (_renamed("/tmp/evil"), "unsafe name"),
        (_renamed("a/../../evil"), "unsafe name"),
        (_renamed("a\\evil"), "unsafe name"),
        (_renamed("not-listed"), "does not list"),
        (_link, "is a link or a device"),
        (_bomb, "is compressed"),
    ],
    ids=["up", "absolute", "up-inside", "backslash", "unlisted", "link", "bomb"],
)
def test_the_host_refuses_a_hostile_bundle(
    device: Machine, change: Callable[[zipfile.ZipFile], None], words: str
) -> None:
    with zipfile.ZipFile(device.new, "a") as z:
        change(z)
    device.refuses(2, words, args=("flash", device.new, "--on", "local:"))


@pytest.mark.parametrize(("change", "words"), HOSTILE)
def test_the_device_refuses_what_a_lying_host_sends(
    device: Machine, tmp_path: Path, change: Change, words: str
) -> None:
    bad = hostile(tmp_path, change)
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(EdgecError, match=words) as e,
    ):
        flash_one(c, FlashJob(bad), lambda s: None)
    assert isinstance(e.value, BundleError | DeviceError)
    assert e.value.hint
    device.unchanged()


def test_wrong_hashes(device: Machine) -> None:
    """The host says one thing and sends another; the file on this side changed while it
    was sent.
    """
    good = Assembly.of(device.new)
    offset, size, _ = good.parts[-1]
    wrong = good.data[:offset] + bytes(size) + good.data[offset + size :]
    bad = Assembly(wrong, good.sha256, good.parts, good.glue, good.app)
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(DeviceError, match="does not have its sha256") as e,
    ):
        flash_one(c, FlashJob(bad), lambda s: None)
    assert e.value.hint
    device.unchanged()
    device.recovers()


def test_a_file_that_is_cut_off(device: Machine) -> None:
    device.new.write_bytes(device.new.read_bytes()[:-5000])
    device.refuses(
        2, "cut off or damaged", args=("flash", device.new, "--on", "local:")
    )


def test_a_flipped_bit(device: Machine) -> None:
    data = bytearray(device.new.read_bytes())
    data[-60_000] ^= 1
    device.new.write_bytes(data)
    device.refuses(2, "new.edgec", args=("flash", device.new, "--on", "local:"))


def test_code_for_another_machine(device: Machine, tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    arm.write_bytes(faults.fake_program(900, random.Random(1), OTHER_TARGET))
    other = bundle(tmp_path / "other.edgec", arm, target=OTHER_TARGET)
    device.refuses(
        2, "has no code for", OTHER_TARGET, args=("flash", other, "--on", "local:")
    )
    mislabelled = bundle(tmp_path / "mislabelled.edgec", arm)
    device.refuses(2, "is not code for", args=("flash", mislabelled, "--on", "local:"))
    device.recovers()


# ---- disks

PATCH = """
import errno, os
left = [{room}]
real_open, real_write = os.open, os.write
def write(fd, data):
    if fd > 2 and {full} and os.fstat(fd).st_nlink:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real_write(fd, data)
def open(path, flags, *rest, **options):
    if {read_only} and flags & (os.O_WRONLY | os.O_RDWR) and {root!r} in str(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return real_open(path, flags, *rest, **options)
os.open, os.write = open, write
"""


class SickDisk:
    """Flashes with a device end whose os.open and os.write are those of a disk that is
    full or read-only.
    """

    def __init__(self, tmp: Path, patch: pytest.MonkeyPatch) -> None:
        self.tmp = tmp
        self.patch = patch

    def flash(
        self, path: Path, room: int | None = None, read_only: bool = False
    ) -> tuple[int, str]:
        """Exit code and message of the command line.  room: bytes until the disk is
        full.
        """
        text = PATCH.format(
            room=room,
            full=room is not None,
            read_only=read_only,
            root=str(self.tmp / "root"),
        )
        (self.tmp / "sick_disk.py").write_text(text)
        fake = self.tmp / "python"
        fake.write_text(
            f'#!/bin/sh\nshift 3\nexec {sys.executable} -S -u -c "import sick_disk;$1"\n'
        )
        fake.chmod(0o755)
        with self.patch.context() as patch:
            patch.setenv("PYTHONPATH", str(self.tmp))
            patch.setattr(sys, "executable", str(fake))
            done = cli("flash", path, "--on", "local:")
        return done.exit_code, done.output


@pytest.fixture
def sick_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SickDisk:
    return SickDisk(tmp_path, monkeypatch)


@pytest.mark.parametrize("room", [0, 1000, 150_000, 230_000, 450_000])
def test_a_disk_that_fills_up(device: Machine, sick_disk: SickDisk, room: int) -> None:
    code, said = sick_disk.flash(device.new, room=room)
    assert code == 1, said
    assert "No space left on device" in said
    assert "hint: free some space on the device" in said
    device.unchanged()
    device.recovers()


def test_a_disk_that_became_read_only(device: Machine, sick_disk: SickDisk) -> None:
    code, said = sick_disk.flash(device.new, read_only=True)
    assert code == 1, said
    assert "Read-only file system" in said
    assert "remount" in said
    device.unchanged()
    device.recovers()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "root"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "edgec-test", str(folder)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this user cannot mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_real_disk_that_is_full_and_then_read_only(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(small_disk))
    device = Machine(small_disk, tmp_path, program)
    (small_disk / "ballast").write_bytes(bytes(1_500_000))
    device.before = snapshot(small_disk)
    device.refuses(
        1, "MB free", "MB are needed", args=("flash", device.new, "--on", "local:")
    )
    (small_disk / "ballast").unlink()
    device.before = snapshot(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    device.refuses(
        1,
        "Read-only file system",
        "remount",
        args=("flash", device.new, "--on", "local:"),
    )
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    device.recovers()


# ---- lines


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("serial:///dev/ttyNOPE", 2, "there is no serial port /dev/ttyNOPE"),
        ("serial:///dev/null", 2, "cannot open /dev/null"),
        ("ssh://edgec-test@127.0.0.1:1", 1, "refuses the connection"),
        ("ssh://", 2, "names no host"),
        ("emulated:pi4", 2, "nothing can be put on"),
    ],
)
def test_lines_that_lead_nowhere(
    device: Machine, url: str, code: int, words: str
) -> None:
    device.refuses(code, words, args=("flash", device.new, "--on", url))


def test_names_of_applications_that_leave_the_folder(device: Machine) -> None:
    for name in ("../evil", "/tmp/evil", "a/b", ".evil"):
        device.refuses(
            2,
            "cannot be the name of a folder",
            args=("flash", device.new, "--on", "local:", "--app", name),
        )


def test_a_program_that_was_changed_on_the_device_is_not_run(device: Machine) -> None:
    path = device.root / "tiny" / "a" / "bin" / machine_target() / "main"
    path.write_bytes(path.read_bytes() + b"!")
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(DeviceError, match="empty or damaged"),
    ):
        c.request("run", {"app": "tiny", "runs": 1})
