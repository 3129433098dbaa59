"""How long the host waits for a device end: on a simulated clock, over lines that
trickle, stand still or babble.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from edgec_devices import stream as stream_module
from edgec_devices.protocol import Connection
from edgec_devices.stream import bootstrap, device_end
from edgec_runtime import DeviceError

from tests.devices.faults import Faults, SimStream, World
from tests.waiting import LIMIT_S


class Slow(SimStream):
    """A device whose login says something every `every` seconds and which is there
    after `until`.

    heard: what it says is read, as on a console; else the link notices it, as ssh does.
    """

    def __init__(
        self, world: World, until: float, every: float, heard: bool, timeout: float
    ) -> None:
        super().__init__(world, Faults(), Faults())
        self.until = until
        self.every = every
        self.heard = heard
        self.timeout = timeout
        self.signs = 0

    @property
    def stirs(self) -> int:
        return 0 if self.heard else self.signs

    def read(self, timeout: float) -> bytes:
        w = self.world
        if w.now < self.until:
            next_sign = min((self.signs + 1) * self.every, self.until)
            waits = w.now + timeout < next_sign
            w.now = w.now + timeout if waits else next_sign
            self.signs += not waits
            self._events.clear()
            if waits or not self.heard:
                return b""
            return b"[ OK ] Started one more thing.\r\n"
        if w.service is None:
            w.boot()
        return super().read(timeout)


def greeted(
    world: World, until: float, every: float, heard: bool = True, timeout: float = 30.0
) -> float:
    """When the greeting came."""
    Connection(Slow(world, until, every, heard, timeout), lambda: world.now, seed=1)
    return world.now


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root", random.Random(0))


@pytest.mark.parametrize("heard", [True, False])
def test_a_greeting_after_forty_seconds_of_trickle(world: World, heard: bool) -> None:
    assert 40 <= greeted(world, 40, 5, heard) < 43


def test_nothing_that_moves_is_given_up_after_the_timeout(world: World) -> None:
    with pytest.raises(DeviceError, match="nothing moved for 30 s") as e:
        greeted(world, 1e9, 1e9)
    assert 30 <= world.now < 32
    assert e.value.hint


def test_the_timeout_is_an_option(world: World) -> None:
    with pytest.raises(DeviceError, match=r"nothing moved for 7\.5 s"):
        greeted(world, 1e9, 1e9, timeout=7.5)
    assert 7.5 <= world.now < 9
    assert greeted(World(world.root, random.Random(0)), 100, 99, timeout=120) < 104


def test_a_line_that_only_babbles_is_given_up_too(world: World) -> None:
    with pytest.raises(
        DeviceError, match="did not answer in 150 s, though something came"
    ):
        greeted(world, 1e9, 2)
    assert 150 <= world.now < 155


def test_the_start_reads_no_more_than_the_device_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What follows it at once is the next program's, here one that shows it; it comes
    in pieces.
    """
    monkeypatch.setattr(
        stream_module,
        "device_end",
        lambda: (b"import os\nos.write(1, os.read(0, 100))", "0"),
    )
    text, packed = bootstrap()
    monkeypatch.undo()
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-S", "-u", "-c", text], stdin=read, stdout=subprocess.PIPE
    )
    os.close(read)
    for piece in (packed[:10], packed[10:] + b"what follows"):
        os.write(write, piece)
    os.close(write)
    said, _ = process.communicate(timeout=LIMIT_S)
    assert said == b"\n\nwhat follows"


def test_a_start_that_is_cut_off_ends() -> None:
    text, packed = bootstrap()
    command = [sys.executable, "-S", "-u", "-c", text]
    assert (
        subprocess.run(
            command, input=packed[:1000], capture_output=True, timeout=LIMIT_S
        ).returncode
        == 1
    )


def test_the_start_takes_few_system_calls() -> None:
    """On a slow board each costs as much as a line of Python: 30,000 of them were 6 s."""
    text, packed = bootstrap()
    counted = (
        "import os; real = os.read; n = []\n"
        "def read(*a):\n    n.append(1)\n    return real(*a)\n"
        "os.read = read\n"
        "def stop(source): os.write(2, b'%d' % len(n)); os._exit(0)\n"
        "import zlib; zlib.decompress = lambda b: 'stop(0)'\n"
        f"exec({text!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", counted],
        input=packed,
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert 1 <= int(done.stderr) <= 10, done


def test_a_status_imports_little() -> None:
    """Of what the device end needs for some requests only: these took a slow board
    longest.
    """
    heavy = ("importlib.metadata", "zipfile", "tempfile", "email", "random")
    source = device_end()[0].decode().rpartition("module.main")[0]
    code = f"{source}\nprint([m for m in {heavy!r} if m in sys.modules])"
    # An argument cannot be as long as the device end.
    done = subprocess.run(
        [sys.executable, "-S", "-"],
        input=code,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.strip() == "[]", done
