"""The graph fuzzer: random graphs of every op's samples and networks of images, and
every way to run one must agree with `interp`.

Ways: the text form (printed and parsed), the passes, C (tensors lie between pages that
nobody may touch), onnxruntime and edgec's own reading of what ONNX can say, LiteRT's
reference kernels and edgec's own reading of what TFLite can say. Integers must be
equal, floats as near as rounding explains. For a board with an Edge TPU the graph,
quantized if it is of floats, is partitioned with each combination of smaller
interfaces; the segments must give what it gives, by `interp`, LiteRT and C. C is made in turn for AVX2, AVX-512 VNNI
where there is such a processor, plain kernels, and sometimes a board's core under QEMU;
with the best schedules or any legal ones, one thread or several; with and without the
compiler's optimization. A failure is shrunk, printed as IR text and kept in
build/graph-fuzz, as is how far a seed is: what was interrupted goes on there, and
hundreds that failed run again first. 1 if anything is wrong.

    python -m benchmarks.graph_fuzz [--cases 2000] [--seed 0] [--ways text,passes,onnx,tflite,c,edgetpu]
    python -m benchmarks.graph_fuzz --table                                   # what was reached, op by op
    python -m benchmarks.graph_fuzz --graph build/graph-fuzz/0-17-c.ir        # a failure again
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from benchmarks.fuzzing.graphs import random_graph, samples
from benchmarks.fuzzing.judging import ALL, problems
from benchmarks.fuzzing.progress import Progress
from benchmarks.fuzzing.shrink import shrunk
from benchmarks.fuzzing.ways import PLAIN, Manner, Trial, trial_of
from edgec.ir import parse, print_graph
from tests import builds
from tests.harness import has
from tests.schedule.runner import BUILDS, FEATURES

KEPT = Path(__file__).parents[1] / "build" / "graph-fuzz"
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
    """How the C of a case is made; half of them by any legal schedules. core: for that
    one alone.
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
    """What was tried. refused: what the other runtimes have no kernel for, by way;
    reached: by op, type and rank.
    """

    cases: int = 0
    ops: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """One case."""
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
    """What is said of each failure, while it is found. core: "" for all in turn."""
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
    """A report of a failure: the smallest graph that fails in the same way, as text."""
    way = why.split(":")[0]
    ways = [way] if way in ALL else []
    small = shrunk(
        trial, lambda t: any(w.split(":")[0] == way for w in problems([t], ways)[0])
    )
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{seed}-{number}-{way}.ir"
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
    """What is wrong with a graph that was kept."""
    graph = parse(path.read_text())
    manner = Manner(**json.loads(path.with_suffix(".json").read_text()))
    with np.load(path.with_suffix(".npz")) as file:
        inputs = {v.name: file[f"in{i}"] for i, v in enumerate(graph.inputs)}
    with builds.apart():
        return problems([Trial(graph, inputs, manner)], ways)[0]


def table(reached: Mapping[str, int]) -> Iterator[str]:
    """Markdown: how often each op was tried, with elements of which types, of which
    ranks.
    """
    rows: dict[str, Counter[str]] = {kind: Counter() for kind in samples()}
    for name, n in reached.items():
        kind, *what = name.split()
        rows.setdefault(kind, Counter()).update(
            {kind: n, " ".join(what[:-1]): n, what[-1]: n}
        )
    yield "| op | graphs' ops | of |"
    yield "| --- | --- | --- |"
    for kind, row in sorted(rows.items()):
        of = ", ".join(f"{what} {n}" for what, n in sorted(row.items()) if what != kind)
        yield f"| {kind} | {row[kind]} | {of} |"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = [name for name in BUILDS if name not in FEATURES or has(FEATURES[name])]
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed gives the same cases"
    )
    parser.add_argument("--ways", default=",".join(ALL), help="names, with commas")
    parser.add_argument(
        "--core",
        default="",
        choices=["", PLAIN, *cores],
        help="default: several in turn",
    )
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument(
        "--table", action="store_true", help="print what the seed reached, op by op"
    )
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
        wrong = again(given.graph, ways)
        print("\n".join(wrong) or "nothing is wrong")
        return int(bool(wrong))
    if given.case is not None:
        said = list(fuzz(given.seed, [given.case], ways, given.core, Tally()))
        print("\n".join(said) or "nothing is wrong")
        return int(bool(said))
    kept = Progress.at(KEPT / f"{'-'.join([str(given.seed), *ways, given.core])}.json")
    for batch in kept.cases(-(-given.cases // _BATCH)):
        tally = Tally()
        start = time.monotonic()
        numbers = range(batch * _BATCH, min(given.cases, (batch + 1) * _BATCH))
        for text in fuzz(given.seed, numbers, ways, given.core, tally):
            print(text, flush=True)
        how = f"{len(tally.failures)} failures" if tally.failures else "good"
        kept.ended(batch, how, bool(tally.failures), time.monotonic() - start)
        kept.reached.update(tally.reached)
        kept.reached.update({f"{way} refuses": n for way, n in tally.refused.items()})
    reached = {
        name: n for name, n in kept.reached.items() if not name.endswith(" refuses")
    }
    refused = ", ".join(
        f"{k.removesuffix(' refuses')} {n}"
        for k, n in sorted(kept.reached.items())
        if k not in reached
    )
    if given.table:
        print("\n".join(table(reached)))
    ends = ", ".join(f"{n} batches {end}" for end, n in sorted((+kept.ends).items()))
    print(
        f"{kept.next} batches of {_BATCH} graphs, {sum(reached.values())} ops: {ends}"
    )
    print(f"cases that another runtime or reader refuses in part: {refused or 'none'}")
    return int(bool(kept.failed))


if __name__ == "__main__":
    sys.exit(main())
