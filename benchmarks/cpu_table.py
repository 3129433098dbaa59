"""The cycles of ops on the boards' cores, for the partitioner: the rates of each kernel,
fitted to ops that it computes.

The ops are some of the data folder's networks for every kernel, each alone. Their cycles
are counted like in bench-arm, by one program for each core, in some minutes. The rates are
written to devices/edgec_devices/cores/<core>.cycles.json, and their errors printed: by the
fit to all ops, and by one without the op. --check compares the sum of the estimates of
whole networks with the cycles in build/bench-arm.json (make bench-arm ARGS='--ops none').

    python -m benchmarks.cpu_table [--boards pi3,pi4,pi5] [--models a,b] [--dry] [--check]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from edgec_devices.boards import Board
from edgec_devices.cores import cycles_file
from edgec_partitioner.cpu_cost import in_graph

from benchmarks.bench_arm import BOARDS, places
from benchmarks.data_folder import ROOT
from benchmarks.least_squares import Matrix, nonnegative, relative
from benchmarks.networks import NETWORKS, available, files
from benchmarks.single_ops import chosen, core_of, graphs_of, program
from edgec.compiler.lower import lower
from edgec.ir import Graph
from edgec.options.compile import CompileOptions
from edgec.schedule.cores import Core
from edgec.schedule.rates import OTHER, THEN, Rates, following, rate

BUILD = ROOT / "build"
MEASURED = (
    *NETWORKS,
    "superres_ppp",
    "xfeat_interp_bicubic",
    "kws_dscnn_i8",
    "yunet_n_320",
    str(ROOT / "fixtures" / "cartoon" / "cartoon.onnx"),
)
"""The networks whose ops are measured."""
NEAR = 0.2
"""The relative error up to which the estimate of a network is near."""


@dataclass(frozen=True)
class Measured:
    """An op alone, or one with the ops that are fused behind it.

    Attributes:
        kernel: the kernel of the first op
        then: the plain kernels of the others
        work: the work of the first, see edgec.schedule.rates.work
        cycles: the cycles of all
        what: the op for a reader
    """

    kernel: str
    then: tuple[str, ...]
    work: tuple[float, ...]
    cycles: float
    what: str


def measure(board: Board, graphs: Iterable[Graph]) -> list[Measured]:
    """Measure some of the ops of graphs on a board's core."""
    on = core_of(board)
    folder = BUILD / f"cpu-table-{board.name}"
    where = program(chosen(graphs, on), board, on, folder)
    counted = places(folder / "main", board.name)
    taken = [(unit, sum(counted.get(place, 0.0) for place in of)) for unit, of in where]
    return [
        Measured(
            unit.kernel,
            unit.then,
            tuple(unit.work),
            cycles,
            f"{unit.ops[0].kind} {unit.ops[0].outputs}",
        )
        for unit, cycles in taken
        if cycles
    ]


def fitted(known: Sequence[Measured]) -> Rates:
    """Fit the rates of each kernel by least squares of relative errors, none below 0.

    A kernel that was not measured has the rates that three in four others do not exceed.
    """
    alone = [m for m in known if not m.then]
    table = {
        name: _fit([m for m in alone if m.kernel == name])
        for name in sorted({m.kernel for m in alone})
    }
    plain = [m for m in alone if not m.work[1]]
    each = np.quantile([m.cycles / (m.work[2] + m.work[3]) for m in plain], 0.75)
    dense = np.quantile([m.cycles / m.work[1] for m in alone if m.work[1]], 0.75)
    table[OTHER] = np.array([0, dense, each, each, 0])
    return {**table, **_followers(known, table)}


def _followers(known: Sequence[Measured], table: Rates) -> Rates:
    """Fit the rates of fused calls: the cycles beyond the first op alone, for each byte of
    its result.
    """
    fused = [m for m in known if m.then]
    alone = {(m.kernel, m.work): m.cycles for m in known if not m.then}
    names = sorted({name for m in fused for name in m.then})
    a = np.array(
        [[m.work[2] * m.then.count(name) for name in names] for m in fused]
    ).reshape(len(fused), len(names))
    beyond = np.array(
        [m.cycles - alone.get((m.kernel, m.work), _estimate(table, m)) for m in fused]
    )
    weight = 1 / np.array([m.cycles for m in fused])
    rates = nonnegative(a * weight[:, None], beyond * weight) if fused else np.zeros(0)
    found = {
        THEN + name: np.array([0, 0, each, 0, 0])
        for name, each in zip(names, rates, strict=True)
    }
    return {**found, THEN + OTHER: np.array([0, 0, max(rates, default=0.0), 0, 0])}


def _estimate(table: Rates, m: Measured) -> float:
    """Return the estimate of the first op."""
    return float(rate(table, m.kernel.split("+")) @ np.array(m.work))


def _fit(several: Sequence[Measured]) -> Matrix:
    """Fit the rates of a kernel.

    A few ops allow one rate alone, of multiply-accumulates or of bytes. Constants count as
    bytes for ops that multiply, which have many.
    """
    a = np.array([m.work for m in several])
    truth = np.array([m.cycles for m in several])
    macs = bool(a[:, 1].any())
    columns = np.eye(a.shape[1])
    if len(several) <= FEW:
        columns = columns[[1]] if macs else columns[[2]] + columns[[3]]
    elif not macs:
        columns = columns[[0, 2, 3]]
    return relative(a @ columns.T, truth) @ columns


FEW = 3
"""The number of ops up to which one rate is fitted."""


def errors(known: Sequence[Measured], held_out: bool) -> Matrix:
    """Return the relative error of each op, by a fit to all or by one without the op."""
    table = fitted(known)
    found = []
    for m in known:
        others = [
            o for o in known if (o.kernel, o.then) == (m.kernel, m.then) and o is not m
        ]
        by = table
        if held_out and others and not m.then:
            by = {**table, m.kernel: _fit(others)}
        follow = sum(following(table, name) for name in m.then) * m.work[2]
        found.append((_estimate(by, m) + follow) / m.cycles - 1)
    return np.array(found)


def quality(found: Mapping[str, Sequence[Measured]]) -> Iterator[str]:
    """Yield a table of the errors on each core."""
    yield (
        "| core | ops | kernels | half within | nine in ten within | left out: "
        "half within | nine in ten within |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for core, known in found.items():
        shares = [
            f"{np.quantile(np.abs(errors(known, out)), q):.0%}"
            for out in (False, True)
            for q in (0.5, 0.9)
        ]
        yield (
            f"| {core} | {len(known)} | {len({m.kernel for m in known})} | "
            f"{' | '.join(shares)} |"
        )


def write(core: str, table: Rates) -> Path:
    """Write a core's file, and return its path."""
    path = cycles_file(core)
    rows = (
        f" {json.dumps(name)}: {json.dumps([float(f'{x:.4g}') for x in per])}"
        for name, per in table.items()
    )
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return path


# ---- whole networks
# --------------------------------------------------------------------------------------
def estimate(model: Path, on: Core) -> float:
    """Return the partitioner's estimate of a network's cycles on the CPU."""
    return sum(in_graph(lower(model, CompileOptions("pi4")).graph, on).values())


def check(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of estimates beside the cycles of bench-arm."""
    yield "| network | board | M cycles | estimated | off by |"
    yield "| --- | --- | --- | --- | --- |"
    off: dict[str, list[float]] = {}
    for row in rows:
        ((_, model),) = files([row["model"]])
        guess = estimate(model, core_of(Board.load(row["board"])))
        board = row["board"]
        off.setdefault(board, []).append(guess / row["cycles"])
        figures = (
            f"{row['cycles'] / 1e6:.2f} | {guess / 1e6:.2f} | {off[board][-1] - 1:+.0%}"
        )
        yield f"| {row['model']} | {board} | {figures} |"
    for board, ratios in off.items():
        within = sum(abs(r - 1) <= NEAR for r in ratios)
        yield (
            f"| {within} of {len(ratios)} within {NEAR:.0%} | {board} | | | "
            f"{geometric_mean(ratios) - 1:+.0%} |"
        )


def main() -> int:
    """Print the tables, and write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        default=",".join(available(*MEASURED)),
        help="names, or files, with commas",
    )
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument(
        "--check", action="store_true", help="compare whole networks with bench-arm's"
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=BUILD / "bench-arm.json",
        metavar="FILE",
        help="of bench-arm",
    )
    given = parser.parse_args()
    if given.check:
        print("\n".join(check(json.loads(given.json.read_text()))))
        return 0
    BUILD.mkdir(exist_ok=True)
    graphs = list(graphs_of(path for _, path in files(given.models.split(","))))
    found = dict[str, list[Measured]]()
    for board in map(Board.load, given.boards.split(",")):
        core = core_of(board).name
        found[core] = measure(board, graphs)
        (BUILD / f"cpu-table-{board.name}.json").write_text(
            json.dumps([asdict(m) for m in found[core]], indent=1)
        )
        if not given.dry:
            print(
                f"written: {write(core, fitted(found[core])).relative_to(ROOT)}",
                file=sys.stderr,
            )
    print("\n".join(quality(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
