"""edgec's model of the boards' cores beside armlab's `picycles`, by network and by function.

picycles takes llvm-mca's cycles of each block, with simulated caches and branches. Networks
are compared with its command on the same program; functions by the blocks that ran in
them: the same executions, misses and mispredictions, with its cycles of a block or with
edgec's. Markdown on the screen, build/pipeline-table.json. It needs the data folder,
qemu-user, llvm-mca and gcc.

    python -m benchmarks.pipeline_table [--models a,b] [--boards pi3,pi4,pi5]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_devices.pipeline import Counts, Estimate, estimate, plugin_option
from edgec_devices.plugin import block_count_plugin

from benchmarks.arm_programs import compile_for
from benchmarks.data_folder import BUILD, model_file
from benchmarks.picycles import Picycles, missing
from benchmarks.tables import markdown, names, write_json

WORK = BUILD / "pipeline-table"
BOARDS = ("pi3", "pi4", "pi5")
NAMES = """
    resnet8_i8 resnet8_f32 kws_dscnn_i8 kws_dscnn_f32 vww96_i8 vww96_f32 mnv1_025_128_u8
    mnv2_035_128_st mnv2_tf2_i8 mp_selfie_land_f16 mp_face_landmark_f16 omv_blazeface_i8
    ultraface_rfb320_tflite mnist8 pfld_ghostone mnv1_025_224_f32 prisma_i8 deeplab_dm05_u8
    movenet_lightning_i8 yolox_nano_416 hourglass_pose prisma_f32 deeplabv3_257_f32
    fns_udnie_std_256
""".split()  # noqa: SIM905 (a list in quotes reads better)
LEAST_INSTRUCTIONS = 10_000
"""Instructions of a function that is compared: a smaller one is mostly the profile's own
marks.
"""
NEAR = 1.3
"""The factor within which an estimate is near."""


@dataclass(frozen=True)
class Row:
    """One network, or one function of it, on one board.

    Attributes:
        board: the board
        model: the network
        function: its number and kinds; "" for the whole network
        instructions: those that ran
        cycles: by edgec's model
        reference: by picycles
        unknown: the share of instructions that the model does not know
    """

    board: str
    model: str
    function: str
    instructions: int
    cycles: float
    reference: float
    unknown: float

    @property
    def ratio(self) -> float:
        """The cycles by the reference's."""
        return self.cycles / self.reference


def measure(model: str, name: str, reference: Picycles) -> Iterator[Row]:
    """Yield the row of a network on a board, and those of its functions."""
    board = Board.load(name)
    program = compile_for(model_file(model), name)
    main = program.write(WORK / f"{model}-{name}")
    counts = _counts(main, board)

    def row(function: str, e: Estimate, cycles: float) -> Row:
        unknown = e.unknown / max(1, e.instructions)
        return Row(name, model, function, e.instructions, e.cycles, cycles, unknown)

    parts = estimate(counts, board.core, board.caches, 0).values()
    whole = sum(parts, Estimate(0, 0, 0, 0, 0))
    yield row("", whole, reference.program(name, [main, "--runs", "1"]))
    cycles = reference.places(counts, name)
    kinds = {c.place: "+".join((c.kind, *c.also)) for c in program.calls}
    for place, e in estimate(counts, board.core, board.caches).items():
        if place in kinds and e.instructions >= LEAST_INSTRUCTIONS:
            yield row(f"{place[1]} {kinds[place]}", e, cycles[place])


def _counts(main: Path, board: Board) -> Counts:
    """Return the counts of a plain inference and of one with marks between functions."""
    out = main.with_name("counts")
    out.unlink(missing_ok=True)
    option = plugin_option(block_count_plugin(), out, board.caches)
    target = board.targets[0]
    command = [target.qemu, "-cpu", target.qemu_cpu, "-plugin", option, str(main)]
    runs = ["--runs", "1", "--warmup", "0", "--profile", "1"]
    subprocess.run([*command, *runs], check=True, stdout=subprocess.DEVNULL)
    return Counts.read(out)


def network_cells(row: Row) -> list[str]:
    """Return the cells of a network."""
    core = Board.load(row.board).core
    numbers = (row.instructions / 1e6, row.cycles / 1e6, row.reference / 1e6, row.ratio)
    return [row.model, str(core), *(f"{x:.2f}" for x in numbers)]


def statistics(board: str, kind: str, rows: Sequence[Row]) -> list[str]:
    """Return the cells of the statistics of networks or functions on a board."""
    ratios = np.array([row.ratio for row in rows])
    factors = np.maximum(ratios, 1 / ratios)
    worst = rows[int(factors.argmax())]
    instructions = sum(row.instructions for row in rows)
    unknown = sum(row.unknown * row.instructions for row in rows) / instructions
    half, most = np.quantile(factors, (0.5, 0.9)) - 1
    near = float(np.mean(factors <= NEAR))
    shares = [f"{half:.0%}", f"{most:.0%}", f"{near:.1%}", f"{unknown:.2%}"]
    name = f"{worst.model} {worst.function}".strip()
    ends = [f"{np.median(ratios):.2f}", f"{worst.ratio:.2f}"]
    return [str(Board.load(board).core), kind, name, str(len(rows)), *ends, *shares]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, default=NAMES)
    parser.add_argument("--boards", type=names, default=BOARDS)
    args = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    reference = Picycles(WORK / "armlab")
    rows: list[Row] = []
    for board in args.boards:
        for model in args.models:
            print(f"{model} on {board}", file=sys.stderr)
            rows += measure(model, board, reference)
    heads = "network|core|M instructions|edgec, M cycles|picycles|ratio"
    networks = [row for row in rows if not row.function]
    print("\n".join(markdown(heads.split("|"), map(network_cells, networks), texts=2)))
    heads = "core|of|worst|n|median|its ratio|half within|90 % within|near|unknown"
    cells = []
    for board in args.boards:
        for kind in ("networks", "functions"):
            some = [r for r in rows if r.board == board]
            some = [r for r in some if bool(r.function) == (kind == "functions")]
            if some:
                cells.append(statistics(board, kind, some))
    print("", *markdown(heads.split("|"), cells, texts=3), sep="\n")
    write_json(BUILD / "pipeline-table.json", rows)


if __name__ == "__main__":
    main()
