"""Whether a stream is as fast as its slowest stage, how old its frames get, what it
costs, and whether it stays so.

Stages that compute for 20 ms, poll a device or wait for one as long; then all of it at
full rate for ten minutes. Markdown on the screen, build/stream-check.json; exit code 1
where a figure is short. Wants a machine that does nothing else, and a C compiler.

    python -m benchmarks.stream_check [--seconds 600] [--frames 500] [--only
        overlap,hop,endurance] [--no-times]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from edgec_runtime import Session, Shot, Stream, Summary

from tests import builds
from tests.conftest import ROOT
from tests.runtime import tiny_model
from tests.runtime.fake_stick import always, no_delegate, steady
from tests.runtime.resources import IN_FLIGHT, Resources, stick_bundle, tiny_bundle

PARTS = ("overlap", "hop", "endurance")
STAGE_MS = 20.0
FPS = {1: 49.0, 2: 45.0, 3: 42.0}
"""The least frames a second of so many stages of 20 ms; three that poll share two cores."""
OF_BOUND = 0.92
"""Of what bare threads make, where more stages compute than there are cores; they wait
for no frames of each other.
"""
WAITING = 2.0  # frames that a frame may wait, beyond what its stages take
HOP_SHAPES = ((1, 4, 4, 3), (1, 224, 224, 3))
INVOKE_MS = 2.6  # of MobileNet V2 on an Edge TPU, as its maker publishes
# times as long may a run on the Edge TPU take for being in a process of its own
HOP = 1.05
IMAGES = 16
SETTLED_S = 10.0  # before memory is looked at for the first time
Row = dict[str, Any]


def library(folder: Path) -> ctypes.CDLL:
    """busy.c; ctypes lets go of Python's lock while it runs."""
    made = folder / "busy.so"
    source = Path(__file__).with_name("busy.c")
    subprocess.run(
        [
            "gcc",
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(made),
        ],
        check=True,
    )
    found = ctypes.CDLL(str(made))
    for call in (found.busy_compute, found.busy_wait):
        call.restype = None
        call.argtypes = [ctypes.c_double]
    return found


def images() -> tuple[list[Any], list[dict[str, Any]]]:
    """Frames, and what the tiny model makes of them."""
    found = [tiny_model.image(i) for i in range(IMAGES)]
    return found, [tiny_model.reference(x) for x in found]


def right(shot: Shot, expected: list[dict[str, Any]]) -> bool:
    return all(
        np.array_equal(shot.value[k], v)
        for k, v in expected[shot.index % IMAGES].items()
    )


# ---- overlap
# --------------------------------------------------------------------------------------


def overlap(bundle: Path, folder: Path, frames: int, times: bool) -> list[Row]:
    """Two and three stages; those that compute are one more than the cores in the last."""
    busy = library(folder)
    cores = os.cpu_count() or 1
    compute = partial(busy.busy_compute, STAGE_MS)
    wait = partial(busy.busy_wait, STAGE_MS)
    device = partial(sleep, STAGE_MS / 1e3)
    kinds: list[tuple[str, list[Callable[[], Any]]]] = [
        ("2 compute", [compute] * 2),
        ("1 computes, 1 waits for a device", [compute, device]),
        ("2 compute, 1 waits for a device", [compute, device, compute]),
        ("2 poll a device", [wait] * 2),
        ("3 poll a device", [wait] * 3),
        ("3 compute", [compute] * 3),
    ]
    rows = []
    for name, calls in kinds:
        enough = calls.count(compute) <= cores
        rows.append(
            row := {
                "stages": name,
                **overlapped(bundle, calls, frames, times and enough),
            }
        )
        if not enough:
            row["without_edgec"] = bound = alone(calls, frames)
            if times and row["fps"] < OF_BOUND * bound:
                row["wrong"].append(
                    f"{row['fps']:.1f} frames/s, and bare threads make {bound:.1f}"
                )
        print(f"- {text(row)}", flush=True)
    return rows


def alone(calls: list[Callable[[], Any]], rounds: int) -> float:
    """Rounds a second of the slowest of these calls, each on a thread of its own that
    does nothing else: what stages that are more than the cores are judged by.
    """

    def run(call: Callable[[], Any]) -> float:
        began = monotonic()
        for _ in range(rounds):
            call()
        return rounds / (monotonic() - began)

    with ThreadPoolExecutor(len(calls)) as pool:
        return min(pool.map(run, calls))


def overlapped(
    bundle: Path, calls: list[Callable[[], Any]], frames: int, times: bool
) -> Row:
    def stage(call: Callable[[], Any]) -> Callable[[Shot], Any]:
        def run(shot: Shot) -> Any:
            call()
            return shot.value

        return run

    given, expected = images()
    before = [(f"stage {i}", stage(c)) for i, c in enumerate(calls[:-1])]
    wrong: list[str] = []
    with (
        Session(bundle, tpu="c") as session,
        session.stream(
            (given[i % IMAGES] for i in range(frames)),
            before=before,
            after=[("last", stage(calls[-1]))],
        ) as shots,
    ):
        n = -1
        for n, shot in enumerate(shots):
            if shot.index != n or not right(shot, expected):
                wrong.append(f"frame {n} is number {shot.index}, or wrong")
        figures = shots.figures()
    if n + 1 != frames or figures.dropped:
        wrong.append(f"{n + 1} of {frames} frames came, {figures.dropped} were dropped")
    work = sum(s.ms.p50 for s in figures.stages if s.ms is not None and s.name != "out")
    latency = figures.latency.p95 if figures.latency is not None else 0.0
    waited = (latency - work) * figures.fps / 1e3
    if times and figures.fps < FPS[len(calls)]:
        wrong.append(f"{figures.fps:.1f} frames/s are less than {FPS[len(calls)]:g}")
    if times and waited > WAITING:
        wrong.append(f"a frame waits for {waited:.1f} others")
    return {
        "fps": figures.fps,
        "work_ms": work,
        "latency_p95_ms": latency,
        "waited": waited,
        "wrong": wrong,
    }


# ---- the hop into another process
# --------------------------------------------------------------------------------------


def hop(folder: Path, runs: int, times: bool) -> list[Row]:
    """The same interpreter in this process and in its own, with nothing to do, and with
    an Edge TPU's time.
    """
    rows = []
    for shape, ms in itertools.product(HOP_SHAPES, (0.0, INVOKE_MS)):
        bundle = stick_bundle(folder, shape)
        made = partial(steady, shape, ms)
        medians = []
        for tpu in ("interpreter", "delegate"):
            with Session(
                bundle, tpu=tpu, interpreter=made, delegate=no_delegate
            ) as session:
                spent = session.time(runs=runs, warmup=0.2)
            medians.append(
                Summary.of([p[0] for p in spent.parts[spent.warmup :]]).p50 / 1e3
            )
        here, there = medians
        row: Row = {
            "bytes": 2 * int(np.prod(shape)),
            "invoke_ms": ms,
            "here_us": here,
            "there_us": there,
            "wrong": [],
        }
        row["ratio"] = there / here
        if times and ms and row["ratio"] > HOP:
            row["wrong"].append(
                f"the process of its own costs {row['ratio']:.3f} times the time"
            )
        rows.append(row)
        print(f"- hop: {text(row)}", flush=True)
    return rows


# ---- endurance
# --------------------------------------------------------------------------------------


def endurance(bundle: Path, seconds: float) -> Row:
    """At full rate, through the Edge TPU's process, with a stage before the model and
    one after.
    """
    given, expected = images()
    wrong: list[str] = []

    def source() -> Iterator[Any]:
        return (given[i % IMAGES] for i in itertools.count())

    def in_place(shot: Shot) -> None:
        np.copyto(shot.inputs["image"], shot.value)

    start = monotonic()
    n = 0
    before = Resources.now()
    settled = min(SETTLED_S, seconds / 3)
    shots: Stream
    with (
        Session(bundle, delegate=no_delegate, interpreter=always) as session,
        session.stream(
            source(),
            before=[("in place", in_place)],
            after=[("after", lambda shot: shot.value)],
        ) as shots,
    ):
        for shot in shots:
            if shot.index != n or not right(shot, expected):
                wrong.append(f"frame {n} is number {shot.index}, or wrong")
                break
            n += 1
            if settled and monotonic() - start > settled:
                settled = 0.0
                before = Resources.now()
            if monotonic() - start > seconds:
                break
        figures = shots.figures()
        after = Resources.now()
    wrong += after.beyond(before, IN_FLIGHT)
    assert figures.edgetpu is not None
    if figures.edgetpu.lost or figures.dropped:
        wrong.append(
            f"the Edge TPU was lost {figures.edgetpu.lost} times, "
            f"{figures.dropped} frames were dropped"
        )
    row: Row = {
        "frames": n,
        "seconds": monotonic() - start,
        "fps": n / (monotonic() - start),
    }
    row.update(before_mb=before.megabytes, after_mb=after.megabytes, wrong=wrong)
    print(f"- endurance: {text(row)}", flush=True)
    return row


def text(row: Row) -> str:
    """One line."""
    facts = ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in row.items()
        if k != "wrong"
    )
    return "; ".join([facts, *(f"WRONG: {w}" for w in row["wrong"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all figures hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--frames", type=int, default=500)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument(
        "--no-times",
        action="store_true",
        help="for a busy machine: order, loss and memory alone",
    )
    options = parser.parse_args(arguments)
    parts = options.only.split(",")
    times = not options.no_times
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    found: dict[str, list[Row]] = {}
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        bundle = tiny_bundle(folder / "bundle")
        if "overlap" in parts:
            found["overlap"] = overlap(bundle, folder, options.frames, times)
        if "hop" in parts:
            found["hop"] = hop(folder, options.frames, times)
        if "endurance" in parts:
            found["endurance"] = [endurance(bundle, options.seconds)]
    there = ROOT / "build" / "stream-check.json"
    there.parent.mkdir(exist_ok=True)
    there.write_text(
        json.dumps(
            {"cores": os.cpu_count(), "load": os.getloadavg()[0], **found}, indent=1
        )
    )
    return 1 if any(row["wrong"] for rows in found.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
