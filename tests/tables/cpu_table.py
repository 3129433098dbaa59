"""The cycles of ops on the boards' cores, for the partitioner: fitted to what bench-arm measured for each function.

Reads build/bench-arm.json (of bench-arm --ops all), writes edgec/schedule/cores/<core>.cycles.json, and prints how well
that predicts functions: of the networks that it was fitted to, and of each network when it was left out.

    python -m tests.tables.cpu_table [--json FILE] [--dry]
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_devices import Board

from edgec.schedule.cores import TABLES
from edgec.schedule.estimate import OTHER
from tests.tables.cost_fit import Matrix, relative

ROOT = Path(__file__).parents[2]
ENOUGH = 2
"""Functions of a kind that give it a row of its own."""
ENOUGH_MACS = 1e6
"""Of the largest of them, where they have any: small ones say nothing of what large ones take."""
LEAST_CYCLES = 2_000
"""Smaller functions are mostly what a call costs."""

Rates = Mapping[tuple[str, bool], Matrix]


@dataclass(frozen=True)
class Function:
    """One that was measured. work: multiply-accumulates, elements written and read."""

    model: str
    kind: str
    of_bytes: bool
    work: tuple[float, float, float]
    cycles: float


def functions(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Function]]:
    """By core; of functions that compute one op, or a convolution and what follows it."""
    found: dict[str, list[Function]] = {}
    for row in rows:
        core = Board.load(row["board"]).targets[0].mcpu
        for f in row["functions"]:
            if f["cycles"] < LEAST_CYCLES or (f["also"] and not f["macs"]):
                continue
            read, *_, written = (_size(s) for s in re.split(r" [·→] ", f["shapes"]))
            of_bytes = f["dtype"] in ("int8", "uint8")
            work = (f["macs"], written, read * (2 if f["kind"] in ("add", "sub", "mul") else 1))
            found.setdefault(core, []).append(Function(row["model"], f["kind"], of_bytes, work, f["cycles"]))
    return found


def _size(shape: str) -> float:
    return float(math.prod(int(n) for n in shape.split("×")))


def fitted(known: Sequence[Function]) -> Rates:
    """Least squares of relative errors, with no rate below 0; a row for each kind that has enough functions."""
    kinds: dict[tuple[str, bool], list[Function]] = {}
    for f in known:
        kinds.setdefault((f.kind, f.of_bytes), []).append(f)
        kinds.setdefault((OTHER, f.of_bytes), []).append(f)
    return {
        k: _any(some) if k[0] == OTHER else _fit(some) for k, some in kinds.items() if k[0] == OTHER or _suffices(some)
    }


def _suffices(several: Sequence[Function]) -> bool:
    most = max(f.work[0] for f in several)
    return len(several) >= ENOUGH and (most == 0 or most >= ENOUGH_MACS)


def _any(several: Sequence[Function]) -> Matrix:
    """Of kinds that were not measured: products as those of others; for each element what three in four of the
    functions without products take at most, since kinds that no network has are those that nobody made fast."""
    plain = [f.cycles / (f.work[1] + f.work[2]) for f in several if not f.work[0]]
    element = float(np.quantile(plain, 0.75)) if plain else 0.0
    products = [f for f in several if f.work[0]]
    return np.array([_fit(products)[0] if products else 0.0, element, element])


def _fit(several: Sequence[Function]) -> Matrix:
    work, truth = np.array([f.work for f in several]), np.array([f.cycles for f in several])
    used = np.flatnonzero(work.any(0))
    rate = np.zeros(3)
    rate[used] = relative(work[:, used], truth)
    return rate


def errors(known: Sequence[Function], held_out: bool) -> Matrix:
    """Relative ones; of each network by rates that were fitted without it, or by those of all."""
    everything, found = fitted(known), []
    for model in dict.fromkeys(f.model for f in known):
        table = fitted([f for f in known if f.model != model]) if held_out else everything
        for f in (f for f in known if f.model == model):
            rate = table.get((f.kind, f.of_bytes), table.get((OTHER, f.of_bytes)))
            if rate is not None:
                found.append(float(rate @ np.array(f.work)) / f.cycles - 1)
    return np.array(found)


def as_json(table: Rates) -> dict[str, dict[str, list[float]]]:
    """Of a core's file."""
    return {
        size: {kind: [float(f"{x:.4g}") for x in rate] for (kind, b), rate in sorted(table.items()) if b is of_bytes}
        for size, of_bytes in (("bytes", True), ("other", False))
    }


def markdown(found: Mapping[str, Sequence[Function]]) -> Iterator[str]:
    """How far estimates are from what was measured."""
    yield "| core | functions | half within | nine in ten within | left out: half within | nine in ten within |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for core, known in found.items():
        shares = [f"{np.quantile(np.abs(errors(known, out)), q):.0%}" for out in (False, True) for q in (0.5, 0.9)]
        yield f"| {core} | {len(known)} | {' | '.join(shares)} |"


def main() -> None:
    """Prints the table; writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench-arm.json", metavar="FILE")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    given = parser.parse_args()
    found = functions(json.loads(given.json.read_text()))
    print("\n".join(markdown(found)))
    for core, known in found.items() if not given.dry else ():
        path = TABLES / f"{core}.cycles.json"
        path.write_text(re.sub(r"\[\s+([^\]]+?)\s+\]", _one_line, json.dumps(as_json(fitted(known)), indent=1)) + "\n")
        print(f"written to {path.relative_to(ROOT)}")


def _one_line(m: re.Match[str]) -> str:
    return "[" + re.sub(r",\s+", ", ", m[1]) + "]"


if __name__ == "__main__":
    main()
