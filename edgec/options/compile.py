"""The options of a compile, for Python and the command line alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from edgec_devices.options import FilePath, Section, argument, option
from edgec_runtime.bundle.manifest import MAX_THREADS
from edgec_runtime.vision.preprocess import COLORS, FILTERS, PRESETS, RESIZES
from edgec_runtime.vision.tasks import TASKS

from edgec.errors import InputError
from edgec.options.declaration import ProgressOption

if TYPE_CHECKING:
    from edgec.frontends.task_file import TaskFile

COMPILE_RECIPE = "best"
"""The default recipe of `compile`."""
EXPLAIN_RECIPE = "fast"
"""The default recipe of `explain`.

The placement of operations hardly depends on the recipe, and a person who asks for it
should not wait for minutes.
"""
CHIP = "chip"
ROUNDINGS = (CHIP, "tflite")
"""The values of --rounding: the arithmetic of the Edge TPU, or that of TFLite."""
SHARES = ("auto", "all")
"""The values of --edgetpu: operations that are faster on it, or all that it can run."""


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse NAME=1x3x224x224; raises InputError."""
    # Names of inputs may have "=" in them, sizes have not.
    name, equals, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split("x"))
    except ValueError:
        shape = ()
    if not equals or not name or not shape or min(shape) < 1:
        raise InputError(
            f"--input-shape {text} is not NAME=1x3x224x224",
            hint="give positive sizes separated by x",
        )
    return name, shape


def parse_fixed(text: str) -> tuple[str, tuple[float, ...]]:
    """Parse NAME=16000 or NAME=1,2,3; raises InputError."""
    # A number has no "=" either.
    name, equals, numbers = text.rpartition("=")
    try:
        values = tuple(float(n) for n in numbers.split(","))
    except ValueError:
        values = ()
    if not equals or not name or not values:
        raise InputError(
            f"--fix {text} is not NAME=16000",
            hint="give one number, or one for each element: 1,2,3",
        )
    return name, values


def parse_state(text: str) -> tuple[str, str]:
    """Parse INPUT=OUTPUT; raises InputError."""
    name, equals, output = text.partition("=")
    if not equals or not name or not output:
        raise InputError(
            f"--state {text} is not INPUT=OUTPUT",
            hint="name an input and the output that comes back",
        )
    return name, output


def _pairs(parse: Callable[[str], tuple[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Return a parser of texts with a name and a value each."""
    return lambda texts: dict(map(parse, texts))


def _names(text: str) -> tuple[str, ...]:
    """Parse NAME,NAME,…."""
    names = (name.strip() for name in text.split(","))
    return tuple(name for name in names if name)


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The options about the inputs of a model."""

    preprocess: str | None = field(
        default=None,
        metadata=option(
            "how photos become inputs, for example imagenet,crop=0.875 or "
            f"0_255,bgr,letterbox=114: {', '.join(PRESETS)} or mean=…,std=…; "
            f"{', '.join(COLORS)}; {', '.join(RESIZES)}; {', '.join(FILTERS)} "
            "(docs/preprocessing.md; default: what the file states, else 0_1, "
            "or raw for integer inputs)",
            section=Section.INPUTS,
            metavar="SPEC",
        ),
    )
    input_shapes: Mapping[str, Sequence[int]] = field(
        default_factory=dict,
        metadata=option(
            "freeze a dynamic input",
            section=Section.INPUTS,
            flags=("--input-shape",),
            metavar="NAME=1x3x224x224",
            multiple=True,
            parse=_pairs(parse_shape),
        ),
    )
    fix: Mapping[str, float | Sequence[float]] = field(
        default_factory=dict,
        metadata=option(
            "an input that is a constant",
            metavar="NAME=16000",
            multiple=True,
            parse=_pairs(parse_fixed),
        ),
    )
    state: Mapping[str, str] = field(
        default_factory=dict,
        metadata=option(
            "an input that is, at each call, what this output was at the last one; zeros at "
            "first (docs/state.md)",
            metavar="INPUT=OUTPUT",
            multiple=True,
            parse=_pairs(parse_state),
        ),
    )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of dynamic inputs, by name."""
        return {name: tuple(shape) for name, shape in self.input_shapes.items()}

    @property
    def constants(self) -> dict[str, tuple[float, ...]]:
        """The elements of constant inputs, by name."""
        constants: dict[str, tuple[float, ...]] = {}
        for name, value in self.fix.items():
            if isinstance(value, Sequence):
                constants[name] = tuple(value)
            else:
                constants[name] = (float(value),)
        return constants


_O = TypeVar("_O", bound=InputOptions)


def with_task_file(options: _O, task_file: TaskFile) -> _O:
    """Return options completed by a task file, which says what a person left open."""
    preprocess = task_file.with_preprocess(options.preprocess)
    shapes = {**task_file.input_shapes, **options.input_shapes}
    return replace(options, preprocess=preprocess, input_shapes=shapes)


@dataclass(frozen=True, kw_only=True)
class Options(InputOptions):
    """The options of a compile that `explain` has too."""

    target: str = field(
        default="host",
        kw_only=False,
        metadata=option(
            "host, pi4, pi4+coral, …",
            section=Section.TARGET,
            show_default=True,
        ),
    )
    calibrate: FilePath | None = field(
        default=None,
        metadata=option(
            "folder of photos or .npz: quantize to int8",
            section=Section.INT8,
        ),
    )
    quantize: FilePath | None = field(
        default=None,
        metadata=option(
            "how --calibrate makes it int8: best (ranges, weights and biases corrected; a "
            "minute or more), fast (min and max alone; seconds), or a .toml file; a "
            "quantized model is taken as it is "
            f"[default: {COMPILE_RECIPE}; of explain: {EXPLAIN_RECIPE}]",
            section=Section.INT8,
            metavar="RECIPE",
        ),
    )
    accuracy: str | None = field(
        default=None,
        metadata=option(
            "leave operations in float32 until every output has this SQNR (20dB), or until "
            "int8 changes the top class of at most so many samples (1%); of outputs that are "
            "not classes, until the noise has at most this part of their power",
            section=Section.INT8,
            metavar="GOAL",
        ),
    )
    budget: str | None = field(
        default=None,
        metadata=option(
            "what may be spent on it: no inference estimated to take longer than this "
            "(12.5ms), or by so much longer than in int8 alone (10%), and this part of the "
            "MACs stays on the Edge TPU (tpu=90%); without --accuracy, a percentage is spent "
            "if it buys 1 dB (best: 10%; 0% for int8 alone)",
            section=Section.INT8,
            metavar="COST",
        ),
    )
    float_ops: Sequence[str] = field(
        default=(),
        metadata=option(
            "operations that stay float32, as explain calls them, or their nodes; * and ? "
            "for any characters",
            metavar="NAME,NAME,…",
            parse=_names,
        ),
    )
    float_width: str = field(
        default="auto",
        metadata=option(
            "bits of what stays float: 32; 16, where the board's cores compute with it "
            "(pi5); auto: 16 where that keeps every output within 47 dB of float32, and 32 "
            "for the operations that cost most",
            section=Section.TARGET,
            flags=("--float",),
            metavar="16|32|auto",
            show_default=True,
        ),
    )
    prune: str | None = field(
        default=None,
        metadata=option(
            "take out channels that add little, where that is faster, as long as the float "
            "model's outputs change by no more than this: as a percentage of --accuracy",
            metavar="PERCENT",
        ),
    )
    min_cosine: float = field(
        default=0.9,
        metadata=option(
            "least cosine similarity of the outputs in int8 and of the float model",
            show_default=True,
        ),
    )
    disable: Sequence[str] = field(
        default=(),
        metadata=option(
            "switch a pass or a rewrite off",
            flags=("--disable-pass",),
            metavar="NAME",
            multiple=True,
        ),
    )
    edgetpu: str = field(
        default="auto",
        metadata=option(
            "of what it can run, the Edge TPU gets what is faster with it, or all: the CPU "
            "is left free",
            metavar="auto|all",
            show_default=True,
        ),
    )
    optimistic: bool = field(
        default=False,
        metadata=option(
            "try ops on the Edge TPU that it may or may not have",
        ),
    )
    allow_float: bool = field(
        default=False,
        metadata=option(
            "a float model without --calibrate: all of it on the CPU",
        ),
    )
    keep_head: bool = field(
        default=False,
        metadata=option(
            "a detector keeps the head that picks its boxes, also where int8 cannot hold it",
        ),
    )

    def check(self) -> None:
        """Raise InputError for values that cannot be."""
        if not -1 <= self.min_cosine <= 1:
            raise InputError(
                f"no cosine can be {self.min_cosine:g} or more",
                "--min-cosine",
                "give one of -1 to 1: 0.9",
            )
        if self.edgetpu not in SHARES:
            raise InputError(
                f"--edgetpu cannot be {self.edgetpu}",
                "--edgetpu",
                f"give {' or '.join(SHARES)}",
            )


@dataclass(frozen=True, kw_only=True)
class CompileOptions(Options):
    """The options of a compile to a bundle."""

    output: FilePath | None = field(
        default=None,
        kw_only=False,
        metadata=option(
            "the bundle (default: MODEL.edgec)",
            section=Section.TARGET,
            flags=("-o", "--output"),
        ),
    )
    task: str | None = field(
        default=None,
        metadata=option(
            f"what its outputs mean: {', '.join(TASKS)}; a family such as yolox; or a .json "
            "or .toml file (docs/tasks.md; default: MODEL.edgec-task.json, if it is there)",
            section=Section.OUTPUTS,
            metavar="NAME|FILE",
        ),
    )
    labels: FilePath | None = field(
        default=None,
        metadata=option(
            "text file, one label a line",
            section=Section.OUTPUTS,
        ),
    )
    anchors: FilePath | None = field(
        default=None,
        metadata=option(
            "of a detection: .npy, .csv or .json, [N,4]",
        ),
    )
    validate: FilePath | None = field(
        default=None,
        metadata=option(
            "as --calibrate, to verify with (default: a quarter of those)",
            section=Section.INT8,
        ),
    )
    data: FilePath | None = field(
        default=None,
        metadata=option(
            "labelled pictures, as edgec eval takes them, that do not calibrate: how it "
            "becomes int8, and what stays in float32, is chosen by top-1, mAP or another "
            "figure of its task, and --accuracy 1% is about that figure (docs/eval.md)",
            section=Section.INT8,
        ),
    )
    threads: int = field(
        default=1,
        metadata=option(
            "threads that the generated C can use, at most: 1 to 4",
            section=Section.TARGET,
            metavar="N",
            show_default=True,
        ),
    )
    also: Sequence[str] = field(
        default=(),
        metadata=option(
            "code for this too: 32-bit systems of the board, or this machine, where the "
            "bundle is only tried otherwise",
            metavar="armv7|host",
            multiple=True,
        ),
    )
    keep_tflite: bool = field(
        default=False,
        metadata=option(
            "the whole int8 model as one .tflite file in the bundle too, for other "
            "tools (export --tflite)",
        ),
    )
    edgetpu_compiler: str | None = field(
        default=None,
        metadata=option(
            "a path (default: PATH), ssh://[user@]host[:port], folder:DIR, none; own: "
            "edgec writes the programs itself, where it can (docs/edgetpu-chip.md)",
            section=Section.TARGET,
            metavar="WHERE",
        ),
    )
    rounding: str = field(
        default=CHIP,
        metadata=option(
            "the int8 arithmetic of what the Edge TPU gets, where it runs as C: the chip's, "
            "as far as it is known, or that of TFLite's kernels (docs/edgetpu-chip.md)",
            section=Section.TARGET,
            metavar="|".join(ROUNDINGS),
            show_default=True,
        ),
    )
    reuse: FilePath | None = field(
        default=None,
        metadata=option(
            "the file that edgetpu_compiler made of the same network with other weights: "
            "it gets the new ones, without edgetpu_compiler; the Edge TPU gets all that it "
            "can run (docs/edgetpu-chip.md)",
            section=Section.TARGET,
            metavar="FILE_edgetpu.tflite",
        ),
    )
    tuned: FilePath | None = field(
        default=None,
        metadata=option(
            "schedules that edgec tune found (default: its default file), or none",
            metavar="FILE",
        ),
    )
    cc: str | None = field(
        default=None,
        metadata=option(
            "a C compiler of this machine for its own code, instead of zig",
        ),
    )
    dump: Sequence[str] = field(
        default=(),
        metadata=option(
            "write the graph after a pass (or after=all) beside the bundle",
            metavar="after=PASS",
            multiple=True,
        ),
    )

    def check(self) -> None:
        """Raise InputError for values that cannot be."""
        super().check()
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(
                f"cannot make code for {self.threads} threads",
                "--threads",
                f"give 1 to {MAX_THREADS}",
            )
        if self.rounding not in ROUNDINGS:
            raise InputError(
                f"--rounding cannot be {self.rounding}",
                "--rounding",
                f"give {' or '.join(ROUNDINGS)}",
            )
        if self.reuse is not None and not self.target.endswith("+coral"):
            raise InputError(
                f"{self.target} has no Edge TPU for a compiled file",
                "--reuse",
                "give a target with +coral, or leave the option out",
            )
        if self.reuse is not None and self.edgetpu_compiler is not None:
            raise InputError(
                "a compiled file is re-used without edgetpu_compiler",
                "--edgetpu-compiler",
                "leave out this option, or --reuse",
            )


@dataclass(frozen=True)
class _Model:
    model: FilePath | Callable[..., Any] = field(
        metadata=argument(
            "a .onnx, .tflite or .pt2 file; a cascade.toml; or models:NAME (edgec models)",
            python='a .onnx, .tflite or .pt2 file; a cascade.toml; "models:NAME" '
            "(`models`); or, to compile, a torch.nn.Module, with `example_inputs` of the "
            "shapes that it gets",
        )
    )


@dataclass(frozen=True, kw_only=True)
class CompileCall(ProgressOption, CompileOptions, _Model):
    """The options of `edgec compile`, of which some are objects in Python."""

    example_inputs: Sequence[Any] | None = field(
        default=None,
        metadata=option(
            "tensors of the shapes that a torch.nn.Module gets",
            python_only=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ExplainCall(ProgressOption, Options, _Model):
    """The options of `edgec explain`."""

    model: FilePath = field(
        kw_only=False,
        metadata=argument(
            "a .onnx, .tflite or .pt2 file; a cascade.toml; or models:NAME (edgec models)"
        ),
    )
    schedule: str | None = field(
        default=None,
        metadata=option(
            "also the kernels that may compute these operations on the board's CPU, and "
            "which one does; * and ? for any characters",
            section=Section.REPORT,
            metavar="NAME",
        ),
    )
    require: Sequence[str] = field(
        default=(),
        metadata=option(
            "exit code 1 unless it holds: tpu.macs>=95%, tpu=100%, ms<=20ms, …",
            python='requirements, such as "ms<=20ms": whether each holds is among the '
            "`outcomes` of the result",
            section=Section.REPORT,
            metavar="EXPR",
            multiple=True,
        ),
    )
