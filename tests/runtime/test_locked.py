"""What a Ctrl-C leaves behind, wherever in the main thread it comes."""

from __future__ import annotations

import random
import signal
import threading
from types import FrameType

from edgec_runtime.session.meters import Gate, Meter


def test_an_exception_in_the_main_thread_leaves_the_gate_open() -> None:
    """A stream that is closed after it would wait for the gate for ever."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    gate = Gate([Meter("one")], [])
    seed = random.Random(0)
    before = signal.signal(signal.SIGALRM, end)
    try:
        for _ in range(500):
            try:
                signal.setitimer(signal.ITIMER_REAL, seed.uniform(2e-5, 4e-4))
                while True:
                    gate.leave()
            except KeyboardInterrupt:
                pass
            other = threading.Thread(target=gate.shut, daemon=True)
            other.start()
            other.join(20)
            assert not other.is_alive()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
