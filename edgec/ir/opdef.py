"""The contract of an operation: one subclass of `OpDef` holds all that edgec knows
about it.

Subclasses are frozen dataclasses whose fields are the attributes. Defining one
registers it; the front-ends, emitters, partitioner, quantizer and conformance tests
find it by its class attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, TypeVar

from edgec.ir.channel_flow import ChannelFlow
from edgec.ir.float16 import float32_twins, has_float16, pointing_back
from edgec.ir.kernel import KernelCall
from edgec.ir.rounding import Rounding
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value

LARGEST_MAPPED = 12_656_736
"""Elements of the largest tensor seen mapped by the Edge TPU compiler: [1,513,257,96]
between PAD and DEPTHWISE_CONV_2D. Larger models often fail to compile, but not always.
"""


class QuantRule(Enum):
    """The source of the output scale in the int8 form of an op."""

    FLOAT = "stays float32; int8 only where a .tflite file has it"
    SAME = "the output and all activations share one scale"
    FIXED = "the output scale is prescribed by the op"
    FREE = "the output scale comes from calibration"


class Uncertain(str):
    """A result of a support rule for which the evidence has a gap: the op was neither
    seen mapped nor seen refused.
    """


@dataclass(frozen=True)
class Versions:
    """What the Edge TPU compiler does with the versions of a TFLite operator.

    Between these versions nothing is known.

    Attributes:
        mapped: the highest version seen mapped; without one, that of TFLite's first
            int8 kernel
        refused: the version from which on the operator stays on the CPU
        aborts: the version from which on the compiler gives up the whole model
    """

    mapped: int
    refused: int | None = None
    aborts: int | None = None


@dataclass(frozen=True)
class Refusal:
    """The reason for which an op may not go to the Edge TPU.

    Attributes:
        rule: name of the support rule
        constraint: the rule in a sentence
        seen: what breaks it
        fix: what would help, None where nothing would
        uncertain: whether the evidence leaves open if the compiler maps the op
    """

    rule: str
    constraint: str
    seen: str
    fix: str | None
    uncertain: bool = False


@dataclass(frozen=True)
class TfliteCode:
    """An operator of a TFLite file, as an op is written.

    Attributes:
        name: of the builtin
        options: name of the options table, and its fields
        version: the lowest version that has the op's form
        inputs: None: the op's inputs. An array becomes a constant tensor of its own
            (shapes, axes, paddings)
    """

    name: str
    options: tuple[str, dict[str, Any]] | None = None
    version: int = 1
    inputs: tuple[Value | Array | None, ...] | None = None


@dataclass(frozen=True)
class Arg:
    """One input of a sample: random data of a type, or a constant.

    Attributes:
        const: whether it is a constant
        data: its elements, None: random ones
    """

    type: TensorType
    const: bool = False
    data: Array | None = None


@dataclass(frozen=True)
class Sample:
    """An instance of an op for the generated tests.

    Attributes:
        spec: the op with its attributes
        args: its inputs
        output_quant: quantization of the outputs, where the op does not fix it
        label: part of the test's name
    """

    spec: OpDef
    args: tuple[Arg, ...]
    output_quant: Quant | None = None
    label: str = ""


Rule = Callable[["OpDef", "Op"], str | None]
"""A support rule as `edgetpu_rule` marks it."""
_METHODS = (classmethod, staticmethod, property)
"""Class attributes that are methods although they are not callable."""
F = TypeVar("F", bound=Callable[..., str | None])
"""The type of a support rule."""


def edgetpu_rule(fix: str | None) -> Callable[[F], F]:
    """Mark a method as a support rule of the Edge TPU.

    Its docstring is the constraint; it returns what breaks it, or None where it holds.
    A result of type `Uncertain` says that the evidence does not decide.

    fix: what would help, None where nothing would.
    """

    def mark(fn: F) -> F:
        fn.edgetpu_fix = fix  # type: ignore[attr-defined]
        return fn

    return mark


@dataclass(frozen=True)
class OpDef:
    """Base of all operations; a subclass with a `kind` is registered under it."""

    registry: ClassVar[dict[str, type[OpDef]]] = {}
    """Operations by their kind."""
    kind: ClassVar[str]
    """Unique name of the operation, which the text form of a graph has too."""
    onnx: ClassVar[tuple[str, ...]] = ()
    """ONNX op types that `from_onnx` reads."""
    of_constants: ClassVar[bool] = False
    """Whether ONNX's reference computes its operators of constant inputs."""
    tflite: ClassVar[tuple[str, ...]] = ()
    """TFLite builtin names that `from_tflite` reads."""
    keeps_state: ClassVar[bool] = False
    """Whether its TFLite operator has variables (`TfliteOp.kept`)."""
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    """Source of the output scale in int8."""
    roles: ClassVar[tuple[str, ...]] = ("act",)
    """The use of each input: act, weight, bias or index; the last entry holds for all
    that follow.
    """
    weight_axis: ClassVar[int] = 0
    """The weights' axis of output channels, and so of per-channel scales."""
    per_channel: ClassVar[bool] = True
    """Whether each output channel of the weights may have a scale of its own."""
    edgetpu: ClassVar[bool] = False
    """Whether any form of the op is mapped by the Edge TPU compiler."""
    edgetpu_fix: ClassVar[str | None] = None
    """What to do about an op that is never mapped; None where nothing is to be done."""
    edgetpu_rounding: ClassVar[bool] = False
    """Whether the Edge TPU's int8 arithmetic of the op is known, as a `rounding`."""
    edgetpu_versions: ClassVar[Mapping[str, Versions]] = {}
    """Mapped versions of the operators in `tflite`; operators that are not named here
    play no part.
    """
    view: ClassVar[bool] = False
    """Whether the output has the input's bytes under another shape."""
    elementwise: ClassVar[bool] = False
    """Whether out[i] depends on in[i] alone (with broadcasting), so that any
    permutation of the axes commutes.
    """
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MIXES
    """How output channels arise; an elementwise op is POINTWISE without saying so."""
    homogeneous: ClassVar[bool] = False
    """Whether f(k x) = k f(x) for every factor k > 0, but for an upper bound of the output
    and a fused activation.
    """
    plain_int8: ClassVar[bool] = False
    """Whether its C takes int8 elements that stand for no reals, without a scale."""

    any_elements: ClassVar[bool] = False
    """Whether it only moves or converts elements, so that its C takes those of any type,
    float16 too. Ops on reals are defined on float32 (`edgec.ir.float16`).
    """

    opaque: ClassVar[bool] = False
    """Whether it has no samples although it has C: it stands for operators that edgec
    cannot read.
    """

    def __init_subclass__(cls) -> None:
        """Check and register a definition.

        Raises TypeError for a class attribute that no operation has (a misspelling
        would have no effect), for a kernel without samples, and for a kind defined
        twice.
        """
        # A misspelt attribute would have no effect.
        for name, value in cls.__dict__.items():
            if _is_data(name, value) and not _declares(cls, name):
                raise TypeError(
                    f"{cls.__qualname__} says {name}, which no operation has"
                )

        if cls.elementwise and cls.channel_flow is ChannelFlow.MIXES:
            cls.channel_flow = ChannelFlow.POINTWISE

        # Bases of families have no kind.
        if "kind" not in cls.__dict__:
            return

        inherited = OpDef.samples.__func__  # type: ignore[attr-defined]
        samples = cls.samples.__func__  # type: ignore[attr-defined]
        if cls.has_kernel() and samples is inherited:
            raise TypeError(f"op {cls.kind} has no samples to try its kernel by")

        # dict.setdefault keeps the first definition.
        registered = OpDef.registry.setdefault(cls.kind, cls)
        if registered.__qualname__ != cls.__qualname__:
            raise TypeError(
                f"two definitions of op {cls.kind}: {registered.__qualname__} and "
                f"{cls.__qualname__}"
            )

    @classmethod
    def check_samples(cls) -> None:
        """Raise TypeError unless the samples try the kernel, and its int8 form.

        This is no part of the definition itself, because samples may use names that are
        defined below the class in its module.
        """
        if not cls.has_kernel() or cls.opaque:
            return

        # An op on reals needs an int8 sample, unless it stays float.
        has_sample = False
        for sample in cls.samples():
            has_sample = True
            has_int8 = any(arg.type.is_quantized for arg in sample.args)
            if cls.quant is QuantRule.FLOAT or has_int8:
                return

        missing = "int8 sample" if has_sample else "sample"
        raise TypeError(
            f"op {cls.kind} has no {missing}, though its rule is {cls.quant.name}"
        )

    def role(self, i: int) -> str:
        """Return the use of input `i`: act, weight, bias or index."""
        return self.roles[min(i, len(self.roles) - 1)]

    # ---- meaning
    # ----------------------------------------------------------------------------------
    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the types of the outputs; raises ValueError if the inputs do not fit.

        For quantized inputs only shape and element type count, unless the rule is SAME
        or FIXED.
        """
        raise NotImplementedError(f"{self.kind}: infer")

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Return the outputs computed by numpy, float or quantized.

        This is the reference that every kernel is compared with. x: inputs. xt, yt:
        types of the inputs and outputs.
        """
        raise NotImplementedError(f"{self.kind}: ref")

    def moves(self) -> bool:
        """Return whether every output element is an element of the inputs, or zero.

        Quantization may then come after the op.
        """
        return self.quant is QuantRule.SAME

    def keeps_channels(self, op: Op) -> bool:
        """Return whether output channel i depends on channel i of the first input alone.

        Constant weights are not looked at.
        """
        flows = (ChannelFlow.KEEPS, ChannelFlow.DEPTHWISE)
        x = op.inputs[0].type.shape
        # Slices rather than indices, as scalars have no channels.
        return self.channel_flow in flows and x[-1:] == op.output.type.shape[-1:]

    def keeps_factor(self) -> bool:
        """Return whether a positive factor of the input is one of the output.

        Activations without an upper bound keep it.
        """
        return self.homogeneous and getattr(self, "act", "none") in ("none", "relu")

    def border(self) -> float | None:
        """Return the number that windows read outside of the image, None for none."""
        return None

    def move_channels(self, op: Op, channels: Sequence[Array | None]) -> Array | None:
        """Return anything that belongs to channels, [C], in the output's order.

        channels: [C] for each input, None for a constant. None where channels do not
        stay whole, and for ops whose flow is not MOVES.
        """
        return None

    def with_channels(self, count: int) -> OpDef:
        """Return the op for an output of another number of channels."""
        return self

    def macs(self, op: Op) -> int:
        """Return the multiply-accumulates of one inference."""
        return 0

    def window(self, op: Op) -> tuple[tuple[int, int], ...] | None:
        """Return the size and the stride of the windows of an image, in pixels.

        Both are (vertical, horizontal). None for an operation without windows.
        """
        return None

    def fixed_quant(self) -> Quant:
        """Return the prescribed output scale of an op whose rule is FIXED."""
        raise NotImplementedError(f"{self.kind}: fixed_quant")

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the spec that computes transpose(self(x), perm) from inputs that are
        already transposed by perm; None where there is none.
        """
        return self if self.elementwise else None

    # ---- model files
    # ----------------------------------------------------------------------------------
    @classmethod
    def from_onnx(cls, node: Any) -> Value | list[Value]:
        """Add the ops of an ONNX node to `node.build`, and return the node's outputs.

        node: an OnnxNode, whose module imports this one, as it builds graphs of ops.
        """
        raise NotImplementedError(f"{cls.kind}: from_onnx")

    @classmethod
    def from_tflite(cls, op: Any) -> None:
        """Add the ops of a TFLite operator to `op.build`, which write `op.outputs`.

        op: a TfliteOp, whose module imports this one, as that of OnnxNode.
        """
        raise NotImplementedError(f"{cls.kind}: from_tflite")

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the op as a TFLite operator; None when TFLite has none."""
        return None

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether only TFLite's uint8 kernel computes this int8 op.

        The op then has semantics that came with a uint8 model.
        """
        return False

    def as_tflite(self) -> OpDef:
        """Return the op that TFLite, and so the Edge TPU, computes in its place.

        Ops that round as onnxruntime or the chip does round differently there.
        """
        rounding = getattr(self, "rounding", Rounding.TFLITE)
        if not rounding.sums_in_float:
            return self

        return replace(self, rounding=rounding.in_tflite)  # type: ignore[call-arg]

    # ---- C
    # ----------------------------------------------------------------------------------
    def c(self, op: Op) -> KernelCall:
        """Return the call of the plain kernel that computes this op."""
        raise NotImplementedError(f"{self.kind}: c")

    def calls(self, op: Op) -> tuple[KernelCall, ...]:
        """Return the kernel calls of an op that takes several, or none."""
        return (self.c(op),)

    @classmethod
    def has_kernel(cls) -> bool:
        """Return whether the op can be written as C at all."""
        return cls.c is not OpDef.c or cls.calls is not OpDef.calls

    # ---- tests
    # ----------------------------------------------------------------------------------
    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the instances that the generated conformance tests try.

        They cover every attribute, element type and edge case that matters.
        """
        raise NotImplementedError(f"{cls.kind}: samples")

    # ---- Edge TPU
    # ----------------------------------------------------------------------------------
    def why_not(self, op: Op) -> list[Refusal]:
        """Return every support rule that this op breaks, or may break.

        Without any the Edge TPU runs it.
        """
        if not self.edgetpu:
            return [
                Refusal(
                    "supported_op",
                    "the operation must be one that the Edge TPU has",
                    self.kind,
                    self.edgetpu_fix,
                )
            ]

        # All rules are asked, so that a report can name everything at once.
        refusals: list[Refusal] = []
        for name, constraint, fix, rule in _rules(self.kind):
            refusal = rule(self, op)
            if refusal is not None:
                is_uncertain = isinstance(refusal, Uncertain)
                refusals.append(Refusal(name, constraint, refusal, fix, is_uncertain))

        return refusals

    @edgetpu_rule(
        fix="give calibration data (--calibrate) so that edgec quantizes the model to int8"
    )
    def _int8_tensors(self, op: Op) -> str | None:
        """All tensors must be int8 or uint8 (a bias int32)."""
        for i, value in enumerate([*op.inputs, *op.outputs]):
            dtype = value.type.dtype
            is_int32_constant = value.const is not None and dtype == "int32"
            if dtype in ("int8", "uint8") or is_int32_constant:
                continue
            use = "output" if i >= len(op.inputs) else "input"
            return f"{use} {value.name} is {dtype}"

        return None

    @edgetpu_rule(
        fix="run one image per inference; reshape so that only the last three "
        "dimensions exceed 1"
    )
    def _three_innermost_dimensions(self, op: Op) -> str | None:
        """At most the three innermost dimensions may be larger than 1."""
        for value in [*op.inputs, *op.outputs]:
            outer_sizes = value.type.shape[:-3]
            if value.const is None and any(size > 1 for size in outer_sizes):
                return f"{value.name} has shape {list(value.type.shape)}"

        return None

    @edgetpu_rule(
        fix="use a smaller image; edgec computes convolutions and pools in bands of "
        "rows where it can"
    )
    def _large_tensor(self, op: Op) -> str | None:
        """At most 12656736 elements, the largest tensor that was seen to map."""
        for value in [*op.inputs, *op.outputs]:
            if value.type.size > LARGEST_MAPPED:
                shape = list(value.type.shape)
                return Uncertain(f"{value.name} has shape {shape}")

        return None


@dataclass(eq=False)
class Op:
    """One operation of a graph.

    Attributes:
        spec: the operation and its attributes
        inputs: values that it reads
        outputs: values that it writes
        source: names of the nodes of the model file that it came from, for messages
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
        """Whether its results have no element, so that there is nothing to compute."""
        return not any(v.type.size for v in self.outputs)

    def calls(self) -> tuple[KernelCall, ...]:
        """Return the calls of plain kernels that compute it; none when it is empty."""
        if self.is_empty:
            return ()

        values = (*self.inputs, *self.outputs)
        if self.spec.any_elements or not has_float16(v.type for v in values):
            return self.spec.calls(self)

        # The calls name the kernels for float32: schedules treat both types alike, and
        # the C names the kernels for float16 (`KernelCall.is_float16`).
        twins = float32_twins(values)
        inputs = [twins[v] for v in self.inputs]
        twin = replace(self, inputs=inputs, outputs=[twins[v] for v in self.outputs])
        return pointing_back(twins, self.spec.calls(twin))

    def __repr__(self) -> str:
        """Return the op as in the text form, without its attributes."""
        # Results show their types, operands their names.
        outputs = ", ".join(map(repr, self.outputs))
        inputs = ", ".join(value.name for value in self.inputs)
        return f"{outputs} = {self.kind}({inputs})"


def _is_data(name: str, value: object) -> bool:
    """Return whether a class attribute is data: neither a method nor private."""
    is_method = callable(value) or isinstance(value, _METHODS)
    return not name.startswith("_") and not is_method


def _declares(cls: type, name: str) -> bool:
    """Return whether a class or a base of it annotates or has an attribute.

    The class itself has it by its own definition, so that only its annotation counts.
    """
    # An attribute that a base annotates may be set by any subclass.
    bases = cls.__mro__[1:]
    is_annotated = any(name in inspect.get_annotations(c) for c in (cls, *bases))

    return is_annotated or any(name in c.__dict__ for c in bases)


@cache
def _rules(kind: str) -> tuple[tuple[str, str, str | None, Rule], ...]:
    """Return (name, constraint, fix, method) of each support rule of an op, by name."""
    rules: list[tuple[str, str, str | None, Rule]] = []

    # Subclasses override the rules of their bases by name.
    for name, method in inspect.getmembers(OpDef.registry[kind], inspect.isfunction):
        if hasattr(method, "edgetpu_fix"):
            constraint = " ".join((inspect.getdoc(method) or "").split())
            rules.append((name.strip("_"), constraint, method.edgetpu_fix, method))

    return tuple(rules)


def by_name(table: str, name: str) -> type[OpDef] | None:
    """Return the op that reads operator `name` of a file format, "onnx" or "tflite"."""
    return _tables(table).get(name)


def _tables(table: str) -> dict[str, type[OpDef]]:
    """Return the ops of a file format by the names of its operators."""
    return {n: cls for cls in OpDef.registry.values() for n in getattr(cls, table)}
