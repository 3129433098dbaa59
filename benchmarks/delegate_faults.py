"""A fake Edge TPU that fails, hangs, crashes and vanishes while a stream runs, all of
it from a seed.

Every frame must come, in order and right; the C twin must have it within one frame's
time plus the time-out; the Edge TPU must run again within 2 s of its return, without
the time in which Python starts; nothing of the process may grow. Markdown on the
screen, build/delegate-faults.json; exit code 1 where something of this does not hold.
Needs a C compiler.

    python -m benchmarks.delegate_faults [--cases 500] [--seed 0] [--frame 20] [--no-times]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from edgec_runtime import Session, Shot, Summary

from tests import builds
from tests.conftest import ROOT
from tests.runtime import tiny_model
from tests.runtime.fake_stick import FAULTS, FakeStick
from tests.runtime.resources import IN_FLIGHT, Resources, tiny_bundle

TIMEOUT_S = 0.2
BACK_S = 2.0
SETTLED = 20  # faults, before what the process has is looked at for the first time
IMAGES = 16
STUCK_S = 120.0  # without a frame on the Edge TPU


@dataclass(frozen=True)
class Found:
    """wrong: what did not hold.  twin_ms: of the segment when it met a fault; back_s:
    from return to use.
    """

    frames: int
    faults: dict[str, int]
    on_edgetpu: int
    on_cpu: int
    frame_ms: float
    twin_ms: Summary
    back_s: Summary
    before: Resources
    after: Resources
    wrong: list[str]


def plan(cases: int, seed: int) -> dict[int, str]:
    """Invoke → fault."""
    r = random.Random(seed)
    at = 5
    found = {}
    for _ in range(cases):
        found[at] = r.choice(FAULTS)
        at += r.randint(1, 8)
    return found


def check(
    bundle: Path,
    folder: Path,
    cases: int,
    seed: int,
    frame_ms: float,
    times: bool = True,
) -> Found:
    """Streams until the last fault is over and the Edge TPU runs again."""
    stick = FakeStick(folder, plan(cases, seed), away=0.4, wait=0.002, seed=seed)
    wrong: list[str] = []
    images = [tiny_model.image(i) for i in range(IMAGES)]
    expected = [tiny_model.reference(x) for x in images]

    def camera() -> Iterator[Any]:
        return (images[i % IMAGES] for i in itertools.count())

    def paced(shot: Shot) -> Any:
        sleep(frame_ms / 1e3)
        return shot.value

    # ms of the segment, of as many frames as there are faults: a heap
    slowest: list[float] = []
    before = Resources.now()
    after = None
    settled = False
    frames = 0
    lost = 0
    last = monotonic()
    longest_pause = 0.0
    with (
        Session(
            bundle, delegate=stick.open, interpreter=stick.make, timeout=TIMEOUT_S
        ) as session,
        session.stream(camera(), after=[("paced", paced)]) as shots,
    ):
        for shot in shots:
            good = all(
                np.array_equal(shot.value[k], v)
                for k, v in expected[shot.index % IMAGES].items()
            )
            if not good or shot.index != frames:
                wrong.append(f"frame {shot.index} is wrong, or not number {frames}")
            frames += 1
            longest_pause = max(longest_pause, shot.ms["paced"])
            facts = shots.figures().edgetpu
            assert facts is not None
            if facts.lost > lost:
                lost = facts.lost
                last = monotonic()
            if not settled and lost >= min(SETTLED, cases - 1) and facts.up:
                settled = True
                before = Resources.now()
            heapq.heappush(slowest, shot.ms["relu"])
            if len(slowest) > max(1, lost):
                heapq.heappop(slowest)
            if lost >= cases and facts.up:
                # before the log, which is long, is read for the first time
                after = after or Resources.now()
                if over(stick, cases):
                    break
            if monotonic() - last > STUCK_S:
                wrong.append(f"the Edge TPU did not run again after fault {lost}")
                break
        figures = shots.figures()
    backends = next(s for s in figures.stages if s.name == "relu").backends
    slow = sorted(slowest)
    pace = next(s.ms for s in figures.stages if s.name == "paced" and s.ms is not None)
    returned = returns(stick)
    back = Summary.of([seconds for seconds, _ in returned])
    after = after or Resources.now()
    wrong += after.beyond(before, IN_FLIGHT)
    # a stage that only sleeps was woken so much too late: the machine has others
    late = longest_pause - frame_ms
    wrong += too_slow(slow[-1], pace.p50 + late, returned) if times else []
    kinds = Counter(what for _, _, what in stick.logged() if what in FAULTS)
    return Found(
        frames,
        dict(kinds),
        backends.get("delegate", 0),
        backends.get("c", 0),
        pace.p50,
        Summary.of(slow),
        back,
        before,
        after,
        wrong,
    )


def too_slow(
    segment_ms: float, frame_ms: float, returned: Sequence[tuple[float, str]]
) -> Iterator[str]:
    """Of the slowest frame on the segment, and of the returns: seconds until it was
    used again, after which fault.
    """
    if segment_ms > TIMEOUT_S * 1e3 + frame_ms:
        yield (
            f"a frame took {segment_ms:.0f} ms on the segment: "
            "more than the "
            "time-out and a frame's time"
        )
    if slowly := [
        (round(seconds, 1), kind) for seconds, kind in returned if seconds > BACK_S
    ]:
        yield f"the Edge TPU was used again only so many seconds after its return: {slowly}"


def over(stick: FakeStick, cases: int) -> bool:
    """Whether it runs again after the last fault.

    A busy machine may have made it seem to hang, too.
    """
    log = [what for _, _, what in stick.logged()]
    return log[-1] == "ran" and sum(what in FAULTS for what in log) == cases


def returns(stick: FakeStick) -> list[tuple[float, str]]:
    """Seconds from each fault's end to the next inference on the Edge TPU that was not
    another; and the fault.

    Without those in which Python started meanwhile: a busy machine makes these long,
    and no rule of ours shortens them.
    """
    found = []
    end = 0.0
    kind = ""
    starts = list(stick.starts().values())
    for at, _, what in stick.logged():
        if what in FAULTS:
            kind = what
            after = {"vanish": stick.away}.get(
                what, TIMEOUT_S if what.startswith("hang") else 0.0
            )
            end = at + after
        elif what == "ran" and kind:
            starting = sum(
                max(0.0, min(tried, at) - max(spawned, end))
                for spawned, tried in starts
                if spawned < at
            )
            found.append((at - end - starting, kind))
            kind = ""
    return found


def markdown(found: Found) -> str:
    """For a person."""
    kinds = ", ".join(f"{n} × {kind}" for kind, n in sorted(found.faults.items()))
    rows = [
        f"- {sum(found.faults.values())} faults: {kinds}",
        f"- {found.frames} frames, each right and in order but for what is said below; "
        f"{found.on_edgetpu} on the Edge "
        f"TPU, {found.on_cpu} on its C twin",
        f"- segment in the {found.twin_ms.n} slowest frames: "
        f"median {found.twin_ms.p50:.1f} ms, most "
        f"{found.twin_ms.max:.1f} ms (time-out {TIMEOUT_S * 1e3:.0f} ms, "
        f"a frame {found.frame_ms:.1f} ms)",
        "- from its return to its use, but for Python's start: "
        f"median {found.back_s.p50:.2f} s, most "
        f"{found.back_s.max:.2f} s",
        f"- memory {found.before.megabytes:.1f} → {found.after.megabytes:.1f} MB, "
        "descriptors "
        f"{found.before.descriptors} → {found.after.descriptors}, "
        f"threads {found.before.threads} → "
        f"{found.after.threads}, children {found.before.children} → {found.after.children}",
        *(f"- WRONG: {what}" for what in found.wrong[:20]),
    ]
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frame", type=float, default=20.0, help="ms")
    parser.add_argument("--no-times", action="store_true", help="for a busy machine")
    options = parser.parse_args(arguments)
    # that the Edge TPU stopped answering
    warnings.simplefilter("ignore", RuntimeWarning)
    with builds.apart() as folder:
        os.environ["EDGEC_CACHE"] = str(folder / "cache")
        bundle = tiny_bundle(folder / "bundle")
        found = check(
            bundle,
            folder / "stick",
            options.cases,
            options.seed,
            options.frame,
            not options.no_times,
        )
    print(markdown(found))
    there = ROOT / "build" / "delegate-faults.json"
    there.parent.mkdir(exist_ok=True)
    there.write_text(json.dumps({"seed": options.seed, **asdict(found)}, indent=1))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
