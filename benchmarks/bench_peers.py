"""edgec's way of measuring beside TFLite's own benchmark tool: the same .tflite files,
engine, inputs and machine.

    tool   litert-benchmark of the package ai-edge-litert: warm-up, then inferences, their median
    edgec  the loop that sessions are timed with, and the steady part of what it gives, as in
           edgec bench
    our C  for information: edgec bench of the bundle that edgec makes of the same file, another
           engine

The first two measure one engine, LiteRT's CompiledModel on one thread, in launches that
take turns, so that a slow phase of the machine hits both (benchmarks/peer_launch.py).
The figure of each is the median of its launches' medians. Its noise is what its own
launches tell: the 95 % confidence interval of that median, by order statistics, which
assumes nothing of the distribution (Conover, Practical Nonparametric Statistics, 3rd
ed. 1999, 3.2). The two agree where the intervals overlap: where the medians differ by
no more than the noise of the one and of the other together. Noise of more than 5 %
would agree with anything, and counts as disagreement.

Markdown on the screen, build/bench-peers.json; exit code 1 unless all agree. The models
are of the data folder (EDGEC_SHARED, default ../shared), or, without it, what edgec
emits of the fixtures.

    python -m benchmarks.bench_peers [--models a,b] [--pairs 12] [--plant 0.03]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgec_devices.measurement import WARMUP_S, Launch
from edgec_runtime import Bundle

from edgec.benching.build import steady_part

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "peers"
EDGEC = [sys.executable, "-m", "edgec"]
LAUNCH = [sys.executable, "-m", "benchmarks.peer_launch"]
# Not person_detect_i8: LiteRT 2.3 itself refuses it ("quantized_dimension must be in
# range [0, 1). Was 3.").
MODELS = "resnet8_i8,resnet8_f32,kws_dscnn_i8,vww96_i8,mnv1_025_224_u8,mnv1_025_224_f32,mnv2_tf2_i8"
# and what calibrates them
FIXTURES = {"digits": "digits/digits_calibration.npz", "cartoon": "photos"}
RUN_S = 0.3  # about as long as this are the timed inferences of a launch
CONFIDENCE = 0.95
MIN_PAIRS = 6  # of fewer launches no interval has this confidence
MAX_NOISE = 0.05
LIMIT_S = 900  # of one command


@dataclass(frozen=True)
class Figure:
    """What one of the two says. ms. launches: the median of each. std: within a launch,
    the median of all launches. waited: of all launches, the share of the time in which
    they wanted a processor and others had it.
    """

    launches: tuple[float, ...]
    std: float
    waited: float

    @property
    def median(self) -> float:
        return statistics.median(self.launches)

    @property
    def interval(self) -> tuple[float, float]:
        """Holds the median with the probability CONFIDENCE or more."""
        ordered = sorted(self.launches)
        n = len(self.launches)
        # P(the k-th smallest or the k-th largest is on the wrong side) = 2
        # P(Binomial(n, 1/2) < k)
        k = 0
        missed = 0.0
        while missed <= 1 - CONFIDENCE:
            missed += 2 * math.comb(n, k) / 2**n
            k += 1
        return ordered[k - 2], ordered[n - k + 1]


@dataclass
class Row:
    """One file. runs: timed inferences a launch. ours: ms, our C."""

    model: str
    runs: int = 0
    tool: Figure | None = None
    edgec: Figure | None = None
    ours: float | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def difference(self) -> float:
        """Of edgec's median from the tool's, which is 1."""
        if self.tool and self.edgec:
            return self.edgec.median / self.tool.median - 1
        return math.nan

    @property
    def noise(self) -> float:
        """By how much they may differ: each interval's side that is towards the other's
        median.
        """
        if not (self.tool and self.edgec):
            return math.nan
        low, high = sorted((self.tool, self.edgec), key=lambda f: f.median)
        return (
            (low.interval[1] - low.median) + (high.median - high.interval[0])
        ) / self.tool.median

    @property
    def verdict(self) -> str:
        if not (self.tool and self.edgec):
            return "not compared"
        if self.noise > MAX_NOISE:
            return "too noisy"
        return "agree" if abs(self.difference) <= self.noise else "disagree"


def run(*command: str | Path) -> str:
    """Its output; RuntimeError with what it says when it fails."""
    try:
        done = subprocess.run(
            [str(c) for c in command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as e:
        raise RuntimeError(
            f"{' '.join(map(str, command[2:5]))}: did not end within {LIMIT_S} s"
        ) from e
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if "error" in line.lower()
        ] or done.stderr.splitlines()
        said = "; ".join(dict.fromkeys([*errors[:2], *errors[-1:]]))
        raise RuntimeError(
            f"{' '.join(map(str, command[2:4]))}: exit {done.returncode}: {said[:400]}"
        )
    return done.stdout


def launch(how: str, model: Path, *options: float) -> dict[str, Any]:
    """What benchmarks/peer_launch.py prints last."""
    found: dict[str, Any] = json.loads(
        run(*LAUNCH, how, model, *map(str, options)).splitlines()[-1]
    )
    return found


def steady(report: Mapping[str, Any]) -> list[float]:
    """ms of a launch of edgec's, from where it is warm and steady on."""
    one = Launch.parse(report, 0, "this machine")
    start, _ = steady_part(one)
    return [ns / 1e6 for ns in one.total[start:]]


def measure(name: str, model: Path, pairs: int, plant: float) -> Row:
    """All about one file."""
    row = Row(name)
    try:
        one = statistics.median(steady(launch("edgec", model, 50, 0.1)))
        row.runs = max(30, min(5000, round(1e3 * RUN_S / one)))
        reports: dict[str, list[dict[str, Any]]] = {"tool": [], "edgec": []}
        for i in range(pairs):
            # neither is always the first
            for how in ("tool", "edgec")[:: -1 if i % 2 else 1]:
                options: tuple[float, ...]
                if how == "tool":
                    options = (max(1, round(1e3 * WARMUP_S / one)),)
                else:
                    options = (WARMUP_S, plant)
                reports[how].append(launch(how, model, row.runs, *options))
        row.tool = _figure(
            reports["tool"],
            [
                (r["latency"]["median_ms"], r["latency"]["std_ms"])
                for r in reports["tool"]
            ],
        )
        parts = map(steady, reports["edgec"])
        row.edgec = _figure(
            reports["edgec"],
            [(statistics.median(ms), statistics.stdev(ms)) for ms in parts],
        )
        if row.verdict == "too noisy":
            busy = max(row.tool.waited, row.edgec.waited)
            row.problems.append(
                f"too noisy: others had the processor {busy:.0%} of the time; "
                "run it on a quieter machine"
            )
    except RuntimeError as e:
        row.problems.append(str(e))
    try:
        row.ours = our_c(name, model)
    except RuntimeError as e:
        row.problems.append(str(e))
    return row


def _figure(
    reports: Sequence[Mapping[str, float]], found: Sequence[tuple[float, float]]
) -> Figure:
    medians, deviations = zip(*found, strict=True)
    cpu, waited = (sum(r[name] for r in reports) for name in ("cpu_s", "waited_s"))
    return Figure(
        tuple(medians), statistics.median(deviations), waited / (cpu + waited)
    )


def our_c(name: str, model: Path) -> float:
    """ms, the median that edgec bench reports of the same file on this machine."""
    bundle, report = (WORK / f"{name}{end}" for end in (".edgec", ".json"))
    run(*EDGEC, "compile", model, "--target", "host", "-o", bundle, "-q")
    run(*EDGEC, "bench", bundle, "--seconds", "2", "--json", report, "-q")
    ms: float = json.loads(report.read_text())["latency"]["summary"]["p50"]
    return ms


def files(names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Of the data folder, or what edgec emits of the fixtures."""
    if (SHARED / "models").is_dir():
        entries = {
            m["name"]: m["file"]
            for m in json.loads((SHARED / "models" / "index.json").read_text())
        }
        if unknown := sorted({*names} - entries.keys()):
            sys.exit(f"{SHARED / 'models'} has no {', '.join(unknown)}")
        yield from ((name, SHARED / "models" / entries[name]) for name in names)
        return
    print(
        f"no data folder at {SHARED} (set EDGEC_SHARED): "
        "what edgec emits of the fixtures instead\n"
    )
    for fixture, samples in FIXTURES.items():
        bundle = WORK / f"{fixture}.edgec"
        folder = ROOT / "fixtures"
        model = folder / fixture / f"{fixture}.onnx"
        run(
            *EDGEC,
            "compile",
            model,
            "--target",
            "pi4+coral",
            "--calibrate",
            folder / samples,
            "-o",
            bundle,
            "-q",
        )
        with Bundle.open(bundle) as opened:
            for s in opened.manifest.segments:
                if s.tflite is not None:
                    path = WORK / f"{fixture}-{s.name}.tflite"
                    path.write_bytes(opened.read(s.tflite))
                    yield path.stem, path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=MODELS)
    parser.add_argument(
        "--pairs", type=int, default=12, help=f"launches of each, {MIN_PAIRS} or more"
    )
    parser.add_argument(
        "--plant",
        type=float,
        default=0.0,
        help="make edgec's inferences longer by this share",
    )
    options = parser.parse_args()
    if options.pairs < MIN_PAIRS:
        parser.error(f"--pairs {options.pairs}: give {MIN_PAIRS} or more")
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        models = list(files(options.models.split(",")))
    except RuntimeError as e:
        sys.exit(str(e))
    print(
        f"ai-edge-litert {version('ai-edge-litert')}, one thread, "
        f"{options.pairs} launches each, taking turns\n"
    )
    print(
        "| model | runs | tool ms | edgec ms | difference | noise | | std of runs | "
        "waited | our C ms | x tool |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for name, model in models:
        rows.append(measure(name, model, options.pairs, options.plant))
        print(f"| {' | '.join(_cells(rows[-1]))} |", flush=True)
    problems = [f"- {row.model}: {problem}" for row in rows for problem in row.problems]
    print("", *problems, sep="\n")
    path = ROOT / "build" / "bench-peers.json"
    path.write_text(json.dumps([_json(row) for row in rows], indent=1) + "\n")
    good = sum(row.verdict == "agree" for row in rows)
    print(f"{good} of {len(rows)} agree; written to {path.relative_to(ROOT)}")
    return 0 if rows and good == len(rows) else 1


def _cells(row: Row) -> Iterator[str]:
    yield from (row.model, str(row.runs))
    for f in (row.tool, row.edgec):
        yield f"{f.median:.4f} ({f.interval[0]:.4f}–{f.interval[1]:.4f})" if f else "–"
    yield from (
        (f"{row.difference:+.2%}", f"{row.noise:.2%}")
        if row.tool and row.edgec
        else ("–", "–")
    )
    yield row.verdict
    yield " / ".join(f"{f.std / f.median:.1%}" for f in (row.tool, row.edgec) if f)
    yield " / ".join(f"{f.waited:.0%}" for f in (row.tool, row.edgec) if f)
    yield from (
        ("–", "–")
        if row.ours is None
        else (f"{row.ours:.4f}", _ratio(row.ours, row.tool))
    )


def _ratio(ms: float, tool: Figure | None) -> str:
    return f"{ms / tool.median:.1f}" if tool else "–"


def _json(row: Row) -> dict[str, Any]:
    data = asdict(row)
    for name, f in (("tool", row.tool), ("edgec", row.edgec)):
        if f:
            data[name] |= {"median": f.median, "interval": f.interval}
    if row.tool and row.edgec:
        data |= {"difference": row.difference, "noise": row.noise}
    return {**data, "verdict": row.verdict}


if __name__ == "__main__":
    sys.exit(main())
