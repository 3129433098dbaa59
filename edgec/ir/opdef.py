"""The contract of an operation: all that edgec knows about it is said in one subclass
of `OpDef`.

Subclasses are frozen dataclasses whose fields are the attributes. Defining one
registers it; the front-ends, emitters, partitioner, quantizer and conformance tests
find it by what it declares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, TypeVar

from edgec.ir.kernel import KernelCall
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value

LARGEST_MAPPED = 12_656_736
"""Elements of the largest tensor that was seen to map: [1,513,257,96] between PAD and
DEPTHWISE_CONV_2D. Larger models often fail to compile, but not always.
"""


class QuantRule(Enum):
    """How the int8 form of an op gets the scale of its output."""

    FLOAT = "no int8 form: stays float32"
    SAME = "the output and all activations share one scale"
    FIXED = "the output scale is prescribed by the op"
    FREE = "the output scale comes from calibration"


class Uncertain(str):
    """What a support rule saw where the evidence leaves a gap: neither shown to map nor
    to be refused.
    """


@dataclass(frozen=True)
class Versions:
    """What the Edge TPU compiler makes of the versions of a TFLite operator.

    mapped: the highest that was seen mapped; where none was, that of TFLite's first
    int8 kernel. refused: from this one on it stays on the CPU. aborts: from this one on
    the compiler gives up the whole model. Between, nothing is known.
    """

    mapped: int
    refused: int | None = None
    aborts: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Why an op may not go to the Edge TPU: the rule, what was seen, and what would
    help (None: nothing would).

    uncertain: the evidence does not say whether the compiler maps it.
    """

    rule: str
    constraint: str
    seen: str
    fix: str | None
    uncertain: bool = False


@dataclass(frozen=True)
class TfliteCode:
    """How an op is written to TFLite: builtin name, (options table, fields), lowest
    version that holds, inputs.

    An array among the inputs becomes a constant tensor of its own (shapes, axes,
    paddings).
    """

    name: str
    options: tuple[str, dict[str, Any]] | None = None
    version: int = 1
    inputs: tuple[Value | Array | None, ...] | None = None


@dataclass(frozen=True)
class Arg:
    """One input of a sample: random data of a type, or a constant (random unless `data`
    is given).
    """

    type: TensorType
    const: bool = False
    data: Array | None = None


@dataclass(frozen=True)
class Sample:
    """An instance of an op for the generated tests.

    `output_quant` is given where the op does not fix it.
    """

    spec: OpDef
    args: tuple[Arg, ...]
    output_quant: Quant | None = None
    label: str = ""


Rule = Callable[["OpDef", "Op"], str | None]
_METHODS = (classmethod, staticmethod, property)
F = TypeVar("F", bound=Callable[..., str | None])


def edgetpu_rule(fix: str | None) -> Callable[[F], F]:
    """Mark a method as a support rule: its docstring is the constraint, its result what
    was seen (None: holds).

    fix: what would help; None where nothing would. A result of type `Uncertain` says
    that the evidence does not decide.
    """

    def mark(fn: F) -> F:
        fn.edgetpu_fix = fix  # type: ignore[attr-defined]
        return fn

    return mark


@dataclass(frozen=True)
class OpDef:
    """Base of all operations. A subclass that names its `kind` is registered."""

    registry: ClassVar[dict[str, type[OpDef]]] = {}
    kind: ClassVar[str]
    onnx: ClassVar[tuple[str, ...]] = ()
    """ONNX op types that `from_onnx` reads."""
    of_constants: ClassVar[bool] = False
    """Whether ONNX's reference computes its ONNX operators where all inputs are
    constants.
    """
    tflite: ClassVar[tuple[str, ...]] = ()
    """TFLite builtin names that `from_tflite` reads."""
    keeps_state: ClassVar[bool] = False
    """Whether its TFLite operator has variables (`TfliteOp.kept`)."""
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    roles: ClassVar[tuple[str, ...]] = ("act",)
    """What each input is: act, weight, bias or index; the last entry holds for all that
    follow.
    """
    weight_axis: ClassVar[int] = 0
    """The axis of the weight that output channels, and so per-channel scales, run
    along.
    """
    per_channel: ClassVar[bool] = True
    """Whether the quantizer may give each output channel of the weight a scale of its
    own.
    """
    edgetpu: ClassVar[bool] = False
    """Whether any form of the op is mapped by the Edge TPU compiler."""
    edgetpu_versions: ClassVar[Mapping[str, Versions]] = {}
    """What its compiler makes of operator versions, for the names in `tflite`; those
    left out play no part.
    """
    view: ClassVar[bool] = False
    """Whether the output is the input's bytes under another shape."""
    elementwise: ClassVar[bool] = False
    """Whether out[i] depends on in[i] alone (with broadcasting), so that any
    permutation of the axes commutes.
    """
    plain_int8: ClassVar[bool] = False
    """Whether its C takes int8 elements that stand for no reals, without a scale."""

    untried: ClassVar[bool] = False
    """Whether no sample can be given although there is C: it stands for what edgec
    cannot read.
    """

    def __init_subclass__(cls) -> None:
        for name, value in cls.__dict__.items():
            if not (
                name.startswith("_")
                or callable(value)
                or isinstance(value, _METHODS)
                or _declares(cls, name)
            ):
                raise TypeError(
                    f"{cls.__qualname__} says {name}, which no operation has"
                )
        if "kind" in cls.__dict__:
            if cls.has_kernel() and cls.samples.__func__ is OpDef.samples.__func__:  # type: ignore[attr-defined]
                raise TypeError(f"op {cls.kind} has no samples to try its kernel by")
            other = OpDef.registry.setdefault(cls.kind, cls)
            if other.__qualname__ != cls.__qualname__:
                raise TypeError(
                    f"two definitions of op {cls.kind}: {other.__qualname__} and "
                    f"{cls.__qualname__}"
                )

    @classmethod
    def check_samples(cls) -> None:
        """Raise TypeError where no test would try the kernel, or none would on int8
        although it has an int8 form.

        Not a part of the definition itself, because samples may use what stands below
        it in its module.
        """
        if not cls.has_kernel() or cls.untried:
            return
        found = False
        for sample in cls.samples():
            found = True
            if cls.quant is QuantRule.FLOAT or any(
                a.type.is_quantized for a in sample.args
            ):
                return
        raise TypeError(
            f"op {cls.kind} has no {'int8 sample' if found else 'sample'}, "
            f"though its rule is {cls.quant.name}"
        )

    def role(self, i: int) -> str:
        """What input `i` is."""
        return self.roles[min(i, len(self.roles) - 1)]

    # ---- meaning
    # ----------------------------------------------------------------------------------
    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The types of the outputs.

        Raises ValueError when the inputs do not fit.

        For quantized inputs only shape and dtype count, unless the rule is SAME or
        FIXED.
        """
        raise NotImplementedError(f"{self.kind}: infer")

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """The numpy meaning, float and quantized; the law that every kernel is compared
        with.
        """
        raise NotImplementedError(f"{self.kind}: ref")

    def moves(self) -> bool:
        """Whether every element of the output is one of the inputs', or a zero, so that
        quantizing may come after.
        """
        return self.quant is QuantRule.SAME

    def macs(self, op: Op) -> int:
        """Multiply-accumulates of one inference."""
        return 0

    def fixed_quant(self) -> Quant:
        """The prescribed output scale of an op whose rule is FIXED."""
        raise NotImplementedError(f"{self.kind}: fixed_quant")

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """The spec that computes transpose(self(x), perm) from inputs already
        transposed by perm; None: cannot.
        """
        return self if self.elementwise else None

    # ---- model files
    # ----------------------------------------------------------------------------------
    @classmethod
    def from_onnx(cls, node: Any) -> Value | list[Value]:
        """Add the meaning of an ONNX node to `node.build`; returns the node's outputs.

        node: an OnnxNode, whose module stands above this one: it builds graphs of ops.
        """
        raise NotImplementedError(f"{cls.kind}: from_onnx")

    @classmethod
    def from_tflite(cls, op: Any) -> None:
        """Add the meaning of a TFLite operator to `op.build`, writing `op.outputs`.

        op: a TfliteOp, whose module stands above this one, as that of OnnxNode.
        """
        raise NotImplementedError(f"{cls.kind}: from_tflite")

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """How it is written to TFLite; None when TFLite has no such operator."""
        return None

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Whether only TFLite's uint8 kernel computes this int8 op: semantics that came
        with a uint8 model.
        """
        return False

    def as_tflite(self) -> OpDef:
        """What TFLite, and so the Edge TPU, computes in its place: `even` ops round
        otherwise there.
        """
        return replace(self, even=False) if getattr(self, "even", False) else self  # type: ignore[call-arg]

    # ---- C
    # ----------------------------------------------------------------------------------
    def c(self, op: Op) -> KernelCall:
        """The call of the plain kernel that computes this op."""
        raise NotImplementedError(f"{self.kind}: c")

    def calls(self, op: Op) -> tuple[KernelCall, ...]:
        """The same for an op that takes several calls, or none."""
        return (self.c(op),)

    @classmethod
    def has_kernel(cls) -> bool:
        """Whether it can be written as C at all."""
        return cls.c is not OpDef.c or cls.calls is not OpDef.calls

    # ---- tests
    # ----------------------------------------------------------------------------------
    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Instances that the generated conformance tests try: every attribute, type and
        edge case that matters.
        """
        raise NotImplementedError(f"{cls.kind}: samples")

    # ---- Edge TPU
    # ----------------------------------------------------------------------------------
    def why_not(self, op: Op) -> list[Refusal]:
        """Every support rule that this op breaks, or may break; empty: the Edge TPU
        runs it.
        """
        if not self.edgetpu:
            return [
                Refusal(
                    "supported_op",
                    "the operation must be one that the Edge TPU has",
                    self.kind,
                    None,
                )
            ]
        found: list[Refusal] = []
        for name, constraint, fix, rule in _rules(self.kind):
            if (seen := rule(self, op)) is not None:
                found.append(
                    Refusal(name, constraint, seen, fix, isinstance(seen, Uncertain))
                )
        return found

    @edgetpu_rule(
        fix="give calibration data (--calibrate) so that edgec quantizes the model to int8"
    )
    def _int8_tensors(self, op: Op) -> str | None:
        """All tensors must be int8 or uint8 (a bias int32)."""
        for i, v in enumerate([*op.inputs, *op.outputs]):
            ok = ["int8", "uint8"]
            if v.const is not None:
                ok.append("int32")
            if v.type.dtype not in ok:
                return (
                    f"{'output' if i >= len(op.inputs) else 'input'} {v.name} is "
                    f"{v.type.dtype}"
                )
        return None

    @edgetpu_rule(
        fix="run one image per inference; reshape so that only the last three "
        "dimensions exceed 1"
    )
    def _three_innermost_dimensions(self, op: Op) -> str | None:
        """At most the three innermost dimensions may be larger than 1."""
        for v in [*op.inputs, *op.outputs]:
            if v.const is None and any(d > 1 for d in v.type.shape[:-3]):
                return f"{v.name} has shape {list(v.type.shape)}"
        return None

    @edgetpu_rule(
        fix="use a smaller image; edgec computes convolutions and pools in bands of "
        "rows where it can"
    )
    def _large_tensor(self, op: Op) -> str | None:
        """At most 12656736 elements, the largest tensor that was seen to map."""
        large = (v for v in [*op.inputs, *op.outputs] if v.type.size > LARGEST_MAPPED)
        return next(
            (Uncertain(f"{v.name} has shape {list(v.type.shape)}") for v in large), None
        )


@dataclass(eq=False)
class Op:
    """One operation: what it is and its attributes (`spec`), and the values it reads
    and writes.

    `source` names the nodes of the model file that it came from, for messages.
    """

    spec: OpDef
    inputs: list[Value]
    outputs: list[Value]
    source: str = ""

    @property
    def kind(self) -> str:
        """The name of the operation, e.g. "conv2d"."""
        return self.spec.kind

    @property
    def output(self) -> Value:
        """The only output."""
        assert len(self.outputs) == 1, f"{self.kind} has {len(self.outputs)} outputs"
        return self.outputs[0]

    @property
    def is_empty(self) -> bool:
        """Whether its results have no element, so that nothing is to be computed."""
        return not any(v.type.size for v in self.outputs)

    def calls(self) -> tuple[KernelCall, ...]:
        """The calls of plain kernels that compute it; none where nothing is to do."""
        return () if self.is_empty else self.spec.calls(self)

    def __repr__(self) -> str:
        return (
            f"{', '.join(map(repr, self.outputs))} = "
            f"{self.kind}({', '.join(v.name for v in self.inputs)})"
        )


def _declares(cls: type, name: str) -> bool:
    """Whether a class or one that it stands on says that there is an attribute of this
    name, or has one.
    """
    bases = cls.__mro__[1:]
    return any(name in inspect.get_annotations(c) for c in (cls, *bases)) or any(
        name in c.__dict__ for c in bases
    )


@cache
def _rules(kind: str) -> tuple[tuple[str, str, str | None, Rule], ...]:
    """The support rules of an op, by name: each with its constraint and what would
    help.
    """
    methods = inspect.getmembers(OpDef.registry[kind], inspect.isfunction)
    return tuple(
        (
            name.strip("_"),
            " ".join((inspect.getdoc(fn) or "").split()),
            fn.edgetpu_fix,
            fn,
        )
        for name, fn in methods
        if hasattr(fn, "edgetpu_fix")
    )


def by_name(table: str, name: str) -> type[OpDef] | None:
    """The op that reads `name` of a file format; `table` is "onnx" or "tflite"."""
    return _tables(table).get(name)


def _tables(table: str) -> dict[str, type[OpDef]]:
    return {n: cls for cls in OpDef.registry.values() for n in getattr(cls, table)}
