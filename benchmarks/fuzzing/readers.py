"""Damaged files and messages of every kind, each read in a child with 2 GB and 60 s:
all must end as a person expects.

    python -m benchmarks.fuzzing.readers --cases 20000 --seed 1      # what `make fuzz-readers` runs
    python -m benchmarks.fuzzing.readers --only toml --case 17       # one again, with all that it says

What went wrong is kept in build/fuzz-readers, and how far a seed is: what was
interrupted goes on there, and the cases that failed run again first. 1 if anything is
wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.fuzzing.driver import LIMITS, Limits, Verdict, preload, run
from benchmarks.fuzzing.formats import FORMATS, ROOT
from benchmarks.fuzzing.progress import Progress

KEPT = ROOT / "build" / "fuzz-readers"


def run_case(
    name: str, seed: int, case: int, folder: Path, limits: Limits = LIMITS
) -> tuple[bytes, Verdict]:
    """One damaged file of a format, and how reading it in this empty folder ends."""
    rng = random.Random(f"{name}:{seed}:{case}")
    form = FORMATS[name]
    data = form.damage(rng, rng.choice(form.wholes()))
    return data, run(form.read(rng, data, folder), folder, limits)


def run_cases(
    names: Sequence[str], seed: int, cases: Iterable[int]
) -> Iterator[tuple[str, int, bytes, Verdict]]:
    """The formats in turn."""
    with tempfile.TemporaryDirectory(prefix="edgec-fuzz-") as tmp:
        os.environ["EDGEC_CACHE"] = os.environ["XDG_CONFIG_HOME"] = str(
            Path(tmp) / "cache"
        )
        warm = Path(tmp) / "warm"
        warm.mkdir()
        rng = random.Random(0)
        preload(
            [
                FORMATS[n].read(rng, rng.choice(FORMATS[n].wholes()), warm)
                for n in names
                for _ in range(3)
            ],
            warm,
        )
        for case in cases:
            name = names[case % len(names)]
            folder = Path(tmp) / "case"
            folder.mkdir()
            data, verdict = run_case(name, seed, case, folder)
            yield name, case, data, verdict
            shutil.rmtree(folder)


def main() -> int:
    """Prints what went wrong as it does, and how the cases of each format ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", default=",".join(FORMATS), help="formats, with commas"
    )
    parser.add_argument("--case", type=int, help="this one alone, shown")
    given = parser.parse_args()
    names = given.only.split(",")
    kept = Progress.at(
        KEPT
        / f"{given.seed}{'' if given.only == ','.join(FORMATS) else '-' + given.only}.json"
    )
    cases = kept.cases(given.cases) if given.case is None else [given.case]
    for name, case, data, verdict in run_cases(names, given.seed, cases):
        kept.ended(
            case,
            f"{name} {verdict.fault or f'exit {verdict.code}'}",
            bool(verdict.fault),
            verdict.seconds,
        )
        if given.case is not None:
            print(verdict.said)
        if verdict.fault or given.case is not None:
            file = KEPT / f"{name}-{given.seed}-{case}"
            KEPT.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.with_suffix(".txt").write_text(verdict.said)
            print(
                f"{name} --case {case}: {verdict.fault}, {verdict.seconds:.1f} s: "
                f"{verdict.last}",
                flush=True,
            )
    for name in names:
        row = ", ".join(
            f"{n} {end.removeprefix(name)}"
            for end, n in sorted(kept.ends.items())
            if end.split()[0] == name
        )
        print(f"{name:10} {row}")
    print(f"the slowest took {kept.slowest:.1f} s")
    return int(bool(kept.failed))


if __name__ == "__main__":
    sys.exit(main())
