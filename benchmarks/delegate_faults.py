"""A simulated Edge TPU that fails, hangs, crashes and vanishes while a stream runs.

Faults are drawn by a seed. Every frame must come, in order and right; the C twin must have
it within one frame's time plus the timeout; the Edge TPU must run again within 2 s of its
return, without the time in which Python starts; the process must not grow. Printed, and
written to build/delegate-faults.json; the exit code is 1 if something does not hold. It
needs a C compiler.

    python -m benchmarks.delegate_faults [--cases 500] [--seed 0] [--frame 20] [--no-times]
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from edgec_runtime import Session, Shot, Stream, Summary

from benchmarks.data_folder import BUILD
from benchmarks.tables import write_json
from benchmarks.tiny_images import TinyImages
from tests import builds
from tests.runtime.fake_stick import FAULTS, FakeStick
from tests.runtime.resources import IN_FLIGHT, Resources, tiny_bundle

TIMEOUT_S = 0.2
RETURN_S = 2.0
"""Seconds until the Edge TPU must be used again."""
AWAY_S = 0.4
"""Seconds for which it vanishes."""
SETTLED = 20
"""Faults before the resources of the process are looked at for the first time."""
STUCK_S = 120.0
"""Seconds without a frame on the Edge TPU after which the check ends."""
SEGMENT = "relu"
"""The stage of the Edge TPU segment."""


@dataclass(frozen=True)
class Report:
    """The results of a check.

    Attributes:
        frames: the number of frames
        faults: the number of each kind of fault
        places: the number of frames on the Edge TPU ("delegate") and on its C twin ("c")
        frame_ms: the time between frames
        twin_ms: the time of the segment in as many of the slowest frames as there are
            faults
        return_s: seconds from the return of the Edge TPU to its next use
        before: the resources of the process at the start
        after: its resources at the end
        problems: what does not hold
    """

    frames: int
    faults: Mapping[str, int]
    places: Mapping[str, int]
    frame_ms: float
    twin_ms: Summary
    return_s: Summary
    before: Resources
    after: Resources
    problems: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the report for a person."""
        kinds = ", ".join(f"{n} x {kind}" for kind, n in sorted(self.faults.items()))
        twin = self.twin_ms
        delay = self.return_s
        yield f"- {sum(self.faults.values())} faults: {kinds}"
        yield f"- {self.frames} frames: {dict(self.places)}"
        yield (
            f"- segment in the {twin.n} slowest frames: median {twin.p50:.1f} ms, most "
            f"{twin.max:.1f} ms (timeout {TIMEOUT_S * 1e3:.0f} ms, frame "
            f"{self.frame_ms:.1f} ms)"
        )
        yield f"- return to use: median {delay.p50:.2f} s, most {delay.max:.2f} s"
        yield f"- resources: {self.before} before, {self.after} after"
        yield from (f"- WRONG: {problem}" for problem in self.problems[:20])


def plan(cases: int, seed: int) -> dict[int, str]:
    """Return the kind of fault by the number of the inference."""
    rng = random.Random(seed)
    number = 5
    faults = {}
    for _ in range(cases):
        faults[number] = rng.choice(FAULTS)
        number += rng.randint(1, 8)
    return faults


class Check:
    """A stream whose Edge TPU fails.

    Args:
        folder: the stick's files
        cases: the number of faults
        seed: draws the faults
        frame_ms: the time between frames
    """

    def __init__(self, folder: Path, cases: int, seed: int, frame_ms: float) -> None:
        faults = plan(cases, seed)
        self._stick = FakeStick(folder, faults, away=AWAY_S, wait=0.002, seed=seed)
        self._cases = cases
        self._frame_s = frame_ms / 1e3
        self._problems: list[str] = []
        self._slowest: list[float] = []
        """A heap of the segment's times, as many as there were faults."""
        self._longest_pause = 0.0
        self._before = Resources.now()
        self._after: Resources | None = None

    def run(self, bundle: Path, times: bool) -> Report:
        """Stream until the last fault is over and the Edge TPU runs again."""
        session = Session(
            bundle,
            driver=self._stick.open,
            interpreter=self._stick.make,
            timeout=TIMEOUT_S,
        )
        images = TinyImages()
        stages = [("pace", self._pace)]
        with session, session.stream(images.stream(), after=stages) as shots:
            frames = self._watch(shots, images)
            figures = shots.figures()
        after = self._after or Resources.now()
        self._problems += after.beyond(self._before, IN_FLIGHT)
        stages_by_name = {s.name: s for s in figures.stages}
        pace = stages_by_name["pace"].ms
        assert pace is not None
        delays = returns(self._stick)
        if times:
            # A stage that only sleeps was woken this much too late by a busy machine.
            late = self._longest_pause - self._frame_s * 1e3
            self._problems += too_slow(max(self._slowest), pace.p50 + late, delays)
        return Report(
            frames,
            dict(Counter(k for _, _, k in self._stick.logged() if k in FAULTS)),
            dict(stages_by_name[SEGMENT].backends),
            pace.p50,
            Summary.of(sorted(self._slowest)),
            Summary.of([seconds for seconds, _ in delays]),
            self._before,
            after,
            self._problems,
        )

    def _pace(self, shot: Shot) -> Any:
        sleep(self._frame_s)
        return shot.value

    def _watch(self, shots: Stream, images: TinyImages) -> int:
        """Check each frame, and return their number."""
        lost = 0
        last_loss = monotonic()
        is_settled = False
        frames = 0
        for shot in shots:
            if shot.index != frames or not images.is_right(frames, shot.value):
                self._problems.append(
                    f"frame {frames} is number {shot.index}, or wrong"
                )
            frames += 1
            self._longest_pause = max(self._longest_pause, shot.ms["pace"])
            edgetpu = shots.figures().edgetpu
            assert edgetpu is not None
            if edgetpu.lost > lost:
                lost = edgetpu.lost
                last_loss = monotonic()
            if not is_settled and lost >= min(SETTLED, self._cases - 1) and edgetpu.up:
                is_settled = True
                self._before = Resources.now()
            heapq.heappush(self._slowest, shot.ms[SEGMENT])
            if len(self._slowest) > max(1, lost):
                heapq.heappop(self._slowest)
            if lost >= self._cases and edgetpu.up:
                # Before the log, which is long, is read for the first time.
                self._after = self._after or Resources.now()
                if self._is_over():
                    return frames
            if monotonic() - last_loss > STUCK_S:
                self._problems.append(
                    f"the Edge TPU does not return after fault {lost}"
                )
                return frames
        return frames

    def _is_over(self) -> bool:
        """Return whether the Edge TPU runs again after the last fault.

        A busy machine may make it seem to hang, too.
        """
        log = [kind for _, _, kind in self._stick.logged()]
        return log[-1] == "ran" and sum(kind in FAULTS for kind in log) == self._cases


def too_slow(
    segment_ms: float, frame_ms: float, delays: list[tuple[float, str]]
) -> Iterator[str]:
    """Yield what took too long.

    Args:
        segment_ms: the segment's time in the slowest frame
        frame_ms: the time between frames
        delays: seconds from each return of the Edge TPU to its use, and the fault
    """
    if segment_ms > TIMEOUT_S * 1e3 + frame_ms:
        yield f"a frame took {segment_ms:.0f} ms on the segment"
    late = [(round(s, 1), kind) for s, kind in delays if s > RETURN_S]
    if late:
        yield f"the Edge TPU was used again too late after its return: {late}"


def returns(stick: FakeStick) -> list[tuple[float, str]]:
    """Return the seconds from each fault's end to the next inference on the Edge TPU,
    and the fault.

    The time in which Python starts is left out: a busy machine makes it long.
    """
    delays = []
    end = 0.0
    fault = ""
    starts = list(stick.starts().values())
    for at, _, event in stick.logged():
        if event in FAULTS:
            fault = event
            hang_s = TIMEOUT_S if event.startswith("hang") else 0.0
            end = at + (AWAY_S if event == "vanish" else hang_s)
        elif event == "ran" and fault:
            starting = sum(
                max(0.0, min(opened, at) - max(spawned, end))
                for spawned, opened in starts
                if spawned < at
            )
            delays.append((at - end - starting, fault))
            fault = ""
    return delays


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frame", type=float, default=20.0, help="ms between frames")
    parser.add_argument("--no-times", action="store_true", help="for a busy machine")
    args = parser.parse_args()
    # A session warns that the Edge TPU stopped answering.
    warnings.simplefilter("ignore", RuntimeWarning)
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        check = Check(folder / "stick", args.cases, args.seed, args.frame)
        report = check.run(tiny_bundle(folder / "bundle"), not args.no_times)
    print("\n".join(report.lines()))
    write_json(BUILD / "delegate-faults.json", [report])
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
