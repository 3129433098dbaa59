"""A program: the serial line between a machine and whoever opens it, as `line.py DEVICE
BAUD`.

Prints the name of a new pty and passes baud / 10 bytes a second each way (a start bit,
eight bits, a stop bit), or all there are for a BAUD of 0, until DEVICE is gone.  Like a
UART it loses what is said to nobody: QEMU's own pty loses the first second after it was
opened, too.  Standard library only.
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

TICK_S = 0.004  # what is sent in one go lasts this long on the line
MOST = 4096
_IDLE_S = 0.05


def main(device: str, baud: int) -> None:
    """Runs until the device is gone."""
    line = os.open(device, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    master, slave = os.openpty()
    tty.setraw(slave)
    print(os.ttyname(slave), flush=True)
    os.close(slave)  # so that the master knows whether somebody has it open
    os.set_blocking(master, False)
    rate = baud / 10 or math.inf
    threading.Thread(target=carry, args=(master, line, rate), daemon=True).start()
    carry(line, master, rate)


def carry(source: int, sink: int, rate: float) -> None:
    """Moves bytes at most at `rate` a second until the source ends."""
    piece = max(1, int(min(rate * TICK_S, MOST)))
    due = 0.0
    while True:
        if _alone(source):
            time.sleep(_IDLE_S)
            continue
        select.select([source], [], [])
        try:
            data = os.read(source, piece)
        except OSError as e:
            if e.errno == errno.EIO and not os.get_blocking(source):
                continue  # whoever had our pty open has closed it
            return
        if not data:
            return
        _pass_on(sink, data)
        due = max(due, time.monotonic() - TICK_S) + len(data) / rate
        time.sleep(max(0.0, due - time.monotonic()))


def _alone(fd: int) -> bool:
    """Whether this is our pty, and nobody has its other end open."""
    if os.get_blocking(fd):
        return False
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _pass_on(sink: int, data: bytes) -> None:
    while data and not _alone(sink):
        if not select.select([], [sink], [], _IDLE_S)[1]:
            continue
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:
            pass
        except OSError:
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
