"""Reads a .tflite file as a Graph.

uint8 tensors are converted to int8 (zero point - 128), without a change of value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgec_runtime.bundle.tflite_file import check_not_compiled

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import InputError, UnsupportedError
from edgec.frontends.tflite_file import (
    FileOperator,
    TfliteFile,
    as_int8,
    damage_told,
    inner,
)
from edgec.frontends.tflite_variables import OPERATORS, Variables
from edgec.ir import Builder, Graph, Op, OpDef, QuantRule, TfliteOp, Value, fold
from edgec.ir.attributes import TfliteOptions
from edgec.ir.opdef import by_name
from edgec.ir.types import dequantize
from edgec.ops.activation import Clamp
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.opaque import Opaque
from edgec.ops.quantize import Dequantize, Quantize


def read_tflite(
    path: Path, input_shapes: Mapping[str, tuple[int, ...]], opaque: bool = False
) -> Graph:
    """Return the main subgraph.

    opaque: operators that edgec cannot read become opaque ones with known types, for a
    report on the other operators. Raises InputError for a damaged file and
    UnsupportedError for an unknown operator.
    """
    with damage_told(path):
        file = TfliteFile.load(path, any_type=opaque)
        check_not_compiled(file.raw, str(path))
        reader = _TfliteReader(file, TfliteBuilder(path.stem), opaque)
        reader.check_shapes(input_shapes)
        return reader.read()


class TfliteBuilder(Builder):
    """A builder that infers the dimensions which a file leaves open.

    They are -1 in its shape signatures, whatever shape it declares. TFLite too computes
    these shapes when it loads the file.

    Attributes:
        open: for values with such a signature, whether each dimension is open.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.open: dict[Value, list[bool]] = {}

    def write(
        self, spec: OpDef, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Op:
        """Append an op, and return it.

        An open dimension is what the op infers. All dimensions behind an open one are
        open too: tools that insert operators do not mark them.
        """
        behind_open = any(v in self.open for v in inputs)
        inferred = spec.infer(*(v.type for v in inputs))
        for v, t in zip(outputs, inferred, strict=True):
            if behind_open:
                self.open.setdefault(v, [True] * v.type.rank)
            if v in self.open and v.type.rank == t.rank:
                shape = _merged(v.type.shape, t.shape, self.open[v])
                v.type = v.type.with_shape(shape)
        return super().write(spec, inputs, outputs)

    def declared(self, file: TfliteFile, i: int) -> Value:
        """Return a new value of the type that the file declares for a tensor."""
        # The signature counts only if it has the rank of the shape.
        value = self.value(file.name(i), inner(file.type(i)))
        dims = file.open_dims(i)
        if dims is not None and len(dims) == value.type.rank:
            self.open[value] = dims
        return value

    def constant(self, file: TfliteFile, i: int) -> Value:
        """Return a constant of the file.

        Quantized int16 becomes floats, as it does in the whole graph.
        """
        data = file.data(i)
        type_ = file.type(i)
        name = file.name(i)
        if type_.dtype == "int16" and inner(type_).dtype != "int16":
            return self.const(dequantize(data, type_), name)
        return self.const(data, name, as_int8(type_).quant)


def _merged(
    declared: tuple[int, ...], inferred: tuple[int, ...], open_dims: Sequence[bool]
) -> tuple[int, ...]:
    """Return a shape with its open dimensions from the inferred one."""
    dims = zip(declared, inferred, open_dims, strict=True)
    return tuple(new if is_open else old for old, new, is_open in dims)


def definition_of(o: FileOperator) -> type[OpDef]:
    """Return the op that reads an operator. Raises UnsupportedError without one."""
    definition = by_name("tflite", o.name)
    if definition is None:
        message = f"edgec does not know the TFLite operator {o.name}"
        raise UnsupportedError(message, o.at, "see docs/supported-ops.md")
    return definition


_READING_ERRORS = (
    ValueError,
    AttributeError,
    IndexError,
    TypeError,
    KeyError,
    ArithmeticError,
)
"""Errors of an op's reader on an operator that is not valid."""


def add_operator(
    build: Builder,
    o: FileOperator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    variables: Collection[Value] = (),
) -> dict[Value, Value]:
    """Append the ops that an operator stands for.

    variables: the inputs that it keeps between calls. Return the new value of each of
    them. Raises UnsupportedError if edgec cannot read it; then nothing is appended.
    """
    definition = definition_of(o)
    build.source = outputs[0].name if outputs else o.name
    mark = len(build.graph.ops)
    options = o.options
    if hasattr(options, "__dict__"):
        options = TfliteOptions.of(options)
    current = {v: v for v in variables}
    try:
        request = TfliteOp(
            o.name,
            options,
            o.version,
            [*inputs],
            [*outputs],
            build,
            o.uint8,
            current,
            o.intermediates,
        )
        definition.from_tflite(request)
        if isinstance(options, TfliteOptions):
            options.check()
    except _READING_ERRORS as e:
        del build.graph.ops[mark:]
        hint = "report the operator if other tools read this file"
        raise UnsupportedError(f"{o.name}: {e}", o.at, hint) from e
    return current


def add_opaque(
    build: Builder,
    o: FileOperator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    why: str,
) -> None:
    """Append an operator of known types that cannot be read, and the reason.

    Nothing is appended for an operator without results.
    """
    if not outputs:
        return
    # A file may declare no sizes for results that only its own kernel knows.
    for result in outputs:
        shape = tuple(max(1, size) for size in result.type.shape)
        result.type = result.type.with_shape(shape)
    types = tuple((v.type.dtype, v.type.shape) for v in outputs)
    build.source = outputs[0].name

    known: list[Value] = []
    for v in inputs:
        if v is None:
            continue
        # Constant int8 without a scale means nothing outside of this operator.
        if v.const is not None and v.type.dtype == "int8" and not v.type.quant:
            continue
        known.append(v)
    build.write(Opaque(o.name, why, types), known, outputs)


@dataclass
class _TfliteReader:
    """Reads one subgraph.

    Attributes:
        file: the subgraph in its file.
        build: the graph under construction.
        opaque: whether operators that cannot be read become opaque ones.
        variables: the state that the file keeps between calls.
    """

    file: TfliteFile
    build: TfliteBuilder
    opaque: bool
    variables: Variables = field(init=False)

    def __post_init__(self) -> None:
        self.variables = Variables(self.file, self.build)

    def check_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise an error for shapes other than the file's.

        TFLite shapes are static: --input-shape may only repeat them.
        """
        path = str(self.file.path)
        names = {self.file.name(i): i for i in self.file.inputs}
        for name, shape in shapes.items():
            if name not in names:
                message = f"the model has no input {name}"
                raise InputError(message, path, f"its inputs: {', '.join(names)}")
            have = self.file.type(names[name]).shape
            if have != shape:
                message = f"input {name} is {list(have)} in the file, not {list(shape)}"
                hint = "convert the model again with this shape"
                raise UnsupportedError(message, path, hint)

    def read(self) -> Graph:
        """Return the graph: all inputs, operators in order, all outputs."""
        graph = self.build.graph
        values: dict[int, Value] = {}
        # An output may be an input as it came, and may be listed again.
        outputs: dict[int, Value] = {}
        for i in self.file.inputs:
            values[i] = self._border_in(i)
            outputs[i] = graph.inputs[-1]
        for o in self.file.operators():
            self._operator(o, values)

        for i in self.file.outputs:
            if i not in outputs:
                outputs[i] = self._border_out(i, values)
            graph.outputs.append(outputs[i])
        self.variables.finish(graph)
        return graph

    def _called(self, file: TfliteFile) -> Variables:
        """Return the variables after a subgraph without inputs."""
        # Its constants become the initial values; the graph itself is not used.
        reader = _TfliteReader(file, TfliteBuilder("once"), opaque=False)
        values: dict[int, Value] = {}
        for o in file.operators():
            reader._operator(o, values)
        return reader.variables

    def _border_in(self, i: int) -> Value:
        """Return an input of the file in the type it has inside of the graph."""
        self.file.check_unwritten(i)
        name = self.file.name(i)
        file_type = self.file.type(i)
        value = self.build.input(name, file_type)
        type_ = inner(file_type)
        if type_ == file_type:
            return value
        # int16 is computed in floats, uint8 as int8.
        if type_.dtype == "float32":
            return self.build.add(Dequantize(), [value], f"{name}_float32")
        return self.build.add(Quantize(), [value], f"{name}_int8", type_.quant)

    def _border_out(self, i: int, values: dict[int, Value]) -> Value:
        """Return an output in the type that the file declares."""
        value = self._value(i, values)
        name = self.file.name(i)
        file_type = self.file.type(i).with_shape(value.type.shape)
        if file_type == value.type:
            return value
        if not file_type.is_quantized:
            message = (
                f"output {name} is {file_type} in the file, "
                f"and {value.type} is computed"
            )
            hint = "the file is damaged: export it again"
            raise UnsupportedError(message, str(self.file.path), hint)

        # The file's name belongs to the value that the caller gets.
        value.name = self.build.name(f"{name}_{value.type.dtype}")
        outer = Value(name, file_type)
        self.build.source = name
        self.build.write(Quantize(file_type.dtype), [value], [outer])
        return outer

    def _operator(self, o: FileOperator, values: dict[int, Value]) -> None:
        """Append one operator. values: of the tensors so far, by index."""
        if o.name in OPERATORS:
            self._variable_operator(o, values)
            return
        # An unknown operator is reported before its tensors.
        definition = by_name("tflite", o.name) if self.opaque else definition_of(o)
        keeps_state = definition is not None and definition.keeps_state
        inputs = [self._input(i, values, keeps_state) for i in o.inputs]
        variables = _variable_inputs(o, inputs, values)
        if o.int16:
            inputs = [v and self._real(v) for v in inputs]
        outputs = [self._result(i, values) for i in o.outputs]

        mark = len(self.build.graph.ops)
        try:
            kept = add_operator(self.build, o, inputs, outputs, variables)
            self.variables.keep(kept)
            if o.int16:
                for i, v in zip(o.outputs, outputs, strict=True):
                    self._bounded(i, v, mark)
        except UnsupportedError as e:
            if not self.opaque:
                raise
            others = [None if v in variables else v for v in inputs]
            add_opaque(self.build, o, others, outputs, e.what)
        self._fold_from(mark)

    def _fold_from(self, mark: int) -> None:
        """Fold the ops of constant inputs from number `mark` on.

        Nothing is known of the results of an opaque op.
        """
        ops = self.build.graph.ops
        new_ops = ops[mark:]
        del ops[mark:]
        for op in new_ops:
            if op.spec.opaque or not fold(op):
                ops.append(op)

    def _variable_operator(self, o: FileOperator, values: dict[int, Value]) -> None:
        """Follow an operator on resource variables."""

        def value(i: int) -> Value:
            return self._value(i, values)

        try:
            self.variables.operator(o, values, value, self._called)
        except UnsupportedError:
            if not self.opaque:
                raise

    def _result(self, i: int, values: dict[int, Value]) -> Value:
        """Return the value of a result, as declared unless it exists."""
        self.file.check_unwritten(i)
        if i not in values:
            values[i] = self.build.declared(self.file, i)
        return values[i]

    def _real(self, v: Value) -> Value:
        """Return a constant beside int16 tensors in floats.

        The op computes in floats.
        """
        if v.const is None or v.type.quant is None:
            return v
        return self.build.const(dequantize(v.const, v.type), v.name)

    def _bounded(self, i: int, v: Value, mark: int) -> None:
        """Clamp a float result to the range of the file's int16.

        mark: the number of the first op of the operator.
        """
        if not self.file.is_int16(i):
            return
        ops = self.build.graph.ops
        op = next((op for op in ops[mark:] if v in op.outputs), None)
        if op is None or op.spec.moves() or op.spec.quant is QuantRule.FIXED:
            return
        scale = self.file.type(i).scale
        low, high = ACTIVATIONS[getattr(op.spec, "act", "none")]
        # An activation within the range makes the clamp unnecessary but for one step.
        if low >= -32768 * scale and high <= 32768 * scale:
            return
        # The op writes a new value, and the clamp the old one.
        free = self.build.value(f"{v.name}_unbounded", v.type)
        op.outputs = [free if y is v else y for y in op.outputs]
        self.build.write(Clamp.of_int16(scale), [free], [v])

    def _input(
        self, i: int, values: dict[int, Value], keeps_state: bool
    ) -> Value | None:
        """Return an input of an operator: absent, a variable it keeps, or a value."""
        if i < 0:
            return None
        if i in values or self.file.has_data(i):
            return self._value(i, values)
        if keeps_state and self.file.is_variable(i):
            return self.variables.tensor(i)
        # A missing tensor is an error unless the rest shall be reported.
        return None if self.opaque else self._value(i, values)

    def _value(self, i: int, values: dict[int, Value]) -> Value:
        """Return the value of a tensor. Raises InputError if nothing has written it."""
        if i in values:
            return values[i]
        if not self.file.has_data(i):
            message = f"tensor {self.file.name(i)} is read before anything writes it"
            hint = "the file is damaged: convert the model again"
            raise InputError(message, str(self.file.path), hint)
        values[i] = self.build.constant(self.file, i)
        return values[i]


def _variable_inputs(
    o: FileOperator, inputs: Sequence[Value | None], values: Mapping[int, Value]
) -> list[Value]:
    """Return the inputs of an operator that are variable tensors.

    They are neither constant nor in `values`.
    """
    variables: list[Value] = []
    for i, v in zip(o.inputs, inputs, strict=True):
        if v is not None and i not in values and v.const is None:
            variables.append(v)
    return variables
