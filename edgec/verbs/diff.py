"""`diff`: two ways to run a network on the same inputs, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board
from edgec_runtime import Preprocess

from edgec.comparing.measure import measure
from edgec.comparing.result import Diff, result
from edgec.comparing.side import Sample, Side
from edgec.comparing.tasks import Meaning
from edgec.comparing.twins import layouts, reals, rounded
from edgec.compiler.bundle_side import BundleSide
from edgec.compiler.host import Host
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import native_compiler
from edgec.compiler.options import CompileOptions, InputOptions
from edgec.errors import InputError, UnsupportedError, did_you_mean
from edgec.frontends import SUFFIXES, read_model
from edgec.ir import Array, Graph
from edgec.quantize.observe.calibration import Photos, load_calibration
from edgec.schedule.cores import cores_of
from edgec.steps import Progress
from edgec.verbs.sides import InterpSide, LiteRtSide, NativeSide, OnnxRuntimeSide

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
"""What can stand before a path, and what it means.

Without one: a model by plain C, a bundle by its own C.
"""

_WANTED = f"give a model ({', '.join(SUFFIXES)}) or a bundle (.edgec)"
_EXACT = 1
_HEAVY = 3e9
"""Multiply-accumulates: interp takes minutes for more."""


@dataclass(frozen=True)
class Request:
    """What a person asked to compare. a, b: [way:]path. inputs: photos or an .npz, of
    which `samples` are taken, spread over all. model_inputs: what the inputs are, as
    for compile. calibrate, quantize: for int8:, by default with the inputs. cc: a
    compiler of this machine.
    """

    a: str
    b: str
    inputs: Path
    model_inputs: InputOptions = field(default_factory=InputOptions)
    calibrate: Path | None = None
    quantize: str = "fast"
    samples: int = 8
    cc: str | None = None

    def check(self) -> None:
        """Raises InputError for what cannot be."""
        if self.samples < 1:
            raise InputError(
                f"nothing can be compared on {self.samples} inputs",
                "--samples",
                "give 1 or more",
            )


def diff(request: Request, say: Progress = lambda text: None) -> Diff:
    """Compare.

    Raises InputError where the two cannot be compared, and what reading and running
    them raises.
    """
    request.check()
    with ExitStack() as stack:
        opened = _Opener(request, say)
        a = opened(request.a)
        b = opened(request.b)
        for side in (a, b):
            stack.callback(side.close)
        notes = [*opened.notes, *(_scaled_note(s) for s in (a, b) if s.changes)]
        given, names = _samples(request, a, opened.preprocess)
        pairs = _pairs(a, b, given)
        if b.complete:
            macs = sum(op.spec.macs(op) for g in b.parts.values() for op in g.ops)
        else:
            macs = 0
        exact = 0 if isinstance(b, InterpSide) and b.how == "interp" else _EXACT
        if macs > _HEAVY and exact:
            exact = 0
            notes.append("too large for interp: kernels were not compared with it")
        meaning = opened.meaning
        measured = measure(a, b, pairs, exact, say, meaning)
    if not measured.outputs and not any(s.whole.samples for s in measured.seen):
        what = (
            "the two have no value in common: no name and shape of one is in the other"
        )
        raise InputError(
            what, f"{request.a}, {request.b}", "compare two forms of one model"
        )
    name = f"{request.inputs.name}/" if request.inputs.is_dir() else request.inputs.name
    kind = meaning.kind if meaning is not None else ""
    return replace(
        result(a, b, name, measured, notes),
        names=names,
        labels=opened.labels,
        kind=kind,
    )


class _Opener:
    """Makes sides. preprocess: of the input that is an image, by the first that knows
    it; a bundle's goes first.
    """

    def __init__(self, request: Request, say: Progress) -> None:
        self.request = request
        self.say = say
        self.preprocess: Preprocess | None = None
        self.notes: list[str] = []
        self.labels: Sequence[str] = ()
        self.meaning: Meaning | None = None
        self._certain = request.model_inputs.preprocess is not None
        self._lowered: dict[str, Lowered] = {}

    def __call__(self, spec: str) -> Side:
        way, path = parsed(spec)
        if not path.exists():
            raise InputError(f"no such file: {path}", spec, _WANTED)
        self.say(f"read {path.name}")
        if path.suffix == ".edgec":
            return self._bundle(spec, way, path)
        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path.name} is neither a model nor a bundle", spec, _WANTED
            )
        if way == "edgetpu":
            raise InputError(
                "an Edge TPU runs segments of bundles",
                spec,
                "compile the model, and give the .edgec",
            )
        return self._model(spec, way, path)

    def _bundle(self, spec: str, way: str, path: Path) -> Side:
        if way not in ("", "c", "litert", "edgetpu"):
            raise InputError(
                f"{way} does not run bundles",
                spec,
                "give the bundle alone, litert: or edgetpu:",
            )
        side = BundleSide(
            spec, path, {"litert": "interpreter", "edgetpu": "auto"}.get(way, "c")
        )
        self.labels = self.labels or side.labels
        self.meaning = self.meaning or side.meaning
        known = [*side.preprocess.values()]
        if len(known) == 1 and not self._certain:
            self.preprocess = known[0]
            self._certain = True
        return side

    def _model(self, spec: str, way: str, path: Path) -> Side:
        if way in ("litert", "litert-opt"):
            if path.suffix != ".tflite":
                raise InputError(
                    "LiteRT runs .tflite files",
                    spec,
                    "give interp:, c: or onnxruntime:",
                )
            inputs = self.request.model_inputs
            if inputs.fix or inputs.state:
                raise InputError(
                    "LiteRT takes a file with all its inputs",
                    spec,
                    "without --fix and --state, or by c:",
                )
            return LiteRtSide(spec, path, self._read(path), way == "litert-opt")
        if way == "onnxruntime":
            if path.suffix != ".onnx":
                raise InputError(
                    "onnxruntime runs .onnx files", spec, "give interp:, c: or litert:"
                )
            inputs = self.request.model_inputs
            return OnnxRuntimeSide(
                spec, path, self._read(path), self.request.model_inputs.constants
            )
        lowered = self._lower(path, way == "int8")
        side = self._ours(spec, way, lowered)
        side.changes = (
            lowered.model.floats.changes() if lowered.model.floats is not None else {}
        )
        return side

    def _ours(self, spec: str, way: str, lowered: Lowered) -> InterpSide:
        graph = lowered.graph
        if way == "interp":
            return InterpSide(spec, graph)
        here = Board.load("host")
        core = cores_of(here, here.targets[0])[-1] if way in ("c", "int8") else None
        try:
            return NativeSide(spec, graph, native_compiler(self.request.cc), core)
        except (NotImplementedError, UnsupportedError):
            if way == "c":
                raise
            return InterpSide(spec, graph)

    def _read(self, path: Path) -> Graph:
        self._lower(path, False)  # for what the file states about its inputs
        inputs = self.request.model_inputs
        return read_model(
            path, inputs.shapes, fixed=inputs.constants, state=inputs.state
        )

    def _lower(self, path: Path, quantized: bool) -> Lowered:
        r = self.request
        key = f"{path}:{quantized}"
        if key not in self._lowered:
            options = CompileOptions(**vars(r.model_inputs))
            if quantized:
                options = replace(
                    options, calibrate=r.calibrate or r.inputs, quantize=r.quantize
                )
            host = Host(native_compiler(r.cc), self.say)
            made = lower(path, options, host)
            self._lowered[key] = made
            if quantized and made.model.floats is None:
                raise InputError(
                    f"{path.name} is quantized already",
                    f"int8:{path}",
                    "leave int8: out",
                )
            if quantized and r.calibrate is None:
                self.notes.append(
                    "int8 was calibrated on the inputs that it is compared on: "
                    "give --calibrate others"
                )
            if self.preprocess is None and len(made.read.preprocess) == 1:
                (self.preprocess,) = made.read.preprocess.values()
        return self._lowered[key]


def _scaled_note(side: Side) -> str:
    what = f"scaled, moved or ordered channels of {len(side.changes)} values"
    return f"the recipe of {side.name} {what}: they are compared as it has them"


def parsed(spec: str) -> tuple[str, Path]:
    """The way and the path of a side. Raises InputError for a way that is none."""
    way, colon, rest = spec.partition(":")
    if not colon or Path(spec).exists():
        return "", Path(spec)
    if way not in WAYS:
        what = f"there is no way {way}: to run it{did_you_mean(way, WAYS)}"
        raise InputError(
            what, spec, f"give a path, or one after {', '.join(f'{w}:' for w in WAYS)}"
        )
    return way, Path(rest)


def _samples(
    request: Request, a: Side, preprocess: Preprocess | None
) -> tuple[list[Sample], list[str]]:
    """Those that are compared, spread over all that there are, and what they are
    called.
    """
    every = load_calibration(request.inputs, a.inputs, preprocess)
    picked = (
        np.linspace(0, len(every) - 1, min(len(every), request.samples))
        .round()
        .astype(int)
    )
    names = [
        every.paths[int(i)].name if isinstance(every, Photos) else f"sample {i}"
        for i in picked
    ]
    return [every[int(i)] for i in picked], names


def _pairs(a: Side, b: Side, samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """A's inputs, and the same as B takes them.

    Raises InputError where B takes others.
    """
    if len(a.inputs) != len(b.inputs):
        what = f"{a.name} has {len(a.inputs)} inputs, {b.name} {len(b.inputs)}"
        raise InputError(what, "--inputs", "compare two forms of one model")
    return [(s, dict(_as_taken(s, a, b))) for s in samples]


def _as_taken(sample: Sample, a: Side, b: Side) -> Iterator[tuple[str, Array]]:
    theirs = {v.name: v for v in a.inputs}
    for i, v in enumerate(b.inputs):
        other = theirs.get(v.name, a.inputs[i])
        array = sample[other.name]
        if v.type == other.type:
            yield v.name, array
            continue
        perm = next(layouts(other.type.shape, v.type.shape), None)
        if perm is None:
            what = (
                f"input {v.name} of {b.name} is {v.type}, "
                f"{other.name} of "
                f"{a.name} {other.type}"
            )
            raise InputError(what, "--inputs", "compare two forms of one model")
        yield (
            v.name,
            rounded(
                np.ascontiguousarray(reals(array, other.type).transpose(perm)), v.type
            ),
        )
