"""The cycles of other runtimes for a network on a board's core, for bench_arm: counted by
armlab, or read from a file of an earlier run (`bench_arm --peers-only`).

Counts are deterministic, and a peer's depend neither on edgec nor on the machine that
counts. So a file of them, an hour's work of the emulator, serves until a peer has a new
version.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edgec_devices.boards import Board

from benchmarks import arm_peers
from benchmarks.arm_peers import LITERT_F16
from benchmarks.arm_results import (
    estimator,
    file_digest,
    picycles,
    recall,
    remember,
)
from benchmarks.data_folder import SHARED
from benchmarks.picycles import Picycles
from edgec.schedule.cores import core

LITERT = "LiteRT"


@dataclass(frozen=True)
class Figure:
    """One peer's figure.

    Attributes:
        model: the network's name.
        sha256: of its file.
        board: the board.
        peer: the runtime, and how it computes.
        version: of the runtime.
        cycles: of one inference; None where the peer refuses the file.
        agrees: whether its outputs are those of onnxruntime.
    """

    model: str
    sha256: str
    board: str
    peer: str
    version: str
    cycles: float | None
    agrees: bool


Key = tuple[str, str, str]
"""The digest of a file, a board and a peer."""


def read(path: Path) -> dict[Key, Figure]:
    """Return the figures of a file that `write` wrote, by key."""
    figures = [Figure(**row) for row in json.loads(path.read_text())]
    return {(f.sha256, f.board, f.peer): f for f in figures}


def write(path: Path, figures: Iterable[Figure]) -> None:
    """Write figures as a JSON list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(f) for f in figures]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def figures(
    model: str, files: Sequence[Path], board: str, known: Mapping[Key, Figure] | None
) -> Iterator[Figure]:
    """Yield each peer's figure for the first of a network's files that it reads.

    Args:
        model: the network
        files: its files
        board: the board
        known: the figures of a file; None if they are counted
    """
    seen = set[str]()
    for file in files:
        for peer in _readers(file, board):
            if peer in seen:
                continue
            if known is None:
                figure = _counted(model, file, board, peer)
            else:
                figure = known.get((file_digest(file), board, peer))
                figure = figure or _published(model, file, board, peer)
            if figure is not None:
                seen.add(peer)
                yield figure


def _readers(file: Path, board: str) -> Sequence[str]:
    """Return the peers that read a file, and compute otherwise than another one."""
    peers = list(arm_peers.PEERS) if file.suffix == ".onnx" else [LITERT, LITERT_F16]
    has_float16 = core(Board.load(board).targets[0].mcpu).has_float16
    if not has_float16 or not arm_peers.is_float(file):
        peers.remove(LITERT_F16)
    return peers


def _counted(model: str, file: Path, board: str, peer: str) -> Figure | None:
    """Return the figure that armlab counts; None if the peer is not installed."""
    if published := _published(model, file, board, peer):
        return published
    lab = picycles()
    facts = arm_peers.PEERS[peer]
    # Wheels may be installed later: nothing is remembered without them.
    if lab is None or not lab.has(facts.site):
        return None
    version = lab.version(facts.site, facts.package)
    key = (
        f"figure of {peer} {version} {estimator()} {arm_peers.digest(peer)} "
        f"{file_digest(file)} {board}"
    )
    found = recall(key)
    if found is None:
        print(f"{model} on {board}: counting {peer}", file=sys.stderr)
        found = _count(lab, file, board, peer)
        # A refusal is remembered too: it takes as long as a run.
        remember(key, found)
    cycles, agrees = found
    return Figure(model, file_digest(file), board, peer, version, cycles, agrees)


def _count(
    lab: Picycles, file: Path, board: str, peer: str
) -> tuple[float | None, bool]:
    """Return the cycles, None if the peer refuses, and whether the outputs are right."""
    if file.suffix == ".tflite":
        # LiteRT is the judge of its own format.
        cycles = _count_tflite(lab, file, board, peer)
        return cycles, cycles is not None
    result = arm_peers.measure(lab, arm_peers.PEERS[peer], file, board)
    return (None, False) if result is None else (result.cycles, result.agrees)


def _count_tflite(lab: Picycles, file: Path, board: str, peer: str) -> float | None:
    if peer == LITERT:
        return lab.litert(board, file)
    with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
        halves = Path(folder, file.name)
        arm_peers.allow_halves(file, halves)
        return lab.litert(board, halves)


def _published(model: str, file: Path, board: str, peer: str) -> Figure | None:
    """Return LiteRT's figure of the data folder, if it has one."""
    if peer != LITERT or file.suffix != ".tflite":
        return None
    path = SHARED / "bench" / "arm-litert.json"
    table = json.loads(path.read_text()) if path.exists() else {}
    cycles = table.get(file.stem, {}).get(board)
    if cycles is None:
        return None
    digest = file_digest(file)
    return Figure(model, digest, board, LITERT, "2.3.0", float(cycles), True)
