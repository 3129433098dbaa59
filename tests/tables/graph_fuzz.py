"""The graph fuzzer: random graphs of every op's samples, and every way to run one must agree with `interp`.

Ways: the text form (printed and parsed), the passes, C (tensors lie between pages that nobody may touch), onnxruntime
and edgec's own reading of what ONNX can say, LiteRT's reference kernels and edgec's own reading of what TFLite can say.
Integers must be equal, floats as near as rounding explains. A failure is shrunk, printed as IR text and kept in
build/graph-fuzz; 1 if there is any.

    python -m tests.tables.graph_fuzz [--cases 2000] [--seed 0] [--first 0] [--ways text,passes,c,onnx,tflite]
    python -m tests.tables.graph_fuzz --graph build/graph-fuzz/0-17-c.ir        # a failure again
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import parse, print_graph
from tests import builds
from tests.fuzzing.graphs import random_graph
from tests.fuzzing.shrink import shrunk
from tests.fuzzing.ways import WAYS, Trial, problems, trial_of
from tests.harness import has
from tests.schedule.runner import BUILDS, FEATURES

KEPT = Path(__file__).parents[2] / "build" / "graph-fuzz"
ALL = (*WAYS, "c")
_BATCH = 100
"""Graphs of one program."""


@dataclass
class Tally:
    """What was tried. refused: what the other runtimes have no kernel for, by way."""

    cases: int = 0
    ops: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """One case."""
        self.cases += 1
        self.ops += len(trial.graph.ops)
        self.kinds.update(op.kind for op in trial.graph.ops)
        self.refused.update(trial.refused.keys())


def fuzz(seed: int, numbers: Sequence[int], ways: Sequence[str], core: str, tally: Tally) -> Iterator[str]:
    """What is said of each failure, while it is found."""
    for at in range(0, len(numbers), _BATCH):
        some = numbers[at : at + _BATCH]
        trials = [trial_of(random_graph(seed, n), n, core) for n in some]
        with tempfile.TemporaryDirectory() as folder:
            builds.use(Path(folder))
            for n, trial, wrong in zip(some, trials, problems(trials, ways), strict=True):
                tally.add(trial)
                if wrong:
                    tally.failures.append(f"{seed}-{n}")
                    yield failure(seed, n, trial, wrong[0])


def failure(seed: int, number: int, trial: Trial, why: str) -> str:
    """A report of a failure: the smallest graph that fails in the same way, as text."""
    way = why.split(":")[0]
    ways = [way] if way in ALL else []
    small = shrunk(trial, lambda t: any(w.split(":")[0] == way for w in problems([t], ways)[0]))
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{seed}-{number}-{way}.ir"
    path.write_text(print_graph(small.graph))
    given: dict[str, Any] = {f"in{i}": small.inputs[v.name] for i, v in enumerate(small.graph.inputs)}
    np.savez(path.with_suffix(".npz"), **given)
    found = (problems([small], ways)[0] or [why])[0]
    return f"seed {seed} case {number}: {found}\n{print_graph(small.graph)}its inputs and this text: {path}\n"


def again(path: Path, ways: Sequence[str], core: str) -> list[str]:
    """What is wrong with a graph that was kept."""
    graph = parse(path.read_text())
    with np.load(path.with_suffix(".npz")) as file:
        inputs = {v.name: file[f"in{i}"] for i, v in enumerate(graph.inputs)}
    with tempfile.TemporaryDirectory() as folder:
        builds.use(Path(folder))
        return problems([Trial(graph, inputs, core)], ways)[0]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = [name for name in BUILDS if name not in FEATURES or has(FEATURES[name])]
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same cases")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="leave out so many cases")
    parser.add_argument("--ways", default=",".join(ALL), help="names, with commas")
    parser.add_argument("--core", default=cores[-1] if "x86_64_v3" not in cores else "x86_64_v3", choices=cores)
    parser.add_argument("--graph", type=Path, help="a failure that was kept")
    return parser.parse_args()


def main() -> int:
    """Prints what is wrong as it becomes known, then how much was tried."""
    warnings.simplefilter("ignore")  # numpy's, of divisions by zero
    given = _parse()
    ways = given.ways.split(",")
    if unknown := [way for way in ways if way not in ALL]:
        sys.exit(f"there is no way {unknown[0]}: there are {', '.join(ALL)}")
    if given.graph:
        wrong = again(given.graph, ways, given.core)
        print("\n".join(wrong) or "nothing is wrong")
        return int(bool(wrong))
    tally = Tally()
    for text in fuzz(given.seed, range(given.first, given.first + given.cases), ways, given.core, tally):
        print(text, flush=True)
    refused = ", ".join(f"{way} {n}" for way, n in sorted(tally.refused.items()))
    print(f"{tally.cases} graphs, {tally.ops} ops of {len(tally.kinds)} kinds, {len(tally.failures)} failures")
    print(f"cases that another runtime or reader refuses in part: {refused or 'none'}")
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
