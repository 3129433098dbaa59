"""Whether a Session bears what apps that run for long do to it: threads, openings, and
forks while others run.

Every result is compared; memory, descriptors, threads and children must not grow. Markdown
on the screen; the exit code is 1 if something is wrong. It needs a C compiler.

    python -m benchmarks.endurance [--runs 100000] [--threads 8] [--openings 10000]
        [--forks 500]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from edgec_runtime import Session

from benchmarks.tables import line, markdown
from benchmarks.tiny_images import TinyImages
from tests import builds
from tests.runtime.fake_stick import always, no_delegate
from tests.runtime.resources import Resources, tiny_bundle

IMAGES = 64
CHILD_S = 60
"""Seconds after which a child that hangs is ended."""
BACKENDS: tuple[Mapping[str, Any], ...] = (
    {"tpu": "c"},
    {"tpu": "interpreter", "interpreter": always},
    {"tpu": "delegate", "interpreter": always, "driver": no_delegate},
)
OPENINGS_MB = 3.0
"""The memory that openings may take: CPython builds its table of interned strings (0.9 MB)
anew at times; after 12,000 openings it stays.
"""
LANES = max(2, os.cpu_count() or 1)
"""The lanes that a session makes at most, some of them after the warm-up."""
WARM = 20
"""Openings, or runs of each thread, before memory is measured for the first time."""


class Check:
    """Checks of sessions of one bundle.

    Args:
        bundle: the tiny model
        threads: the number of threads
        seed: draws the images
    """

    def __init__(self, bundle: Path, threads: int, seed: int) -> None:
        self._bundle = bundle
        self._threads = threads
        self._seed = seed
        self._images = TinyImages(IMAGES, seed)
        self._faults: list[str] = []

    def _is_right(self, session: Session, number: int) -> bool:
        outputs = session.run({"image": self._images.image(number)})
        return self._images.is_right(number, outputs)

    def _grown(self, name: str, before: Resources) -> None:
        growth = Resources.now().beyond(before, LANES)
        self._faults += [f"{name}: {text}" for text in growth]

    def run(self, total: int) -> list[str]:
        """Run a session of each kind from many threads, and return the faults."""
        for options in BACKENDS:
            with Session(self._bundle, **options) as session:
                self._run_from_threads(session, self._threads * WARM)
                before = Resources.now()
                self._run_from_threads(session, total // len(BACKENDS))
                self._grown(options["tpu"], before)
        return self._faults

    def _run_from_threads(self, session: Session, total: int) -> None:
        runs = count()

        def run(number: int) -> None:
            rng = random.Random(self._seed * 1000 + number)
            while next(runs) < total:
                image = rng.randrange(IMAGES)
                if not self._is_right(session, image):
                    self._faults.append(f"image {image} on thread {number} is wrong")

        with self._at_work(run):
            pass

    @contextmanager
    def _at_work(self, work: Callable[[int], None]) -> Iterator[None]:
        """Let each thread do its work meanwhile, and wait for all at the end."""

        def run(number: int) -> None:
            try:
                work(number)
            except BaseException as e:
                self._faults.append(f"thread {number}: {e!r}")

        threads = [
            threading.Thread(target=run, args=(i,)) for i in range(self._threads)
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()

    def open(self, total: int) -> list[str]:
        """Open, run and close sessions, and return the faults.

        Every tenth is not closed, and every hundredth has the process of an Edge TPU.
        """
        before = Resources.now()
        for i in range(WARM + total):
            if i == WARM:
                before = Resources.now()
            session = Session(self._bundle, **BACKENDS[2 if i % 100 == 0 else i % 2])
            if not self._is_right(session, i):
                self._faults.append(f"opening {i} is wrong")
            if i % 10:
                session.close()
            del session
        return self._faults + Resources.now().beyond(before, megabytes=OPENINGS_MB)

    def fork(self, total: int) -> list[str]:
        """Fork children that run a session while threads run it, and return the faults."""
        for n, options in enumerate(BACKENDS):
            stop = threading.Event()
            with Session(self._bundle, **options) as session:

                def work(
                    number: int,
                    session: Session = session,
                    stop: threading.Event = stop,
                ) -> None:
                    for i in count():
                        if stop.is_set():
                            return
                        if not self._is_right(session, i):
                            self._faults.append(f"run {i} is wrong")

                with self._at_work(work):
                    self._fork_children(session, options["tpu"], range(n, total, 3))
                    stop.set()
        return self._faults

    def _fork_children(self, session: Session, name: str, numbers: range) -> None:
        before = Resources.now()
        for i, number in enumerate(numbers):
            if i == min(WARM, len(numbers) // 2):
                before = Resources.now()
            status = self._child(session)
            if status:
                self._faults.append(f"{name}: child {number} ended with {status}")
        self._grown(name, before)

    def _child(self, session: Session) -> int:
        """Return the status of a child that runs a session."""
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                signal.alarm(CHILD_S)
                code = int(not all(self._is_right(session, i) for i in range(3)))
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--openings", type=int, default=10_000)
    parser.add_argument("--forks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("\n".join(markdown(("check", "MB", "s", "faults"), [])))
    is_wrong = False
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        bundle = tiny_bundle(folder / "bundle")
        for title, total in vars(args).items():
            check = Check(bundle, args.threads, args.seed)
            methods = {"runs": check.run, "openings": check.open, "forks": check.fork}
            if title not in methods:
                continue
            start = monotonic()
            before = Resources.now().megabytes
            faults = methods[title](total)
            is_wrong |= bool(faults)
            memory = f"{before:.1f} → {Resources.now().megabytes:.1f}"
            seconds = f"{monotonic() - start:.0f}"
            text = f"{len(faults)}: {'; '.join(faults[:5])}" if faults else "none"
            print(line([f"{total} {title}", memory, seconds, text]), flush=True)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
