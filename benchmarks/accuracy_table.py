"""What int8 costs: edgec's recipes beside public quantizers, on photos that none
calibrated on, in one run.

Every float model of the data folder (EDGEC_SHARED, default ../shared) that takes
photos.  Peers that read ONNX get a .tflite as tf2onnx writes it; the TFLite quantizers
get no ONNX.  Half of the photos, drawn by a seed, are to calibrate with, the others to
test; all engines get the same arrays, and each is compared with the float model as it
runs it itself (a file published as int8: with edgec's float bundle).  Figures of
several outputs are their means.

    SQNR     signal to quantization noise over all photos, in dB (at most 100)
    centred  the same about the mean of the output, which flatters none that hardly changes
    median   of the photos' own SQNR
    task     see accuracy_tasks.py
    TPU      the share of MACs that a bundle for pi4+coral has on the Edge TPU, where it is given
             all that it can run;
             best-pi4 is for the CPU alone, and may leave operations in float: its note says what
             that costs
    s, MB    edgec: the whole command; peers: to quantize, without imports, and the process' most
             memory

A peer's row is of the best of its settings on the test photos, which flatters peers.
Each peer has an environment of its own under build/, made here.  Rows are kept in
build/accuracy and made again only where what they hang on changed. Markdown on the
screen, build/accuracy-table.md, build/accuracy-table.json; exit code 1 if `best` is
more than TOLERANCE below a peer or a published file, or has less on the Edge TPU than
`fast`.  After it: accuracy_labels.py.

    python -m benchmarks.accuracy_table [--models a,b] [--ways best,fast,aimet-enhanced]
        [--photos N] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peer_env
from benchmarks.accuracy_labels import table
from benchmarks.accuracy_rows import ROOT, SHARED, Case, Row
from benchmarks.accuracy_ways import (
    CPU,
    EDGEC,
    PEERS,
    PREPROCESS,
    PUBLISHED,
    row_of,
    twin,
)

TOLERANCE = 0.2
"""dB by which `best` may be below the best peer."""
MARGIN = 2.0
"""dB by which `best` shall be above the best peers in the mean over models."""


def models(index: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Float models with one input that is a photo."""
    for m in index:
        kinds = {*(m.get("tensor_types") or {}), *(m.get("init_types") or {})}
        if (
            m["preproc"] in PREPROCESS
            and len(m["inputs"]) == 1
            and not kinds & {"int8", "uint8", "INT8", "UINT8"}
        ):
            yield m["name"]


# ---- text
# --------------------------------------------------------------------------------------


def head() -> Iterator[str]:
    yield "| model | way | SQNR, dB | centred | median | task | TPU, % | s | MB | note |"
    yield "| --- | --- | --: | --: | --: | --- | --: | --: | --: | --- |"


def markdown(row: Row) -> str:
    shown = " | ".join(
        "" if f is None else f"{f:.2f}" for f in (row.sqnr, row.centred, row.median)
    )
    task = ", ".join(f"{what} {figure:.4g}" for what, figure in row.task.items())
    tpu = "" if row.tpu is None else f"{100 * row.tpu:.1f}"
    return (
        f"| {row.model} | {row.way} | {shown} | {task} | {tpu} | {row.seconds:g} | "
        f"{row.memory} | {row.note} |"
    )


def verdicts(rows: Sequence[Row]) -> Iterator[str]:
    """The end of the table: by model the best peer and the published file beside
    `best`; means.
    """
    yield (
        "| model | best peer | dB | edgec fast | edgec best | best - peer | on a "
        "CPU "
        "| published | holds |"
    )
    yield "| --- | --- | --: | --: | --: | --: | --: | --: | --- |"
    gains = dict[str, float]()
    for model in dict.fromkeys(r.model for r in rows):
        of = {r.way: r for r in rows if r.model == model and r.sqnr is not None}
        peer = max(
            (of[w] for w in PEERS if w in of), key=lambda r: r.sqnr or 0.0, default=None
        )
        best = of.get("best")
        if peer is not None and best is not None:
            gains[model] = _db(best) - _db(peer)
        cells = [
            model,
            peer.way if peer else "none",
            _cell(peer),
            _cell(of.get("fast")),
            _cell(best),
            f"{gains[model]:+.2f}" if model in gains else "",
            _cell(of.get(CPU)),
            _cell(of.get(PUBLISHED)),
            "" if best is None else ("no" if behind([*of.values()]) else "yes"),
        ]
        yield f"| {' | '.join(cells)} |"
    less = [m for m, (fast, best) in _shares(rows).items() if best < fast]
    if less:
        yield f"\nless of it on the Edge TPU by best than by fast: {', '.join(less)}"
    if gains:
        yield ""
        values = [*gains.values()]
        enough = sum(g >= -TOLERANCE for g in values)
        yield (
            f"best - peer: {np.mean(values):+.2f} dB, geometric mean of {len(values)} "
            f"models, asked {MARGIN:+g}; "
            f"at least {-TOLERANCE:g} dB on {enough} of them; "
            f"the least {min(values):+.2f} ({min(gains, key=lambda m: gains[m])})"
        )
        yield from _by_figure(rows)


def _by_figure(rows: Sequence[Row]) -> Iterator[str]:
    """`best` against each peer on the models that both have, in the mean of each
    figure.
    """
    yield ""
    yield "| best - | models | SQNR, dB | centred | median |"
    yield "| --- | --: | --: | --: | --: |"
    best = {r.model: r for r in rows if r.way == "best" and r.sqnr is not None}
    for way in (*PEERS, PUBLISHED, "fast"):
        of = [
            r for r in rows if r.way == way and r.sqnr is not None and r.model in best
        ]
        if of:
            names = ("sqnr", "centred", "median")
            means = [
                np.mean([getattr(best[r.model], n) - getattr(r, n) for r in of])
                for n in names
            ]
            yield f"| {way} | {len(of)} | {' | '.join(f'{m:+.2f}' for m in means)} |"


def _shares(rows: Sequence[Row]) -> Mapping[str, tuple[float, float]]:
    """Of models that have both, those of fast and best."""
    found = {
        way: {r.model: r.tpu for r in rows if r.way == way and r.tpu is not None}
        for way in ("fast", "best")
    }
    return {
        m: (found["fast"][m], found["best"][m])
        for m in found["fast"]
        if m in found["best"]
    }


def behind(rows: Sequence[Row]) -> bool:
    """Whether `best` is further below a peer or a published file than allowed; rows: of
    one model.
    """
    of = {r.way: r for r in rows if r.sqnr is not None}
    others = [of[w] for w in (*PEERS, PUBLISHED) if w in of]
    return "best" in of and any(_db(of["best"]) < _db(o) - TOLERANCE for o in others)


def _db(row: Row) -> float:
    assert row.sqnr is not None
    return row.sqnr


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{_db(row):.2f}"


# ---- running
# --------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", help="default: all")
    parser.add_argument(
        "--ways",
        default=",".join((*EDGEC, *PEERS, PUBLISHED)),
        help=f"of edgec, also FILE.toml; {PEERS}",
    )
    parser.add_argument(
        "--photos",
        type=int,
        default=1000,
        help="at most so many, half of them to calibrate with",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="data with labels too",
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "accuracy-table.json"
    )
    args = parser.parse_args()
    entries = json.loads((SHARED / "models" / "index.json").read_text())
    index = {m["name"]: m for m in entries}
    chosen = args.models.split(",") if args.models else [*models(entries)]
    if unknown := sorted({*chosen} - index.keys()):
        parser.error(f"{SHARED / 'models'} has no {', '.join(unknown)}")
    rows: list[Row] = []
    for line in _top(args.ways.split(",")):
        print(line, flush=True)
    for model in chosen:
        case = Case(
            index[model], PREPROCESS[index[model]["preproc"]], args.photos, args.seed
        )
        for way in args.ways.split(","):
            if _suits(way, index[model], entries):
                rows.append(row_of(case, way, entries))
                print(markdown(rows[-1]), flush=True)
        args.json.write_text(json.dumps([r.to_json() for r in rows], indent=1) + "\n")
    print("", *verdicts(rows), sep="\n")
    labels = list[str]()
    for line in (
        table([w for w in args.ways.split(",") if w in ("best", "fast")])
        if args.labels
        else ()
    ):
        labels.append(line)
        print(line, flush=True)
    text = [
        *_top(args.ways.split(",")),
        *map(markdown, rows),
        "",
        *verdicts(rows),
        "",
        *labels,
    ]
    args.json.with_suffix(".md").write_text("\n".join(text) + "\n")
    worse = any(behind([r for r in rows if r.model == m]) for m in chosen)
    if worse or any(best < fast for fast, best in _shares(rows).values()):
        return 1
    return 0


def _suits(
    way: str, entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> bool:
    """The TFLite quantizers read no ONNX; not every model has a published int8 twin."""
    if way in PEERS and PEERS[way].suffix == ".tflite":
        return str(entry["file"]).endswith(".tflite")
    return way != PUBLISHED or twin(entry, entries) is not None


def _top(ways: Sequence[str]) -> Iterator[str]:
    peers = dict.fromkeys(PEERS[w].engine for w in ways if w in PEERS)
    yield f"Peers: {', '.join(map(peer_env.version, peers)) or 'none'}."
    yield ""
    yield from head()


if __name__ == "__main__":
    sys.exit(main())
