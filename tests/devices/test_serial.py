"""serial:// to a console on a pty: login, echo, kernel messages, a device end left
behind, the speed of the line.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edgec_devices.flash import flash, rollback, status
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for
from edgec_devices.transfer import PIECE
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.requests import PUT, PutRequest

from tests.conftest import ROOT
from tests.devices.test_flash import bundle
from tests.waiting import LIMIT_S, until

pytestmark = pytest.mark.cc

Console = Callable[..., str]


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """Starts a console; its URL.  Home of its shell: tmp_path/home."""
    monkeypatch.setenv("EDGEC_SERIAL_USER", "pi")
    monkeypatch.setenv("EDGEC_SERIAL_PASSWORD", "raspberry")
    (tmp_path / "home").mkdir()
    running = []

    def start(baud: int = 921600, *options: str, path: str = "/usr/bin:/bin") -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.devices.fake_console", str(baud), *options],
            cwd=ROOT,
            env={
                "HOME": str(tmp_path / "home"),
                "PATH": f"{Path(sys.executable).parent}:{path}",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout
        return f"serial://{process.stdout.readline().strip()}?baud={baud}"

    yield start
    for process in running:
        process.terminate()
        process.wait(LIMIT_S)
    # Nothing that ran on a console outlives it.
    until(lambda: not of_home(tmp_path / "home"), "all that ran has ended")


def of_home(home: Path) -> list[str]:
    """The commands of processes whose HOME this is."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(
                    (folder / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
    return found


@pytest.mark.slow
def test_login_flash_and_back(console: Console, tmp_path: Path, program: Path) -> None:
    url = console()
    assert (
        flash(
            bundle(tmp_path / "1.edgec", program), [url], FlashOptions(health="p95<=1s")
        )[0].error
        is None
    )
    assert (tmp_path / "home" / ".edgec" / "tiny" / "current").is_symlink()
    # It logged out, so this one logs in again.
    assert (
        flash(bundle(tmp_path / "2.edgec", program, b"2"), [url])[0].what
        == "flashed, slot b"
    )
    assert rollback([url])[0].what == "tiny is back on slot a"


@pytest.mark.slow
def test_kernel_messages(console: Console, tmp_path: Path, program: Path) -> None:
    url = console(230400, "--noise", "--open")
    one = bundle(tmp_path / "1.edgec", program, random.Random(1).randbytes(30_000))
    assert flash(one, [url])[0].error is None
    assert (
        tmp_path / "home" / ".edgec" / "tiny" / "current" / "model.edgec"
    ).read_bytes() == one.read_bytes()


@pytest.mark.slow
def test_a_host_that_was_killed(console: Console) -> None:
    """The device end still runs on the console; the next host greets it instead of
    logging in.
    """
    url = console(921600, "--open")
    first = Connection(stream_for(url))
    first.stream.close()
    began = time.monotonic()
    with Connection(stream_for(url)) as second:
        assert second.request("info", {})[0]["python"]
    assert time.monotonic() - began < 20
    assert status([url])[0].error is None  # and the console was given back
    # one is left behind again, for the end of the console
    Connection(stream_for(url)).stream.close()


@pytest.mark.slow
def test_a_login_prompt_that_comes_late(console: Console) -> None:
    """Silence looks like a device end that runs already; what comes then is a console
    all the same.
    """
    url = console(921600, "--late")
    # the second time, its own log-out is what the console takes its time for
    for _ in range(2):
        found = status([url], timeout=30)[0]
        assert found.error is None, found.error


def test_wrong_password(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_SERIAL_PASSWORD", "wrong")
    error = status([console()])[0].error
    assert isinstance(error, InputError)
    assert 'refuses user "pi"' in error.what
    assert "EDGEC_SERIAL_PASSWORD" in str(error.hint)


def test_nobody_to_ask_for_a_password(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEC_SERIAL_USER")
    error = status([console()])[0].error
    assert isinstance(error, InputError)
    assert "wants a user" in error.what


def test_no_python(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgec_devices.links.serial.PYTHON", "python3.nowhere")
    error = status([console(921600, "--open")])[0].error
    assert isinstance(error, DeviceError)
    assert "no python3 on the device" in error.what


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgec_devices.links.serial.QUIET_S", 0.2)
    master, slave = pty.openpty()
    error = status([f"serial://{os.ttyname(slave)}"], timeout=1)[0].error
    assert isinstance(error, DeviceError)
    assert "did not answer" in error.what
    assert "115200 baud" in str(error.hint)
    os.close(master)
    os.close(slave)


def test_missing_port() -> None:
    error = status(["serial:///dev/ttyNOPE"])[0].error
    assert isinstance(error, InputError)
    assert "there is no serial port /dev/ttyNOPE" in error.what
    assert error.hint


@pytest.mark.parametrize(
    "url",
    ["serial:", "serial://", "serial:///dev/x?baud=fast", "serial:///dev/x?boud=9600"],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InputError) as e:
        stream_for(url)
    assert e.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("baud", [115200, 921600])
def test_throughput(console: Console, baud: int) -> None:
    """At least 85 % of the line's rate, after framing, of bytes that cannot be
    compressed; other work on the machine only takes away, so one of three.
    """
    assert any(_share_of_the_line(console, baud) >= 0.85 for _ in range(3))


def _share_of_the_line(console: Console, baud: int) -> float:
    data = random.Random(1).randbytes(baud // 10 * 4)
    with Connection(stream_for(console(baud, "--open"))) as c:
        parts = [[0, len(data), "0" * 64]]
        c.request(
            "begin",
            {
                "app": "x",
                "recipe": {"sha256": "1" * 64, "bytes": len(data), "parts": parts},
            },
        )
        began = time.monotonic()
        for at in range(0, len(data), PIECE):
            c.post(PUT, PutRequest("x", 0, at), data[at : at + PIECE])
        c.request("info", {})
        return len(data) / (time.monotonic() - began) / (baud / 10)
