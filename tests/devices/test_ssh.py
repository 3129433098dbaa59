"""ssh:// through a stand-in for OpenSSH: what it is called with, what its words become,
many hosts side by side.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_devices import device_names
from edgec_devices.device import device_for
from edgec_devices.flash import flash, rollback, status
from edgec_devices.links.ssh import SshStream
from edgec_devices.listing import listing, resolve
from edgec_devices.machine import Settings
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.stream import LinkLost, stream_for
from edgec_devices.transfer import Sending
from edgec_runtime import Bundle, DeviceError, EdgecError, InputError
from edgec_runtime.device_end.requests import BEGIN, INFO, Command

import edgec
from edgec.schedule.database import Database
from tests.compile.test_tune import bundle as digits
from tests.devices.test_flash import bundle, cli
from tests.runtime import tiny_model

pytestmark = pytest.mark.cc

FAKE = """#!{python}
import os, sys, time
args = sys.argv[1:]
with open(os.path.join({base!r}, "calls"), "a") as f:
    f.write(repr(args) + chr(10))
host, command = args[-2:]
said = {{
    "refused": "ssh: connect to host refused port 22: Connection refused",
    "unknown": "No ED25519 host key is known for unknown.\\r\\nHost key verification failed.",
    "changed": "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\\nHost key verification failed.",
    "denied": "pi@denied: Permission denied (publickey,password).",
    "nowhere": "ssh: Could not resolve hostname nowhere: Name or service not known",
    "asleep": "ssh: connect to host asleep port 22: Connection timed out",
}}.get(host)
if host.startswith("emulated-pi"):
    said = "ssh: Could not resolve hostname " + host + ": Name or service not known"
off = os.path.join({base!r}, host + ".off")
if os.path.exists(off):
    said = open(off).read()
if said:
    sys.stderr.write(said + "\\r\\n")
    sys.exit(255)
if host == "slow":  # logs in for longer than nothing may move, and says what it does
    for stage in ("Connection established.", "kex", "auth", "Next authentication method: publickey"):
        time.sleep(1.6)
        sys.stderr.write("debug1: " + stage + "\\r\\n")
        sys.stderr.flush()
if host == "stuck":
    sys.stderr.write("OpenSSH_9\\r\\ndebug1: Connection established.\\r\\n")
    sys.stderr.flush()
    time.sleep(60)
home = os.path.join({base!r}, host)
os.makedirs(home, exist_ok=True)
path = "/nonexistent" if host == "bare" else os.path.dirname({python!r}) + ":/usr/bin:/bin"
sys.stdout.write("Welcome to Debian, ~today~ only\\r\\n")
sys.stdout.flush()
with open(os.path.join({base!r}, host + ".pid"), "w") as f:
    f.write(str(os.getpid()))
os.execve("/bin/sh", ["sh", "-c", command], {{"HOME": home, "PATH": path}})
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hosts"
    folder.mkdir()
    fake = folder / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(FAKE.format(python=sys.executable, base=str(folder)))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    return folder


def calls(base: Path) -> str:
    return (base / "calls").read_text()


def test_flash_over_ssh(base: Path, tmp_path: Path, program: Path) -> None:
    url = "ssh://pi@Attic:2222"
    one = bundle(tmp_path / "1.edgec", program)
    assert flash(one, [url], FlashOptions(health="p95<=1s"))[0].ok
    assert (base / "Attic" / ".edgec" / "tiny" / "current" / "model.edgec").exists()
    assert "'-p', '2222', '-l', 'pi', 'Attic'" in calls(base)
    assert "BatchMode=yes" in calls(base)
    assert status([url])[0].ok
    assert flash(bundle(tmp_path / "2.edgec", program, b"2"), [url])[0].ok
    assert rollback([url])[0].what == "tiny is back on slot a"
    assert device_for(url).url == url


def test_inferences_share_a_login(base: Path, tmp_path: Path, program: Path) -> None:
    path = bundle(tmp_path / "1.edgec", program)
    with Bundle.open(path) as opened:
        device = device_for("ssh://pi@attic")
        images = [tiny_model.image(), 255 - tiny_model.image()]
        with device.inferences(opened) as infer:
            together = [infer({"image": image}) for image in images]
            with pytest.raises(InputError, match="image"):
                infer({"image": images[0][:, :2]})
        assert len(calls(base).splitlines()) == 1
        for image, outputs in zip(images, together, strict=True):
            alone = device.run(opened, {"image": image})
            assert {*alone} == {*outputs}
            assert all(np.array_equal(alone[name], outputs[name]) for name in alone)


@pytest.mark.slow
def test_a_tune_measures_on_the_host(base: Path, tmp_path: Path) -> None:
    output = tmp_path / "tuned.json"
    done = edgec.tune(digits("host"), "ssh://pi@attic", ops=1, output=output)
    assert done.choices
    assert not done.estimated
    (found,) = Database.load(output).of(done.core).values()
    assert found.device == "ssh://pi@attic"
    assert "'pi', 'attic'" in calls(base)


@pytest.mark.parametrize(
    ("host", "kind", "what", "hint"),
    [
        ("refused", DeviceError, "refuses the connection", "systemctl"),
        ("unknown", InputError, "is not known here", "ssh unknown"),
        ("changed", InputError, "another than before", "ssh-keygen -R changed"),
        ("denied", InputError, "refuses the login", "ssh-copy-id denied"),
        ("nowhere", InputError, "there is no host nowhere", "nowhere.local"),
        ("asleep", DeviceError, "does not answer", "ping asleep"),
        ("bare", DeviceError, "no python3 on the device", "apt-get install python3"),
    ],
)
def test_what_goes_wrong(
    host: str, kind: type[EdgecError], what: str, hint: str
) -> None:
    error = status([f"ssh://{host}"])[0].error
    assert error is not None
    assert isinstance(error, kind)
    assert what in error.what
    assert hint in str(error.hint)
    assert cli("status", "--on", f"ssh://{host}").exit_code == kind.exit_code


def test_hints_can_be_typed() -> None:
    for host, command in (
        ("unknown", "ssh -p 2222 pi@unknown"),
        ("changed", "ssh-keygen -R '[changed]:2222'"),
    ):
        error = status([f"ssh://pi@{host}:2222"])[0].error
        assert error is not None
        assert str(error.hint).endswith(command)


def test_no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    error = status(["ssh://x"])[0].error
    assert error is not None
    assert "no ssh on this machine" in error.what


@pytest.mark.parametrize(
    "url",
    [
        "ssh:",
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://-l@h",
        "ssh://h/x",
        "ssh://h:99999",
        "ssh://u:secret@h",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InputError) as e:
        stream_for(url)
    assert e.value.hint


def test_many_side_by_side(base: Path, tmp_path: Path, program: Path) -> None:
    urls = [f"ssh://pi{i}" for i in range(4)]
    one = bundle(tmp_path / "1.edgec", program)
    done = cli(
        "flash",
        one,
        "--on",
        ",".join(urls[:2]),
        "--on",
        ",".join([*urls[2:], "ssh://refused"]),
    )
    assert done.exit_code == 1
    rows = done.output.splitlines()
    assert [r.split()[0] for r in rows[:6]] == ["device", *urls, "ssh://refused"]
    assert all("flashed, slot a" in r for r in rows[1:5])
    assert "failed: refused refuses the connection" in rows[5]
    assert "hint: start its server" in done.output
    assert all(
        (base / f"pi{i}" / ".edgec" / "tiny" / "current").is_symlink() for i in range(4)
    )


@pytest.mark.slow
def test_a_slow_login_is_waited_for_as_long_as_it_moves(base: Path) -> None:
    began = time.monotonic()
    assert status(["ssh://slow"], timeout=5)[0].ok
    assert time.monotonic() - began > 6.4, "it was not slow"
    assert "'ConnectTimeout=5'" in calls(base)


@pytest.mark.slow
def test_a_login_that_stands_still_is_given_up(base: Path) -> None:
    began = time.monotonic()
    done = cli("status", "--on", "ssh://pi@stuck", "--timeout", "3")
    assert time.monotonic() - began < 30, "it would take a minute"
    assert done.exit_code == 1
    assert "nothing moved for 3 s (ssh was logging in)" in done.output
    assert (
        "hint: see whether this works: ssh pi@stuck true; if it is only slow, "
        "add --timeout 12" in done.output
    )


def test_what_ssh_says_about_its_way_is_in_no_message() -> None:
    stream = stream_for("ssh://slow")
    assert isinstance(stream, SshStream)
    assert stream.chatter(b"debug1: Reading configuration data\r")
    assert stream.chatter(b'Authenticated to slow ([10.0.0.1]:22) using "publickey".\r')
    assert not stream.chatter(b"pi@denied: Permission denied (publickey,password).\r")
    assert stream.stage == "ssh had logged in; python3 did not start"


@dataclass(frozen=True)
class _On:
    """What of a machine that is on is asked for."""

    alias: str
    ssh_config: Path
    folder: Path
    settings: Settings

    @property
    def ssh_url(self) -> str:
        return f"ssh://{self.alias}"

    @property
    def serial_url(self) -> str:
        return f"serial://{self.folder}/serial"

    def facts(self) -> dict[str, str]:
        return {"model": "Raspberry Pi 4"}


@pytest.fixture
def pi4(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _On:
    """A machine that is on, as far as anybody can see."""
    on = _On(
        "emulated-lab",
        tmp_path / "lab" / "ssh_config",
        tmp_path / "lab",
        Settings("pi4"),
    )
    monkeypatch.setattr(
        "edgec_devices.machine.machines", lambda is_on=True: (on,) if is_on else ()
    )
    return on


@pytest.mark.parametrize("url", ["ssh://emulated-lab", "emulated:pi4"])
def test_a_machine_that_is_on_needs_no_configuration(
    url: str, pi4: _On, base: Path
) -> None:
    assert status([url])[0].ok
    assert f"'-F', '{pi4.ssh_config}', '-v'" in calls(base)
    assert calls(base).count("'emulated-lab'") == 1


def test_without_a_machine_its_command_is_named(
    pi4: _On, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, command in (
        ("emulated:pi5", "edgec devices boot emulated:pi5 --whole"),
        (
            "ssh://emulated-pi3",
            "edgec devices boot emulated:pi3 --whole; "
            "from here there are ssh://emulated-lab",
        ),
        ("ssh://emulated-pi4x", "edgec devices boot emulated:pi4 --whole --name pi4x"),
    ):
        done = cli("status", "--on", url)
        if done.exception and not isinstance(done.exception, SystemExit):
            said = str(done.exception)
        else:
            said = done.output
        assert command in said, said


def test_a_machine_whose_power_was_cut_says_how_to_go_on(
    pi4: _On, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "edgec_devices.machine.machines", lambda on=True: () if on else (pi4,)
    )
    # A configuration of the user's own still knows the port of its host.
    for said in ("Could not resolve hostname emulated-lab", "Connection refused"):
        (base / "emulated-lab.off").write_text(f"ssh: {said}")
        outcome = status(["ssh://emulated-lab"])[0]
        assert outcome.error is not None
        assert outcome.error.what == "emulated-lab has no power"
        assert outcome.error.hint == "edgec devices power-on lab"
    for url in ("emulated:pi4", pi4.ssh_url, f"{pi4.serial_url}?baud=9600"):
        assert device_names.power_on_command(url) == "edgec devices power-on lab"
    assert device_names.power_on_command("ssh://pi@attic") is None


@pytest.fixture
def off(pi4: _On, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file whose existence says that the emulated machine has no power."""
    path = base / "emulated-lab.off"
    monkeypatch.setattr(
        "edgec_devices.machine.machines",
        lambda on=True: () if on == path.exists() else (pi4,),
    )
    return path


@pytest.mark.parametrize("step", ["sending", "writing and checking", "switching"])
def test_a_power_cut_while_a_flash_writes(
    step: str,
    pi4: _On,
    base: Path,
    tmp_path: Path,
    program: Path,
    off: Path,
) -> None:
    one, two = (
        bundle(tmp_path / f"{i}.edgec", program, random.Random(i).randbytes(1 << 20))
        for i in (1, 2)
    )
    assert flash(one, [pi4.ssh_url])[0].ok

    def cut(url: str, sending: Sending) -> None:
        if sending.step == step and not off.exists():
            off.write_text("ssh: Could not resolve hostname emulated-lab")
            os.kill(int((base / "emulated-lab.pid").read_text()), signal.SIGKILL)

    error = flash(two, [pi4.ssh_url], report=cut)[0].error
    assert isinstance(error, LinkLost)
    assert error.what.startswith(f"the link was lost while {step}: ")
    stays = "the earlier version or the new one" if step == "switching" else "stays"
    assert stays in error.what
    assert "edgec devices power-on lab, then flash again" in str(error.hint)

    off.unlink()
    assert _active(base) == one.read_bytes(), "the earlier version does not stay"
    assert flash(two, [pi4.ssh_url])[0].ok
    assert _active(base) == two.read_bytes()
    assert rollback([pi4.ssh_url])[0].ok
    assert _active(base) == one.read_bytes()


def test_a_power_cut_while_a_flash_connects(
    pi4: _On,
    base: Path,
    tmp_path: Path,
    program: Path,
    off: Path,
) -> None:
    """The first attempt loses the link, and the next ones find a machine without power."""
    one = bundle(tmp_path / "1.edgec", program)

    def cut(url: str, sending: Sending) -> None:
        assert sending.step == "connecting"
        said = "Connection refused" if off.exists() else "Connection reset by peer"
        off.write_text(f"ssh: {said}")

    error = flash(one, [pi4.ssh_url], report=cut)[0].error
    assert isinstance(error, LinkLost)
    assert error.what.startswith("the link was lost while connecting: ")
    assert "edgec devices power-on lab, then flash again" in str(error.hint)


def _active(base: Path) -> bytes:
    """The bundle of the active slot on the stand-in's host."""
    home = base / "emulated-lab"
    return (home / ".edgec" / "tiny" / "current" / "model.edgec").read_bytes()


def test_a_device_that_refuses_after_a_cut_says_so_itself(
    base: Path, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what keeps the link from coming back is about the cut."""
    one = bundle(tmp_path / "1.edgec", program)
    real = Connection.ask
    begun = []

    def ask(
        self: Connection, command: Command[Any, Any], *args: Any, **fields: Any
    ) -> Any:
        if command is BEGIN:
            begun.append(command)
            if len(begun) == 1:
                raise LinkLost("cut")
            raise DeviceError("the disk is full")
        return real(self, command, *args, **fields)

    monkeypatch.setattr(Connection, "ask", ask)
    error = flash(one, ["ssh://attic"])[0].error
    assert error is not None
    assert error.what == "the disk is full"


def test_a_link_that_is_lost_each_time(
    base: Path, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    real = Connection.ask

    def ask(
        self: Connection, command: Command[Any, Any], *args: Any, **fields: Any
    ) -> Any:
        if command is INFO:
            return real(self, command, *args, **fields)
        raise LinkLost(f"cut at {command.name}", hint="plug it in")

    monkeypatch.setattr(Connection, "ask", ask)
    error = flash(one, ["ssh://attic"])[0].error
    assert error is not None
    assert error.what == (
        "the link was lost while comparing: cut at begin; the earlier version stays"
    )
    assert str(error.hint).startswith("see that the device is on, then flash again")
    # Before the first step nothing is known of the device, and the link's error stays.
    before = flash(one, ["ssh://attic"], FlashOptions(service=True))[0].error
    assert before is not None
    assert (before.what, before.hint) == ("cut at service", "plug it in")


def test_boards_that_are_on_are_listed(pi4: _On) -> None:
    found = {f.url: f.what for f in listing(Path.cwd())}
    assert found["ssh://emulated-lab"] == "Raspberry Pi 4, a whole emulated machine, on"
    assert pi4.serial_url in found
    with pytest.raises(InputError, match="is not a device") as e:
        resolve("cellar", Path.cwd())
    assert "ssh://emulated-lab" in str(e.value.hint)
