"""Signals to programs that tests start."""

from __future__ import annotations

import signal


def heed_signals() -> None:
    """Let a new process heed Ctrl-C and the end of its terminal (`preexec_fn`).

    What a shell starts in the background, or under nohup, ignores them, and so do the
    processes that it starts.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
