"""Estimated cycles, arena and code of edgec's networks on the boards' cores, beside
LiteRT, ncnn, MNN and onnxruntime.

The networks are those of the data folder, and twelve of 2025 and 2026. Cycles are of one
inference by one thread, as armlab's `picycles` estimates them. Peers are counted once and
kept in the user's cache, or read from a file (peer_figures.py). Where a network takes
longer than with the best peer, its slowest functions are listed, with their share of the
core's peak. Without a data folder or llvm-mca, cycles are those of edgec's own model of
the cores, without peers.

Markdown on the screen, build/bench-arm.json, and the programs in build/bench-arm/.
Results are kept in the user's cache until the sources change.

    python -m benchmarks.bench_arm [--models a,b,FILE] [--boards pi3,pi4] [--ops all]
        [--peers-from FILE] [--peers-only FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.pipeline import estimate

from benchmarks import peer_figures
from benchmarks.arm_programs import Call, Program, compile_for, counted, sources_digest
from benchmarks.arm_results import (
    estimator,
    file_digest,
    picycles,
    recall,
    remember,
    results,
)
from benchmarks.data_folder import BUILD
from benchmarks.networks import NETWORKS, ONNX_NETWORKS, available, files_by_format
from benchmarks.peer_figures import Figure, Key
from benchmarks.picycles import missing
from benchmarks.tables import markdown as table
from benchmarks.tables import names
from edgec.errors import EdgecError
from edgec.schedule.cores import core
from tests.networks.recent import RECENT

BOARDS = ("pi3", "pi4", "pi5")

LISTED = 10
"""The number of functions that are listed of a network."""


@dataclass(frozen=True)
class Share:
    """What one function takes.

    Attributes:
        call: the function
        cycles: of one inference
    """

    call: Call
    cycles: float

    @property
    def rate(self) -> float:
        """The multiply-accumulates of a cycle."""
        return self.call.macs / self.cycles if self.cycles else 0.0

    def of_peak(self, board: str) -> float:
        """Return the rate as a share of the core's highest."""
        facts = core(Board.load(board).targets[0].mcpu)
        is_float = self.call.dtype.startswith("float")
        return self.rate / (facts.macs_f32 if is_float else facts.macs_s8)


@dataclass(frozen=True)
class Row:
    """One network on one board.

    Attributes:
        model: the network
        board: the board
        macs: the multiply-accumulates of an inference
        cycles: of an inference
        peers: the cycles of each peer with onnxruntime's outputs
        arena: the size of the arena, bytes
        bound: the least size of an arena, bytes
        text: the size of the code, bytes
        shares: the functions, if they are listed
        differs: the cycles of each peer with other outputs
    """

    model: str
    board: str
    macs: int
    cycles: float
    peers: Mapping[str, float]
    arena: int
    bound: int
    text: int
    shares: tuple[Share, ...] = ()
    differs: Mapping[str, float] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The fastest peer; "" if there is none."""
        return min(self.peers, key=self.peers.__getitem__, default="")

    @property
    def ratio(self) -> float | None:
        """The best peer's cycles by edgec's: above 1, edgec is faster."""
        return self.peers[self.best] / self.cycles if self.peers else None


@dataclass(frozen=True)
class Job:
    """A network to measure on a board.

    Attributes:
        model: the network
        files: its files, one for each format; edgec reads the first
        board: the board
        ops: whose functions are listed: "all", "none", or "lose" for networks that a peer
            computes faster
        fresh: whether the cache is not used
        peers: the figures of peers by key; None if they are counted
    """

    model: str
    files: Sequence[Path]
    board: str
    ops: str
    fresh: bool
    peers: Mapping[Key, Figure] | None

    def figures(self) -> list[Figure]:
        """Return the figures of the peers."""
        return list(
            peer_figures.figures(self.model, self.files, self.board, self.peers)
        )

    def recall(self, key: str) -> Any:
        """Return an earlier result, if there is one that may be used."""
        return None if self.fresh else recall(key)


def measure(job: Job) -> Row:
    """Return the row of a network on a board."""
    figures = [f for f in job.figures() if f.cycles is not None]
    peers = {f.peer: float(f.cycles or 0) for f in figures if f.agrees}
    differs = {f.peer: float(f.cycles or 0) for f in figures if not f.agrees}
    file = job.files[0]
    key = (
        f"row beside peers {estimator()} {sources_digest()} {file_digest(file)} "
        f"{job.board} {job.ops} {sorted(peers.items())}"
    )
    facts = job.recall(key)
    if facts is None:
        facts = asdict(_measured(job, peers))
        remember(key, facts)
    shares = tuple(Share(_call(s["call"]), s["cycles"]) for s in facts["shares"])
    facts |= {"model": job.model, "differs": differs, "shares": shares}
    return Row(**facts)


def _measured(job: Job, peers: Mapping[str, float]) -> Row:
    """Compile a network and count its cycles."""
    file = job.files[0]
    program = compile_for(file, job.board)
    main = program.write(BUILD / "bench-arm" / f"{file.stem}-{job.board}")
    cycles = _cycles(program, main, job)
    is_slower = min(peers.values(), default=math.inf) < cycles
    shares: Sequence[Share] = ()
    if job.ops == "all" or (job.ops == "lose" and is_slower):
        shares = _shares(program, job, main)
    sizes = (program.arena, program.bound, program.text)
    return Row(job.model, job.board, program.macs, cycles, peers, *sizes, tuple(shares))


def _call(fields: Mapping[str, Any]) -> Call:
    """Return a call that was written as JSON, which has no tuples."""
    lists = {name: tuple(fields[name]) for name in ("place", "also")}
    return Call(**{**fields, **lists})


def _cycles(program: Program, main: Path, job: Job) -> float:
    """Return the cycles of one inference of a program."""
    key = f"cycles {estimator()} {program.digest} {job.board}"
    cycles = job.recall(key)
    if cycles is None:
        lab = picycles()
        if lab is not None:
            cycles = lab.program(job.board, [main, "--runs", "1"])
        else:
            cycles = sum(places(main, job.board).values())
        remember(key, cycles)
    return float(cycles)


def _shares(program: Program, job: Job, main: Path) -> list[Share]:
    """Return the share of each function of a program."""
    key = f"places {estimator()} {program.digest} {job.board}"
    rows = job.recall(key)
    if rows is None:
        # JSON has no keys of two numbers.
        counts = places(main, job.board)
        rows = [[*place, cycles] for place, cycles in counts.items()]
        remember(key, rows)
    cycles = {(segment, op): count for segment, op, count in rows}
    return [Share(call, cycles.get(call.place, 0.0)) for call in program.calls]


def _slowest(shares: Sequence[Share]) -> list[Share]:
    return sorted(shares, key=lambda s: -s.cycles)


def places(main: Path, board_name: str) -> dict[tuple[int, int], float]:
    """Return the cycles of each function of a program by its place.

    edgec's plugin for QEMU counts blocks, of which picycles knows the cycles on its own
    boards, and else edgec's model of the core.
    """
    board = Board.load(board_name)
    counts = counted(main, board)
    lab = picycles()
    if lab is not None and board_name in lab.boards:
        return lab.places(counts, board_name)
    estimates = estimate(counts, board.core, board.caches)
    return {place: e.cycles for place, e in estimates.items()}


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of networks, of peers and of means, and the listed functions."""
    heads = "network|board|MMAC|M cycles|best peer|its|× best|arena|above bound|.text"
    yield from table(heads.split("|"), map(_cells, rows), texts=2)
    yield ""
    yield from _peer_table(rows)
    heads = "board|slower than the best|networks that a peer runs|geometric mean"
    yield from table(heads.split("|"), _means(rows), texts=2)
    for row in rows:
        if row.shares:
            yield from ("", *_functions(row))


def _cells(r: Row) -> list[str]:
    beside = ["–"] * 3
    if r.ratio:
        beside = [r.best, f"{r.peers[r.best] / 1e6:.2f}", f"{r.ratio:.2f}"]
    work = [f"{r.macs / 1e6:.1f}", f"{r.cycles / 1e6:.2f}"]
    sizes = [f"{r.arena:,}", f"{r.arena - r.bound:,}", f"{r.text / 1024:.1f} K"]
    return [r.model, r.board, *work, *beside, *sizes]


def _peer_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield every peer's cycles by edgec's; ≠ if its outputs differ."""
    peers = [*dict.fromkeys(name for r in rows for name in (*r.peers, *r.differs))]
    if len(peers) < 2:
        return
    lines = []
    for r in rows:
        ratios = {name: f"{c / r.cycles:.2f}" for name, c in r.peers.items()}
        ratios |= {name: f"{c / r.cycles:.2f} ≠" for name, c in r.differs.items()}
        lines.append([r.model, r.board, *(ratios.get(name, "–") for name in peers)])
    yield from table(["network", "board", *(f"× {p}" for p in peers)], lines, texts=2)
    yield ""


def _means(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield a row for each board with networks that a peer runs."""
    for board in dict.fromkeys(r.board for r in rows):
        ratios = {r.model: r.ratio for r in rows if r.board == board and r.ratio}
        if ratios:
            slower = [model for model, ratio in ratios.items() if ratio < 1]
            mean = geometric_mean(ratios.values())
            yield [board, ", ".join(slower) or "none", str(len(ratios)), f"{mean:.3f}"]


def _functions(row: Row) -> Iterator[str]:
    """Yield the slowest functions of a network, and the sum of the others."""
    against = f", {row.ratio:.2f} × {row.best}" if row.ratio else ""
    yield f"{row.model} on {row.board}{against}: where {row.cycles / 1e6:.2f} M cycles go"
    yield ""
    heads = "function|shapes|MMAC|M cycles|of all|MAC a cycle|of the peak"
    shares = _slowest(row.shares)
    lines = [_function_cells(s, row) for s in shares[:LISTED]]
    others = shares[LISTED:]
    if others:
        cycles = sum(s.cycles for s in others)
        macs = sum(s.call.macs for s in others)
        work = [
            f"{macs / 1e6:.2f}",
            f"{cycles / 1e6:.3f}",
            f"{cycles / row.cycles:.1%}",
        ]
        lines.append([f"{len(others)} more", "", *work, *[""] * 2])
    yield from table(heads.split("|"), lines, texts=2)


def _function_cells(s: Share, row: Row) -> list[str]:
    kinds = "+".join((s.call.kind, *s.call.also))
    rate = ["–", "–"]
    if s.call.macs:
        rate = [f"{s.rate:.2f}", f"{s.of_peak(row.board):.0%}"]
    name = [f"op {s.call.place[1]} {kinds} {s.call.dtype}", s.call.shapes]
    work = [f"{s.call.macs / 1e6:.2f}", f"{s.cycles / 1e6:.3f}"]
    return [*name, *work, f"{s.cycles / row.cycles:.1%}", *rate]


def as_json(row: Row) -> dict[str, Any]:
    """Return a row of build/bench-arm.json."""
    functions = []
    for s in row.shares:
        rates = {"macs_per_cycle": s.rate, "of_peak": s.of_peak(row.board)}
        functions.append({**asdict(s.call), "cycles": s.cycles, **rates})
    fields = asdict(row)
    del fields["shares"]
    return {**fields, "ratio": row.ratio, "functions": functions}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        type=names,
        default=available(*NETWORKS, *ONNX_NETWORKS, *RECENT),
        help="networks or files, with commas",
    )
    parser.add_argument("--boards", type=names, default=BOARDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--ops",
        choices=("lose", "all", "none"),
        default="lose",
        help="the networks whose functions are listed",
    )
    parser.add_argument(
        "--json", type=Path, default=BUILD / "bench-arm.json", metavar="FILE"
    )
    parser.add_argument("--fresh", action="store_true", help="do not use the cache")
    parser.add_argument(
        "--peers-from",
        type=Path,
        metavar="FILE",
        help="read the peers' figures from a file of --peers-only",
    )
    parser.add_argument(
        "--peers-only",
        type=Path,
        metavar="FILE",
        help="count the peers alone, and write their figures to a file",
    )
    return parser.parse_args()


def main() -> int:
    """Print the tables and write build/bench-arm.json; return 1 if a network failed."""
    args = _parse()
    if reason := missing():
        print(f"{reason}: cycles are those of edgec's own model of the pipelines\n")
    peers = peer_figures.read(args.peers_from) if args.peers_from else None
    options = (args.ops, args.fresh, peers)
    jobs = [
        Job(name, files, board, *options)
        for name, files in files_by_format(args.models)
        for board in args.boards
    ]
    with ProcessPoolExecutor(max(1, args.jobs)) as pool:
        if args.peers_only:
            figures = [f for part in pool.map(Job.figures, jobs) for f in part]
            peer_figures.write(args.peers_only, figures)
            results().trim()
            return 0
        rows = list(_rows(jobs, pool))
    results().trim()
    print("\n".join(markdown(rows)))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([as_json(r) for r in rows], indent=1) + "\n")
    return int(len(rows) < len(jobs))


def _rows(jobs: Sequence[Job], pool: ProcessPoolExecutor) -> Iterator[Row]:
    """Yield the rows of the jobs that do not fail."""
    for job, future in [(job, pool.submit(measure, job)) for job in jobs]:
        try:
            row = future.result()
        except (EdgecError, subprocess.CalledProcessError) as e:
            print(f"{job.model} on {job.board}: {e}", file=sys.stderr)
            continue
        cycles = f"{row.cycles / 1e6:.2f} M cycles"
        print(f"{job.model} on {job.board}: {cycles}", file=sys.stderr)
        yield row


if __name__ == "__main__":
    sys.exit(main())
