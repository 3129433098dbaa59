"""Writes docs/models-table.md: the estimated time of each ready network (`edgec models`)
and of each network of tests/networks on each Raspberry Pi, with a Coral stick and
without, from one file of results, benchmarks/models.json.

    python -m benchmarks.models_page [--estimate missing|all|a,b] [--check]
    python -m benchmarks.models_page --write vit_tiny    # the file of a network of the tests

With --estimate networks are estimated anew, as `edgec explain` does it: those that have no
row yet, all, or some by name. Ready ones are downloaded. It takes an hour for all. With
--check nothing is written: 1 if the page has other tables.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgec_devices.intervals import interval_text

import edgec
from benchmarks.data_folder import ROOT
from benchmarks.tables import markdown, names, with_tables, write_json
from edgec.catalogue.entries import PREFIX, catalogue
from edgec.catalogue.fetching import local_file
from edgec.errors import EdgecError
from tests.networks import MAKERS
from tests.networks.hands import hand_landmarks
from tests.networks.recent import RECENT

RESULTS = Path(__file__).with_name("models.json")
PAGE = ROOT / "docs" / "models-table.md"
LAB = ROOT / "docs" / "quantization-lab.md"
BOARDS = {"pi-zero2": "Pi Zero 2", "pi3": "Pi 3", "pi4": "Pi 4", "pi5": "Pi 5"}
CORAL = "+coral"
OURS: Mapping[str, Callable[[Path], Path]] = {
    **MAKERS,
    **RECENT,
    "hand_landmarks": hand_landmarks,
}
"""The networks of tests/networks by name, which write their own files."""
IN_LAB = {
    "face-mesh": "mp_face_landmark_f16",
    "iris": "MediaPipe iris_landmark",
    "palm-lite": "MediaPipe palm_detection_lite",
    "hand-lite": "MediaPipe hand_landmark_lite",
    "selfie-wide": "mp_selfie_land_f16",
    "text-detector": "PP-OCRv4 text detection, 320 × 320",
    "text-recogniser": "PP-OCRv4 text recognition, 48 × 320",
}
"""The rows of docs/quantization-lab.md that are about ready networks."""


@dataclass
class Network:
    """One network.

    Attributes:
        name: in the catalogue, with its prefix, or in tests/networks
        license: its SPDX identifier
        bytes: the size of its file
        macs: multiply-accumulates of an inference
        ms: the interval of the estimate for each target; None where edgec cannot compile it
    """

    name: str
    license: str
    bytes: int = 0
    macs: int = 0
    ms: dict[str, tuple[float, float] | None] = field(default_factory=dict)


def targets() -> list[str]:
    """Return the targets of the tables: each board alone, then each with a stick."""
    return [*BOARDS, *(f"{board}{CORAL}" for board in BOARDS)]


def licences() -> dict[str, str]:
    """Return the licence of each network by its name."""
    ready = {
        f"{PREFIX}{entry.name}": entry.license or group.wheel.license
        for group in catalogue()
        for entry in group.entries
        if entry.kind == "network"
    }
    return {**ready, **dict.fromkeys(OURS, "Apache-2.0")}


def estimate(name: str) -> Network:
    """Return a network with its estimates for all targets."""
    network = Network(name, licences()[name])
    with tempfile.TemporaryDirectory() as folder:
        if name in OURS:
            model = OURS[name](Path(folder) / f"{name}.onnx")
        else:
            model = local_file(Path(name), print)
        network.bytes = model.stat().st_size
        for target in targets():
            try:
                report = edgec.explain(model, target).report
            except EdgecError as e:
                print(f"{name} {target}: {e}", file=sys.stderr)
                network.ms[target] = None
                continue
            low, high = report.to_json()["interval_ms"]
            network.ms[target] = (low, high)
            network.macs = report.comparison.cpu_only.macs
            print(name, target, interval_text(low, high), flush=True)
    return network


def read() -> list[Network]:
    """Return the networks of the file of results."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return [Network(**row) for row in rows]


def tables(networks: list[Network]) -> dict[str, str]:
    """Return the tables of the page by their names."""
    ready = [n for n in networks if n.name.startswith(PREFIX)]
    ours = [n for n in networks if n.name in OURS]
    facts = (*markdown(_FACTS, (_fact_row(n) for n in ready), texts=5),)
    own_facts = (*markdown(_FACTS, (_fact_row(n) for n in ours), texts=5),)
    return {
        "ready": _text(_times(ready, "")),
        "ready with a stick": _text(_times(ready, CORAL)),
        "about ready": _text(iter(facts)),
        "tests": _text(_times(ours, "")),
        "tests with a stick": _text(_times(ours, CORAL)),
        "about tests": _text(iter(own_facts)),
        "missing": _missing_text(networks),
    }


def missing(networks: list[Network]) -> list[str]:
    """Return the names of the networks that have no row."""
    known = {network.name for network in networks}
    return [name for name in licences() if name not in known]


def _missing_text(networks: list[Network]) -> str:
    """Return a line with the networks that have no row; "" for none."""
    left = [short(name) for name in missing(networks)]
    if not left:
        return ""
    return f"Not estimated yet: {', '.join(left)}.\n"


_FACTS = ("network", "command", "licence", "int8 beside float", "file", "MACs")


def _text(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _times(networks: list[Network], suffix: str) -> Iterator[str]:
    """Yield the table of times in ms on each board, with a stick or without."""
    heads = [title + (" + Coral" if suffix else "") for title in BOARDS.values()]
    rows = []
    for network in networks:
        cells = [_cell(network.ms.get(f"{board}{suffix}")) for board in BOARDS]
        rows.append([short(network.name), *cells])
    yield from markdown(("network", *heads), rows)


def short(name: str) -> str:
    """Return a network's name in a table."""
    return f"`{name.removeprefix(PREFIX)}`"


def _cell(ms: tuple[float, float] | None) -> str:
    return "–" if ms is None else interval_text(*ms)


def _fact_row(network: Network) -> list[str]:
    """Return the cells of what is known of a network beside its times."""
    command = f"`edgec compile {network.name} --target pi4`"
    if network.name in OURS:
        command = f"`python -m benchmarks.models_page --write {network.name}`"
    size = f"{network.bytes / 1e6:.1f} MB"
    macs = f"{network.macs / 1e6:,.0f} M"
    row = [short(network.name), command, network.license, accuracy(network.name)]
    return [*row, size, macs]


def accuracy(name: str) -> str:
    """Return the SQNR of a network's int8 form, as the lab book has it; – without."""
    title = IN_LAB.get(name.removeprefix(PREFIX))
    if title is None:
        return "–"
    row = re.search(
        rf"^\| {re.escape(title)} \|.*\| ([\d.]+) \|$", LAB.read_text(), re.M
    )
    assert row is not None, title
    return f"SQNR {row[1]} dB"


def replaced(page: str, networks: list[Network]) -> str:
    """Return the text of the page with its tables made anew."""
    return with_tables(page, tables(networks))


def main() -> int:
    """Write the page, or check it; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--estimate", metavar="missing|all|a,b", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument(
        "--write", choices=OURS, help="write the .onnx of a network here"
    )
    args = parser.parse_args()
    if args.write:
        print(OURS[args.write](Path(f"{args.write}.onnx")))
        return 0
    networks = {network.name: network for network in read()}
    chosen = {"missing": missing(read()), "all": [*licences()]}
    for name in chosen.get(args.estimate, names(args.estimate)):
        networks[name] = estimate(name)
        # An hour's work is not lost with one network.
        rows = [networks[known] for known in licences() if known in networks]
        write_json(RESULTS, rows)
    page = PAGE.read_text()
    fresh = replaced(page, read())
    if args.check:
        return int(fresh != page)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
