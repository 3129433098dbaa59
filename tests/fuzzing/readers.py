"""Damaged files and messages of every kind, each read in a child with 2 GB and 60 s: all must end as a person expects.

    python -m tests.fuzzing.readers --cases 20000 --seed 1      # what `make fuzz-readers` runs
    python -m tests.fuzzing.readers --only toml --case 17       # one again, with all that it says

What went wrong is kept in build/fuzz-readers. 1 if anything did.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzzing.driver import LIMITS, Limits, Verdict, preload, run
from tests.fuzzing.formats import FORMATS, ROOT

KEPT = ROOT / "build" / "fuzz-readers"


def run_case(name: str, seed: int, case: int, folder: Path, limits: Limits = LIMITS) -> tuple[bytes, Verdict]:
    """One damaged file of a format, and how reading it in this empty folder ends."""
    rng, form = random.Random(f"{name}:{seed}:{case}"), FORMATS[name]
    data = form.damage(rng, rng.choice(form.wholes()))
    return data, run(form.read(rng, data, folder), folder, limits)


def run_cases(names: Sequence[str], seed: int, cases: range) -> Iterator[tuple[str, int, bytes, Verdict]]:
    """The formats in turn."""
    preload()
    with tempfile.TemporaryDirectory(prefix="edgec-fuzz-") as tmp:
        os.environ["EDGEC_CACHE"] = os.environ["XDG_CONFIG_HOME"] = str(Path(tmp) / "cache")
        for name in names:
            FORMATS[name].wholes()  # before a child is to have them
        for case in cases:
            name = names[case % len(names)]
            folder = Path(tmp) / "case"
            folder.mkdir()
            data, verdict = run_case(name, seed, case, folder)
            yield name, case, data, verdict
            shutil.rmtree(folder)


def main() -> int:
    """Prints what went wrong as it does, and how the cases of each format ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(FORMATS), help="formats, with commas")
    parser.add_argument("--case", type=int, help="this one alone, shown")
    given = parser.parse_args()
    names = given.only.split(",")
    cases = range(given.cases) if given.case is None else range(given.case, given.case + 1)
    ends: Counter[tuple[str, str]] = Counter()
    failed = 0
    for name, case, data, verdict in run_cases(names, given.seed, cases):
        ends[name, verdict.fault or f"exit {verdict.code}"] += 1
        if given.case is not None:
            print(verdict.said)
        if verdict.fault or given.case is not None:
            failed += bool(verdict.fault)
            kept = KEPT / f"{name}-{given.seed}-{case}"
            KEPT.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(data)
            kept.with_suffix(".txt").write_text(verdict.said)
            print(f"{name} --case {case}: {verdict.fault}, {verdict.seconds:.1f} s: {verdict.last}", flush=True)
    for name in names:
        row = ", ".join(f"{n} {end}" for (of, end), n in sorted(ends.items()) if of == name)
        print(f"{name:10} {row}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
