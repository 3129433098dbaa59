"""Estimates of other runtimes on the boards beside times that others have published.

Each network of ncnn's benchmark runs in ncnn's own wheel on an emulated board; its work
is counted thread by thread and goes through the same model as edgec's code does
(edgec_devices.pipeline, edgec_devices.multicore).  Then edgec's estimates are as good as
these are.  LiteRT with XNNPACK, to which no rate was fitted, checks the model of several
threads (litert.py).

Markdown on the screen, and the tables of docs/measured.md with --write.  Counts are kept
in the user's cache; all of them anew take hours.

    python -m benchmarks.truth [--boards pi4,pi5] [--networks a,b] [--threads 1,4] [--write]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.data_folder import ROOT
from benchmarks.tables import markdown, names
from benchmarks.truth import litert
from benchmarks.truth.errors import Errors
from benchmarks.truth.estimates import Row, estimate
from benchmarks.truth.published import LITERT, SERIES, Measured, Series

PAGE = ROOT / "docs" / "measured.md"
BEGIN, END = "<!-- published -->\n", "<!-- /published -->\n"

HEADS = (
    "board",
    "runtime",
    "threads",
    "networks",
    "geometric mean",
    "rms",
    "median",
    "worst",
)


def gains(rows: Sequence[Row], threads: int) -> Errors:
    """Return how far the estimated gains of several threads over one are off."""
    by_threads = {(r.measured.network, r.measured.threads): r for r in rows}
    ratios = {}
    for (network, n), row in by_threads.items():
        one = by_threads.get((network, 1))
        if n == threads and one is not None:
            ratios[network] = one.ratio / row.ratio
    return Errors(ratios)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the errors of each board, and all estimates."""
    yield from markdown(HEADS, _error_cells(rows), texts=2)
    yield ""
    heads = ("network", "board", "threads", "published, ms", "estimate, ms", "error")
    yield from markdown(heads, map(_row_cells, rows), texts=2)


def _error_cells(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    """Yield the errors of each series by threads, and of its gains."""
    for series in dict.fromkeys(r.series for r in rows):
        mine = [r for r in rows if r.series == series]
        for threads in sorted({r.measured.threads for r in mine}):
            ratios = {
                r.measured.network: r.ratio
                for r in mine
                if r.measured.threads == threads
            }
            title = [series.title, series.runtime]
            yield [*title, str(threads), *Errors(ratios).cells()]
            if threads > 1:
                cells = gains(mine, threads).cells()
                yield [*title, f"gain of {threads}", *cells]


def _row_cells(r: Row) -> Sequence[str]:
    m = r.measured
    times = [f"{m.ms:.4g}", f"{r.ms:.3g}", f"{r.ratio - 1:+.0%}"]
    return [m.network, r.series.title, str(m.threads), *times]


def written(text: str, lines: Sequence[str]) -> str:
    """Return the text of PAGE with other lines between BEGIN and END."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after


def selected(
    series: Series, args: argparse.Namespace
) -> Mapping[tuple[str, int], Measured]:
    """Return the times of a series that the arguments ask for."""
    wanted = {}
    for (network, threads), time in series.times().items():
        if args.networks and network not in args.networks:
            continue
        if series in LITERT and litert.file_name(network) is None:
            continue
        if threads in args.threads:
            wanted[network, threads] = time
    return wanted


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--boards", type=names, default=[s.board for s in SERIES["ncnn"]]
    )
    parser.add_argument("--runtimes", type=names, default=[*SERIES])
    parser.add_argument(
        "--networks", type=names, default=[], help="all if none is named"
    )
    parser.add_argument(
        "--threads", type=lambda text: [*map(int, names(text))], default=[1, 2, 3, 4]
    )
    parser.add_argument("--jobs", type=int, default=2, help="emulators at once")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    return parser.parse_args()


def main() -> int:
    """Print the tables."""
    args = _parse()
    jobs = [
        (series, time)
        for runtime in args.runtimes
        for series in SERIES[runtime]
        if series.board in args.boards
        for time in selected(series, args).values()
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda job: estimate(*job), jobs))
    lines = list(tables(rows))
    print("\n".join(lines))
    if args.write:
        PAGE.write_text(written(PAGE.read_text(), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
