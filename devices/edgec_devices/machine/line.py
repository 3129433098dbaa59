"""Is the serial line between a machine and its user, a program: `line.py DEVICE BAUD`.

It prints the name of a new pty and passes baud / 10 bytes a second each way (a start
bit, eight bits, a stop bit) until DEVICE is gone; a BAUD of 0 has no limit. Like a UART
it loses data while nobody has the pty open; QEMU's own pty also loses the first second
after it was opened. It needs only the standard library.
"""

from __future__ import annotations

import errno
import math
import os
import select
import sys
import threading
import time
import tty

TICK_S = 0.004
"""Duration of a piece on the line, s."""
MAX_PIECE = 4096
"""Bytes of a piece."""
IDLE_S = 0.05
"""Interval between two looks at a pty that nobody has open, s."""


def main(device: str, baud: int) -> None:
    """Pass bytes until the device is gone."""
    line = os.open(device, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    master, slave = os.openpty()
    tty.setraw(slave)
    print(os.ttyname(slave), flush=True)
    # Closed, so that the master tells whether somebody has it open.
    os.close(slave)
    os.set_blocking(master, False)
    rate = baud / 10 or math.inf
    threading.Thread(target=carry, args=(master, line, rate), daemon=True).start()
    carry(line, master, rate)


def carry(source: int, sink: int, rate: float) -> None:
    """Pass at most `rate` bytes a second until the source ends."""
    piece = max(1, int(min(rate * TICK_S, MAX_PIECE)))
    due = 0.0
    while True:
        if _alone(source):
            time.sleep(IDLE_S)
            continue
        select.select([source], [], [])
        try:
            data = os.read(source, piece)
        except OSError as e:
            if e.errno == errno.EIO and not os.get_blocking(source):
                # The user has closed the pty.
                continue
            return
        if not data:
            return
        _pass_on(sink, data)
        # A line that was idle has no credit: it sends at its rate from now on.
        due = max(due, time.monotonic() - TICK_S) + len(data) / rate
        time.sleep(max(0.0, due - time.monotonic()))


def _alone(fd: int) -> bool:
    """Return whether this is the pty, and nobody has its other end open."""
    if os.get_blocking(fd):
        return False
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _pass_on(sink: int, data: bytes) -> None:
    """Write data, unless nobody has the pty open."""
    while data and not _alone(sink):
        if not select.select([], [sink], [], IDLE_S)[1]:
            continue
        try:
            written = os.write(sink, data)
            data = data[written:]
        except BlockingIOError:
            pass
        except OSError:
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
