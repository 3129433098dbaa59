"""What smaller interfaces of Edge TPU segments bring: each network with and without.

A segment may repeat operations rather than have their results sent
(edgec_partitioner/recomputation.py), and its outputs may be read back without padding
(flat_outputs.py). Estimated ms of the transfers, of the rest on the Edge TPU, and on the
CPU: Markdown on the screen, build/transfers-table.json. Only public commands of edgec
are used; scales are made up, which hardly changes what maps. Networks of the data
folder (EDGEC_SHARED, default ../shared) are left out where it is absent.

    python -m benchmarks.transfers_table [--models cartoon,…] [--boards pi4,…]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.networks.recent import RECENT

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
EDGEC = [sys.executable, "-m", "edgec"]
INTERFACES = ("recomputation", "flat_outputs")
RANDOM = ("yolo11n_320", "convnext_v2_atto", "efficientformer_v2_s0")
"""Networks of tests/networks with random weights."""

SHARED_MODELS = {
    "prisma_i8": "prisma_i8.tflite",
    "yunet_n_320": "yunet_n_320.onnx",
    "movenet_lightning_i8": "movenet_lightning_i8.tflite",
    "yolox_nano_416": "yolox_nano_416.onnx",
}
"""Networks of the data folder, and their files."""


@dataclass(frozen=True)
class Times:
    """Estimated ms of an inference.

    Attributes:
        segments: the number of Edge TPU segments.
        transfer: their inputs and outputs.
        work: everything else on the Edge TPU.
        cpu: the segments on the CPU.
    """

    segments: int
    transfer: float
    work: float
    cpu: float

    @property
    def total(self) -> float:
        """The sum of all."""
        return self.transfer + self.work + self.cpu

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Times:
        """Return the times of a report of `edgec explain --json`."""
        totals = report["totals"]
        transfer = 0.0
        for segment in report["segments"]:
            parts = segment["est_parts"] or {"input": 0.0, "output": 0.0}
            transfer += parts["input"] + parts["output"]
        return cls(
            segments=totals["tpu_segments"],
            transfer=transfer,
            work=totals["tpu_ms"] - transfer,
            cpu=totals["cpu_ms"],
        )


@dataclass(frozen=True)
class Row:
    """One network on one board.

    Attributes:
        model: the name of the network.
        board: the board, with a USB Accelerator.
        before: without smaller interfaces.
        after: with them.
        applied: how many operations are repeated, and how many outputs are flat.
    """

    model: str
    board: str
    before: Times
    after: Times
    applied: Mapping[str, int]


def explained(model: Path, board: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report on a model; RuntimeError with edgec's message if it fails."""
    command = [*EDGEC, "explain", str(model), "--target", f"{board}+coral", "--json"]
    for name in without:
        command += ["--disable-pass", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{model.name}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(name: str, model: Path, board: str) -> Row:
    """Return the row of a network on a board."""
    before = explained(model, board, INTERFACES)
    after = explained(model, board)
    applied: dict[str, int] = {}
    for interface in INTERFACES:
        records = [a for a in after["applied"] if a["rewrite"] == interface]
        applied[interface] = len(records)
    return Row(name, board, Times.of(before), Times.of(after), applied)


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the networks; those with random weights are written into a folder."""
    yield "cartoon", ROOT / "fixtures" / "cartoon" / "cartoon.onnx"
    for name in RANDOM:
        yield name, RECENT[name](folder / f"{name}.onnx")
    for name, file in SHARED_MODELS.items():
        path = SHARED / "models" / name / file
        if path.is_file():
            yield name, path


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| network | board | segments | transfers | work | CPU | together "
        "| repeated | flat | gain |"
    )
    yield "| --- " * 2 + "| --: " * 8 + "|"
    for row in rows:
        old = row.before
        new = row.after
        pairs = (
            (old.transfer, new.transfer),
            (old.work, new.work),
            (old.cpu, new.cpu),
            (old.total, new.total),
        )
        cells = [f"{a:.2f} → {b:.2f}" for a, b in pairs]
        counts = [str(row.applied[name]) for name in INTERFACES]
        yield (
            f"| {row.model} | {row.board} | {old.segments} → {new.segments} "
            f"| {' | '.join(cells)} | {' | '.join(counts)} "
            f"| {1 - new.total / old.total:.0%} |"
        )


def chosen(given: str, known: Iterable[str]) -> list[str]:
    """Return the names of a list with commas, all without one."""
    wanted = [name for name in given.split(",") if name]
    return [name for name in known if not wanted or name in wanted]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--boards", default="")
    args = parser.parse_args()

    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        files = dict(models(Path(folder)))
        for name in chosen(args.models, files):
            for board in chosen(args.boards, ("pi3", "pi4", "pi5")):
                rows.append(measured(name, files[name], board))
                print(f"{name} on {board}: ok", file=sys.stderr, flush=True)
    print("\n".join(markdown(rows)))
    (ROOT / "build").mkdir(exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=1)
    (ROOT / "build" / "transfers-table.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
