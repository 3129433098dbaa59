"""Damaged files and messages of every kind, each read in a child with bounds on memory and
time: all must end with exit code 0, 1 or 2 and a message.

    python -m benchmarks.fuzzing.readers --cases 20000 --seed 1    # make fuzz-readers
    python -m benchmarks.fuzzing.readers --only toml --case 17     # one case, with its output

The files that are read wrongly are written to build/fuzz-readers; the exit code is 1 if
there is one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from benchmarks.data_folder import BUILD
from benchmarks.fuzzing.driver import Verdict, preload, run
from benchmarks.fuzzing.formats import FORMATS
from benchmarks.fuzzing.progress import Progress
from benchmarks.tables import names

FAILURES = BUILD / "fuzz-readers"


def run_case(name: str, seed: int, case: int, folder: Path) -> tuple[bytes, Verdict]:
    """Return the damaged file of a case, and how its reading in an empty folder ends."""
    rng = random.Random(f"{name}:{seed}:{case}")
    form = FORMATS[name]
    data = form.damage(rng, rng.choice(form.wholes()))
    return data, run(form.read(rng, data, folder), folder, form.limits)


def run_cases(
    formats: Sequence[str], seed: int, cases: Iterable[int]
) -> Iterator[tuple[str, int, bytes, Verdict]]:
    """Yield format, number, file and verdict of each case; formats take turns."""
    with ExitStack() as stack:
        tmp = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgec-fuzz-"))
        cache = str(Path(tmp) / "cache")
        places = {"EDGEC_CACHE": cache, "XDG_CONFIG_HOME": cache}
        stack.enter_context(mock.patch.dict(os.environ, places))
        warm = Path(tmp) / "warm"
        warm.mkdir()
        rng = random.Random(0)
        calls = []
        for name in formats:
            form = FORMATS[name]
            wholes = (rng.choice(form.wholes()) for _ in range(3))
            calls += [form.read(rng, data, warm) for data in wholes]
        preload(calls, warm)
        for case in cases:
            name = formats[case % len(formats)]
            folder = Path(tmp) / "case"
            folder.mkdir()
            data, verdict = run_case(name, seed, case, folder)
            yield name, case, data, verdict
            shutil.rmtree(folder)


def main() -> int:
    """Print each failure, and how the cases of each format ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=names, default=list(FORMATS), help="formats")
    parser.add_argument("--case", type=int, help="run one case and print its output")
    args = parser.parse_args()
    progress = Progress()
    cases = range(args.cases) if args.case is None else [args.case]
    results = run_cases(args.only, args.seed, progress.cases(cases))
    for name, case, data, verdict in results:
        end = verdict.fault or f"exit {verdict.code}"
        progress.add(f"{name} {end}", bool(verdict.fault), verdict.seconds)
        if args.case is not None:
            print(verdict.said)
        if verdict.fault:
            file = FAILURES / f"{name}-{args.seed}-{case}"
            FAILURES.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.with_suffix(".txt").write_text(verdict.said)
            text = f"{verdict.fault}, {verdict.seconds:.1f} s: {verdict.last}"
            print(f"{name} --case {case}: {text}", flush=True)
    for end, count in sorted(progress.ends.items()):
        print(f"{end}: {count}")
    print(f"the slowest took {progress.slowest:.1f} s")
    return int(bool(progress.failed))


if __name__ == "__main__":
    sys.exit(main())
