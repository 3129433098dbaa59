"""Whether a Session bears what long-running apps do to it: threads, openings, forks
while others run, a bad Edge TPU.

Every result is compared; memory, descriptors, threads and children must not grow
meanwhile: "wrong" has what did. Markdown on the screen; exit code 1 where something of
this does not hold.  Needs a C compiler.

    python -m benchmarks.endurance [--runs 100000] [--threads 8] [--openings 10000] [--forks
        500] [--faults 1000]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from edgec_runtime import Session

from benchmarks import delegate_faults
from tests import builds
from tests.runtime import tiny_model
from tests.runtime.fake_stick import always, no_delegate
from tests.runtime.resources import Resources, tiny_bundle

IMAGES = 64
HANGS_S = 60
DEFAULTS = {
    "runs": 100_000,
    "threads": 8,
    "openings": 10_000,
    "forks": 500,
    "faults": 1000,
    "seed": 0,
}
WAYS: tuple[dict[str, Any], ...] = (
    {"tpu": "c"},
    {"tpu": "interpreter", "interpreter": always},
    {"tpu": "delegate", "interpreter": always, "delegate": no_delegate},
)
# CPython builds its table of interned strings (0.9 MB) anew at times; flat after 12,000
# openings
OPENINGS_MB = 3.0
# of a session at most, made when runs first meet: some of them after the warm-up
LANES = max(2, os.cpu_count() or 1)
# openings, or runs of each thread, before the memory and files of the process are
# measured for the first time
WARM = 20


class Images:
    """Inputs, and what the tiny model makes of them."""

    def __init__(self, seed: int) -> None:
        self._given = [tiny_model.image(seed * IMAGES + i) for i in range(IMAGES)]
        self._expected = [tiny_model.reference(x) for x in self._given]

    def right(self, session: Session, i: int) -> bool:
        found = session.run({"image": self._given[i % IMAGES]})
        return all(
            np.array_equal(found[k], v) for k, v in self._expected[i % IMAGES].items()
        )


def runs(
    bundle: Path, images: Images, total: int, threads: int, seed: int
) -> list[str]:
    """Of one session of each kind, from many threads."""
    wrong: list[str] = []
    for way in WAYS:
        with Session(bundle, **way) as session:
            work(session, images, threads * WARM, threads, seed, wrong)
            before = Resources.now()
            work(session, images, total // len(WAYS), threads, seed, wrong)
            wrong += [
                f"{way['tpu']}: {w}" for w in Resources.now().beyond(before, LANES)
            ]
    return wrong


def work(
    session: Session,
    images: Images,
    total: int,
    threads: int,
    seed: int,
    wrong: list[str],
) -> None:
    numbers = count()

    def thread(k: int) -> None:
        r = random.Random(seed * 1000 + k)
        try:
            while next(numbers) < total:
                if not images.right(session, i := r.randrange(IMAGES)):
                    wrong.append(f"input {i} gave something else on thread {k}")
        except BaseException as e:
            wrong.append(f"thread {k}: {e!r}")

    all_ = [threading.Thread(target=thread, args=(k,)) for k in range(threads)]
    for t in all_:
        t.start()
    for t in all_:
        t.join()


def openings(bundle: Path, images: Images, total: int) -> list[str]:
    """Opened, run and closed; every tenth is forgotten, every hundredth has an Edge
    TPU's process.
    """
    wrong: list[str] = []
    before = Resources.now()
    for i in range(WARM + total):
        if i == WARM:
            before = Resources.now()
        session = Session(bundle, **WAYS[2 if i % 100 == 0 else i % 2])
        if not images.right(session, i):
            wrong.append(f"opening {i} gave something else")
        if i % 10:
            session.close()
        del session
    return wrong + Resources.now().beyond(before, megabytes=OPENINGS_MB)


def forks(bundle: Path, images: Images, total: int, threads: int) -> list[str]:
    """While threads run a session, children run it too, and end."""
    wrong: list[str] = []
    for n, way in enumerate(WAYS):
        stop = threading.Event()
        with Session(bundle, **way) as session:
            busy = [
                threading.Thread(target=run_until, args=(session, images, stop, wrong))
                for _ in range(threads)
            ]
            for t in busy:
                t.start()
            before: Resources | None = None
            for i in range(n, total, len(WAYS)):
                status = child(lambda: all(images.right(session, j) for j in range(3)))
                if status:
                    wrong.append(f"{way['tpu']}: child {i} ended with {status}")
                if i // len(WAYS) == min(WARM, total // len(WAYS) // 2):
                    before = Resources.now()
            assert before is not None
            wrong += [
                f"{way['tpu']}: {w}" for w in Resources.now().beyond(before, LANES)
            ]
            stop.set()
            for t in busy:
                t.join()
    return wrong


def run_until(
    session: Session, images: Images, stop: threading.Event, wrong: list[str]
) -> None:
    for i in count():
        if stop.is_set():
            return
        if not images.right(session, i):
            wrong.append(f"run {i} gave something else")


def child(good: Callable[[], bool]) -> int:
    """The status of a forked child; one that hangs is ended by its alarm."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            signal.alarm(HANGS_S)
            code = 0 if good() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def faults(bundle: Path, folder: Path, total: int, seed: int) -> list[str]:
    """Error, garbage, crash, hang, vanish, while a stream runs; how long each took is
    for make delegate-faults.
    """
    if not total:
        return []
    with warnings.catch_warnings():
        # that the Edge TPU stopped answering
        warnings.simplefilter("ignore", RuntimeWarning)
        return delegate_faults.check(
            bundle, folder, total, seed, 5.0, times=False
        ).wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    o = parser.parse_args(arguments)
    images = Images(o.seed)
    failed = False
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        bundle = tiny_bundle(folder / "bundle")
        parts: dict[str, Callable[[], list[str]]] = {
            f"{o.runs} runs from {o.threads} threads": lambda: runs(
                bundle, images, o.runs, o.threads, o.seed
            ),
            f"{o.openings} openings": lambda: openings(bundle, images, o.openings),
            f"{o.forks} forks while {o.threads} threads run": lambda: forks(
                bundle, images, o.forks, o.threads
            ),
            f"{o.faults} faults of the Edge TPU in a stream": lambda: faults(
                bundle, folder / "stick", o.faults, o.seed
            ),
        }
        print(
            row("what", "MB", "descriptors", "s", "wrong"), row(*["---"] * 5), sep="\n"
        )
        for title, part in parts.items():
            start = monotonic()
            before = Resources.now()
            wrong = part()
            failed |= bool(wrong)
            now = Resources.now()
            verdict = f"{len(wrong)}: {'; '.join(wrong[:5])}" if wrong else "nothing"
            megabytes = f"{before.megabytes:.1f} → {now.megabytes:.1f}"
            descriptors = f"{before.descriptors} → {now.descriptors}"
            print(
                row(
                    title, megabytes, descriptors, f"{monotonic() - start:.0f}", verdict
                ),
                flush=True,
            )
    return 1 if failed else 0


def row(*cells: str) -> str:
    """Of a Markdown table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
