"""The pipeline model against the reference of the data folder: per network and per
kernel, on each core.

The reference is armlab's `picycles`: llvm-mca's cycles of every block, with simulated
caches and branches, itself compared with published latencies.  Networks are compared
with what its command says of the same program.  Kernels, the ops of those networks, are
compared by the blocks that ran in them: the same executions, misses and mispredictions,
its cycles of a block against ours.

Markdown on the screen, build/pipeline-table.json.  Needs the data folder (EDGEC_SHARED,
default ../shared), qemu-user and what picycles needs: llvm-mca and gcc.

    python -m benchmarks.pipeline_table [--models a,b] [--boards pi3,pi4,pi5]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.pipeline import Counts, Estimate, estimate, plugin_option
from edgec_devices.plugin import block_count_plugin

from benchmarks.arm_programs import compile_for
from benchmarks.data_folder import ROOT, SHARED
from benchmarks.picycles import Picycles, missing

WORK = ROOT / "build" / "pipeline-table"
BOARDS = "pi3,pi4,pi5"
MODELS = (
    "resnet8_i8,resnet8_f32,kws_dscnn_i8,kws_dscnn_f32,vww96_i8,vww96_f32,mnv1_025_128_u8,mnv2_035_128_st,mnv2_tf2_i8,"
    "mp_selfie_land_f16,mp_face_landmark_f16,omv_blazeface_i8,ultraface_rfb320_tflite,mnist8,pfld_ghostone,"
    "mnv1_025_224_f32,prisma_i8,deeplab_dm05_u8,movenet_lightning_i8,yolox_nano_416,hourglass_pose,prisma_f32,"
    "deeplabv3_257_f32,fns_udnie_std_256"
)
SMALLEST = 10_000
"""Instructions of a kernel that is counted: below, it is mostly the profile's own
marks.
"""
INSIDE = 1.3
"""The factor for which the share of those that are not further off is shown."""


@dataclass(frozen=True)
class Row:
    """One network, or one kernel of it, on one board.

    Cycles.  unknown: share of the instructions.
    """

    board: str
    model: str
    kernel: str
    instructions: int
    ours: float
    reference: float
    unknown: float

    @property
    def ratio(self) -> float:
        """Ours by the reference's."""
        return self.ours / self.reference


def program(model: str, board: str) -> tuple[Path, dict[tuple[int, int], str]]:
    """The board's program of a model, and the kinds of the ops that its functions
    compute.
    """
    entry = next(
        e
        for e in json.loads((SHARED / "models/index.json").read_text())
        if e["name"] == model
    )
    made = compile_for(SHARED / "models" / entry["file"], board)
    return made.write(WORK / f"{model}-{board}"), {
        c.place: "+".join((c.kind, *c.also)) for c in made.calls
    }


def counted(main: Path, board: Board) -> Counts:
    """One plain inference and one with marks between ops, on the emulated board."""
    out = main.with_name("counts")
    out.unlink(missing_ok=True)
    option = plugin_option(block_count_plugin(), out, board.caches)
    target = board.targets[0]
    command = [target.qemu, "-cpu", target.qemu_cpu, "-plugin", option, str(main)]
    subprocess.run(
        [*command, "--runs", "1", "--warmup", "0", "--profile", "1"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return Counts.read(out)


def measure(model: str, name: str, reference: Picycles) -> Iterator[Row]:
    """The network's row, then its kernels'."""
    board = Board.load(name)
    main, kernels = program(model, name)
    counts = counted(main, board)
    nothing = Estimate(0, 0, 0, 0, 0)
    whole = sum(estimate(counts, board.core, board.caches, 0).values(), nothing)
    yield _row(name, model, "", whole, reference.program(name, [main, "--runs", "1"]))
    theirs = reference.places(counts, name)
    for place, e in estimate(counts, board.core, board.caches).items():
        if place in kernels and e.instructions >= SMALLEST:
            yield _row(name, model, f"{place[1]} {kernels[place]}", e, theirs[place])


def _row(board: str, model: str, kernel: str, e: Estimate, reference: float) -> Row:
    return Row(
        board,
        model,
        kernel,
        e.instructions,
        e.cycles,
        reference,
        e.unknown / max(1, e.instructions),
    )


def statistics(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the ratios: how many, the median, the median and the 90th percentile of the
    factor off, and more.
    """
    off = sorted(rows, key=lambda r: abs(math.log(r.ratio)))
    ratios = sorted(r.ratio for r in rows)
    factor = [max(r.ratio, 1 / r.ratio) for r in off]
    worst = off[-1]
    return {
        "n": len(rows),
        "median": ratios[len(rows) // 2],
        "off_50": factor[len(rows) // 2],
        "off_90": factor[min(len(rows) - 1, len(rows) * 9 // 10)],
        "inside": sum(f <= INSIDE for f in factor) / len(rows),
        "worst": worst.ratio,
        "worst_is": f"{worst.model} {worst.kernel}".strip(),
        "unknown": sum(r.unknown * r.instructions for r in rows)
        / sum(r.instructions for r in rows),
    }


def markdown(rows: Sequence[Row], boards: Iterable[str]) -> Iterator[str]:
    """The networks, then the statistics of networks and kernels."""
    yield "| network | core | M instructions | ours, M cycles | reference | ratio |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for r in rows:
        if not r.kernel:
            core = Board.load(r.board).core
            figures = (
                f"{r.instructions / 1e6:.2f} | {r.ours / 1e6:.2f} | "
                f"{r.reference / 1e6:.2f} "
                f"| {r.ratio:.2f}"
            )
            yield f"| {r.model} | {core} | {figures} |"
    yield ""
    yield (
        "| core | of | n | median ratio | half within | 90 % within | within 30 % | "
        "worst | which | unknown |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for board in boards:
        for what, some in (("networks", False), ("kernels", True)):
            chosen = [r for r in rows if r.board == board and bool(r.kernel) == some]
            if chosen:
                s = statistics(chosen)
                figures = (
                    f"{s['n']} | {s['median']:.2f} | {s['off_50'] - 1:.0%} | "
                    f"{s['off_90'] - 1:.0%} "
                    f"| {s['inside']:.1%}"
                )
                worst = f"{s['worst']:.2f} | {s['worst_is']} | {s['unknown']:.2%}"
                yield f"| {Board.load(board).core} | {what} | {figures} | {worst} |"


def main() -> None:
    """Prints the table and writes build/pipeline-table.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--boards", default=BOARDS)
    given = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    boards = given.boards.split(",")
    reference = Picycles(WORK / "armlab")
    rows: list[Row] = []
    for board in boards:
        for model in given.models.split(","):
            print(f"{model} on {board}", file=sys.stderr)
            rows += measure(model, board, reference)
    print("\n".join(markdown(rows, boards)))
    out = ROOT / "build" / "pipeline-table.json"
    out.write_text(
        json.dumps([asdict(r) | {"ratio": r.ratio} for r in rows], indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
