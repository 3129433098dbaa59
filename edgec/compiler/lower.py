"""From a model file to segments: read → optimise → quantize → partition.

`compile` and `explain` share this path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from edgec_devices.boards import Target
from edgec_partitioner.legalize import Applied, legalize, rewrites
from edgec_partitioner.partition import Partition, Wishes
from edgec_partitioner.rounding import as_tflite
from edgec_runtime import Preprocess
from edgec_runtime.bundle.manifest import MAX_THREADS
from threadpoolctl import threadpool_limits

from edgec.comparing.changes import Changes, channel_changes
from edgec.compiler import finite, quantized_file
from edgec.compiler.executor import hands
from edgec.compiler.native import (
    HostRunners,
    NativeGraph,
    least_ms,
    native_compiler,
    runner,
)
from edgec.compiler.place import costs, left_in_float, place, pricer
from edgec.compiler.workers import Workers
from edgec.emit.c import check_kernels
from edgec.errors import InputError, UnsupportedError, did_you_mean
from edgec.frontends import read_model
from edgec.frontends.asked import likely_state
from edgec.frontends.stated import stated_preprocessing
from edgec.frontends.ultralytics import Head
from edgec.ir import Calls, Graph, Refusal, Run, verify
from edgec.ir.tensors import tensor_info
from edgec.passes._int16 import without_bounds
from edgec.passes.pipeline import available, optimize
from edgec.passes.recognize_quantized import described
from edgec.quantize.calibration import (
    HELD_BACK,
    CachedSamples,
    Sample,
    ahead,
    label,
    load_calibration,
    split,
)
from edgec.quantize.limits import Limits, share
from edgec.quantize.plan import Pricer, leaving
from edgec.quantize.preprocess import choose
from edgec.quantize.pruning import Pruned, prune
from edgec.quantize.quantize import assumed, evenly, is_quantized, random_sample
from edgec.quantize.recipe import Recipe
from edgec.quantize.search import QuantizedModel, parts, search
from edgec.quantize.work import QuantizationState
from edgec.steps import Progress
from edgec.toolchain.cc import Compiler

CALIBRATION_SAMPLES = 100
"""At most so many are used, drawn from all that are given: ranges hardly change beyond."""

_UNDOES_REWRITES = "recognize_activations"
"""It would put together again what was taken apart for the Edge TPU."""

Dump = Callable[[str, Graph], None]

_TO_TIME = 10**9
"""Samples: what is timed is C."""

_SLOWDOWN = "--max-slowdown"
COMPILE_RECIPE = "best"
EXPLAIN_RECIPE = "fast"
"""Where operations run hardly depends on the recipe, and a person who asks for it
should not wait for minutes.
"""
SHARES = ("auto", "all")
"""What the Edge TPU gets of what it can run: what is faster with it, or all."""


@dataclass(frozen=True)
class Options:
    """What a person chose about a compile; the same for `explain`.

    target: "host", "pi4", "pi4+coral", …. calibrate: a folder of photos or an .npz;
    given, a float model becomes int8. preprocess: how photos become inputs
    (docs/preprocessing.md). disable: names of passes, and of rewrites for the Edge TPU,
    to leave out. optimistic: give the Edge TPU ops of which it is not known whether
    they map. min_cosine: a quantized model whose outputs are less like the float
    model's than this is refused. validate: as calibrate, to verify with; default:
    samples held back from calibration. allow_float: a float model without calibration
    data runs on the CPU though the target has an Edge TPU. threads: the most that the C
    can use, 1 to 4. tuned: a database of schedules (docs/tune.md), "none" for no
    searches at all; None: the default one, if it is there. quantize: a recipe
    (docs/quantization.md): "best", "fast" or a .toml file; None: COMPILE_RECIPE, or
    EXPLAIN_RECIPE where the model is only looked at. edgetpu: one of SHARES. workers:
    who tries the candidates of a recipe: see `Workers.of`. prune: how far channels are
    taken out, as max_drop. float_ops: names of ops that stay float. max_drop, min_sqnr,
    max_ms, min_tpu_share: see `Limits.of`. max_slowdown: how much more time float ops
    may cost where there are no such limits; None: what the recipe says. fix, state: of
    inputs, by name: their values, and the outputs that come back as them
    (`read_model`). also: code that the bundle has beside the board's, as
    `Board.with_optional` takes it. head: where a network that picks its boxes itself
    may end: it does where that cannot be int8, or cannot be read. keep_head: it does
    not.
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
    quantize: str | None = None
    edgetpu: str = "auto"
    workers: str | None = None
    prune: str | None = None
    float_ops: Sequence[str] = ()
    max_drop: str | None = None
    min_sqnr: float | None = None
    max_ms: float | None = None
    min_tpu_share: str | None = None
    max_slowdown: str | None = None
    fix: Mapping[str, Sequence[float]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[str] = ()
    head: Head | None = None
    keep_head: bool = False

    @property
    def limits(self) -> Limits:
        """How far ops are left in float.

        Raises InputError for values that cannot be.
        """
        return Limits.of(self.max_drop, self.min_sqnr, self.max_ms, self.min_tpu_share)

    def check(self) -> None:
        """Raises InputError for values that cannot be."""
        share("--prune", self.prune)
        if self.calibrate is None and _precision_options(self):
            what = f"{_precision_options(self)} is for a float model that becomes int8"
            raise InputError(
                what, "--calibrate", "give a folder of photos or an .npz file"
            )
        if share(_SLOWDOWN, self.max_slowdown) is not None and self.limits:
            what = (
                "what stays float is either as little as a limit wants, "
                "or what a slowdown allows"
            )
            raise InputError(
                what,
                _SLOWDOWN,
                "leave it out, or the limits; a budget beside a goal is --max-ms",
            )
        if self.min_tpu_share is not None and not Target.parse(self.target).coral:
            raise InputError(
                f"{self.target} has no Edge TPU",
                "--min-tpu-share",
                "give a target with one: pi4+coral",
            )
        if not -1 <= self.min_cosine <= 1:
            raise InputError(
                f"no cosine can be {self.min_cosine:g} or more",
                "--min-cosine",
                "give one of -1 to 1: 0.9",
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(
                f"no code is for {self.threads} threads",
                "--threads",
                f"give 1 to {MAX_THREADS}",
            )
        if self.edgetpu not in SHARES:
            raise InputError(
                f"an Edge TPU cannot get {self.edgetpu}",
                "--edgetpu",
                f"give {' or '.join(SHARES)}",
            )
        Workers.of(self.workers)


@dataclass(frozen=True)
class FloatModel:
    """The float form of a model that edgec quantized: the graph that was calibrated, on
    `samples` samples.

    run: runs it. reference: runs the model as it was before rewrites for the Edge TPU
    and pruning changed it. found: what became of the recipe, and before: what it was
    given. pruned: None where that was not asked for; pruned_ms: before and after,
    measured here.
    """

    graph: Graph
    run: Run
    reference: Run
    samples: int
    found: QuantizedModel
    before: Graph
    pruned: Pruned | None = None
    pruned_ms: tuple[float, ...] = ()

    def changes(self) -> Changes:
        """What the recipe multiplied channels by and added to them, by value."""
        return channel_changes(self.before, self.graph, self.found.parts)


@dataclass(frozen=True)
class Data:
    """What to calibrate with, and what to verify with, from `source`; seen: calibration
    has those samples too.
    """

    calibrate: Sequence[Sample]
    verify: Sequence[Sample]
    source: str
    seen: bool


@dataclass(frozen=True)
class Lowered:
    """A model on its way to code.

    imported: the graph as the file has it. graph: optimised and, with calibration,
    quantized. samples: inputs to verify with, from `samples_source`. quantized: whether
    edgec quantized it. assumed: whether its scales are made up. rewritten: rewrites for
    the Edge TPU that were made before quantization. wishes: what the partition was made
    by. floats: what a quantized model is compared with. seen: calibration had the
    samples too. float_on_cpu: nothing of it can run on the target's Edge TPU, since it
    was left in float. preprocess: of the inputs that are images, by name. notes: what
    of the model's file was left out, and why. law: the int8 graph that an ONNX file
    describes in floats, which its code must agree with instead of `imported`. headless:
    `imported` ends at options.head.
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
    law: Graph | None = None
    headless: bool = False

    def inputs_told(self) -> tuple[str, ...]:
        """How photos become the inputs that are images."""
        return tuple(
            f'a photo becomes "{name}" by {p.explained()}'
            for name, p in self.preprocess.items()
        )


@np.errstate(
    over="ignore", invalid="ignore"
)  # what is not finite in the file is told of, and stays so
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

    assume: only to be looked at: a float model without calibration gets made-up scales,
    an operator of a .tflite file that edgec cannot read becomes opaque. cc: a C
    compiler of this machine. executor: tries candidates of a recipe.
    """
    say = progress or (lambda text: None)
    target = Target.parse(options.target, options.also)
    options.check()
    passes_off, rewrites_off = _disabled(options.disable)
    recipe = _recipe(options, assume)
    wishes = Wishes(
        options.optimistic, rewrites_off, everything=options.edgetpu == "all"
    )
    say("read")
    imported, preprocess, notes = _read(model, options, opaque=assume)
    headless = options.head is not None and options.head.name in {
        v.name for v in imported.outputs
    }
    seen = dump or (lambda name, graph: None)
    seen("import", imported)
    say("optimise")
    graph = optimize(imported.copy(), passes_off, dump)
    plain = graph
    say("load samples")
    check_kernels(graph)
    data = _data(
        graph,
        options,
        preprocess,
        partial(runner, compiler=native_compiler(cc), say=say),
    )
    float_model = _is_float(graph, options)
    calibrated = float_model and options.calibrate is not None
    left = float_model and target.coral and not calibrated
    if left and not assume and not options.allow_float:
        raise _uncalibrated(model, target)
    assume = assume and left and not options.allow_float
    made = list[Applied]()
    floats = None
    if calibrated or assume:
        graph = optimize(graph, passes_off, dump) if without_bounds(graph) else graph
        plain = graph
        if target.coral:
            graph, made = legalize(
                graph, exact=False, optimistic=options.optimistic, disabled=rewrites_off
            )
            passes_off |= {_UNDOES_REWRITES}
            graph = optimize(graph, passes_off, dump)
        if calibrated:
            way = _QuantizeContext(
                recipe,
                options,
                pricer(target, wishes, passes_off),
                executor,
                native_compiler(cc),
                say,
            )
            graph, floats = _calibrated(graph, plain if made else None, data, way)
            wishes = replace(wishes, refused=left_in_float(floats.found))
        else:
            graph = assumed(graph)
        verify(graph, "quantized")
        graph = optimize(graph, passes_off, dump)
        seen("quantize", graph)
    say("partition")
    law = _law(graph, target) if described(imported) and not float_model else None
    return Lowered(
        target,
        preprocess,
        imported,
        graph,
        data.verify,
        data.source,
        calibrated,
        assume,
        tuple(made),
        wishes,
        place(graph, target, wishes),
        floats,
        data.seen,
        left and not assume,
        (
            *notes,
            *_told_of_state(imported),
            *_precision_notes(float_model, options, floats, law),
        ),
        law,
        headless,
    )


def _read(
    model: Path, options: Options, opaque: bool
) -> tuple[Graph, Mapping[str, Preprocess], list[str]]:
    """The graph of a model file, how photos become its inputs, and what there is to say
    of the file.

    opaque: an operator that edgec cannot read becomes one that it does not look into.
    """
    graph, ended = _graph(model, options, opaque)
    stated = stated_preprocessing(
        model, [tensor_info(v.name, v.type) for v in graph.given()]
    )
    preprocess = choose(graph.given(), options.preprocess, stated.by_input)
    return graph, preprocess, [*ended, *stated.notes, *finite.check_constants(graph)]


def _graph(model: Path, options: Options, opaque: bool) -> tuple[Graph, list[str]]:
    """The graph of a model file, which ends before a head that picks boxes where that
    does not map; and why.
    """
    read = partial(
        read_model,
        model,
        options.input_shapes,
        opaque=opaque,
        fixed=options.fix,
        state=options.state,
    )
    head = None if options.keep_head else options.head
    becomes_int8 = options.calibrate is not None or (opaque and not options.allow_float)
    if head is None or not becomes_int8:
        try:
            return read(), []
        except UnsupportedError as e:
            if head is None:
                raise
            why = e.what
    else:
        why = "in int8 a box's pixels and its scores would share one scale"
    told = (
        f'the end-to-end head behind "{head.name}" is left out ({why}); '
        "edgec's "
        "C picks the boxes as that would"
    )
    return read(outputs=head.outputs), [told]


def _law(graph: Graph, target: Target) -> Graph:
    """The int8 graph as the target's code rounds."""
    return as_tflite(graph.copy()) if target.coral else graph.copy()


def _precision_notes(
    float_model: bool, options: Options, floats: FloatModel | None, law: Graph | None
) -> Iterator[str]:
    """What there is to say of what is int8 and what is not. law: a file that was
    quantized before.
    """
    yield from _left_alone(float_model, options)
    if floats is not None:
        yield from costs(floats.found)
    if law is not None:
        yield from quantized_file.notes(law)


def _left_alone(float_model: bool, options: Options) -> Iterator[str]:
    """What there is to say where a model that was to be made int8 stays as it is."""
    asked = ["--calibrate"] if options.calibrate is not None else []
    if options.quantize is not None:
        asked.append(f"--quantize {options.quantize}")
    if not float_model and asked:
        did = "does" if len(asked) == 1 else "do"
        yield (
            "the model is quantized already and is taken exactly as it is: "
            f"{' and '.join(asked)} {did} nothing"
        )
    elif options.calibrate is None and options.quantize is not None:
        yield f"the model stays in float: --quantize {options.quantize} wants --calibrate"


def _uncalibrated(model: Path, target: Target) -> InputError:
    what = (
        f"{model.name} is a float model, and without calibration data nothing of "
        "it "
        "can run on the Edge TPU"
    )
    hint = (
        "--calibrate FOLDER (photos) or .npz makes it int8; "
        "--allow-float runs "
        "all of it on the CPU"
    )
    return InputError(what, f"--target {target.name}", hint)


def _is_float(graph: Graph, options: Options) -> bool:
    """Whether the model is float.

    Raises InputError where it is not, and some of it was to be left so.
    """
    if not is_quantized(graph):
        return True
    if _precision_options(options):
        what = f"{graph.name} is quantized already, and edgec takes such models as they are"
        raise InputError(what, _precision_options(options), "give the float model")
    return False


def _precision_options(options: Options) -> str:
    """Those that were given."""
    names = ["prune", "float_ops", *options.limits.to_json(), "max_slowdown"]
    return ", ".join(
        f"--{n.replace('_', '-')}"
        for n in names
        if getattr(options, n) not in (None, ())
    )


def _recipe(options: Options, assume: bool) -> Recipe:
    """The recipe that was named, or the default one, with what is to be left in float.
    assume: as in `lower`.
    """
    recipe = Recipe.load(
        options.quantize or (EXPLAIN_RECIPE if assume else COMPILE_RECIPE)
    )
    allowed = share(_SLOWDOWN, options.max_slowdown)
    recipe = recipe if allowed is None else replace(recipe, slowdown=allowed)
    return replace(
        recipe,
        candidates=tuple(
            leaving(c, tuple(options.float_ops)) for c in recipe.candidates
        ),
    )


@dataclass(frozen=True)
class _QuantizeContext:
    """How float graphs become int8: by what, at which price, and who does it."""

    recipe: Recipe
    options: Options
    price: Pricer
    executor: Executor | None
    compiler: Compiler
    say: Progress


def _calibrated(
    graph: Graph, plain: Graph | None, data: Data, way: _QuantizeContext
) -> tuple[Graph, FloatModel]:
    """The int8 form of a float graph. plain: what it was before rewrites, if there were
    any.
    """
    compiler = way.compiler
    say = way.say
    pruned = None
    here = tuple[float, ...]()
    allowed = share("--prune", way.options.prune)
    if allowed is not None:
        fit, held = next(parts(QuantizationState(graph, CachedSamples(data.calibrate))))
        hosts = HostRunners(compiler, say)
        pruned = prune(graph, fit.samples, held, hosts, allowed, way.price)
        if pruned.kept is not None:
            both = [hosts.int8(evenly(g), _TO_TIME) for g in (graph, pruned.graph)]
            here = tuple(least_ms(both, held[0]))
        plain = plain or graph
        graph = pruned.graph
    _check_finite(graph, data.calibrate, HostRunners(compiler, say))
    # samples run side by side already: threads of a matrix product would only wait for
    # cores, and busily
    with (
        threadpool_limits(1, "blas"),
        hands(way.recipe, graph, way.options.workers, way.executor) as who,
    ):
        # not by what there is to verify with: the scales must not hang on that
        found = search(
            way.recipe,
            graph,
            data.calibrate,
            HostRunners(compiler, say),
            say,
            who,
            way.options.limits,
            way.price,
        )
    own = plain is None and isinstance(found.run, NativeGraph)
    if own:
        reference = found.run
    else:
        reference = runner(plain or found.floats, len(data.verify), compiler, say)
    return found.graph, FloatModel(
        found.floats, found.run, reference, found.samples, found, graph, pruned, here
    )


def _check_finite(graph: Graph, samples: Sequence[Sample], hosts: HostRunners) -> None:
    run = hosts.floats(graph, len(samples))
    finite.check_calibration(
        graph, samples, run, [label(samples, i) for i in range(len(samples))]
    )


def without(lowered: Lowered, refused: Mapping[str, Refusal]) -> Lowered:
    """Partitioned again, with more ops refused by the Edge TPU compiler itself, by the
    name of their first output.
    """
    wishes = replace(lowered.wishes, refused={**lowered.wishes.refused, **refused})
    return replace(
        lowered, wishes=wishes, partition=place(lowered.graph, lowered.target, wishes)
    )


def _disabled(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """The passes and the rewrites among names.

    Raises InputError for a name that is neither.
    """
    passes = available()
    table = rewrites()
    for name in names:
        if name not in passes and name not in table:
            what = (
                "there is no pass or rewrite "
                f"{name}{did_you_mean(name, [*passes, *table])}"
            )
            raise InputError(
                what, "--disable-pass", f"there are: {', '.join([*passes, *table])}"
            )
    return set(names) & set(passes), set(names) & set(table)


def _told_of_state(graph: Graph) -> Iterator[str]:
    """What is kept between calls, or may have to be."""
    if graph.state:
        names = ", ".join(s.input for s in graph.state)
        nbytes = sum(s.initial.nbytes for s in graph.state)
        yield (
            f"state: {names} ({nbytes} bytes) is kept from one call to the next; "
            "session.reset() begins anew"
        )
    for before, after in likely_state(graph):
        option = f"--state {before.name}={after.name}"
        yield (
            f"{before.name} and {after.name} look like state: "
            f"{option} keeps it "
            "from one call to the next"
        )


def _data(
    graph: Graph,
    options: Options,
    chosen: Mapping[str, Preprocess],
    runs: Callable[[Graph, int], Run],
) -> Data:
    """Calibration data and others to verify with; reproducible noise to verify with
    where there are none.

    Of a graph with state, samples are the first of a sequence of calls; what the calls
    before left (by `runs`) becomes part of each.
    """
    inputs = graph.given()
    preprocess = chosen.get(inputs[0].name) if len(inputs) == 1 else None

    def load(path: Path) -> Sequence[Sample]:
        found = load_calibration(path, inputs, preprocess)
        if graph.state:
            found = found[: CALIBRATION_SAMPLES + HELD_BACK]
            found = [*Calls(graph, runs(graph, len(found))).inputs(ahead(found))]
        return found

    given = options.calibrate
    own = options.validate
    known: Sequence[Sample] = ()
    other: Sequence[Sample] = [random_sample(graph)]
    source = "noise"
    seen = False
    if given is not None:
        every = load(given)
        known, other = split(every, CALIBRATION_SAMPLES, hold=own is None)
        source = f"{_name(given)}, held back from calibration"
        seen = False
        if not other:
            other = known
            source = f"{_name(given)}, the same as for calibration"
            seen = True
    if own is not None:
        seen = given is not None and own.resolve() == given.resolve()
        source = f"{_name(own)}, the same as for calibration" if seen else _name(own)
        other = load(own)
    return Data(known, other, source, seen)


def _name(path: Path) -> str:
    return f"{path.name}/" if path.is_dir() else path.name
