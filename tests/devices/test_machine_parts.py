"""The parts of the emulated machine, without booting one: archives, disks, keys,
processes, the pacing of a line.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from edgec_devices.machine import (
    Machine,
    MachineState,
    Settings,
    accounts,
    disk,
    find,
    keys,
    line,
    machines,
    start,
)
from edgec_devices.machine.image import Image
from edgec_devices.machine.initramfs import LinuxKernel, cpio
from edgec_devices.machine.processes import end, runs
from edgec_devices.machine.programs import require, run
from edgec_devices.machine.qemu import Hardware, arguments
from edgec_devices.machine.tree import Tree, merged
from edgec_runtime import InputError, ToolError
from edgec_runtime.bundle.cache import cache_dir

from edgec.cli import machine as cli_machine
from tests.waiting import until

needs_ext4 = pytest.mark.skipif(
    not all(
        shutil.which(p, path="/usr/sbin:/sbin:/usr/bin")
        for p in ("mke2fs", "debugfs", "e2fsck")
    ),
    reason="no mke2fs: install e2fsprogs",
)


def test_a_missing_program_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "edgec_devices.machine.programs.shutil.which", lambda name, path=None: None
    )
    with pytest.raises(
        ToolError, match="qemu-system-aarch64, mke2fs: not installed"
    ) as error:
        require("qemu-system-aarch64", "mke2fs")
    assert error.value.hint == "sudo apt-get install e2fsprogs qemu-system-arm"
    with pytest.raises(ToolError, match="qemu-system-aarch64"):
        start(Settings())
    assert find("pi4") is None


def test_a_failing_program_is_quoted() -> None:
    with pytest.raises(ToolError, match=r"dpkg-deb ended with status \d+: .*not-there"):
        run("dpkg-deb", "--field", "/not-there.deb", hint="look")


def test_names_of_packages_files_stay_inside() -> None:
    assert merged("./bin/sh") == "usr/bin/sh"
    assert merged("./lib/systemd") == "usr/lib/systemd"
    assert merged("./etc/passwd") == "etc/passwd"
    assert merged("./") == ""
    with pytest.raises(ToolError):
        merged("./usr/../../etc/passwd")


def test_the_archive_is_as_the_kernel_reads_it() -> None:
    given = {
        "bin": (0o040755, b""),
        "bin/odd": (0o100755, b"12345"),
        "init": (0o100644, b"x" * 8),
    }
    archive = cpio(given)
    at = 0
    found = {}
    while True:
        assert archive[at : at + 6] == b"070701"
        assert at % 4 == 0
        mode, size, length = (
            int(archive[at + 6 + 8 * i :][:8], 16) for i in (1, 6, 11)
        )
        name = archive[at + 110 : at + 110 + length]
        at = -(-(at + 110 + length) // 4) * 4
        if name == b"TRAILER!!!\0":
            break
        found[name.rstrip(b"\0").decode()] = (mode, archive[at : at + size])
        at = -(-(at + size) // 4) * 4
    assert found == given


def test_modules_come_after_what_they_need() -> None:
    def module(depends: str) -> bytes:
        return b"\x7fELF..license=GPL\0depends=" + depends.encode() + b"\0name=x\0"

    found = {
        "virtio_net": module("net-failover,virtio"),
        "net_failover": module("failover,virtio"),
        "failover": module(""),
        "virtio": module(""),
        "unused": module(""),
    }
    assert list(LinuxKernel(b"", "6.1", found).ordered(["virtio_net"])) == [
        "failover.ko",
        "virtio.ko",
        "net_failover.ko",
        "virtio_net.ko",
    ]


@needs_ext4
def test_a_disk_has_owners_and_modes_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    tree = Tree(folder)
    tree.make_folder("home/pi", 0o700, (1000, 1000))
    tree.write("usr/bin/sudo", b"program", 0o4755)
    tree.write("etc/shadow", b"secret", 0o640, (0, 42))
    tree.link("bin", "usr/bin")
    image = tmp_path / "disk.ext4"
    file = tmp_path / "key"
    disk.make(image, tree, 16 << 20)
    file.write_bytes(b"key")
    disk.write(image, {"/home/pi/key": (file, 0o600, 1000)})
    disk.copy(image, tmp_path / "copy.ext4")
    assert (tmp_path / "copy.ext4").read_bytes() == image.read_bytes()

    def debugfs(request: str) -> str:
        return run("debugfs", "-R", request, image, hint="").stdout

    for name, owner in {
        "/home/pi": ("0700", 1000, 1000),
        "/home/pi/key": ("0600", 1000, 1000),
        "/usr/bin/sudo": ("04755", 0, 0),
        "/etc/shadow": ("0640", 0, 42),
    }.items():
        words = debugfs(f"stat {name}").split()
        assert (
            words[words.index("Mode:") + 1],
            *(int(words[words.index(w) + 1]) for w in ("User:", "Group:")),
        ) == owner
    assert debugfs("cat /bin/sudo") == "program"
    run("e2fsck", "-f", "-n", image, hint="")
    with pytest.raises(ToolError, match="debugfs"):
        disk.write(image, {"/no/such/folder/key": (file, 0o600, 0)})


def _cut_disk(tmp_path: Path) -> Path:
    """A disk with Debian as a power cut leaves it: a block of allocations is half
    written, and the journal has it whole.
    """
    (tmp_path / "root").mkdir()
    tree = Tree(tmp_path / "root")
    tree.write("usr/lib/os-release", b"VERSION_CODENAME=bookworm\n")
    image = tmp_path / "disk.ext4"
    disk.make(image, tree, 16 << 20)
    stats = run("debugfs", "-R", "stats", image, hint="").stdout
    at, size = (
        int(re.search(pattern, stats)[1])  # type: ignore[index]
        for pattern in (r"block bitmap at (\d+)", r"Block size:\s+(\d+)")
    )
    data = bytearray(image.read_bytes())
    whole = tmp_path / "bitmap"
    whole.write_bytes(data[at * size : (at + 1) * size])
    journal = f'journal_open\njournal_write -b {at} "{whole}"\njournal_close\n'
    run("debugfs", "-w", "-f", "-", image, given=journal, hint="")
    with image.open("r+b") as f:
        f.seek(at * size)
        f.write(os.urandom(16))
    return image


@needs_ext4
def test_a_disk_is_read_after_a_power_cut(tmp_path: Path) -> None:
    image = _cut_disk(tmp_path)
    before = image.read_bytes()
    usual = run("debugfs", "-R", "cat /usr/lib/os-release", image, hint="")
    assert "checksum does not match" in usual.stderr, "the cut leaves no trace"
    assert disk.release(image) == "bookworm"
    assert image.read_bytes() == before, "only the guest may replay its journal"
    # As the guest's kernel does at its next boot.
    assert "recovering journal" in run("e2fsck", "-p", image, hint="").stdout
    run("e2fsck", "-f", "-n", image, hint="")
    assert disk.release(image) == "bookworm"


@needs_ext4
def test_a_damaged_disk_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    image = tmp_path / "disk.ext4"
    image.write_bytes(bytes(1 << 20))
    with pytest.raises(ToolError, match=r"cannot be read: .*Bad magic") as error:
        disk.release(image)
    assert error.value.hint == f"repair it: e2fsck -f {image}"
    (tmp_path / "root").mkdir()
    disk.make(image, Tree(tmp_path / "root"), 1 << 20)
    with pytest.raises(ToolError, match="no Debian on it") as error:
        disk.release(image)
    assert "--fresh" in str(error.value.hint)


def test_accounts() -> None:
    passwd = accounts.passwd("root:*:0:0:root:/root:/bin/bash\n")
    assert passwd.splitlines()[-1] == "pi:x:1000:1000:,,,:/home/pi:/bin/bash"
    assert "video:x:44:pi" in accounts.group("root:*:0:\nvideo:*:44:\n").splitlines()
    locked = [
        line.split(":")[0]
        for line in accounts.shadow(passwd).splitlines()
        if line.split(":")[1] == "*"
    ]
    assert "root" in locked
    assert "pi" not in locked


@pytest.mark.skipif(
    not shutil.which("ssh-keygen"), reason="no ssh-keygen: install openssh-client"
)
def test_openssh_understands_the_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    keys.make_keys(folder)
    config = keys.write_config(folder, "emulated-pi4", "pi", 12345)
    said = subprocess.run(
        ["ssh", "-G", "-F", config, "emulated-pi4"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = said.lower().splitlines()
    for wanted in (
        "hostname 127.0.0.1",
        "port 12345",
        "user pi",
        "stricthostkeychecking true",
    ):
        assert wanted in lines
    assert stat.S_IMODE((folder / keys.USER_KEY).stat().st_mode) == 0o600
    before = (folder / keys.HOST_KEY).read_bytes()
    keys.make_keys(folder)
    assert (folder / keys.HOST_KEY).read_bytes() == before, (
        "a host that changes its key is refused"
    )


def test_only_our_own_processes_are_ended(tmp_path: Path) -> None:
    ours = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path / "disk")]
    )
    try:
        until(lambda: runs(ours.pid, str(tmp_path / "disk")), "it has its command line")
        assert not end(ours.pid, str(tmp_path / "other"))
        assert ours.poll() is None
        assert end(ours.pid, str(tmp_path / "disk"))
        assert not runs(ours.pid, str(tmp_path / "disk"))
        assert not end(ours.pid, str(tmp_path / "disk"))
    finally:
        ours.kill()
        ours.wait()


def test_nothing_listens_beyond_loopback() -> None:
    image = Image("trixie", Path("k"), Path("i"), Path("d"))
    plain = Hardware("cortex-a72", 512)
    words = arguments(image, Path("/x,y/disk.ext4"), plain, 2222)
    assert "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:2222-:22" in words
    assert any(w.startswith("file=/x,,y/disk.ext4,") for w in words)
    assert words[words.index("-smp") + 1] == "2"
    counting = Hardware("cortex-a72", 512, icount=True)
    counted = arguments(image, Path("/x/disk.ext4"), counting, 2222)
    assert counted[counted.index("-smp") + 1] == "1"


def test_only_a_machine_with_a_stick_has_usb() -> None:
    image = Image("trixie", Path("k"), Path("i"), Path("d"))
    for stick in (False, True):
        hardware = Hardware("cortex-a72", 512, stick=stick)
        words = arguments(image, Path("/x,y/disk.ext4"), hardware, 2222)
        assert ("usb-redir,chardev=stick" in words) == stick
        socket = "socket,id=stick,path=/x,,y/stick,server=on,wait=off"
        assert (socket in words) == stick


def _seconds(source: int, sink: int, size: int) -> float:
    """How long random bytes take from one end of a line to the other."""
    data = os.urandom(size)
    got = b""
    began = time.monotonic()
    sent = 0
    while len(got) < size:
        sent += os.write(source, data[sent : sent + 256])
        if sent > len(got):
            got += os.read(sink, 4096)
    assert got == data
    return time.monotonic() - began


@pytest.mark.parametrize("baud", [9600, 115200, 0])
def test_a_paced_line_has_its_speed_both_ways(baud: int) -> None:
    device, name = pty.openpty()
    tty.setraw(name)
    process = subprocess.Popen(
        [sys.executable, line.__file__, os.ttyname(name), str(baud)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        port = os.open(process.stdout.readline().strip(), os.O_RDWR | os.O_NOCTTY)
        time.sleep(0.2)  # it looks that often whether somebody listens
        size = baud // 20 or 100_000  # half a second, or in no time
        for source, sink in ((device, port), (port, device)):
            # On a busy machine one of three is soon enough.
            for _ in range(3):
                seconds = _seconds(source, sink, size)
                if seconds < 1.5:
                    break
            assert (0.45 if baud else 0.0) < seconds < 1.5, (
                f"{size} bytes at {baud} baud took {seconds:.2f} s"
            )
        os.close(port)
        assert process.poll() is None, "it must outlive those who listen"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(device)
        os.close(name)


def test_what_cannot_be_booted_is_said(tmp_path: Path) -> None:
    for words, said in {
        ("local:", "--whole"): "cannot be booted",
        ("emulated:pi4",): "add --whole",
        ("emulated:pi44", "--whole"): 'did you mean "pi4"',
        ("emulated:host", "--whole"): "cannot be emulated",
        ("emulated:pi4", "--whole", "--name", "../x"): "is not a name",
    }.items():
        result = CliRunner().invoke(cli_machine.boot, list(words))
        assert isinstance(result.exception, InputError), result
        assert said in str(result.exception)
    result = CliRunner().invoke(cli_machine.stop, ["emulated:pi4"])
    assert 'no emulated machine "pi4" is on' in str(result.exception)
    assert not Machine(tmp_path, Settings()).running


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machine]:
    """A machine of edgec's cache that is on; its emulator is a program that sleeps."""
    machine = Machine(cache_dir("machines", "lab"), Settings("pi3", baud=9600))
    mark = str(machine.folder / "disk.ext4")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", mark]
    with subprocess.Popen(sleep) as emulator:
        state = MachineState(machine.settings, emulator.pid, None, 2222)
        (machine.folder / "state.json").write_text(json.dumps(asdict(state)))
        while not machine.running:
            time.sleep(0.01)
        try:
            yield machine
        finally:
            emulator.kill()


def _refused(verb: click.Command, *words: str) -> InputError:
    """The error of a verb."""
    result = CliRunner().invoke(verb, words)
    assert isinstance(result.exception, InputError), result
    return result.exception


def test_a_machine_without_power_is_known_and_booted_again(
    lab: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(Machine, "run", lambda *words, **_: synced.append(words))
    assert [m.folder.name for m in machines()] == ["lab"]
    assert machines(on=False) == ()
    on = _refused(cli_machine.power_on, "lab")
    assert (on.what, on.hint) == ("lab is on", "edgec devices status lab")

    cut = CliRunner().invoke(cli_machine.power_cut, [])
    assert cut.exit_code == 0, cut
    assert "edgec devices power-on lab" in cut.output
    assert not lab.running
    assert synced == [], "a power cut gives no time to write"
    assert machines() == ()
    assert [m.settings.board for m in machines(on=False)] == ["pi3"]
    for verb in (cli_machine.status, cli_machine.power_cut):
        off = _refused(verb, "lab")
        assert off.what == "lab has lost its power"
        assert off.hint == "edgec devices power-on lab"

    started = []

    def start(machine: Machine, fresh: bool = False, progress: object = None) -> None:
        started.append((machine.folder, machine.settings, fresh))

    monkeypatch.setattr(Machine, "start", start)
    again = CliRunner().invoke(cli_machine.power_on, ["--json"])
    assert again.exit_code == 0, again
    assert started == [(lab.folder, lab.settings, False)]


@pytest.mark.parametrize("cut", [False, True])
def test_a_machine_that_was_stopped_has_not_lost_its_power(
    cut: bool, lab: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "run", lambda *words, **_: "")
    if cut:
        lab.power_cut()
    assert CliRunner().invoke(cli_machine.stop, []).exit_code == 0
    assert machines(on=None) == ()
    off = _refused(cli_machine.power_on, "lab")
    assert off.what == 'no emulated machine "lab" has lost its power'
    assert off.hint == "edgec devices boot emulated:pi4 --whole --name lab"
    assert _refused(cli_machine.power_on).what == "0 machines have lost their power"
    assert _refused(cli_machine.power_cut).hint == "boot one first"
