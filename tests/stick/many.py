"""Many sessions on our driver, in a process that has a stick (plugged.py)."""

from __future__ import annotations

import threading
from collections import Counter

from tests.stick import driving_c
from tests.stick.interrupted import Work, opened


def in_turn(work: Work, count: int) -> dict[str, int]:
    """Open, run and close sessions one after the other; return their backends."""
    backends = Counter[str]()
    for _ in range(count):
        with opened(work.bundle) as session:
            backends[work.right(session)] += 1
    return dict(backends)


def at_once(work: Work, threads: int, count: int) -> dict[str, int]:
    """The same in threads that begin together, each with so many sessions."""
    begin = threading.Barrier(threads)
    backends = Counter[str]()
    faults: list[BaseException] = []

    def one() -> None:
        begin.wait()
        try:
            for _ in range(count):
                with opened(work.bundle) as session:
                    backends[work.right(session)] += 1
        except BaseException as e:
            faults.append(e)

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if faults:
        raise faults[0]
    return dict(backends)


def c_openings(count: int) -> None:
    """Open and close the stick with the driver in C."""
    for _ in range(count):
        assert driving_c.connect() == ""
        driving_c.stop()
