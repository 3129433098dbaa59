"""Whether `edgec bench` tells the truth on this machine: known waits, known
percentiles, sums of ops, false alarms.

Markdown on the screen, build/bench-check.json; exit code 1 when a bound is missed. Only
public commands and functions of edgec are used. With the data folder (EDGEC_SHARED,
default ../shared) real models are measured, else a fixture.

    python -m benchmarks.bench_check [--only wait,percentiles,profile,alarms] [--comparisons
        200]

The first three take a minute or two; 200 comparisons, and half as many with a planted
slowdown, about three quarters of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic

import numpy as np
from edgec_devices.device import device_for
from edgec_devices.measurement import MeasuringPlan
from edgec_runtime import Bundle, Summary

from benchmarks.bench_programs import known_waits, one_wait, slowed
from edgec.benching.result import BenchReport, Compared
from edgec.options.bench import MAX_REGRESS
from edgec.verbs.bench import compare_with

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
FIXTURE = ROOT / "fixtures" / "digits"
WORK = ROOT / "build" / "bench-check"
EDGEC = [sys.executable, "-m", "edgec"]
QUIET = 0.03
ATTEMPTS = 5
PAIRS = 40
SLOWDOWN = 0.10


@dataclass(frozen=True)
class Row:
    """One thing that was checked. bound: what `seen` may be at most, or at least; both
    are shares, or counts. note: how busy the machine was.
    """

    part: str
    what: str
    seen: float
    bound: float
    note: str
    at_least: bool = False
    count: bool = False

    @property
    def holds(self) -> bool:
        return self.seen >= self.bound if self.at_least else self.seen <= self.bound


def bench(
    bundle: Path,
    *options: str | Path,
    expect: Sequence[int] = (0,),
    before: Callable[[], None] | None = None,
) -> BenchReport:
    """`edgec bench` with default settings; its report.

    Raises RuntimeError for another exit code.
    """
    command = [*EDGEC, "bench", bundle, "--json", report_of(bundle), "-q", *options]
    words = [str(c) for c in command]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=600, preexec_fn=before
    )
    if done.returncode not in expect:
        raise RuntimeError(
            f"edgec bench {bundle.name}: exit {done.returncode}: "
            f"{done.stdout[-300:]}{done.stderr[-300:]}"
        )
    return BenchReport.load_file(report_of(bundle))


def report_of(bundle: Path) -> Path:
    """Where `bench` leaves it."""
    return WORK / f"{bundle.stem}.json"


def waited(report: BenchReport) -> float:
    """The part of the time in which the program waited for a processor that other
    programs had.
    """
    return sum(map(sum, report.waited)) / (sum(report.latency.samples) or 1)


def quiet(bundle: Path) -> BenchReport:
    """The first of some benches with hardly any waiting, or that with the least: it is
    edgec that is checked here.

    Where that is allowed, the other programs of the machine have to wait instead.
    """
    best = bench(bundle, before=_go_first)
    for _ in range(ATTEMPTS - 1):
        if waited(best) <= QUIET:
            break
        best = min(best, bench(bundle, before=_go_first), key=waited)
    return best


def _go_first() -> None:
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def summary(report: BenchReport) -> Summary:
    found = report.latency.summary()
    assert found is not None
    return found


# ---- the parts


def check_wait(_: argparse.Namespace) -> Iterator[Row]:
    """A segment that waits for 2.0 ms takes 2.0 ms."""
    report = quiet(one_wait(WORK / "wait.edgec", 2.0))
    note = f"waited {waited(report):.1%}"
    segment = report.segments[0].latency.summary()
    assert segment is not None
    yield Row(
        "wait", "2.0 ms: error of p50", abs(summary(report).p50 / 2.0 - 1), 0.02, note
    )
    yield Row(
        "wait",
        "2.0 ms: error of the segment's p50",
        abs(segment.p50 / 2.0 - 1),
        0.02,
        note,
    )
    yield Row(
        "wait",
        "2.0 ms: error of its op",
        abs(report.segments[0].ops[0].ms / 2.0 - 1),
        0.02,
        note,
    )


def check_percentiles(_: argparse.Namespace) -> Iterator[Row]:
    """2 to 3 ms, evenly; one inference in 33 takes 8 ms: the percentiles are those of
    the sequence.
    """
    path, sequence = known_waits(WORK / "percentiles.edgec")
    report = quiet(path)
    got = summary(report)
    note = f"waited {waited(report):.1%}"
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
        want = float(np.percentile(sequence, percent))
        what = f"jitter and outliers: error of {name}, {want:.3f} ms"
        yield Row("percentiles", what, abs(getattr(got, name) / want - 1), 0.02, note)


def check_profile(_: argparse.Namespace) -> Iterator[Row]:
    """Ops add up to their segment, and profiling hardly slows them.

    Profiled inferences alternate with plain ones, so that whatever else the machine
    does is in both of a pair.
    """
    path = compiled("mnv2_tf2_i8")
    plan = replace(MeasuringPlan(), rounds=3, runs=3, seconds=10.0, profiled=PAIRS)
    with Bundle.open(path) as bundle:
        profiles = device_for("local:").measure(bundle, plan).profiles
    pairs = [
        pair
        for p in profiles
        for pair in zip(
            p.plain, p.total, zip(*sum(p.ops, ()), strict=True), strict=True
        )
    ]
    added = float(np.median([sum(ops) / plain - 1 for plain, _, ops in pairs]))
    what = f"{path.stem}: sum of ops against the inference ({added:+.2%})"
    yield Row("profile", what, abs(added), 0.03, f"{len(pairs)} pairs")
    overhead = float(np.median([total / plain - 1 for plain, total, _ in pairs]))
    yield Row(
        "profile",
        f"{path.stem}: overhead of profiling",
        overhead,
        0.02,
        f"{len(pairs)} pairs",
    )
    report = quiet(path)
    if waited(report) > QUIET:
        share = f"{waited(report):.1%}"
        print(
            "\nToo busy to compare the reported medians of ops with that of the "
            f"latency: waited {share}\n",
            flush=True,
        )
        return
    ops = sum(op.ms for s in report.segments for op in s.ops) / summary(report).p50 - 1
    what = f"{path.stem}: reported medians of ops against the latency's ({ops:+.2%})"
    yield Row("profile", what, abs(ops), 0.03, f"waited {waited(report):.1%}")


def check_alarms(options: argparse.Namespace) -> Iterator[Row]:
    """A build against itself, with the bench before and with the first one; and one
    that is slower by ten percent.
    """
    base = options.bundle or compiled("resnet8_i8")
    n = options.comparisons
    slow = slowed(base, WORK / "slowed.edgec", 1 + SLOWDOWN)
    before = bench(base)
    started = monotonic()
    busy = []
    oldest = report_of(base).rename(WORK / "first.json")
    found: dict[str, list[Compared]] = {"itself": [], "earlier": [], "planted": []}
    for i in range(n):
        now = bench(base, "--compare", oldest, expect=(0, 1))
        found["itself"].append(compare_with(oldest, before, now, MAX_REGRESS))
        found["earlier"].append(comparison(now))
        if i % 2:
            found["planted"].append(
                comparison(bench(slow, "--compare", report_of(base), expect=(0, 1)))
            )
        before = now
        busy.append(waited(now))
        data = {kind: [asdict(c) for c in each] for kind, each in found.items()} | {
            "waited": busy
        }
        (WORK / "alarms.json").write_text(json.dumps(data, indent=1))
        _progress(
            f"{i + 1} of {n}: {_counts(found['itself'])}; planted: "
            f"{_counts(found['planted'])}"
        )
    note = f"waited {np.median(busy):.1%}, at most {max(busy):.1%}"
    for kind, what in (
        ("itself", f"{base.stem} with itself"),
        (
            "earlier",
            f"the same with a bench of up to {(monotonic() - started) / 60:.0f} "
            "minutes before",
        ),
        ("planted", f"{base.stem} slower by {SLOWDOWN:.0%}"),
    ):
        regressed = Counter(c.verdict for c in found[kind])["regress"]
        of = len(found[kind])
        planted = kind == "planted"
        bound = (0.95 if planted else 0.025) * of
        yield Row(
            "alarms",
            f"{what}, {of} times: {_counts(found[kind])}",
            regressed,
            bound,
            note,
            planted,
            count=True,
        )


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "wait": check_wait,
    "percentiles": check_percentiles,
    "profile": check_profile,
    "alarms": check_alarms,
}


def comparison(report: BenchReport) -> Compared:
    assert report.comparison is not None
    return report.comparison


def _counts(found: Sequence[Compared]) -> str:
    seen = Counter(c.verdict for c in found)
    return ", ".join(f"{n} {verdict}" for verdict, n in seen.most_common()) or "none"


# ---- around them


def compiled(model: str) -> Path:
    """A model of the data folder for this machine; a fixture, said loudly, where there
    is no such folder.
    """
    index = SHARED / "models" / "index.json"
    options = []
    if index.is_file():
        entry = next(m for m in json.loads(index.read_text()) if m["name"] == model)
        source = SHARED / "models" / entry["file"]
    else:
        print(
            f"NO DATA FOLDER at {SHARED}: {FIXTURE.name} instead of {model}\n",
            flush=True,
        )
        source = FIXTURE / "digits.onnx"
        options = ["--calibrate", str(FIXTURE / "digits_calibration.npz")]
    path = WORK / f"{source.stem}.edgec"
    subprocess.run(
        [
            *EDGEC,
            "compile",
            str(source),
            "--target",
            "host",
            *options,
            "-o",
            str(path),
            "-q",
        ],
        check=True,
    )
    return path


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _print(row: Row) -> None:
    seen, bound = (f"{x:g}" if row.count else f"{x:.2%}" for x in (row.seen, row.bound))
    limit = f"{'≥' if row.at_least else '≤'} {bound}"
    state = "ok" if row.holds else "MISSED"
    print(
        f"| {' | '.join((row.part, row.what, seen, limit, state, row.note))} |",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument(
        "--comparisons",
        type=int,
        default=200,
        help="of a build with itself; half as many are planted",
    )
    parser.add_argument("--bundle", type=Path, help="compare this one")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - PARTS.keys():
        parser.error(
            f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    WORK.mkdir(parents=True, exist_ok=True)
    print(
        "| part | what | seen | bound | | machine |\n| --- | --- | --- | --- | --- | --- |",
        flush=True,
    )
    rows = []
    for name in options.only.split(","):
        for row in PARTS[name](options):
            _progress("")
            _print(row)
            rows.append(row)
    path = ROOT / "build" / "bench-check.json"
    path.write_text(
        json.dumps([{**asdict(r), "holds": r.holds} for r in rows], indent=1) + "\n"
    )
    print(f"\nwritten to {path.relative_to(ROOT)}")
    return 0 if all(r.holds for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
