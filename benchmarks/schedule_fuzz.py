"""The schedule fuzzer: random layers by random legal schedules of every core, beside
`interp`.

Integers must be equal bit for bit, floats within 1e-5 of the range. Each call is computed
in 1 to 4 parts; tensors and the arena lie between pages that nobody may touch. Arm cores
run under QEMU. Markdown on the screen, build/schedule-fuzz.json; the exit code is 1 if
there is a mismatch.

    python -m benchmarks.schedule_fuzz [--cases 10000] [--cores cortex_a53,…] [--seed 0] [--jobs
        2] [--batch 250]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial

import edgec.ops  # noqa: F401 (registers all operations)
from benchmarks.data_folder import BUILD
from tests import builds
from tests.harness import has
from tests.schedule.fuzz import Verdict, verdicts
from tests.schedule.runner import BUILDS, FEATURES

Job = tuple[str, int, int]
"""Core, the first case of its stream, and how many."""


def jobs(cores: Sequence[str], cases: int, batch: int) -> Iterator[Job]:
    """Yield programs: every core has its share of the cases, and cores take turns."""
    share = [cases // len(cores) + (i < cases % len(cores)) for i in range(len(cores))]
    for first in range(0, max(share), batch):
        for name, count in zip(cores, share, strict=True):
            if first < count:
                yield name, first, min(batch, count - first)


def run_job(job: Job, seed: int) -> list[Verdict]:
    """Return the verdicts of one program's cases."""
    name, first, count = job
    with builds.apart():
        return list(verdicts(name, first, count, seed_of(name, seed)))


def seed_of(name: str, seed: int) -> int:
    """Return the seed of a core's cases."""
    return 1000 * seed + [*BUILDS].index(name)


def markdown(found: Sequence[tuple[str, Verdict]]) -> Iterator[str]:
    """Yield a table of families and variants, and one of cores."""
    cases = Counter[tuple[str, str]]()
    wrong = Counter[tuple[str, str]]()
    functions = defaultdict[tuple[str, str], set[str]](set)
    for _, v in found:
        for variant, function in v.used:
            functions[v.family, variant].add(function)
        for key in {(v.family, variant) for variant, _ in v.used}:
            cases[key] += 1
            wrong[key] += bool(v.why)
    yield "| family | variant | C functions | cases | mismatches |"
    yield "| --- | --- | --- | --- | --- |"
    for key in sorted(cases):
        count = len(functions[key] - {""})
        yield f"| {key[0]} | {key[1]} | {count or '–'} | {cases[key]} | {wrong[key]} |"
    yield from ("", "| core | cases | mismatches |", "| --- | --- | --- |")
    for name in dict.fromkeys(name for name, _ in found):
        here = [v for n, v in found if n == name]
        yield f"| {name} | {len(here)} | {sum(bool(v.why) for v in here)} |"
    yield f"| all | {len(found)} | {sum(bool(v.why) for _, v in found)} |"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = [name for name in BUILDS if name not in FEATURES or has(FEATURES[name])]
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--cores", default=",".join(here), help="names, with commas")
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed gives the same cases"
    )
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        metavar="N",
        help="of each core, leave out so many cases",
    )
    parser.add_argument("--batch", type=int, default=250, help="cases of one program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    return parser.parse_args()


def main() -> int:
    """Print each mismatch, then the tables."""
    given = _parse()
    cores = given.cores.split(",")
    found = list[tuple[str, Verdict]]()
    if unknown := [name for name in cores if name not in BUILDS]:
        sys.exit(f"there is no core {unknown[0]}: there are {', '.join(BUILDS)}")
    todo = [
        (name, given.first + first, count)
        for name, first, count in jobs(cores, given.cases, given.batch)
    ]
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
        running = {
            pool.submit(partial(run_job, seed=given.seed), job): job for job in todo
        }
        for future in as_completed(running):
            name = running[future][0]
            found += [(name, v) for v in future.result()]
            for v in (v for v in future.result() if v.why):
                print(
                    f"{name} --first {v.number}: {v.what}, {v.used}: {v.why[:400]}",
                    file=sys.stderr,
                )
            print(f"{len(found)} of {given.cases}", file=sys.stderr)
    print("\n".join(markdown(found)))
    path = BUILD / "schedule-fuzz.json"
    path.parent.mkdir(exist_ok=True)
    wrong = [{"core": name, **asdict(v)} for name, v in found if v.why]
    path.write_text(
        json.dumps(
            {"seed": given.seed, "cases": len(found), "mismatches": wrong}, indent=1
        )
        + "\n"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
