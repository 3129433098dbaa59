"""`diff`: compares two ways to run a network on the same inputs, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_runtime import Preprocess

from edgec.catalogue.entries import PREFIX
from edgec.catalogue.fetching import local_file
from edgec.comparing.measure import Measured, measure
from edgec.comparing.result import Diff, result
from edgec.comparing.side import Sample, Side
from edgec.comparing.tasks import Meaning
from edgec.comparing.value_pairs import layouts, reals, rounded
from edgec.compiler.bundle_side import BundleSide
from edgec.compiler.host import Host
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import native_compiler
from edgec.errors import InputError, UnsupportedError, did_you_mean
from edgec.frontends import SUFFIXES, read_model
from edgec.frontends.task_file import task_file
from edgec.ir import Array, Graph, Value
from edgec.options.compile import CompileOptions, with_task_file
from edgec.options.diff import DiffOptions
from edgec.quantize.observe.calibration import Photos, load_calibration
from edgec.schedule.cores import cores_of
from edgec.steps import Progress
from edgec.verbs.diff_sides import InterpSide, LiteRtSide, NativeSide, OnnxRuntimeSide

WAYS: Mapping[str, str] = {
    "interp": "a model by edgec's interp, the meaning of each operation",
    "c": "a model by the C that edgec writes for this machine",
    "int8": "a float model made int8 as compile would (--calibrate, --quantize), by C",
    "litert": "a .tflite by LiteRT's reference kernels; "
    "a bundle with its Edge TPU segments by them",
    "litert-opt": "a .tflite by LiteRT's optimised kernels",
    "onnxruntime": "an .onnx by onnxruntime",
    "edgetpu": "a bundle with its Edge TPU segments on the stick, "
    "or by their C where there is none",
}
"""The executors that can stand before a path, and what each runs.

Without one: a model by plain C, a bundle by its own C.
"""

BUNDLE_WAYS: Mapping[str, str] = {
    "": "c",
    "c": "c",
    "litert": "interpreter",
    "edgetpu": "auto",
}
"""How a bundle runs its Edge TPU segments, by the executor before its path."""

_WANTED = f"give a model ({', '.join(SUFFIXES)}) or a bundle (.edgec)"
INTERP_SAMPLES = 1
"""The samples on which kernels are compared with `interp`."""
MAX_INTERP_MACS = 3e9
"""`interp` takes minutes for more multiply-accumulates."""


def diff(request: DiffOptions, say: Progress = lambda text: None) -> Diff:
    """Compare two sides.

    Raises InputError where they cannot be compared, and what reading and running them
    raises.
    """
    with ExitStack() as stack:
        opener = _SideOpener(request, say)
        a = opener.open(str(request.a))
        b = opener.open(str(request.b))
        for side in (a, b):
            stack.callback(side.close)

        # Sides are closed even where the comparison fails: a bundle holds a session.
        notes = [*opener.notes]
        notes += [_channel_note(side) for side in (a, b) if side.changes]
        samples, names = _samples(request, a, opener.preprocess)
        pairs = _pairs(a, b, samples)
        interp_samples = INTERP_SAMPLES
        if isinstance(b, InterpSide) and b.how == "interp":
            # The other side is interp itself.
            interp_samples = 0
        elif _macs(b) > MAX_INTERP_MACS:
            interp_samples = 0
            notes.append("too large for interp: kernels were not compared with it")

        meaning = opener.meaning
        measured = measure(a, b, pairs, interp_samples, say, meaning)

    _check_comparable(request, measured)

    inputs = Path(request.inputs)
    name = f"{inputs.name}/" if inputs.is_dir() else inputs.name
    kind = meaning.kind if meaning is not None else ""
    comparison = result(a, b, name, measured, notes)

    return replace(comparison, names=names, labels=opener.labels, kind=kind)


def _check_comparable(request: DiffOptions, measured: Measured) -> None:
    """Raise InputError where the two sides have no value in common."""
    has_common_value = any(s.whole.samples for s in measured.seen)
    if not measured.outputs and not has_common_value:
        message = (
            "the two have no value in common: no name and shape of one is in the other"
        )
        raise InputError(
            message, f"{request.a}, {request.b}", "compare two forms of one model"
        )


def _macs(side: Side) -> int:
    """Return the multiply-accumulates of a side, 0 where its constants are unknown."""
    if not side.complete:
        return 0
    return sum(op.spec.macs(op) for graph in side.parts.values() for op in graph.ops)


class _SideOpener:
    """Opens the sides of a comparison.

    Attributes:
        preprocess: the preprocessing of the image input, from the first side that knows
            it; a bundle's goes before a model's.
        notes: remarks for people.
        labels: the names of the classes, from the first side with any.
        meaning: what the outputs mean, from the first side that knows it.
    """

    def __init__(self, request: DiffOptions, say: Progress) -> None:
        self.request = request
        self.say = say
        self.preprocess: Preprocess | None = None
        self.notes: list[str] = []
        self.labels: Sequence[str] = ()
        self.meaning: Meaning | None = None
        # A person's own preprocessing is never replaced by a bundle's.
        self._is_certain = request.model_inputs.preprocess is not None
        self._lowered: dict[str, Lowered] = {}

    def open(self, spec: str) -> Side:
        """Return the side of [way:]path. Raises InputError where it cannot run."""
        way, path = parsed(spec)
        # The suffix of the file says what it is: a name of the catalogue has none.
        path = local_file(path, self.say)
        if not path.exists():
            raise InputError(f"no such file: {path}", spec, _WANTED)

        self.say(f"read {path.name}")
        # A bundle knows more than a model, and has executors of its own.
        if path.suffix == ".edgec":
            return self._bundle(spec, way, path)

        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path.name} is neither a model nor a bundle", spec, _WANTED
            )
        if way == "edgetpu":
            raise InputError(
                f"edgetpu: takes a bundle, and {path.name} is a model",
                spec,
                "compile the model, and give the .edgec",
            )
        return self._model(spec, way, path)

    def _bundle(self, spec: str, way: str, path: Path) -> Side:
        if way not in BUNDLE_WAYS:
            raise InputError(
                f"{way} does not run bundles",
                spec,
                "give the bundle alone, litert: or edgetpu:",
            )

        side = BundleSide(spec, path, BUNDLE_WAYS[way])
        self.labels = self.labels or side.labels
        self.meaning = self.meaning or side.meaning
        preprocesses = [*side.preprocess.values()]
        if len(preprocesses) == 1 and not self._is_certain:
            self.preprocess = preprocesses[0]
            self._is_certain = True

        return side

    def _model(self, spec: str, way: str, path: Path) -> Side:
        if way in ("litert", "litert-opt"):
            return self._litert(spec, way, path)
        if way == "onnxruntime":
            return self._onnxruntime(spec, path)

        # edgec's own executors run the graph after the passes.
        lowered = self._lower(path, way == "int8")
        side = self._own(spec, way, lowered)
        side.changes = lowered.model.changes()

        return side

    def _litert(self, spec: str, way: str, path: Path) -> Side:
        """Open a .tflite file by LiteRT, which reads the file itself."""
        if path.suffix != ".tflite":
            raise InputError(
                f"LiteRT runs .tflite files, and not {path.name}",
                spec,
                "give interp:, c: or onnxruntime:",
            )
        # LiteRT could not be told of inputs that edgec removed.
        inputs = self.request.model_inputs
        if inputs.fix or inputs.state:
            raise InputError(
                f"LiteRT cannot run {path.name} with --fix or --state",
                spec,
                "leave them out, or compare by c:",
            )
        return LiteRtSide(spec, path, self._read(path), way == "litert-opt")

    def _onnxruntime(self, spec: str, path: Path) -> Side:
        """Open an .onnx file by onnxruntime."""
        if path.suffix != ".onnx":
            raise InputError(
                f"onnxruntime runs .onnx files, and not {path.name}",
                spec,
                "give interp:, c: or litert:",
            )
        constants = self.request.model_inputs.constants
        return OnnxRuntimeSide(spec, path, self._read(path), constants)

    def _own(self, spec: str, way: str, lowered: Lowered) -> InterpSide:
        """Open a model by edgec's interp or C; interp where there is no C for it."""
        graph = lowered.graph
        if way == "interp":
            return InterpSide(spec, graph)

        # Without a way the kernels are plain C; c: and int8: take this machine's best.
        core = None
        if way in ("c", "int8"):
            here = Board.load("host")
            core = cores_of(here, here.targets[0])[-1]
        try:
            return NativeSide(spec, graph, native_compiler(self.request.cc), core)
        except (NotImplementedError, UnsupportedError):
            # Only a person who asks for C must know that there is none.
            if way == "c":
                raise
            return InterpSide(spec, graph)

    def _read(self, path: Path) -> Graph:
        """Return the graph of a file as it is, without any pass."""
        # Lowering finds what the file states about the preprocessing of its inputs.
        self._lower(path, False)
        inputs = with_task_file(self.request.model_inputs, task_file(path))
        return read_model(
            path, inputs.shapes, fixed=inputs.constants, state=inputs.state
        )

    def _lower(self, path: Path, quantized: bool) -> Lowered:
        """Return a model as compile lowers it for this machine, once for each file.

        quantized: whether a float model becomes int8.
        """
        key = f"{path}:{quantized}"
        if key in self._lowered:
            return self._lowered[key]

        request = self.request
        options = CompileOptions(**vars(request.model_inputs))
        options = with_task_file(options, task_file(path))
        if quantized:
            calibrate = request.calibrate or request.inputs
            options = replace(options, calibrate=calibrate, quantize=request.quantize)
        host = Host(native_compiler(request.cc), self.say)
        lowered = lower(path, options, host)
        self._lowered[key] = lowered
        if quantized:
            self._check_quantized(path, lowered)

        if self.preprocess is None and len(lowered.read.preprocess) == 1:
            (self.preprocess,) = lowered.read.preprocess.values()

        return lowered

    def _check_quantized(self, path: Path, lowered: Lowered) -> None:
        """Raise InputError for int8: of a quantized model; note its calibration."""
        if lowered.model.quantized is None:
            raise InputError(
                f"{path.name} is quantized already",
                f"int8:{path}",
                "leave int8: out",
            )
        if self.request.calibrate is None:
            self.notes.append(
                "int8 was calibrated on the inputs that it is compared on: "
                "give --calibrate others"
            )


def _channel_note(side: Side) -> str:
    """Return that a recipe changed channels, and what that means for the comparison."""
    message = f"scaled, moved or ordered channels of {len(side.changes)} values"
    return f"the recipe of {side.name} {message}: they are compared as it has them"


def parsed(spec: str) -> tuple[str, Path]:
    """Return the way and the path of a side.

    Raises InputError for an unknown way.
    """
    way, colon, rest = spec.partition(":")
    # The name of an existing file may hold a colon, and that of the catalogue has one.
    if not colon or Path(spec).exists() or spec.startswith(PREFIX):
        return "", Path(spec)

    if way not in WAYS:
        message = f"there is no way {way}: to run it{did_you_mean(way, WAYS)}"
        ways = ", ".join(f"{w}:" for w in WAYS)
        raise InputError(message, spec, f"give a path, or one after {ways}")

    return way, Path(rest)


def _samples(
    request: DiffOptions, a: Side, preprocess: Preprocess | None
) -> tuple[list[Sample], list[str]]:
    """Return the samples that are compared, and their names for people."""
    every = load_calibration(Path(request.inputs), a.inputs, preprocess)
    count = min(len(every), request.samples)

    # The first photos of a folder may be all alike.
    numbers = np.linspace(0, len(every) - 1, count).round().astype(int).tolist()
    samples = []
    names = []
    for i in numbers:
        samples.append(every[i])
        names.append(
            every.paths[i].name if isinstance(every, Photos) else f"sample {i}"
        )

    return samples, names


def _pairs(a: Side, b: Side, samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Return the inputs of A, each with the same inputs as B takes them.

    Raises InputError where B takes others.
    """
    if len(a.inputs) != len(b.inputs):
        message = f"{a.name} has {len(a.inputs)} inputs, {b.name} {len(b.inputs)}"
        raise InputError(message, "--inputs", "compare two forms of one model")

    return [(sample, dict(_as_taken(sample, a, b))) for sample in samples]


def _as_taken(sample: Sample, a: Side, b: Side) -> Iterator[tuple[str, Array]]:
    """Yield the inputs of B, by name, from a sample of A.

    Raises InputError where neither the layout nor the rounding explains the difference.
    """
    by_name = {v.name: v for v in a.inputs}
    for i, v in enumerate(b.inputs):
        # Converters rename inputs; their order stays.
        other = by_name.get(v.name, a.inputs[i])
        array = sample[other.name]
        if v.type == other.type:
            yield v.name, array
        else:
            yield v.name, _converted(array, other, v, a, b)


def _converted(array: Array, other: Value, v: Value, a: Side, b: Side) -> Array:
    """Return an array of A's input `other` in the layout and type of B's input `v`."""
    # The same shape in another order, as NCHW and NHWC.
    perm = next(layouts(other.type.shape, v.type.shape), None)
    if perm is None:
        message = (
            f"input {v.name} of {b.name} is {v.type}, "
            f"{other.name} of {a.name} {other.type}"
        )
        raise InputError(message, "--inputs", "compare two forms of one model")

    moved = np.ascontiguousarray(reals(array, other.type).transpose(perm))

    return rounded(moved, v.type)
