"""From a model file to segments: read → optimise → quantize → partition. `compile` and `explain` share this path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgec_devices.boards import Target
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.legalize import Applied, legalize, rewrites
from edgec_partitioner.partition import Partition, Wishes, partition

from edgec.emit.c import check_kernels
from edgec.errors import InputError, did_you_mean
from edgec.frontends import read_model
from edgec.ir import Array, Graph, Refusal, verify
from edgec.passes.pipeline import available, optimize
from edgec.quantize.calibration import load_calibration
from edgec.quantize.preprocess import Preprocess
from edgec.quantize.quantize import assumed, is_quantized, quantize, random_sample

CALIBRATION_SAMPLES = 100
"""At most so many are used: ranges hardly change beyond."""

_UNDOES_REWRITES = "recognize_activations"
"""It would put together again what was taken apart for the Edge TPU."""

Dump = Callable[[str, Graph], None]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a person chose about a compile; the same for `explain`.

    target: "host", "pi4", "pi4+coral", …. calibrate: a folder of photos or an .npz; given, a float model becomes int8.
    preprocess: how photos become inputs (see quantize/preprocess.py). disable: names of passes, and of rewrites for the
    Edge TPU, to leave out. optimistic: give the Edge TPU ops of which it is not known whether they map.
    min_cosine: a quantized model whose outputs are less like the float model's than this is refused.
    """

    target: str = "host"
    calibrate: Path | None = None
    preprocess: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    disable: Sequence[str] = ()
    min_cosine: float = 0.9
    optimistic: bool = False


@dataclass(frozen=True)
class Lowered:
    """A model on its way to code.

    imported: the graph as the file has it. graph: optimised and, with calibration, quantized. samples: inputs to verify
    with, from `samples_source`. quantized: whether edgec quantized it. assumed: whether its scales are made up.
    rewritten: rewrites for the Edge TPU that were made before quantization. wishes: what the partition was made by.
    """

    target: Target
    preprocess: Preprocess | None
    imported: Graph
    graph: Graph
    samples: Sequence[Mapping[str, Array]]
    samples_source: str
    quantized: bool
    assumed: bool
    rewritten: tuple[Applied, ...]
    wishes: Wishes
    partition: Partition


def lower(
    model: Path, options: Options, *, dump: Dump | None = None, progress: Progress | None = None, assume: bool = False
) -> Lowered:
    """Bring a model file to segments.

    assume: only to be looked at: a float model without calibration gets made-up scales, an operator of a .tflite file
    that edgec cannot read becomes opaque.
    """
    say = progress or (lambda text: None)
    target = Target.parse(options.target)
    preprocess = Preprocess.parse(options.preprocess) if options.preprocess else None
    passes_off, rewrites_off = _disabled(options.disable)
    say("reading the model")
    imported = read_model(model, options.input_shapes, opaque=assume)
    if dump is not None:
        dump("import", imported)
    say("optimising")
    graph = optimize(imported.copy(), passes_off, dump)
    samples, source = _samples(imported, options, preprocess)
    check_kernels(graph)
    float_model = not is_quantized(graph)
    calibrated = float_model and options.calibrate is not None
    assume, made = assume and float_model and not calibrated and target.coral, list[Applied]()
    if calibrated or assume:
        say("quantizing")
        if target.coral:
            graph, made = legalize(graph, exact=False, optimistic=options.optimistic, disabled=rewrites_off)
            passes_off |= {_UNDOES_REWRITES}
            graph = optimize(graph, passes_off, dump)
        graph = quantize(graph, samples) if calibrated else assumed(graph)
        verify(graph, "quantized")
        graph = optimize(graph, passes_off, dump)
        if dump is not None:
            dump("quantize", graph)
    say("partitioning")
    wishes = Wishes(options.optimistic, rewrites_off)
    parts = place(graph, target, wishes)
    early = tuple(made)
    return Lowered(target, preprocess, imported, graph, samples, source, calibrated, assume, early, wishes, parts)


def without(lowered: Lowered, refused: Mapping[str, Refusal]) -> Lowered:
    """Partitioned again, with more ops refused by the Edge TPU compiler itself, by the name of their first output."""
    wishes = replace(lowered.wishes, refused={**lowered.wishes.refused, **refused})
    return replace(lowered, wishes=wishes, partition=place(lowered.graph, lowered.target, wishes))


def place(graph: Graph, target: Target, wishes: Wishes) -> Partition:
    """Split a graph for a target."""
    return partition(graph, target.board.coral if target.coral else None, cpu_cost(target), wishes)


def cpu_cost(target: Target) -> CpuCost:
    """How fast the CPU of a target's board is."""
    return CpuCost.scaled(target.board.clock_ghz, target.board.ipc)


def _disabled(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """The passes and the rewrites among names. Raises InputError for a name that is neither."""
    passes, table = available(), rewrites()
    for name in names:
        if name not in passes and name not in table:
            what = f"there is no pass or rewrite {name}{did_you_mean(name, [*passes, *table])}"
            raise InputError(what, "--disable-pass", f"there are: {', '.join([*passes, *table])}")
    return set(names) & set(passes), set(names) & set(table)


def _samples(
    graph: Graph, options: Options, preprocess: Preprocess | None
) -> tuple[Sequence[Mapping[str, Array]], str]:
    """The calibration data, or reproducible noise to verify with when there is none."""
    if options.calibrate is not None:
        found = load_calibration(options.calibrate, graph.inputs, preprocess, CALIBRATION_SAMPLES)
        return found, "calibration"
    return [random_sample(graph)], "noise"
