"""How many times as fast as numpy the compiled code is: every model of the data folder
on this machine, one thread.

Both compute the same graph, edgec's own after its passes: `interp` with numpy, whose
matrix products (BLAS) have one thread too, and the bundle's program.  They take turns;
each has the CPU time of its thread, and the least of the rounds.  Markdown on the
screen, build/interp-table.json; 1 if a model is not WANTED times as fast.

    python -m benchmarks.interp_table [--models a,b,FILE] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.arm_programs import compile_for, lowered_for
from benchmarks.bench_arm import files, geo_mean
from benchmarks.picycles import ROOT, SHARED
from edgec.errors import EdgecError
from edgec.ir import Array, Graph, interp
from edgec.ir.types import TensorType

WORK = ROOT / "build" / "interp-table"
WANTED = 23.0
LONG_S = 20.0
"""Of all rounds of interp: a model that takes longer has fewer."""
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Row:
    """One model. ms of CPU time of an inference; macs: of one."""

    model: str
    macs: int
    interp_ms: float
    compiled_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast the compiled code is."""
        return self.interp_ms / self.compiled_ms


def measure(model: str, file: Path, rounds: int) -> Row:
    """Compile it, then both in turn."""
    program = compile_for(file, "host")
    main = program.write(WORK / model)
    graphs = [s.graph for s in lowered_for(file, "host").partition.segments]
    rng = np.random.default_rng(0)
    given = {
        v.name: _noise(v.type, rng) for v in lowered_for(file, "host").graph.inputs
    }
    slow = list[float]()
    fast = list[float]()
    while len(slow) < rounds and sum(slow) < LONG_S * 1e3:
        slow.append(_interp(graphs, given))
        fast.append(_compiled(main))
    return Row(model, program.macs, min(slow), min(fast))


def _noise(t: TensorType, rng: np.random.Generator) -> Array:
    """As photos are: floats in 0…1, all values of a byte."""
    if t.np_dtype.kind == "f":
        return rng.random(t.shape, np.float32).astype(t.np_dtype)
    if t.np_dtype.itemsize > 1 or t.dtype == "bool":
        return np.zeros(t.shape, t.np_dtype)
    info = np.iinfo(t.np_dtype)
    return rng.integers(info.min, info.max + 1, t.shape).astype(t.np_dtype)


def _interp(graphs: Sequence[Graph], given: dict[str, Array]) -> float:
    """CPU time in ms of an inference by numpy."""
    values = dict(given)
    start = time.thread_time()
    for graph in graphs:
        values |= interp(graph, {v.name: values[v.name] for v in graph.inputs})
    return (time.thread_time() - start) * 1e3


def _compiled(main: Path) -> float:
    """The median of the CPU time in ms of some inferences by the program."""
    command = [
        str(main),
        "--json",
        "--runs",
        "200",
        "--seconds",
        "0.5",
        "--warmup",
        "0.05",
    ]
    done = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    runs = zip(
        done["total"][done["warmup"] :], done["waited"][done["warmup"] :], strict=True
    )
    return float(statistics.median(total - waited for total, waited in runs)) / 1e6


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The table, and the least."""
    yield "| model | MMAC | interp, ms | compiled, ms | times as fast |"
    yield "| --- | --- | --- | --- | --- |"
    for r in rows:
        yield (
            f"| {r.model} | {r.macs / 1e6:.1f} | {r.interp_ms:.1f} | "
            f"{r.compiled_ms:.3f} "
            f"| {r.ratio:.1f} |"
        )
    least = min(rows, key=lambda r: r.ratio)
    ratios = [r.ratio for r in rows]
    below = [r.model for r in rows if r.ratio < WANTED]
    yield ""
    yield (
        f"{len(rows)} models: geometric mean {geo_mean(ratios):.0f}, "
        "at least "
        f"{least.ratio:.1f} ({least.model})"
    )
    yield f"below {WANTED:g}: {', '.join(below) or 'none'}"


def main() -> int:
    """Prints the table and writes build/interp-table.json."""
    # numpy reads them when it is loaded
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.interp_table", *sys.argv[1:]],
            {**os.environ, **ONE_THREAD},
        )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    there = SHARED / "models"
    if there.is_dir():
        names = sorted(p.name for p in there.iterdir() if p.is_dir())
    else:
        names = []
    parser.add_argument(
        "--models", default=",".join(names), help="names, or files, with commas"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--json",
        type=Path,
        default=ROOT / "build" / "interp-table.json",
        metavar="FILE",
    )
    given = parser.parse_args()
    rows = list[Row]()
    failed = False
    if not given.models:
        sys.exit(f"no data folder at {SHARED} (set EDGEC_SHARED)")
    for model, file in files(given.models.split(",")):
        try:
            rows.append(measure(model, file, given.rounds))
            print(f"{model}: {rows[-1].ratio:.1f}", file=sys.stderr, flush=True)
        except (EdgecError, subprocess.CalledProcessError) as e:
            failed = True
            print(f"{model}: {e}", file=sys.stderr)
    print("\n".join(markdown(rows)))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps([asdict(r) | {"ratio": r.ratio} for r in rows], indent=1) + "\n"
    )
    return int(failed or any(r.ratio < WANTED for r in rows))


if __name__ == "__main__":
    sys.exit(main())
