"""How much faster networks are with two and four threads on the boards' cores, by the
estimate of `edgec bench --on emulated:<board> --threads N`: for each network the
milliseconds, and the ops that take longer when they are shared, or wait while one
thread works.

    python -m benchmarks.threads_table [--models a,b,FILE] [--boards pi3,pi4,pi5]
        [--threads 1,2,4] [--ops N]

Markdown on the screen; 1 if a network is slower with more threads. Networks are those
of bench_arm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.boards import Board
from edgec_devices.estimating import estimated
from edgec_devices.links.emulated import Emulated
from edgec_devices.measurement import SegmentEstimate
from edgec_devices.pipeline import Counts
from edgec_devices.plugin import block_count_plugin
from edgec_runtime import Bundle

import edgec
from benchmarks.bench_arm import files
from benchmarks.networks import NETWORKS
from edgec.benching.build import read_graph
from edgec.errors import EdgecError
from tests.networks.recent import RECENT

BOARDS = ("pi3", "pi4", "pi5")
MOST = 4
"""Threads that the networks are compiled for."""


@dataclass(frozen=True)
class Op:
    """One function of a network.

    Attributes:
        name: its segment and name.
        ms: by number of threads.
        parts: whether threads share it.
    """

    name: str
    ms: Mapping[int, float]
    parts: bool


@dataclass(frozen=True)
class Row:
    """One network on one board.

    Attributes:
        model: the network.
        board: the board.
        ms: of an inference, by number of threads.
        ops: its functions.
    """

    model: str
    board: str
    ms: Mapping[int, float]
    ops: Sequence[Op]

    @property
    def is_slower(self) -> bool:
        """Whether more threads take longer."""
        times = [self.ms[n] for n in sorted(self.ms)]
        return times != sorted(times, reverse=True)

    @property
    def alone(self) -> float:
        """Milliseconds with the most threads in which one of them works."""
        most = max(self.ms)
        return sum(op.ms[most] for op in self.ops if not op.parts)


def measure(model: str, file: Path, board_name: str, threads: Sequence[int]) -> Row:
    """Compiles a network and estimates it."""
    board = Board.load(board_name)
    device = Emulated(board)
    with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
        path = Path(folder) / "network.edgec"
        edgec.compile(file, board_name, output=path, threads=MOST)
        with Bundle.open(path) as bundle:
            counts = {
                n: device.counts(bundle, block_count_plugin(), n) for n in threads
            }
            return _row(model, board, bundle, counts)


def _row(model: str, board: Board, bundle: Bundle, counts: Mapping[int, Counts]) -> Row:
    """The row of what was counted for each number of threads."""
    segments: dict[int, Sequence[SegmentEstimate]] = {}
    ms: dict[int, float] = {}
    for n, counted in counts.items():
        found, between = estimated(bundle, board, counted)
        segments[n] = found
        ms[n] = between + sum(segment.ms or 0.0 for segment in found)

    graph = read_graph(bundle)
    most = max(counts)
    # Those of the last inference, as the times are.
    shared = counts[most].parts[-1] if counts[most].parts else {}
    ops: list[Op] = []
    for i, info in enumerate(bundle.manifest.segments):
        functions = graph.segment(info.name).functions
        for k in range(len(segments[most][i].ops)):
            times: dict[int, float] = {}
            for n, estimates in segments.items():
                times[n] = estimates[i].ops[k].ms
            name = f"{info.name}.{functions[k]}"
            ops.append(Op(name, times, (i, k) in shared))
    return Row(model, board.name, ms, ops)


def markdown(rows: Sequence[Row], listed: int) -> Iterator[str]:
    """The table, and the ops of each network that gain least.

    listed: how many ops of a network.
    """
    counts = sorted({n for row in rows for n in row.ms})
    heads = [f"{n} thread{'s' if n > 1 else ''}, ms" for n in counts]
    yield f"| network | board | {' | '.join(heads)} | times as fast | one works, ms |"
    yield f"| --- | --- |{' --- |' * (len(heads) + 2)}"
    for row in rows:
        times = " | ".join(f"{row.ms[n]:.3f}" for n in counts)
        gain = row.ms[counts[0]] / row.ms[counts[-1]]
        yield f"| {row.model} | {row.board} | {times} | {gain:.2f} | {row.alone:.3f} |"
    for row in rows:
        yield from _least(row, counts, listed)


def _least(row: Row, counts: Sequence[int], listed: int) -> Iterator[str]:
    """The ops that gain least by the most threads."""
    first = counts[0]
    last = counts[-1]

    def gained(op: Op) -> float:
        """The time beyond what as many times as fast would take, below 0."""
        return op.ms[first] / last - op.ms[last]

    lost = sorted(row.ops, key=gained)
    if listed:
        yield f"\n{row.model} on {row.board}: what gains least by {last} threads\n"
    for op in lost[:listed]:
        kind = "shared" if op.parts else "one thread"
        yield f"- {op.name}: {op.ms[first]:.4f} ms, then {op.ms[last]:.4f} ({kind})"


def main() -> int:
    """Prints the table; 1 if a network is slower with more threads, or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join([*NETWORKS, *RECENT]))
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--ops", type=int, default=0, help="ops listed of a network")
    given = parser.parse_args()
    threads = [int(n) for n in given.threads.split(",")]
    rows: list[Row] = []
    failed = False
    for name, file in files(given.models.split(",")):
        for board in given.boards.split(","):
            try:
                rows.append(measure(name, file, board, threads))
            except EdgecError as e:
                failed = True
                print(f"{name} on {board}: {e}", file=sys.stderr)
                continue
            print(f"{name} on {board}: {rows[-1].ms}", file=sys.stderr)
    print("\n".join(markdown(rows, given.ops)))
    return int(failed or any(row.is_slower for row in rows))


if __name__ == "__main__":
    sys.exit(main())
