"""edgec's code on the networks of ncnn's benchmark: its estimates beside ncnn's.

The networks are built from their published structure with random weights
(benchmarks/truth/networks.py), and compiled as users compile them, in float16 where the
core has it.  Both runtimes' threads go through the same model, whose errors for ncnn are
known.

    python -m benchmarks.truth.own [--boards pi4,pi5] [--networks a,b]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from edgec_devices.boards import Board

from benchmarks.arm_programs import compile_for, counted, sources_digest
from benchmarks.arm_results import file_digest, recall, remember
from benchmarks.tables import markdown, names
from benchmarks.truth.estimates import NETWORKS, estimate, milliseconds
from benchmarks.truth.guests import in_steps
from benchmarks.truth.networks import convert
from benchmarks.truth.published import NCNN, Series

THREADS = (1, 4)
SAMPLE = (
    "squeezenet",
    "mobilenet",
    "shufflenet_v2",
    "mnasnet",
    "efficientnet_b0",
    "googlenet",
    "resnet18",
    "yolov4-tiny",
    "FastestDet",
)


@dataclass(frozen=True)
class Comparison:
    """A network on a board, times in ms by 1 and 4 threads.

    Attributes:
        network: its name
        board: the board
        published: ncnn's published times
        ncnn: the model's times of ncnn
        edgec: the model's times of edgec
    """

    network: str
    board: str
    published: Sequence[float]
    ncnn: Sequence[float]
    edgec: Sequence[float]

    @property
    def gains(self) -> tuple[float, float]:
        """Return ncnn's published gain of four threads, and edgec's by the model."""
        return self.published[0] / self.published[1], self.edgec[0] / self.edgec[1]


def edgec_ms(model: Path, board: Board, threads: int) -> float:
    """Return the model's time of an inference by edgec's code."""
    key = f"own {file_digest(model)} {sources_digest()} {board} {threads}"
    ms = recall(key)
    if ms is None:
        program = compile_for(model, board.name, threads)
        with tempfile.TemporaryDirectory(prefix="edgec-") as name:
            counts = counted(program.write(Path(name)), board, threads)
        ms = milliseconds(board, in_steps(counts, board))
        remember(key, ms)
    return float(ms)


def compare(series: Series, network: str) -> Comparison | None:
    """Return a network's times; None if the series lacks it with one or four threads."""
    times = series.times()
    measured = [times.get((network, threads)) for threads in THREADS]
    if None in measured:
        return None
    board = Board.load(series.board)
    rows = [estimate(series, time) for time in measured if time is not None]
    shape = [int(side) for side in rows[0].measured.shape.split("x")]
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        model = Path(name, f"{network}.onnx")
        convert(NETWORKS / f"{network}.param", shape, model)
        edgec = [edgec_ms(model, board, threads) for threads in THREADS]
    published = [row.measured.ms for row in rows]
    return Comparison(network, board.name, published, [row.ms for row in rows], edgec)


def table(rows: Sequence[Comparison]) -> Iterator[str]:
    """Yield the table, and the means of each board."""
    heads = (
        "network",
        "board",
        "ncnn, published",
        "ncnn, est.",
        "edgec, est.",
        "gains",
    )
    yield from markdown(heads, map(_cells, rows), texts=2)
    for board in dict.fromkeys(r.board for r in rows):
        mine = [r for r in rows if r.board == board]
        gains = geometric_mean(r.gains[1] / r.gains[0] for r in mine)
        ratios = [geometric_mean(r.ncnn[i] / r.edgec[i] for r in mine) for i in (0, 1)]
        yield (
            f"{board}: gain of four threads {gains:.2f} times ncnn's published; ncnn's "
            f"estimates by edgec's: {ratios[0]:.2f} with one thread, {ratios[1]:.2f} with 4"
        )


def _cells(r: Comparison) -> Sequence[str]:
    times = [f"{one:.3g}, {four:.3g}" for one, four in (r.published, r.ncnn, r.edgec)]
    return [r.network, r.board, *times, "{:.2f}, {:.2f}".format(*r.gains)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=names, default=["pi4", "pi5"])
    parser.add_argument("--networks", type=names, default=SAMPLE)
    args = parser.parse_args()
    rows = []
    for series in NCNN:
        for network in args.networks if series.board in args.boards else ():
            row = compare(series, network)
            if row is not None:
                rows.append(row)
                print(*_cells(row), file=sys.stderr)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
