"""Whether a stream is as fast as its slowest stage, how long frames wait, and what the
process of the Edge TPU costs.

Stages compute for 20 ms, poll a device for as long, or wait for one. Markdown on the
screen, build/stream-check.json; the exit code is 1 if a figure misses its bound. It needs a
machine that does nothing else, and a C compiler.

    python -m benchmarks.stream_check [--frames 500] [--only overlap,hop] [--no-times]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from edgec_runtime import Session, Shot, Summary

from benchmarks.data_folder import BUILD
from benchmarks.tables import line, markdown, names, write_json
from benchmarks.tiny_images import TinyImages
from tests import builds
from tests.runtime.fake_stick import no_delegate, steady
from tests.runtime.resources import stick_bundle, tiny_bundle

STAGE_MS = 20.0
LEAST_FPS = {1: 49.0, 2: 45.0, 3: 42.0}
"""The least frames a second of so many stages that the cores can run at once; three that
poll share two cores.
"""
LEAST_SHARE = 0.92
"""The least share of the rate of bare threads, where more stages compute than there are
cores: bare threads do not wait for each other's frames.
"""
MOST_WAITING = 2.0
"""The most frames that a frame waits for, beyond the work of its stages."""
SHAPES = ((1, 4, 4, 3), (1, 224, 224, 3))
INVOKE_MS = 2.6
"""The time of MobileNet V2 on an Edge TPU, as its maker publishes it."""
MOST_HOP = 1.05
"""The most time of an inference in a process of its own, by that in this process."""
Work = Callable[[], Any]


@dataclass
class Row:
    """One check.

    Attributes:
        name: what was checked
        figures: what was measured
        faults: what misses its bound
    """

    name: str
    figures: dict[str, float]
    faults: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        figures = ", ".join(f"{name} {x:.4g}" for name, x in self.figures.items())
        return [self.name, figures, "; ".join(self.faults) or "holds"]


def library(folder: Path) -> ctypes.CDLL:
    """Compile busy.c; ctypes releases Python's lock while it runs."""
    path = folder / "busy.so"
    source = Path(__file__).with_name("busy.c")
    options = ("-std=gnu11", "-O2", "-Wall", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, str(source), "-o", str(path)], check=True)
    busy = ctypes.CDLL(str(path))
    for function in (busy.busy_compute, busy.busy_wait):
        function.restype = None
        function.argtypes = [ctypes.c_double]
    return busy


def check_overlap(folder: Path, frames: int, times: bool) -> Iterator[Row]:
    """Yield a row for each mix of two and three stages."""
    bundle = tiny_bundle(folder / "bundle")
    busy = library(folder)
    compute = partial(busy.busy_compute, STAGE_MS)
    poll = partial(busy.busy_wait, STAGE_MS)
    wait = partial(sleep, STAGE_MS / 1e3)
    mixes: dict[str, list[Work]] = {
        "2 compute": [compute] * 2,
        "1 computes, 1 waits for a device": [compute, wait],
        "2 compute, 1 waits for a device": [compute, wait, compute],
        "2 poll a device": [poll] * 2,
        "3 poll a device": [poll] * 3,
        "3 compute": [compute] * 3,
    }
    for name, stages in mixes.items():
        row = streamed(name, bundle, stages, frames)
        fps = row.figures["fps"]
        least = LEAST_FPS[len(stages)]
        if stages.count(compute) > (os.cpu_count() or 1):
            row.figures["bare threads"] = bare_rate(stages, frames)
            least = LEAST_SHARE * row.figures["bare threads"]
        elif times and row.figures["waited"] > MOST_WAITING:
            row.faults.append(f"more than {MOST_WAITING:g} frames waited for")
        if times and fps < least:
            row.faults.append(f"less than {least:.1f} frames/s")
        yield row


def bare_rate(stages: Sequence[Work], rounds: int) -> float:
    """Return the rounds a second of the slowest stage, each on a bare thread."""

    def rate(work: Work) -> float:
        start = monotonic()
        for _ in range(rounds):
            work()
        return rounds / (monotonic() - start)

    with ThreadPoolExecutor(len(stages)) as pool:
        return min(pool.map(rate, stages))


def streamed(name: str, bundle: Path, stages: Sequence[Work], frames: int) -> Row:
    """Stream through all stages but the last, the model, and the last stage."""

    def stage(work: Work) -> Callable[[Shot], Any]:
        def run(shot: Shot) -> Any:
            work()
            return shot.value

        return run

    images = TinyImages()
    before = [(f"stage {i}", stage(work)) for i, work in enumerate(stages[:-1])]
    after = [("last", stage(stages[-1]))]
    faults: list[str] = []
    count = 0
    with (
        Session(bundle, tpu="c") as session,
        session.stream(images.stream(frames), before=before, after=after) as shots,
    ):
        for shot in shots:
            if shot.index != count or not images.is_right(count, shot.value):
                faults.append(f"frame {count} is number {shot.index}, or wrong")
            count += 1
        figures = shots.figures()
    if count != frames or figures.dropped:
        faults.append(f"{count} of {frames} frames, {figures.dropped} dropped")
    work_ms = sum(s.ms.p50 for s in figures.stages if s.ms and s.name != "out")
    latency = figures.latency.p95 if figures.latency is not None else 0.0
    waited = (latency - work_ms) * figures.fps / 1e3
    measured = {"fps": figures.fps, "work_ms": work_ms, "p95_ms": latency}
    return Row(name, {**measured, "waited": waited}, faults)


def check_hop(folder: Path, frames: int, times: bool) -> Iterator[Row]:
    """Yield rows of the interpreter in this process and in one of its own, with an
    inference that takes no time and with one that takes an Edge TPU's.
    """
    for shape, invoke_ms in itertools.product(SHAPES, (0.0, INVOKE_MS)):
        bundle = stick_bundle(folder, shape)
        interpreter = partial(steady, shape, invoke_ms)
        medians = []
        for tpu in ("interpreter", "delegate"):
            with Session(
                bundle, tpu=tpu, interpreter=interpreter, driver=no_delegate
            ) as session:
                spent = session.time(runs=frames, warmup=0.2)
            parts = [part[0] for part in spent.parts[spent.warmup :]]
            medians.append(Summary.of(parts).p50 / 1e3)
        here, apart = medians
        figures = {"here_us": here, "apart_us": apart, "ratio": apart / here}
        size = 2 * int(np.prod(shape))
        row = Row(f"hop of {size} bytes, {invoke_ms:g} ms", figures)
        if times and invoke_ms and apart / here > MOST_HOP:
            row.faults.append(f"more than {MOST_HOP} times the time")
        yield row


CHECKS = {"overlap": check_overlap, "hop": check_hop}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=500)
    parser.add_argument("--only", type=names, default=list(CHECKS))
    parser.add_argument(
        "--no-times", action="store_true", help="for a busy machine: results alone"
    )
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("\n".join(markdown(("check", "figures", "verdict"), [], texts=3)))
    rows = []
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        for name in args.only:
            for row in CHECKS[name](folder, args.frames, not args.no_times):
                print(line(row.cells()), flush=True)
                rows.append(row)
    write_json(BUILD / "stream-check.json", rows)
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
