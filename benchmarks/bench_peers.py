"""edgec's way of measuring beside TFLite's own benchmark tool: the same .tflite files,
engine, inputs and machine.

    tool   litert-benchmark of the package ai-edge-litert: the median after a warm-up
    edgec  the loop that times sessions, and the steady part of its times, like edgec bench
    our C  edgec bench of the bundle that edgec makes of the file: another engine

The first two measure LiteRT's CompiledModel on one thread, in launches that take turns, so
that a slow phase of the machine hits both (peer_launch.py). The figure of each is the
median of its launches' medians. Its noise is the 95 % confidence interval of that median
by order statistics, which assumes nothing of the distribution (Conover, Practical
Nonparametric Statistics, 3rd ed. 1999, 3.2). The two agree if the intervals overlap. Noise
above MAX_NOISE would agree with anything, and counts as disagreement.

Markdown on the screen, build/bench-peers.json; the exit code is 1 unless all agree. Without
a data folder the models are what edgec emits of the fixtures.

    python -m benchmarks.bench_peers [--models a,b] [--pairs 12] [--longer 0.03]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median, stdev
from typing import Any

from edgec_devices.measurement import WARMUP_S, Launch
from edgec_runtime import Bundle

from benchmarks.data_folder import BUILD, MODELS, ROOT, model_file
from benchmarks.tables import line, markdown, names, write_json
from edgec.benching.build import steady_part

WORK = BUILD / "peers"
EDGEC = (sys.executable, "-m", "edgec")
# Not person_detect_i8, which LiteRT 2.3 refuses: "quantized_dimension must be in range
# [0, 1). Was 3."
NAMES = (
    "resnet8_i8",
    "resnet8_f32",
    "kws_dscnn_i8",
    "vww96_i8",
    "mnv1_025_224_u8",
    "mnv1_025_224_f32",
    "mnv2_tf2_i8",
)
FIXTURES = {"digits": "digits/digits_calibration.npz", "cartoon": "photos"}
"""Fixtures and what calibrates them."""
LAUNCH_S = 0.3
"""Seconds that the inferences of a launch take, about."""
RUNS = (30, 5000)
"""The least and the largest number of inferences of a launch."""
CONFIDENCE = 0.95
MIN_PAIRS = 6
"""The least number of launches of which an interval has this confidence."""
MAX_NOISE = 0.05
LIMIT_S = 900
HEADS = (
    "model",
    "verdict",
    "runs",
    "tool ms",
    "edgec ms",
    "difference",
    "noise",
    "std of runs",
    "waited",
    "our C ms",
    "× tool",
)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval that has the median with the probability CONFIDENCE or more.

    Args:
        values: at least MIN_PAIRS
    """
    ordered = sorted(values)
    n = len(ordered)
    # The median is outside of the k-th smallest and k-th largest with the probability
    # 2 P(Binomial(n, 1/2) < k).
    k = 0
    outside = 0.0
    while outside <= 1 - CONFIDENCE:
        outside += 2 * math.comb(n, k) / 2**n
        k += 1
    return ordered[k - 2], ordered[n - k + 1]


@dataclass(frozen=True)
class Figure:
    """What one of the two measures.

    Attributes:
        launches: the median of each launch, ms
        std: the median of the launches' standard deviations, ms
        waited: the share of the time in which other programs had the processor
    """

    launches: tuple[float, ...]
    std: float
    waited: float

    @property
    def median(self) -> float:
        """The median of the launches."""
        return median(self.launches)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that has the median with the probability CONFIDENCE or more."""
        return median_interval(self.launches)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.median:.4f} ({low:.4f}–{high:.4f})"


@dataclass(frozen=True)
class Comparison:
    """Both figures of one file.

    Attributes:
        runs: the number of inferences of a launch
        tool: the tool's figure
        edgec: edgec's figure
    """

    runs: int
    tool: Figure
    edgec: Figure

    @property
    def difference(self) -> float:
        """The difference of edgec's median, as a share of the tool's."""
        return self.edgec.median / self.tool.median - 1

    @property
    def noise(self) -> float:
        """The difference that the intervals allow, as a share of the tool's median."""
        low, high = sorted((self.tool, self.edgec), key=lambda f: f.median)
        above = low.interval[1] - low.median
        below = high.median - high.interval[0]
        return (above + below) / self.tool.median

    @property
    def verdict(self) -> str:
        """Whether the two agree."""
        if self.noise > MAX_NOISE:
            return "too noisy"
        return "agree" if abs(self.difference) <= self.noise else "disagree"


@dataclass
class Row:
    """One file.

    Attributes:
        model: its name
        verdict: whether the two agree
        comparison: both figures
        our_c: the median of edgec's own C, ms
        problems: what failed
    """

    model: str
    verdict: str = "not compared"
    comparison: Comparison | None = None
    our_c: float | None = None
    problems: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        c = self.comparison
        if c is None:
            return [self.model, self.verdict, *["–"] * (len(HEADS) - 2)]
        both = (c.tool, c.edgec)
        noise = [f"{c.difference:+.2%}", f"{c.noise:.2%}"]
        std = " / ".join(f"{f.std / f.median:.1%}" for f in both)
        waited = " / ".join(f"{f.waited:.0%}" for f in both)
        ours = ["–", "–"]
        if self.our_c is not None:
            ours = [f"{self.our_c:.4f}", f"{self.our_c / c.tool.median:.1f}"]
        figures = [str(c.runs), str(c.tool), str(c.edgec)]
        return [self.model, self.verdict, *figures, *noise, std, waited, *ours]


def run(*command: str | Path) -> str:
    """Return the output of a command; raise RuntimeError with its errors if it fails."""
    words = [str(word) for word in command]
    try:
        process = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as e:
        raise RuntimeError(f"{' '.join(words[2:5])}: no end after {LIMIT_S} s") from e
    if process.returncode:
        lines = process.stderr.splitlines()
        errors = [text for text in lines if "error" in text.lower()] or lines
        message = "; ".join(dict.fromkeys([*errors[:2], *errors[-1:]]))
        raise RuntimeError(f"{' '.join(words[2:4])}: {message[:400]}")
    return process.stdout


def launch(way: str, model: Path, *options: float) -> dict[str, Any]:
    """Return the result of peer_launch.py."""
    words = (sys.executable, "-m", "benchmarks.peer_launch", way, model)
    result: dict[str, Any] = json.loads(
        run(*words, *map(str, options)).splitlines()[-1]
    )
    return result


def steady_ms(report: dict[str, Any]) -> list[float]:
    """Return the times of edgec's launch that are warm and steady."""
    one = Launch.parse(report, 0, "this machine")
    start, _ = steady_part(one)
    return [ns / 1e6 for ns in one.total[start:]]


def compare(model: Path, pairs: int, longer: float) -> Comparison:
    """Measure one file in launches that take turns."""
    ms = median(steady_ms(launch("edgec", model, 50, 0.1)))
    runs = max(RUNS[0], min(RUNS[1], round(1e3 * LAUNCH_S / ms)))
    reports: dict[str, list[dict[str, Any]]] = {"tool": [], "edgec": []}
    warmup_runs = max(1, round(1e3 * WARMUP_S / ms))
    options = {"tool": (warmup_runs,), "edgec": (WARMUP_S, longer)}
    for i in range(pairs):
        for way in ("tool", "edgec")[:: -1 if i % 2 else 1]:
            reports[way].append(launch(way, model, runs, *options[way]))
    latencies = [r["latency"] for r in reports["tool"]]
    tool = [(latency["median_ms"], latency["std_ms"]) for latency in latencies]
    times = map(steady_ms, reports["edgec"])
    edgec = [(median(ms), stdev(ms)) for ms in times]
    return Comparison(
        runs, _figure(reports["tool"], tool), _figure(reports["edgec"], edgec)
    )


def _figure(
    reports: Sequence[dict[str, Any]], launches: Sequence[tuple[float, float]]
) -> Figure:
    medians, deviations = zip(*launches, strict=True)
    cpu, waited = (sum(r[name] for r in reports) for name in ("cpu_s", "waited_s"))
    return Figure(medians, median(deviations), waited / (cpu + waited))


def measure(name: str, model: Path, pairs: int, longer: float) -> Row:
    """Return the row of one file."""
    row = Row(name)
    try:
        row.comparison = compare(model, pairs, longer)
        row.verdict = row.comparison.verdict
        bundle = WORK / f"{name}.edgec"
        report = WORK / f"{name}.json"
        run(*EDGEC, "compile", model, "--target", "host", "-o", bundle, "-q")
        run(*EDGEC, "bench", bundle, "--seconds", "2", "--json", report, "-q")
        row.our_c = json.loads(report.read_text())["latency"]["summary"]["p50"]
    except RuntimeError as e:
        row.problems.append(str(e))
    return row


def models(chosen: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield models of the data folder, or what edgec emits of the fixtures."""
    if MODELS.is_dir():
        yield from ((name, model_file(name)) for name in chosen)
        return
    print(f"no data folder at {MODELS}: what edgec emits of the fixtures instead\n")
    folder = ROOT / "fixtures"
    for fixture, samples in FIXTURES.items():
        bundle = WORK / f"{fixture}.edgec"
        options = ("--target", "pi4+coral", "--calibrate", folder / samples, "-q")
        model = folder / fixture / f"{fixture}.onnx"
        run(*EDGEC, "compile", model, *options, "-o", bundle)
        with Bundle.open(bundle) as opened:
            for s in opened.manifest.segments:
                if s.tflite is not None:
                    path = WORK / f"{fixture}-{s.name}.tflite"
                    path.write_bytes(opened.read(s.tflite))
                    yield path.stem, path


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, default=NAMES)
    parser.add_argument(
        "--pairs", type=int, default=12, help=f"launches of each, {MIN_PAIRS} or more"
    )
    parser.add_argument(
        "--longer",
        type=float,
        default=0.0,
        help="make edgec's inferences longer by this share",
    )
    args = parser.parse_args()
    if args.pairs < MIN_PAIRS:
        parser.error(f"--pairs {args.pairs}: give {MIN_PAIRS} or more")
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"ai-edge-litert {version('ai-edge-litert')}, one thread, ", end="")
    print(f"{args.pairs} launches each, taking turns\n")
    print("\n".join(markdown(HEADS, [], texts=2)))
    rows = []
    for name, model in models(args.models):
        rows.append(measure(name, model, args.pairs, args.longer))
        print(line(rows[-1].cells()), flush=True)
    for row in rows:
        for problem in row.problems:
            print(f"- {row.model}: {problem}")
    write_json(BUILD / "bench-peers.json", rows)
    agreeing = sum(row.verdict == "agree" for row in rows)
    print(f"{agreeing} of {len(rows)} agree")
    return 0 if rows and agreeing == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
