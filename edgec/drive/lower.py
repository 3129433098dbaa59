"""From a model file to segments: read → optimise → quantize → partition. `compile` and `explain` share this path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgec_devices.boards import Target
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.legalize import Applied, legalize, rewrites
from edgec_partitioner.partition import Partition, Wishes, partition
from edgec_runtime import Preprocess
from edgec_runtime.manifest import MAX_THREADS

from edgec.comparing.factors import channel_factors
from edgec.drive.hands import hands
from edgec.drive.native import HostRunners, NativeGraph, native_compiler, runner
from edgec.drive.workers import Workers
from edgec.emit.c import check_kernels
from edgec.errors import InputError, did_you_mean
from edgec.frontends import read_model
from edgec.frontends.stated import stated_preprocessing
from edgec.ir import Array, Graph, Refusal, verify
from edgec.passes.pipeline import available, optimize
from edgec.quantize.calibration import Sample, load_calibration, split
from edgec.quantize.hands import Hands
from edgec.quantize.observers import Run
from edgec.quantize.preprocess import choose, tensor_info
from edgec.quantize.quantize import assumed, is_quantized, random_sample
from edgec.quantize.recipe import Recipe
from edgec.quantize.search import Found, search
from edgec.steps import Progress
from edgec.toolchain.cc import Compiler

CALIBRATION_SAMPLES = 100
"""At most so many are used, drawn from all that are given: ranges hardly change beyond."""

_UNDOES_REWRITES = "recognize_activations"
"""It would put together again what was taken apart for the Edge TPU."""

Dump = Callable[[str, Graph], None]

SHARES = ("auto", "all")
"""What the Edge TPU gets of what it can run: what is faster with it, or all."""


@dataclass(frozen=True)
class Options:
    """What a person chose about a compile; the same for `explain`.

    target: "host", "pi4", "pi4+coral", …. calibrate: a folder of photos or an .npz; given, a float model becomes int8.
    preprocess: how photos become inputs (docs/preprocessing.md). disable: names of passes, and of rewrites for the
    Edge TPU, to leave out. optimistic: give the Edge TPU ops of which it is not known whether they map.
    min_cosine: a quantized model whose outputs are less like the float model's than this is refused. validate: as
    calibrate, to verify with; default: samples held back from calibration. allow_float: a float model without
    calibration data runs on the CPU though the target has an Edge TPU. threads: the most that the C can use, 1 to 4.
    tuned: a database of schedules (docs/tune.md), "none" for no searches at all; None: the default one, if it is there.
    quantize: a recipe (docs/quantization.md): "fast", "best" or a .toml file. edgetpu: one of SHARES.
    workers: who tries the candidates of a recipe: see `Workers.of`.
    """

    target: str = "host"
    calibrate: Path | None = None
    preprocess: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    disable: Sequence[str] = ()
    min_cosine: float = 0.9
    optimistic: bool = False
    validate: Path | None = None
    allow_float: bool = False
    threads: int = 1
    tuned: str | None = None
    quantize: str = "fast"
    edgetpu: str = "auto"
    workers: str | None = None

    def check(self) -> None:
        """Raises InputError for values that cannot be."""
        if not -1 <= self.min_cosine <= 1:
            raise InputError(
                f"no cosine can be {self.min_cosine:g} or more", "--min-cosine", "give one of -1 to 1: 0.9"
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(f"no code is for {self.threads} threads", "--threads", f"give 1 to {MAX_THREADS}")
        if self.edgetpu not in SHARES:
            raise InputError(f"an Edge TPU cannot get {self.edgetpu}", "--edgetpu", f"give {' or '.join(SHARES)}")
        Workers.of(self.workers)


@dataclass(frozen=True)
class FloatModel:
    """The float form of a model that edgec quantized: the graph that was calibrated, on `samples` samples.

    run: runs it. reference: runs the model as it was before rewrites for the Edge TPU changed it. found: what became of
    the recipe, and before: what it was given.
    """

    graph: Graph
    run: Run
    reference: Run
    samples: int
    found: Found
    before: Graph

    def factors(self) -> dict[str, Array]:
        """What the recipe multiplied channels by, by value."""
        return channel_factors(self.before, self.graph)


@dataclass(frozen=True)
class Data:
    """What to calibrate with, and what to verify with, from `source`; seen: calibration has those samples too."""

    calibrate: Sequence[Sample]
    verify: Sequence[Sample]
    source: str
    seen: bool


@dataclass(frozen=True)
class Lowered:
    """A model on its way to code.

    imported: the graph as the file has it. graph: optimised and, with calibration, quantized. samples: inputs to verify
    with, from `samples_source`. quantized: whether edgec quantized it. assumed: whether its scales are made up.
    rewritten: rewrites for the Edge TPU that were made before quantization. wishes: what the partition was made by.
    floats: what a quantized model is compared with. seen: calibration had the samples too. float_on_cpu: nothing of it
    can run on the target's Edge TPU, since it was left in float.
    preprocess: of the inputs that are images, by name. notes: what of the model's file was left out, and why.
    """

    target: Target
    preprocess: Mapping[str, Preprocess]
    imported: Graph
    graph: Graph
    samples: Sequence[Sample]
    samples_source: str
    quantized: bool
    assumed: bool
    rewritten: tuple[Applied, ...]
    wishes: Wishes
    partition: Partition
    floats: FloatModel | None = None
    seen: bool = False
    float_on_cpu: bool = False
    notes: tuple[str, ...] = ()

    def inputs_told(self) -> tuple[str, ...]:
        """How photos become the inputs that are images."""
        return tuple(f'a photo becomes "{name}" by {p.explained()}' for name, p in self.preprocess.items())


def lower(
    model: Path,
    options: Options,
    *,
    dump: Dump | None = None,
    progress: Progress | None = None,
    assume: bool = False,
    cc: str | None = None,
    executor: Executor | None = None,
) -> Lowered:
    """Bring a model file to segments.

    assume: only to be looked at: a float model without calibration gets made-up scales, an operator of a .tflite file
    that edgec cannot read becomes opaque. cc: a C compiler of this machine. executor: tries the candidates of a recipe.
    """
    say = progress or (lambda text: None)
    target = Target.parse(options.target)
    options.check()
    passes_off, rewrites_off = _disabled(options.disable)
    recipe = Recipe.load(options.quantize)
    say("read")
    imported = read_model(model, options.input_shapes, opaque=assume)
    stated = stated_preprocessing(model, [tensor_info(v.name, v.type) for v in imported.inputs])
    preprocess = choose(imported.inputs, options.preprocess, stated.by_input)
    if dump is not None:
        dump("import", imported)
    say("optimise")
    plain = graph = optimize(imported.copy(), passes_off, dump)
    say("load samples")
    data = _data(imported, options, preprocess)
    check_kernels(graph)
    float_model = not is_quantized(graph)
    calibrated = float_model and options.calibrate is not None
    left = float_model and target.coral and not calibrated
    if left and not assume and not options.allow_float:
        raise _uncalibrated(model, target)
    assume, made, floats = assume and left and not options.allow_float, list[Applied](), None
    if calibrated or assume:
        say("quantize")
        if target.coral:
            graph, made = legalize(graph, exact=False, optimistic=options.optimistic, disabled=rewrites_off)
            passes_off |= {_UNDOES_REWRITES}
            graph = optimize(graph, passes_off, dump)
        if calibrated:
            who = hands(recipe, graph, options.workers, executor)
            graph, floats = _calibrated(graph, plain if made else None, data, recipe, native_compiler(cc), say, who)
        else:
            graph = assumed(graph)
        verify(graph, "quantized")
        graph = optimize(graph, passes_off, dump)
        if dump is not None:
            dump("quantize", graph)
    say("partition")
    wishes = Wishes(options.optimistic, rewrites_off, everything=options.edgetpu == "all")
    parts = place(graph, target, wishes)
    samples, source = data.verify, data.source
    return Lowered(
        target, preprocess, imported, graph, samples, source, calibrated, assume, tuple(made), wishes, parts, floats,
        data.seen, left and not assume, stated.notes,
    )  # fmt: skip


def _uncalibrated(model: Path, target: Target) -> InputError:
    what = f"{model.name} is a float model, and without calibration data nothing of it can run on the Edge TPU"
    hint = "--calibrate FOLDER (photos) or .npz makes it int8; --allow-float runs all of it on the CPU"
    return InputError(what, f"--target {target.name}", hint)


def _calibrated(
    graph: Graph, plain: Graph | None, data: Data, recipe: Recipe, compiler: Compiler, say: Progress,
    who: AbstractContextManager[Hands],
) -> tuple[Graph, FloatModel]:  # fmt: skip
    """The int8 form of a float graph. plain: what it was before rewrites, if there were any."""
    # not by what there is to verify with: the scales must not hang on that
    with who as ours:
        found = search(recipe, graph, data.calibrate, HostRunners(compiler, say), say, ours)
    own = plain is None and isinstance(found.run, NativeGraph)
    reference = found.run if own else runner(plain or found.floats, len(data.verify), compiler, say)
    return found.graph, FloatModel(found.floats, found.run, reference, found.samples, found, graph)


def without(lowered: Lowered, refused: Mapping[str, Refusal]) -> Lowered:
    """Partitioned again, with more ops refused by the Edge TPU compiler itself, by the name of their first output."""
    wishes = replace(lowered.wishes, refused={**lowered.wishes.refused, **refused})
    return replace(lowered, wishes=wishes, partition=place(lowered.graph, lowered.target, wishes))


def place(graph: Graph, target: Target, wishes: Wishes) -> Partition:
    """Split a graph for a target."""
    return partition(graph, target.board.coral if target.coral else None, cpu_cost(target), wishes)


def cpu_cost(target: Target) -> CpuCost:
    """How fast the CPU of a target's board is."""
    return CpuCost.of(target.board)


def _disabled(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """The passes and the rewrites among names. Raises InputError for a name that is neither."""
    passes, table = available(), rewrites()
    for name in names:
        if name not in passes and name not in table:
            what = f"there is no pass or rewrite {name}{did_you_mean(name, [*passes, *table])}"
            raise InputError(what, "--disable-pass", f"there are: {', '.join([*passes, *table])}")
    return set(names) & set(passes), set(names) & set(table)


def _data(graph: Graph, options: Options, chosen: Mapping[str, Preprocess]) -> Data:
    """Calibration data and others to verify with; reproducible noise to verify with where there are none."""
    preprocess = chosen.get(graph.inputs[0].name) if len(graph.inputs) == 1 else None
    given, own = options.calibrate, options.validate
    known: Sequence[Sample] = ()
    other: Sequence[Sample] = [random_sample(graph)]
    source, seen = "noise", False
    if given is not None:
        every = load_calibration(given, graph.inputs, preprocess)
        known, other = split(every, CALIBRATION_SAMPLES, hold=own is None)
        source, seen = f"{_name(given)}, held back from calibration", False
        if not other:
            other, source, seen = known, f"{_name(given)}, the same as for calibration", True
    if own is not None:
        seen = given is not None and own.resolve() == given.resolve()
        source = f"{_name(own)}, the same as for calibration" if seen else _name(own)
        other = load_calibration(own, graph.inputs, preprocess)
    return Data(known, other, source, seen)


def _name(path: Path) -> str:
    return f"{path.name}/" if path.is_dir() else path.name
