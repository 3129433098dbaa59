"""How long a stage that computes in Python may keep its lock while another stage of a
stream waits for it.
"""

from __future__ import annotations

import os
import sys
import threading

TURN_S = 0.001
"""Python's own is 5 ms: two stages that each compute for 20 ms and end while the other
has the lock lose a fifth.
"""

_lock = threading.Lock()
_streams = 0
_before = TURN_S


def shorten() -> None:
    """For a stream that starts: no turn of the process is longer than TURN_S until each
    that did so has restored.
    """
    global _streams, _before
    with _lock:
        if _streams == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, TURN_S))
        _streams += 1


def restore() -> None:
    """For a stream that ended; the last one gives the process the turns it had, unless
    they were set anew.
    """
    global _streams
    with _lock:
        _streams -= 1
        if _streams == 0 and abs(sys.getswitchinterval() - TURN_S) < 1e-9:
            sys.setswitchinterval(_before)


def _forked() -> None:
    """A child has none of the streams, and a lock of its own: another thread may have
    held this one.
    """
    global _lock, _streams
    _lock = threading.Lock()
    if _streams:
        sys.setswitchinterval(_before)
    _streams = 0


os.register_at_fork(after_in_child=_forked)
