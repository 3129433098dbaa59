"""The graph fuzzer: random graphs of every op's samples and networks of images, which must
give the same by every way to run them.

The reference is `interp`. Ways are the text form (printed and parsed); the passes; C, whose
tensors lie between pages that nobody may touch; onnxruntime, and edgec's reading of the same
file, for what ONNX can express; LiteRT's reference kernels, and edgec's reading, for what
TFLite can; and the segments for a board with an Edge TPU, of the graph or its quantized
form, with each combination of smaller interfaces. Integers must be equal, floats as near as
rounding explains. C is made in turn for AVX2, AVX-512 VNNI where the processor has it,
plain kernels, and a board's core under QEMU; with the best schedule or any legal one, one
thread or several, with and without the compiler's optimization.

A failure is shrunk, printed as IR text and written to build/graph-fuzz; the exit code is 1
if there is one.

    python -m benchmarks.graph_fuzz [--cases 2000] [--seed 0] [--ways text,passes,onnx,c]
    python -m benchmarks.graph_fuzz --table                             # cases by op and type
    python -m benchmarks.graph_fuzz --graph build/graph-fuzz/0-17-c.ir  # a failure again
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from benchmarks.data_folder import BUILD
from benchmarks.fuzzing.graphs import random_graph, samples
from benchmarks.fuzzing.judging import ALL, problems
from benchmarks.fuzzing.progress import Progress
from benchmarks.fuzzing.shrink import shrunk
from benchmarks.fuzzing.ways import PLAIN, Manner, Trial, trial_of
from benchmarks.tables import markdown, names
from edgec.ir import parse, print_graph
from tests import builds
from tests.harness import has
from tests.schedule.runner import BUILDS, FEATURES

FAILURES = BUILD / "graph-fuzz"
_BATCH = 100
"""Graphs of one program."""
_TURNS = (
    ("x86_64_v3", "-O0"),
    ("x86_64_v4_vnni", "-O0"),
    (PLAIN, "-O0"),
    ("x86_64_v3", "-O1"),
    ("x86_64_v3", "-O0"),
    (PLAIN, "-O1"),
    ("x86_64_v4_vnni", "-O1"),
    ("x86_64_v3", "-O0"),
    ("cortex_a72", "-O1"),
    ("x86_64_v4_vnni", "-O0"),
)
"""Core and optimization of the C of each batch.

Optimizing takes three times as long, a board's core ten times.
"""


def manner_of(seed: int, number: int, core: str = "") -> Manner:
    """Return how the C of a case is made, half of them by any legal schedules.

    Args:
        seed: the run's seed
        number: the case
        core: the core; "" if cores take turns
    """
    name, level = _TURNS[number // _BATCH % len(_TURNS)]
    name = core or name
    emulator = BUILDS[name][1] if name in BUILDS else ()
    if (name in FEATURES and not has(FEATURES[name])) or (
        emulator and not shutil.which(emulator[0])
    ):
        name = PLAIN
    return Manner(name, level, None if number % 2 else (seed << 32) + number)


@dataclass
class Tally:
    """What was tried.

    Attributes:
        cases: the number of graphs
        ops: the number of ops
        kinds: the number of ops of each kind
        reached: the same by kind, element type and rank
        refused: the number of cases that a way could not run in full
        failures: the cases that failed
    """

    cases: int = 0
    ops: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Count a case."""
        self.cases += 1
        self.ops += len(trial.graph.ops)
        self.kinds.update(op.kind for op in trial.graph.ops)
        for op in trial.graph.ops:
            t = next((v.type for v in op.inputs if v.const is None), op.outputs[0].type)
            self.reached[
                f"{op.kind} {t.dtype}{'' if t.size else ' empty'} {t.rank}D"
            ] += 1
        self.refused.update(trial.refused.keys())


def fuzz(
    seed: int, numbers: Sequence[int], ways: Sequence[str], core: str, tally: Tally
) -> Iterator[str]:
    """Yield the report of each failure, and count the cases."""
    for at in range(0, len(numbers), _BATCH):
        some = numbers[at : at + _BATCH]
        trials = [
            trial_of(random_graph(seed, n), n, manner_of(seed, n, core)) for n in some
        ]
        with builds.apart():
            for n, trial, wrong in zip(
                some, trials, problems(trials, ways), strict=True
            ):
                tally.add(trial)
                if wrong:
                    tally.failures.append(f"{seed}-{n}")
                    yield failure(seed, n, trial, wrong[0])


def failure(seed: int, number: int, trial: Trial, why: str) -> str:
    """Shrink a failure, write it, and return the report with the graph as text."""
    way = why.split(":")[0]
    ways = [way] if way in ALL else []
    small = shrunk(
        trial, lambda t: any(w.split(":")[0] == way for w in problems([t], ways)[0])
    )
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{seed}-{number}-{way}.ir"
    path.write_text(print_graph(small.graph))
    path.with_suffix(".json").write_text(json.dumps(asdict(trial.manner)))
    given: dict[str, Any] = {
        f"in{i}": small.inputs[v.name] for i, v in enumerate(small.graph.inputs)
    }
    np.savez(path.with_suffix(".npz"), **given)
    found = (problems([small], ways)[0] or [why])[0]
    return (
        f"seed {seed} case {number}: {found}\n{print_graph(small.graph)}its inputs "
        f"and this text: {path}\n"
    )


def again(path: Path, ways: Sequence[str]) -> list[str]:
    """Return the failures of a graph that was written."""
    graph = parse(path.read_text())
    manner = Manner(**json.loads(path.with_suffix(".json").read_text()))
    with np.load(path.with_suffix(".npz")) as file:
        inputs = {v.name: file[f"in{i}"] for i, v in enumerate(graph.inputs)}
    with builds.apart():
        return problems([Trial(graph, inputs, manner)], ways)[0]


def table(reached: Mapping[str, int]) -> Iterator[str]:
    """Yield a table of how often each op was tried, by element type and rank."""
    rows: dict[str, Counter[str]] = {kind: Counter() for kind in samples()}
    for name, n in reached.items():
        kind, *types, rank = name.split()
        counts = {kind: n, " ".join(types): n, rank: n}
        rows.setdefault(kind, Counter()).update(counts)
    lines = []
    for kind, row in sorted(rows.items()):
        parts = [f"{name} {n}" for name, n in sorted(row.items()) if name != kind]
        lines.append((kind, row[kind], ", ".join(parts)))
    yield from markdown(("op", "times", "types and ranks"), lines)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = [name for name in BUILDS if name not in FEATURES or has(FEATURES[name])]
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed gives the same cases"
    )
    parser.add_argument("--ways", type=names, default=list(ALL))
    parser.add_argument(
        "--core",
        default="",
        choices=["", PLAIN, *cores],
        help="default: several in turn",
    )
    parser.add_argument("--case", type=int, help="the number of one case")
    parser.add_argument(
        "--table", action="store_true", help="print how often each op was tried"
    )
    parser.add_argument("--graph", type=Path, help="the file of a failure")
    return parser.parse_args()


def main() -> int:
    """Print each failure, then how much was tried."""
    warnings.simplefilter("ignore")  # numpy's, of divisions by zero
    args = _parse()
    if unknown := [way for way in args.ways if way not in ALL]:
        sys.exit(f"there is no way {unknown[0]}: there are {', '.join(ALL)}")
    if args.graph or args.case is not None:
        if args.graph:
            failures = again(args.graph, args.ways)
        else:
            failures = list(fuzz(args.seed, [args.case], args.ways, args.core, Tally()))
        print("\n".join(failures) or "nothing is wrong")
        return int(bool(failures))
    tally = Tally()
    progress = Progress()
    for first in progress.cases(range(0, args.cases, _BATCH)):
        numbers = range(first, min(args.cases, first + _BATCH))
        for text in fuzz(args.seed, numbers, args.ways, args.core, tally):
            print(text, flush=True)
        progress.failed = len(tally.failures)
    if args.table:
        print("\n".join(table(tally.reached)))
    refused = ", ".join(f"{way} {n}" for way, n in sorted(tally.refused.items()))
    print(f"{tally.cases} graphs, {tally.ops} ops: {len(tally.failures)} failures")
    print(f"cases that another runtime or reader refuses in part: {refused or 'none'}")
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
