"""Damaged real networks (fields, edges, shapes, buffers; bytes) through `edgec
explain`, which goes the way of `compile` up to the C compiler, each in a child with 1
GB and 60 s: all must end with exit code 0, 1 or 2 and a message.

    python -m benchmarks.fuzzing.models --cases 10000 --seed 1  # what `make fuzz-models` runs; reads
                                                           ../shared
    python -m benchmarks.fuzzing.models --case 17               # one again, with all that it says

The fixture alone stands in where ../shared is absent. What went wrong is kept in
build/fuzz-models, and how far a seed is: what was interrupted goes on there, and the
cases that failed run again first. 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.fuzzing.driver import Limits, Verdict, preload, run, verb
from benchmarks.fuzzing.model_files import damaged_onnx, damaged_tflite
from benchmarks.fuzzing.mutations import flipped
from benchmarks.fuzzing.progress import Progress

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared") / "models"
KEPT = ROOT / "build" / "fuzz-models"
LIMITS = Limits(memory=1 << 30, seconds=60)
_LARGEST = 5_000_000
"""Bytes: larger files are as those of the same kind, and take longer."""
_DAMAGE = {".onnx": damaged_onnx, ".tflite": damaged_tflite}
_BYTES_ALONE = 0.15
"""Of the cases."""


@cache
def networks() -> tuple[Path, ...]:
    """What is damaged."""
    found = [
        p
        for p in sorted(SHARED.glob("*/*"))
        if p.suffix in _DAMAGE and p.stat().st_size < _LARGEST
    ]
    return (*found, ROOT / "fixtures" / "digits" / "digits.onnx")


def damaged(seed: int, case: int) -> tuple[Path, bytes]:
    """The network of a case, and its file now."""
    rng = random.Random(f"{seed}:{case}")
    path = rng.choice(networks())
    data = path.read_bytes()
    return path, flipped(rng, data) if rng.random() < _BYTES_ALONE else _DAMAGE[
        path.suffix
    ](rng, data)


def looked_at(path: Path, case: int) -> Callable[[], int]:
    """The command that reads it; each case has one."""
    more = (
        ["--target", "host"],
        ["--target", "pi4+coral"],
        ["--target", "pi5", "--json"],
        ["--allow-float"],
    )
    return verb("explain", path, *more[case % len(more)])


def run_cases(
    seed: int, cases: Iterable[int]
) -> Iterator[tuple[int, Path, bytes, Verdict]]:
    """The cases, and how each ends."""
    with tempfile.TemporaryDirectory(prefix="edgec-models-") as tmp:
        os.environ["EDGEC_CACHE"] = os.environ["XDG_CONFIG_HOME"] = str(
            Path(tmp) / "cache"
        )
        preload([looked_at(networks()[-1], n) for n in range(4)], Path(tmp))
        for case in cases:
            whole, data = damaged(seed, case)
            path = Path(tmp) / f"m{whole.suffix}"
            path.write_bytes(data)
            yield case, whole, data, run(looked_at(path, case), Path(tmp), LIMITS)
            path.unlink()


def main() -> int:
    """Prints what went wrong as it does, and how the cases ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this one alone, shown")
    given = parser.parse_args()
    kept = Progress.at(KEPT / f"{given.seed}.json")
    cases = kept.cases(given.cases) if given.case is None else [given.case]
    for case, whole, data, verdict in run_cases(given.seed, cases):
        kept.ended(
            case,
            verdict.fault or f"exit {verdict.code}",
            bool(verdict.fault),
            verdict.seconds,
        )
        if given.case is not None:
            print(verdict.said)
        if verdict.fault:
            KEPT.mkdir(parents=True, exist_ok=True)
            file = KEPT / f"{given.seed}-{case}-{whole.stem}{whole.suffix}"
            file.write_bytes(data)
            file.with_suffix(".txt").write_text(verdict.said)
            print(
                f"--case {case}: {whole.name}: {verdict.fault}, "
                f"{verdict.seconds:.1f} s: {verdict.last}",
                flush=True,
            )
    print(
        f"{', '.join(f'{n} {end}' for end, n in sorted(kept.ends.items()))}; "
        f"the slowest took {kept.slowest:.1f} s"
    )
    return int(bool(kept.failed))


if __name__ == "__main__":
    sys.exit(main())
