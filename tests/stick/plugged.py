"""A process whose usbfs has our stick: a library is preloaded that answers the driver's
ioctls (usbfs_plug.c), and sysfs follows the stick.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edgec_devices.stick import Stick

from tests.conftest import ROOT
from tests.stick.plugs import built_plug
from tests.waiting import LIMIT_S, until

LOOK_S = 0.002
_WORKER = """
import pickle, sys
source, sink = open(0, "rb"), open(int(sys.argv[1]), "wb")
while True:
    try:
        function, arguments = pickle.load(source)
    except EOFError:
        break
    try:
        answer = True, function(*arguments)
    except BaseException as e:
        answer = False, e
    pickle.dump(answer, sink)
    sink.flush()
"""


def plug() -> Path:
    """The library to preload."""

    return built_plug("usbfs_plug.c", "usbfs.so", "-ldl")


class Kernel:
    """Keeps a folder as sysfs and /dev/bus/usb would be with a stick.

    root: the folder
    bus: the stick's; other sticks in the folder have others
    """

    def __init__(self, stick: Stick, root: Path, bus: int = 1) -> None:
        self.root = root
        self._stick = stick
        self._stop = threading.Event()
        self._seen: object = None
        self._bus = bus
        self._port = root / f"sys/bus/usb/devices/{bus}-1"
        self._nodes = root / f"dev/bus/usb/{bus:03}"
        self._port.parent.mkdir(parents=True, exist_ok=True)
        self._nodes.mkdir(parents=True)
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        here = self._stick.description()
        if here == self._seen:
            return
        self._seen = here
        shutil.rmtree(self._port, ignore_errors=True)
        for node in self._nodes.iterdir():
            node.unlink()
        if here is None:
            return
        (self._nodes / f"{here.address:03}").write_text(str(self._stick.path))
        aside = self.root / f"aside{self._bus}"
        aside.mkdir()
        for name, text in {
            "idVendor": f"{here.vendor:04x}",
            "idProduct": f"{here.product:04x}",
            "busnum": str(self._bus),
            "devnum": str(here.address),
            "speed": {3: "480", 5: "5000"}[here.speed],
        }.items():
            (aside / name).write_text(text + "\n")
        aside.rename(self._port)


def replug(stick: Stick, folder: Path) -> None:
    """Replug the stick of an `environment` of a folder, and wait until sysfs has it.

    It comes back under another number.
    """
    number = folder / "usbfs/sys/bus/usb/devices/1-1/devnum"
    before = stick.description()
    stick.replug()

    def back() -> bool:
        here = stick.description()
        if here is None or here == before:
            return False
        with contextlib.suppress(OSError):
            return int(number.read_text()) == here.address
        return False

    until(back, "the stick is back")


class Plugged:
    """A process that has the stick; it calls functions of modules."""

    def __init__(self, environment: dict[str, str]) -> None:
        sink, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(write)],
            stdin=subprocess.PIPE,
            pass_fds=[write],
            cwd=ROOT,
            env=environment,
        )
        os.close(write)
        self._answers = open(sink, "rb")  # noqa: SIM115

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns there; what it raises is raised here."""
        assert self._process.stdin is not None
        pickle.dump((function, arguments), self._process.stdin)
        self._process.stdin.flush()
        succeeded, answer = pickle.load(self._answers)
        if not succeeded:
            raise answer
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


def environment_of(root: Path) -> dict[str, str]:
    """Variables for processes that are to have the sticks of a folder (Kernel)."""
    return {
        **os.environ,
        "LD_PRELOAD": str(plug()),
        "EDGEC_USBFS": str(root),
    }


@contextlib.contextmanager
def environment(stick: Stick, folder: Path, **more: str) -> Iterator[dict[str, str]]:
    """Variables for processes that are to have the stick."""
    root = folder / "usbfs"
    kernel = Kernel(stick, root)
    try:
        yield {**environment_of(root), **more}
    finally:
        kernel.close()


@contextlib.contextmanager
def plugged(stick: Stick, folder: Path, **more: str) -> Iterator[Plugged]:
    """A process that has the stick."""
    with environment(stick, folder, **more) as variables:
        process = Plugged(variables)
        try:
            yield process
        finally:
            process.close()
