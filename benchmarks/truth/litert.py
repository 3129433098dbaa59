"""Estimates of LiteRT with one thread or several, for detectors whose times are published.

Networks have the published structure and random weights (detectors.py); onnx2tf makes
.tflite files of them, whose int8 is TensorFlow's own full quantization.

XNNPACK's pool of threads is linked into LiteRT's library, so that its threads cannot run
in turn as ncnn's do.  One thread is counted, in windows of WINDOW instructions, and what
a window does is taken as split evenly: that pool cuts each operator into many more tiles
than there are threads, and a thread that has none left takes those of others.  So every
core has an n-th of a window's instructions and of the lines that its own caches lack, while
all lines of the shared cache and of the memory go the one way there is, as in
edgec_devices.multicore; and each operator has a barrier.  That the threads read the same
weights into caches of their own is not in it, nor how they disturb each other's order of
lines.  Windows are so short that each is of few operators: one that waits for the memory
and one that does not are apart.  Their length matters little: with 1,000,000 instructions
four threads of seven networks and boards come out 0.4 to 2.4 % faster.

The operator that ends a detector (last_operator.py) has one thread.  Its estimate is too
high: its blocks between branches are short, and overlap more than the pipeline model has
it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_devices.multicore import barrier_cycles, cycles_alone, cycles_together
from edgec_devices.pipeline import Work, behind_caches

from benchmarks.arm_peers import ONNX2TF, PICTURES
from benchmarks.data_folder import BUILD
from benchmarks.peer_env import environment
from benchmarks.truth.detectors import WRITERS
from benchmarks.truth.guests import GUESTS, Step, steps
from benchmarks.truth.last_operator import write
from edgec.frontends.tflite_file import TfliteFile

WINDOW = 200_000
LIMIT_S = 1800
FOLDER = BUILD / "truth"
FILES = {"fp32": "{}_float32.tflite", "int8": "{}_full_integer_quant.tflite"}
"""How onnx2tf names its files, by precision."""


def file_name(network: str) -> str | None:
    """Return the name of the .tflite file of a network that a source names; None where
    there is no such network.
    """
    name = network.lower().replace(" ", "_")
    if not name.endswith(tuple(FILES)):
        name += "_fp32"
    return name if name.rpartition("_")[0] in WRITERS else None


def milliseconds(
    board: Board, network: str, threads: int, every: int = WINDOW
) -> float:
    """Return the model's time of an inference.

    Args:
        board: the board
        network: the name of its file
        threads: that share the work
        every: instructions of a window
    """
    tflite = network_file(network)
    file = TfliteFile.load(tflite)
    cycles = 0.0
    for work in _windows(board, tflite, every):
        parts = [behind_caches(w, board.caches) for w in evenly(work, threads)]
        cycles += cycles_together(parts, board)
    if threads > 1:
        operators = sum(1 for _ in file.operators())
        cycles += operators * barrier_cycles(board)
    for work in _windows(board, _last_operator(file), every):
        cycles += cycles_alone(behind_caches(work, board.caches), board)
    return cycles / (board.clock_ghz * 1e6)


def _windows(board: Board, tflite: Path, every: int) -> Sequence[Work]:
    """Return the windows of one thread's inference of a file."""
    guest = [GUESTS / "run_tflite.py", tflite]
    return [work for (work,) in steps(board, "litert", guest, [tflite], every)]


def _last_operator(network: TfliteFile) -> Path:
    """Return the file of the operator that a detector ends with."""
    shapes = [network.type(i).shape for i in network.outputs]
    _, anchors, classes = max(shapes)
    return write(FOLDER / f"last_operator_{anchors}_{classes}.tflite", anchors, classes)


def evenly(work: Work, threads: int) -> Step:
    """Return the parts of a work that threads share evenly; they sum up to it, and are no
    operator that has a barrier of its own.
    """

    def part(k: int) -> Work:
        return replace(
            work,
            instructions=(work.instructions + k) // threads,
            core=work.core / threads,
            branches=work.branches / threads,
            unknown=(work.unknown + k) // threads,
            lines=tuple(
                (
                    (foreseen + k) // threads,
                    (other + k) // threads,
                    (written + k) // threads,
                )
                for foreseen, other, written in work.lines
            ),
            times=0,
        )

    return tuple(part(k) for k in range(threads))


def network_file(network: str) -> Path:
    """Return the .tflite file of a network, which is made where there is none.

    Raises CalledProcessError where onnx2tf refuses it.
    """
    name, _, precision = network.rpartition("_")
    to = FOLDER / FILES[precision].format(name)
    if not to.exists():
        _convert(name, precision)
    return to


def _convert(name: str, precision: str) -> None:
    """Make the .tflite files of a network, those of int8 where it is wanted."""
    python = environment("onnx2tf", ONNX2TF)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
        model = WRITERS[name](Path(folder, f"{name}.onnx"))
        pictures = np.random.default_rng(0).random((20, 128, 128, 3), np.float32)
        np.save(Path(folder, PICTURES), pictures)
        words: list[str | Path] = [python.parent / "onnx2tf", "-i", model]
        words += ["-o", FOLDER]
        if precision == "int8":
            words.append("-oiqt")
        subprocess.run(
            words, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S
        )
