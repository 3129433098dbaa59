"""Stage 4b of a compile: float16 for what stays float, where the board computes with it.

A Cortex-A76 does twice as many multiply-accumulates in float16 as in float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from edgec_devices.boards import Board, Target

from edgec.compiler.host import Host
from edgec.compiler.native import NativeGraph
from edgec.compiler.quantize import FinalModel
from edgec.compiler.read import ReadModel
from edgec.compiler.samples import FIXTURES, Samples
from edgec.errors import InputError, UnsupportedError
from edgec.float16.choose import Compiled, Float16Choice, Float16Chooser, Sample
from edgec.float16.convert import float16_ops
from edgec.ir import Graph, Run
from edgec.options.compile import Options
from edgec.quantize.observe.calibration import chosen, load_calibration, spread
from edgec.schedule.cores import cores_of

AUTO = "auto"
WIDTHS = ("16", "32", AUTO)
"""The values of --float."""
MAX_SAMPLES = 8
"""The most samples to measure a choice on."""
MIN_SAMPLES = 4
"""The fewest, where so many are given."""
MEASURED_MACS = 12e9
"""Multiply-accumulates of one pass over the samples: some seconds of C.

It is a count and no time, so the same inputs give the same bundle.
"""
MAX_NAMES = 3
"""Operations that a note names; of more it says how many there are."""


def check_width(options: Options) -> None:
    """Raise InputError for a width that is none, or that the board's core lacks."""
    width = options.float_width
    if width not in WIDTHS:
        raise InputError(
            f"floats of {width} bits are not known",
            "--float",
            f"give {', '.join(WIDTHS[:-1])} or {AUTO}",
        )
    target = Target.parse(options.target)
    if width == "16" and not has_float16(target.board):
        raise InputError(
            f"the core of {options.target} does not compute with float16",
            "--float",
            "leave it out, or compile for pi5",
        )


def listed(names: Collection[str]) -> str:
    """Return some names of operations as a list, and how many others there are."""
    first = sorted(names)[:MAX_NAMES]
    others = len(names) - len(first)
    text = ", ".join(first)
    return f"{text} and {others} others" if others else text


def has_float16(board: Board) -> bool:
    """Return whether the vectors of a board's core compute with float16."""
    return cores_of(board, board.targets[0])[-1].has_float16


def with_float16(
    model: FinalModel,
    options: Options,
    read: ReadModel,
    samples: Samples,
    host: Host,
    float32: Collection[str] = (),
) -> FinalModel:
    """Return a model with float16 in place of float32, as far as --float allows.

    Args:
        model: the model in its final precision, but for the width of floats
        options: the options of the compile
        read: the model as read, with the preprocessing of its inputs
        samples: the samples to measure on, if a person gave some
        host: the C compiler of this machine
        float32: operations that stay float32 in any case, by their first outputs
    """
    graph = model.graph
    board = Target.parse(options.target).board
    if options.float_width == "32" or not has_float16(board) or not float16_ops(graph):
        return model

    host.say("float16")
    try:
        measured = _samples(graph, read, samples)
        chooser = Float16Chooser(graph, measured, _runs(host), float32)
        is_forced = options.float_width == "16"
        choice = chooser.all_float16() if is_forced else chooser.within_limits()
    except (NotImplementedError, UnsupportedError):
        # A graph that cannot be C for this machine cannot be measured.
        remark = "floats stay float32: float16 cannot be measured on this computer"
        return replace(model, notes=(*model.notes, remark))

    notes = (*model.notes, *_notes(choice))
    return replace(model, graph=choice.graph, float16=choice, notes=notes)


def float32_names(choice: Float16Choice, halves: Collection[str]) -> set[str]:
    """Return the names in the float32 graph of the results of some float16 ops.

    halves: the names of these results in the graph of the choice
    """
    names = set(halves)
    for op in choice.graph.ops:
        first = op.inputs[0] if op.inputs else None
        # An output of the graph keeps its name behind a cast (`_Conversion`).
        if op.kind == "cast" and first is not None and first.name in halves:
            names.add(op.output.name)

    return names


def _samples(graph: Graph, read: ReadModel, samples: Samples) -> Sequence[Sample]:
    """Return some samples to measure on: the fewer, the more a run costs."""
    macs = sum(op.spec.macs(op) for op in graph.ops)
    affordable = int(MEASURED_MACS / max(1, macs))
    count = min(MAX_SAMPLES, max(MIN_SAMPLES, affordable))
    every = _every_sample(graph, read, samples)
    # The first of a folder may be all alike.
    return chosen(every, spread(len(every), count))


def _every_sample(graph: Graph, read: ReadModel, samples: Samples) -> Sequence[Sample]:
    """Return a person's samples, else those of photos, else noise."""
    inputs = graph.given()
    folders = (place / "photos" for place in FIXTURES)
    folder = next((folder for folder in folders if folder.is_dir()), None)
    takes_photos = len(inputs) == 1 and inputs[0].name in read.preprocess
    if samples.source != "noise" or folder is None:
        return samples.verify
    if graph.state or not takes_photos:
        return samples.verify

    return load_calibration(folder, inputs, read.preprocess[inputs[0].name])


def _runs(host: Host) -> Compiled:
    """Return a function that compiles a graph for this machine's vectors.

    They round float16 as the board's do (csrc/simd/ek_simd_f16.h).
    """
    here = Board.load("host")
    core = cores_of(here, here.targets[0])[-1]

    def compiled(graph: Graph, winograd: int) -> Run:
        limited = replace(core, winograd_f16=winograd)
        return NativeGraph(graph, host.compiler, limited)

    return compiled


def _notes(choice: Float16Choice) -> Iterator[str]:
    """Yield the remark on the widths of a model's floats."""
    if not choice.converted:
        yield "floats stay float32: with float16 an output is beyond 47 dB or 1%"
        return

    remark = f"{choice.converted} operations compute with float16"
    if choice.kept:
        remark += f", {len(choice.kept)} stay float32"
    if choice.losses:
        least = min(loss.sqnr_db for loss in choice.losses.values())
        largest = max(loss.largest for loss in choice.losses.values())
        remark += (
            f": SQNR of {least:.0f} dB or more, errors of at most {largest:.1%} of the "
            f"range, on {choice.samples} samples"
        )
    if not choice.is_small:
        remark += ", which is more than --float auto allows (47 dB, 1%)"
    yield remark
