"""A serial console without a cable: a login prompt and a real shell on a pty, behind a
line of a given speed.

    python -m tests.devices.fake_console BAUD [--noise] [--open] [--late]     prints the path to open as a serial port

--noise: the kernel prints messages into the line now and then.  --open: a shell without
a login prompt. --late: it takes 3 s, and throws away what was typed meanwhile, before
the login prompt comes. The environment is the shell's.  User "pi", password
"raspberry".
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import sys
import termios
import time
import tty
from collections import deque

MESSAGE = b"\r\n[  123.456789] usb 1-1: USB disconnect, device number 2\r\n"


def login_loop(open_shell: bool, late: bool) -> None:
    """On the child's end of its pty, for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        if late:
            time.sleep(3.0)
            termios.tcflush(0, termios.TCIFLUSH)
        if not open_shell:
            while not _log_in():
                time.sleep(0.3)
                os.write(1, b"\r\nLogin incorrect\r\n")
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv("/bin/sh", ["-sh", "-i"])
        os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())


def _log_in() -> bool:
    user = b""
    while not user:
        os.write(
            1, b"\r\nDebian GNU/Linux 12 raspberrypi ttyAMA0\r\n\r\nraspberrypi login: "
        )
        user = os.read(0, 1000).strip()
    mode = termios.tcgetattr(0)
    quiet = [*mode[:3], mode[3] & ~termios.ECHO, *mode[4:]]
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    os.write(1, b"Password: ")
    password = os.read(0, 1000).strip()
    termios.tcsetattr(0, termios.TCSANOW, mode)
    if (user, password) == (b"pi", b"raspberry"):
        os.write(1, b"\r\nLast login: Tue Jan  1 00:00:00 on ttyAMA0\r\n")
        return True
    return False


class Wire:
    """One direction at so many bytes per second, with the buffer of 4 KiB that a kernel
    has.
    """

    def __init__(self, source: int, sink: int, rate: float) -> None:
        self.source = source
        self.sink = sink
        self.rate = rate
        self.held: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.free = time.monotonic()

    def take(self) -> None:
        """From the sender."""
        data = os.read(self.source, 256)
        self.free = max(self.free, time.monotonic()) + len(data) / self.rate
        self.held.append((self.free, data))
        self.size += len(data)

    def give(self, now: float) -> None:
        """To the receiver, what has come through by now."""
        while self.held and self.held[0][0] <= now:
            data = self.held.popleft()[1]
            self.size -= len(data)
            while data:
                data = data[os.write(self.sink, data) :]


def relay(near: int, far: int, rate: float, noise: bool) -> None:
    """Between two ptys until one is closed."""
    ways = [Wire(near, far, rate), Wire(far, near, rate)]
    next_noise = time.monotonic() + 0.5
    while True:
        now = time.monotonic()
        for way in ways:
            way.give(now)
        if noise and now >= next_noise:
            os.write(near, MESSAGE)
            next_noise = now + 0.7
        due = min([now + 0.1, *(w.held[0][0] for w in ways if w.held)])
        ready = select.select(
            [w.source for w in ways if w.size < 4096], [], [], max(0.0, due - now)
        )[0]
        for way in ways:
            if way.source in ready:
                way.take()


def main() -> None:
    """See above."""
    rate = int(sys.argv[1]) / 10
    pid, far = pty.fork()
    if pid == 0:
        login_loop("--open" in sys.argv, "--late" in sys.argv)
    # the slave stays open here, so that the port may be closed and opened again
    near, slave = os.openpty()
    tty.setraw(slave)
    print(os.ttyname(slave), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        relay(near, far, rate, "--noise" in sys.argv)
    finally:
        os.close(far)  # hangs up, which ends the shell and what runs on it
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
