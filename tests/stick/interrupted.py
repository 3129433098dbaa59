"""Signals at random moments of sessions on our driver, in a process that has a stick
(plugged.py).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_runtime import Session
from edgec_runtime.session.session import SegmentTime
from edgec_runtime.stick.driver import sticks
from edgec_runtime.stick.usbfs import UsbHandle

from tests.runtime.test_interrupts import interrupt
from tests.stick.driving import Array


def opened(bundle: Path) -> Session:
    """Open a session that insists on the stick."""
    return Session(bundle, driver="own", tpu="delegate", timeout=20.0)


@dataclass(frozen=True)
class Work:
    """A bundle with one sample.

    Attributes:
        bundle: the bundle
        inputs: of the sample
        outputs: what comes of it
    """

    bundle: Path
    inputs: list[Array]
    outputs: list[Array]

    def right(self, session: Session) -> str:
        """Run it; return the backend."""
        times: list[SegmentTime] = []
        named = dict(zip(session.manifest.inputs, self.inputs, strict=True))
        outputs = session.run(named, timings=times)
        for one, other in zip(outputs.values(), self.outputs, strict=True):
            np.testing.assert_array_equal(one, other)
        backends = {time.backend for time in times}
        return "delegate" if "delegate" in backends else "c"


def children() -> list[int]:
    """Return the processes that this one has started."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in path.read_text().split()]


def runs(works: list[Work], times: int) -> tuple[bool, int, list[str]]:
    """Interrupt inferences of sessions in turn, with one run more after each.

    Returns:
        whether the stick is up, how often it was lost, and the backends of the last runs
    """
    with ExitStack() as block:
        sessions = [block.enter_context(opened(w.bundle)) for w in works]
        backends = list[str]()

        def all_right() -> None:
            backends[:] = [w.right(s) for w, s in zip(works, sessions, strict=True)]

        all_right()
        begin = time.perf_counter()
        all_right()
        interrupt(all_right, all_right, times, 1.2 * (time.perf_counter() - begin))
        facts = sessions[0].edgetpu
        assert facts is not None
        return facts.up, facts.lost, backends


def openings(work: Work, times: int) -> None:
    """Interrupt the opening, a run and the closing of a session."""

    def open_and_close() -> None:
        with opened(work.bundle) as session:
            assert work.right(session) == "delegate"

    begin = time.perf_counter()
    open_and_close()
    interrupt(
        open_and_close, open_and_close, times, 1.2 * (time.perf_counter() - begin)
    )


def opening(work: Work) -> str:
    """Open a session, run it, close it; return the backend."""
    with opened(work.bundle) as session:
        return work.right(session)


def leave_firmware(request: int, blocks: int) -> None:
    """Do what a program does that is killed while it loads firmware: send or read some
    blocks, and close the stick.

    Args:
        request: of DFU, 1 to send and 2 to read
        blocks: number of blocks, each of 256 bytes
    """
    (device,) = sticks()
    handle = UsbHandle(device)
    handle.claim(0)
    for number in range(blocks):
        if request == 1:
            handle.control_out((0x21, 1, number, 0), bytes(256), 1.0)
            assert len(handle.control_in((0xA1, 3, 0, 0), 6, 1.0)) == 6
        else:
            assert len(handle.control_in((0xA1, 2, number, 0), 256, 1.0)) == 256
    handle.close()


def heard(period: float) -> None:
    """Let a signal come again and again, whose handler does nothing.

    Calls of the system that wait end by it with EINTR.

    Args:
        period: seconds between two signals; 0 ends them
    """
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, period, period)
