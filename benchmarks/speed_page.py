"""Writes the tables of speed in docs/speed.md and README from one file of results,
benchmarks/results.json.

    python -m benchmarks.speed_page [--add build/bench-arm.json] [--estimate] [--check]

With --add, rows of `make bench-arm` take the place of those of the same network and board
in the file of results; with --estimate, the rows of the Edge TPU and of four threads are
estimated anew (reads ../shared). With --check nothing is written: 1 if a page has another
table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.intervals import ends

import edgec
from benchmarks.bench_arm import BOARDS
from benchmarks.data_folder import MODELS, ROOT
from benchmarks.tables import markdown
from benchmarks.truth.own import edgec_ms
from tests.networks.yolo import yolo26n

RESULTS = Path(__file__).with_name("results.json")
PAGES = (ROOT / "docs" / "speed.md", ROOT / "README.md")
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
"""A page's table stands between these lines."""

TITLES = {"pi3": "Pi 3", "pi4": "Pi 4", "pi5": "Pi 5"}
CHOSEN = (
    ("yolo11n_320", "pi5"),
    ("fastestdet", "pi5"),
    ("mp_selfie_land", "pi4"),
    ("mnv2_tf2_i8", "pi3"),
)
"""The networks and boards of README's table."""
ON_EDGETPU = "fastestdet_onnx"
ARM_MS, NCNN_MS = 36.6, 67.2
"""yolo26n at 640 on a Pi 5, as Arm measured its own runtime and ncnn; see docs/measured.md."""

Rows = Sequence[Mapping[str, Any]]
"""Results of bench_arm: `model`, `board`, `cycles`, and `peers`, cycles by name."""


def best(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the fastest peer and its cycles; None if no peer computes the network."""
    return min(row["peers"].items(), key=lambda peer: peer[1], default=None)


def table(rows: Rows) -> Iterator[str]:
    """Yield the table of networks and boards, and its means."""
    by_place = {(row["model"], row["board"]): row for row in rows}
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = [_cell(by_place.get((model, board))) for board in BOARDS]
        lines.append([model, *cells])
    means = [_mean(rows, board) for board in BOARDS]
    lines.append(["geometric mean", *means])
    yield from markdown(["network", *TITLES.values()], lines, texts=4)


def _cell(row: Mapping[str, Any] | None) -> str:
    """The ratio to the best peer, and its name."""
    peer = None if row is None else best(row)
    if row is None or peer is None:
        return "–"
    return f"{peer[1] / row['cycles']:.2f} {peer[0]}"


def _mean(rows: Rows, board: str) -> str:
    """Of a board's networks that a peer runs."""
    ratios = []
    for row in rows:
        peer = best(row)
        if row["board"] == board and peer is not None:
            ratios.append(peer[1] / row["cycles"])
    return f"{geometric_mean(ratios):.2f} of {len(ratios)}" if ratios else "–"


def summary(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield README's table."""
    heads = ("network", "board", "best other", "edgec", "how that is known")
    yield from markdown(heads, _summary_rows(results), texts=5)


def _summary_rows(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    tpu, yolo = results["edgetpu"], results["threads"]
    stock = f"{tpu['stock_share']:.0%} of the work on the Edge TPU"
    yield (
        "fastestdet",
        "Pi 4 + Coral",
        f"{stock}, est. {tpu['stock_ms']:.1f} ms (`edgetpu_compiler`)",
        f"{tpu['share']:.0%}, est. {tpu['ms']:.1f} ms",
        "cost model, off by 9 % in the median of 11 "
        "[sources](docs/measured.md#edge-tpu) that it has not seen",
    )
    low, high = yolo["interval_ms"]
    yield (
        "yolo26n, 640 × 640, four threads",
        "Pi 5",
        f"{ARM_MS} ms (Arm's runtime), {NCNN_MS} ms (ncnn), both measured by Arm",
        f"est. {low:.0f} to {high:.0f} ms, with random weights",
        "[a model](docs/measured.md#other-runtimes) that gives ncnn's published times "
        "to within 10 % (rms)",
    )
    known = (
        "emulated instructions, llvm-mca's cycles; edgec's own model of these cores is off "
        "by 8 to 11 % (rms) beside [68 published times]"
        "(docs/measured.md#other-runtimes)"
    )
    rows = {(row["model"], row["board"]): row for row in results["cpu"]}
    for model, board in CHOSEN:
        row = rows[model, board]
        peer = best(row)
        assert peer is not None
        yield (
            model,
            TITLES[board],
            f"{_cycles(peer[1])} ({peer[0]})",
            _cycles(row["cycles"]),
            known,
        )
        known = "the same"


def _cycles(cycles: float) -> str:
    return f"{cycles / 1e6:.1f} M cycles"


def replaced(text: str, lines: Sequence[str]) -> str:
    """Return a page's text with another table.

    Raises ValueError where it has none.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no table between {BEGIN.strip()} and {END.strip()}")
    return (
        f"{before}{begin}\n"
        + "".join(f"{line}\n" for line in lines)
        + f"\n{end}{after}"
    )


def added(old: Rows, new: Rows) -> list[dict[str, Any]]:
    """Return the old rows with the new ones in their places, further ones at the end."""
    fields = ("model", "board", "cycles", "peers", "differs")
    rows = {(row["model"], row["board"]): row for row in (*old, *new)}
    return [{field: row[field] for field in fields} for row in rows.values()]


def estimated() -> dict[str, Any]:
    """Return the results of the Edge TPU and of four threads."""
    model = next((MODELS / ON_EDGETPU).glob("*.onnx"))
    facts = edgec.explain(model, "pi4+coral").to_json()
    stock = facts["comparison"]["stock"]
    with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
        network = yolo26n(Path(folder, "yolo26n.onnx"), 640)
        board = Board.load("pi5")
        ms = edgec_ms(network, board, threads=4)
    return {
        "edgetpu": {
            "ms": facts["totals"]["est_ms"],
            "share": facts["totals"]["tpu_macs_share"],
            "stock_ms": stock["est_ms"],
            "stock_share": stock["tpu_macs_share"],
        },
        "threads": {"interval_ms": ends(ms, board.error.more)},
    }


def main() -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--add", type=Path, metavar="FILE")
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    if given.add:
        results["cpu"] = added(results["cpu"], json.loads(given.add.read_text()))
    if given.estimate:
        results |= estimated()
    if given.add or given.estimate:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    differ = False
    for page, lines in zip(
        PAGES, (table(results["cpu"]), summary(results)), strict=True
    ):
        old = page.read_text()
        new = replaced(old, [*lines])
        differ |= new != old
        if not given.check:
            page.write_text(new)
    return int(differ and given.check)


if __name__ == "__main__":
    sys.exit(main())
