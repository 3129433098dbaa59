"""What int8 costs: edgec's recipes beside public quantizers, on photos that none of them
was calibrated on.

Every float model of the data folder whose one input is a photo. Half of the photos, drawn
by a seed, calibrate, and the others test. Peers read ONNX; a .tflite model is converted
for them by tf2onnx. Each engine is compared with the float model as the same engine runs
it, and a published file with edgec's float bundle. Figures of several outputs are means.

    SQNR     signal to quantization noise over all photos, dB (at most 100)
    centred  the same about the mean of the output, which hardly changing outputs need
    median   the SQNR of the median photo
    TPU      share of MACs on the Edge TPU, which is given all that it can run
    s, MB    time and memory: of the whole command with edgec, of quantizing alone with peers

A peer's row is the best of its settings on the test photos, which flatters peers. Each
peer gets a Python environment of its own under build/. Markdown on the screen,
build/accuracy-table.json; the exit code is 1 if `best` is more than TOLERANCE below a peer
or a published file, or has less on the Edge TPU than `fast`.

    python -m benchmarks.accuracy_table [--models a,b] [--ways best,aimet-enhanced]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks import peer_env
from benchmarks.accuracy_labels import table as labels_table
from benchmarks.accuracy_rows import Case, Row
from benchmarks.accuracy_ways import PEERS, PUBLISHED, RECIPES, published_file, row_of
from benchmarks.data_folder import BUILD, PREPROCESS, index
from benchmarks.tables import line, markdown, names, write_json

TOLERANCE = 0.2
"""dB by which `best` may be below the best peer."""
HEADS = (
    "model",
    "way",
    "SQNR, dB",
    "centred",
    "median",
    "TPU, %",
    "s",
    "MB",
    "note",
)
FIGURES = ("sqnr", "centred", "median")


def float_models() -> Iterator[str]:
    """Yield the names of the float models whose one input is a photo."""
    for name, entry in index().items():
        types = {*(entry.get("tensor_types") or {}), *(entry.get("init_types") or {})}
        is_int8 = not types.isdisjoint({"int8", "uint8", "INT8", "UINT8"})
        if entry["preproc"] in PREPROCESS and len(entry["inputs"]) == 1 and not is_int8:
            yield name


def cells(row: Row) -> list[str]:
    """Return a row's cells."""
    db = [_db_text(row, figure) for figure in FIGURES]
    edgetpu = "" if row.edgetpu is None else f"{100 * row.edgetpu:.1f}"
    return [
        row.model,
        row.way,
        *db,
        edgetpu,
        f"{row.seconds:g}",
        str(row.memory),
        row.note,
    ]


def _db_text(row: Row | None, figure: str = "sqnr") -> str:
    db = None if row is None else getattr(row, figure)
    return "" if db is None else f"{db:.2f}"


class Results:
    """The rows that have figures, by model and way.

    Args:
        rows: all rows
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[str, dict[str, Row]] = {}
        for row in rows:
            ways = self._rows.setdefault(row.model, {})
            if row.sqnr is not None:
                ways[row.way] = row

    def is_behind(self, model: str) -> bool:
        """Return whether `best` is more than TOLERANCE below a peer or published file."""
        ways = self._rows[model]
        others = [ways[way] for way in (*PEERS, PUBLISHED) if way in ways]
        return "best" in ways and any(
            _sqnr(ways["best"]) < _sqnr(other) - TOLERANCE for other in others
        )

    def less_on_edgetpu(self) -> list[str]:
        """Return the models of which `best` has less on the Edge TPU than `fast`."""
        pairs = {
            model: [ways[recipe].edgetpu or 0.0 for recipe in RECIPES]
            for model, ways in self._rows.items()
            if {*RECIPES} <= ways.keys()
        }
        return [model for model, (best, fast) in pairs.items() if best < fast]

    def failed(self) -> bool:
        """Return whether a model is behind, or has less on the Edge TPU."""
        return any(map(self.is_behind, self._rows)) or bool(self.less_on_edgetpu())

    def verdicts(self) -> Iterator[str]:
        """Yield a table of models, and one of the means over models."""
        heads: Sequence[str] = (
            "model",
            "best peer",
            "dB",
            "fast",
            "best",
            "published",
            "holds",
        )
        yield from markdown(
            heads, (self._verdict(m, w) for m, w in self._rows.items()), 2
        )
        yield ""
        heads = ("best -", "models", *HEADS[2:5])
        yield from markdown(heads, self._differences())
        if models := self.less_on_edgetpu():
            yield f"\nless on the Edge TPU by best than by fast: {', '.join(models)}"

    def _verdict(self, model: str, ways: Mapping[str, Row]) -> list[str]:
        peer = max((ways[w] for w in PEERS if w in ways), key=_sqnr, default=None)
        columns = [peer, *(ways.get(way) for way in ("fast", "best", PUBLISHED))]
        holds = "no" if self.is_behind(model) else "yes"
        name = peer.way if peer else "none"
        return [model, name, *map(_db_text, columns), holds if "best" in ways else ""]

    def _differences(self) -> Iterator[list[str]]:
        """Yield the means of `best` minus each way over the models that have both."""
        for way in (*PEERS, PUBLISHED, "fast"):
            pairs = [
                (ways["best"], ways[way])
                for ways in self._rows.values()
                if {"best", way} <= ways.keys()
            ]
            if pairs:
                means = [
                    np.mean([getattr(a, name) - getattr(b, name) for a, b in pairs])
                    for name in FIGURES
                ]
                yield [way, str(len(pairs)), *(f"{mean:+.2f}" for mean in means)]


def _sqnr(row: Row) -> float:
    assert row.sqnr is not None
    return row.sqnr


def main() -> int:
    """Print the tables, and return 1 if `best` is behind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, help="default: all")
    parser.add_argument(
        "--ways",
        type=names,
        default=[*RECIPES, *PEERS, PUBLISHED],
        help=f"{', '.join(RECIPES)}, FILE.toml, {', '.join(PEERS)}, {PUBLISHED}",
    )
    parser.add_argument("--photos", type=int, default=1000, help="at most so many")
    parser.add_argument("--seed", type=int, default=0, help="of the halves of photos")
    args = parser.parse_args()
    engines = dict.fromkeys(PEERS[way].engine for way in args.ways if way in PEERS)
    print(f"Peers: {', '.join(map(peer_env.version, engines)) or 'none'}.\n")
    print("\n".join(markdown(HEADS, [], texts=2)))
    rows: list[Row] = []
    for model in args.models or float_models():
        case = Case(model, args.photos, args.seed)
        for way in args.ways:
            if way != PUBLISHED or published_file(model):
                rows.append(row_of(case, way))
                print(line(cells(rows[-1])), flush=True)
        write_json(BUILD / "accuracy-table.json", rows)
    results = Results(rows)
    print("", *results.verdicts(), "", sep="\n")
    recipes = [way for way in args.ways if way in RECIPES]
    print("\n".join(labels_table(recipes)))
    return int(results.failed())


if __name__ == "__main__":
    sys.exit(main())
