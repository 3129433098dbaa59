"""Whether a cascade bears a long film: objects that move, vanish and come back, from two
networks whose answers are known.

Every object must be found in its place, and one that comes back within some frames; memory,
descriptors, threads and children must not grow. Markdown on the screen; the exit code is 1
if something does not hold. It needs a C compiler.

    python -m benchmarks.cascade_check [--frames 10000] [--every 10]
"""

from __future__ import annotations

import argparse
import sys
from time import monotonic

import numpy as np
from edgec_runtime import Session

from tests import builds
from tests.cascade.objects import Thing, bundle, found, scene, seen
from tests.runtime.resources import Resources

FILM = 200
"""Frames until the film repeats."""
WARM = 2 * FILM
GONE = range(60, 85)
"""Frames of the film in which the second object is not there."""
NEAR = 0.1
"""Pixels of the network's input by which a point may be off."""


def things(frame: int) -> tuple[Thing, ...]:
    """Return the objects of a frame of the film, which ends as it begins."""
    turn = 2 * np.pi * frame / FILM
    first = Thing(55 + 12 * np.cos(turn), 55 + 10 * np.sin(turn), turn, 20)
    second = Thing(140, 95 + 8 * np.sin(turn), -2 * turn, 24 + 2 * np.cos(turn))
    return (first,) if frame in GONE else (first, second)


def film(session: Session, frames: int, every: int) -> list[str]:
    """Run frames of the film, and return the faults."""
    pictures = [scene(*things(frame)) for frame in range(FILM)]
    wrong: list[str] = []
    missing = 0
    for n in range(frames):
        there = things(n % FILM)
        points = found(seen(session, pictures[n % FILM]), "discs")
        missing = missing + 1 if len(points) < len(there) else 0
        if missing > every:
            wrong.append(f"frame {n}: an object is missing for {missing} frames")
        for xy in points.values():
            off = [np.abs(xy - t.points).max() * 64 / (3 * t.length) for t in there]
            if min(off) > NEAR:
                wrong.append(f"frame {n}: an object is {min(off):.2f} pixels off")
    return wrong


def check(frames: int, every: int) -> tuple[list[str], float]:
    """Return the faults, and the frames per second."""
    with Session(bundle(every=every), threads=2) as session:
        wrong = film(session, WARM, every)
        before = Resources.now()
        start = monotonic()
        wrong += film(session, frames, every)
        rate = frames / (monotonic() - start)
        wrong += Resources.now().beyond(before)
    return wrong, rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    with builds.apart():
        wrong, rate = check(options.frames, options.every)
    print("| frames | frames/s | wrong |\n| --- | --- | --- |")
    print(f"| {options.frames} | {rate:.0f} | {'; '.join(wrong[:5]) or 'nothing'} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
