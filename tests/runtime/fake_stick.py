"""A test double of an Edge TPU: it computes the tiny model's RELU, and fails, hangs and
vanishes by plan.

What it is to do and what it did are files of a folder, since each process of it is a
new one.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.runtime.fake_interpreter import FakeInterpreter

LATE_S = 6.0
"""When it answers that is given up before, seconds."""
FAULTS = (
    "error",
    "garbage",
    "vanish",
    "crash",
    "hang",
    "hang with the interpreter's lock",
)
ERRORS = (RuntimeError, OSError, MemoryError, SystemError, ValueError)
AT_LOAD = 2  # invokes when it is opened: to warm up, to be timed


class FakeStick:
    """driver=stick.open, interpreter=stick.make.

    plan: number of an invoke, from 0 and over all processes, without those at load →
    the fault.  away: for so many seconds a stick that vanished cannot be opened.  wait:
    seconds of an invoke.
    """

    def __init__(
        self,
        folder: Path,
        plan: dict[int, str] | None = None,
        away: float = 0.3,
        wait: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.folder = folder
        self.plan = plan or {}
        self.away = away
        self.wait = wait
        self.seed = seed
        folder.mkdir(exist_ok=True)

    def open(self, name: str | None) -> object:
        with (self.folder / "starts").open("a") as f:
            f.write(json.dumps([os.getpid(), _spawned(), time.monotonic()]) + "\n")
        gone = self.folder / "away"
        if gone.exists() and time.monotonic() < float(gone.read_text() or 0):
            raise ValueError("Failed to load delegate from libedgetpu.so.1")
        self.log("open")
        return object()

    def make(self, model: bytes, delegate: object) -> FakeInterpreter:
        assert delegate is not None
        return _Faulty(self)

    def log(self, what: str) -> None:
        with (self.folder / "log").open("a") as f:
            f.write(json.dumps([time.monotonic(), os.getpid(), what]) + "\n")

    def logged(self) -> list[tuple[float, int, str]]:
        """(when, process, what)."""
        path = self.folder / "log"
        if path.exists():
            return [tuple(json.loads(line)) for line in path.read_text().splitlines()]
        return []

    def starts(self) -> dict[int, tuple[float, float]]:
        """By process: when the system made it, and when Python was there and first
        tried to open the Edge TPU.
        """
        path = self.folder / "starts"
        found = dict[int, tuple[float, float]]()
        for line in path.read_text().splitlines() if path.exists() else ():
            pid, spawned, tried = json.loads(line)
            found.setdefault(pid, (spawned, tried))
        return found

    def number(self) -> int:
        """Of this invoke."""
        with (self.folder / "invokes").open("ab") as f:
            f.write(b".")
            return f.tell() - 1


def _spawned() -> float:
    """When this process was made, by the monotonic clock."""
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    since_boot = int(ticks) / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


class _Faulty(FakeInterpreter):
    def __init__(self, stick: FakeStick) -> None:
        super().__init__()
        self._stick = stick

    def invoke(self) -> None:
        super().invoke()
        if self.invokes <= AT_LOAD:
            return
        stick = self._stick
        time.sleep(stick.wait)
        number = stick.number()
        fault = stick.plan.get(number)
        if fault is None:
            stick.log("ran")
            return
        stick.log(fault)
        self._memory[1][...] = 99
        if fault == "late":  # it answers wrongly, when nobody waits for it any more
            time.sleep(LATE_S)
            return
        if fault == "vanish":
            until = time.monotonic() + stick.away
            aside = stick.folder / "aside"
            aside.write_text(str(until))
            aside.replace(stick.folder / "away")
        go_wrong(fault, random.Random(stick.seed * 1_000_003 + number))


def go_wrong(fault: str, r: random.Random) -> None:
    if fault == "crash":
        os.kill(os.getpid(), r.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)))
    elif fault == "hang":
        time.sleep(3600)
    elif fault == "hang with the interpreter's lock":
        libc: Any = ctypes.PyDLL(None)
        libc.sleep(3600)
    raise r.choice(ERRORS)(f"{fault}: USB transfer error 5")


# ---- an Edge TPU that never fails
# --------------------------------------------------------------------------------------


class Steady(FakeInterpreter):
    """An Edge TPU's inference of so many ms, on tensors of this shape."""

    def __init__(self, shape: tuple[int, ...], ms: float) -> None:
        super().__init__()
        self._shape = shape
        self._ms = ms

    def allocate_tensors(self) -> None:
        self._memory = [np.zeros(self._shape, np.int8), np.zeros(self._shape, np.int8)]

    def get_input_details(self) -> list[Any]:
        return [{**super().get_input_details()[0], "shape": np.array(self._shape)}]

    def get_output_details(self) -> list[Any]:
        return [{**super().get_output_details()[0], "shape": np.array(self._shape)}]

    def invoke(self) -> None:
        end = time.perf_counter_ns() + self._ms * 1e6
        self._memory[1][...] = self._memory[0]
        if self._ms:
            time.sleep(max(0.0, (end - time.perf_counter_ns()) * 1e-9))


def steady(shape: tuple[int, ...], ms: float, model: bytes, delegate: object) -> Steady:
    """An interpreter's function that a process can be given."""
    return Steady(shape, ms)


def no_delegate(name: str | None) -> object:
    """It opens at once."""
    return object()


def always(model: bytes, delegate: object) -> FakeInterpreter:
    """The tiny model's."""
    return FakeInterpreter()


def no_edgetpu(name: str | None) -> None:
    """The interpreter gets no delegate: its own kernels run."""
