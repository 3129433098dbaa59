"""A .tflite file as a Graph. uint8 tensors are converted to int8 (zero point - 128),
which changes no value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

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
    """Read the main subgraph.

    Raises InputError for a damaged file and UnsupportedError for an unknown operator.

    opaque: operators that edgec cannot read become opaque ones, of which only the types
    are known, for those who ask about the rest of the model.
    """
    with damage_told(path):
        file = TfliteFile.load(path, any_type=opaque)
        reader = _TfliteReader(file, TfliteBuilder(path.stem), opaque)
        reader.check_shapes(input_shapes)
        return reader.read()


class TfliteBuilder(Builder):
    """Follows the inputs where a file leaves dimensions open (-1 in its shape
    signatures), whatever shape it declares.

    TFLite too computes these shapes when it loads the file.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.open: dict[Value, list[bool]] = {}

    def write(
        self, spec: OpDef, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Op:
        """As Builder's, but an open dimension is what the op infers, so is what follows
        from one: tools that insert operators do not say which are.
        """
        follows = any(v in self.open for v in inputs)
        for v, t in zip(outputs, spec.infer(*(v.type for v in inputs)), strict=True):
            if follows:
                self.open.setdefault(v, [True] * v.type.rank)
            if v in self.open and v.type.rank == t.rank:
                dims = zip(v.type.shape, t.shape, self.open[v], strict=True)
                v.type = v.type.with_shape(
                    tuple(new if is_open else old for old, new, is_open in dims)
                )
        return super().write(spec, inputs, outputs)

    def declared(self, file: TfliteFile, i: int) -> Value:
        """A value of the type that the file declares for a tensor."""
        value = self.value(file.name(i), inner(file.type(i)))
        dims = file.open_dims(i)
        if dims is not None and len(dims) == value.type.rank:
            self.open[value] = dims
        return value

    def constant(self, file: TfliteFile, i: int) -> Value:
        """A constant of the file."""
        data = file.data(i)
        type_ = file.type(i)
        if inner(type_).dtype != type_.dtype == "int16":
            return self.const(dequantize(data, type_), file.name(i))
        return self.const(data, file.name(i), as_int8(type_).quant)


def definition_of(o: FileOperator) -> type[OpDef]:
    """The op that reads an operator. Raises UnsupportedError if there is none."""
    definition = by_name("tflite", o.name)
    if definition is None:
        raise UnsupportedError(
            f"edgec does not know the TFLite operator {o.name}",
            o.at,
            "see docs/supported-ops.md",
        )
    return definition


def add_operator(
    build: Builder,
    o: FileOperator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    variables: Collection[Value] = (),
) -> dict[Value, Value]:
    """Append what an operator means.

    Raises UnsupportedError if edgec cannot read it; then nothing is appended.

    variables: the inputs that it keeps; returns what becomes of them.
    """
    definition = definition_of(o)
    build.source = outputs[0].name if outputs else o.name
    mark = len(build.graph.ops)
    options = (
        TfliteOptions.of(o.options) if hasattr(o.options, "__dict__") else o.options
    )
    kept = {v: v for v in variables}
    try:
        given = TfliteOp(
            o.name,
            options,
            o.version,
            [*inputs],
            [*outputs],
            build,
            o.uint8,
            kept,
            o.intermediates,
        )
        definition.from_tflite(given)
        if isinstance(options, TfliteOptions):
            options.check()
    except (
        ValueError,
        AttributeError,
        IndexError,
        TypeError,
        KeyError,
        ArithmeticError,
    ) as e:
        del build.graph.ops[mark:]
        raise UnsupportedError(
            f"{o.name}: {e}", o.at, "report the operator if other tools read this file"
        ) from e
    return kept


def add_opaque(
    build: Builder,
    o: FileOperator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    why: str,
) -> None:
    """Append an operator of which only the types are known, and why it cannot be read;
    nothing without a result.
    """
    if not outputs:
        return
    for v in outputs:  # a file may declare no sizes for what only its own kernel knows
        v.type = v.type.with_shape(tuple(max(1, d) for d in v.type.shape))
    types = tuple((v.type.dtype, v.type.shape) for v in outputs)
    build.source = outputs[0].name if outputs else o.name
    # int8 without a scale means nothing outside of that operator
    known = [
        v
        for v in inputs
        if v is not None and (v.const is None or v.type.dtype != "int8" or v.type.quant)
    ]
    build.write(Opaque(o.name, why, types), known, outputs)


@dataclass
class _TfliteReader:
    file: TfliteFile
    build: TfliteBuilder
    opaque: bool
    variables: Variables = field(init=False)

    def __post_init__(self) -> None:
        self.variables = Variables(self.file, self.build)

    def check_shapes(self, given: Mapping[str, tuple[int, ...]]) -> None:
        """TFLite shapes are static: --input-shape may only repeat them."""
        path = str(self.file.path)
        names = {self.file.name(i): i for i in self.file.inputs}
        for name, shape in given.items():
            if name not in names:
                raise InputError(
                    f"the model has no input {name}",
                    path,
                    f"its inputs: {', '.join(names)}",
                )
            have = self.file.type(names[name]).shape
            if have != shape:
                what = f"input {name} is {list(have)} in the file, not {list(shape)}"
                raise UnsupportedError(
                    what, path, "convert the model again with this shape"
                )

    def read(self) -> Graph:
        """All inputs, operators in order, all outputs."""
        values = {i: self._border_in(i) for i in self.file.inputs}
        for o in self.file.operators():
            self._operator(o, values)
        graph = self.build.graph
        graph.outputs = [self._border_out(i, values) for i in self.file.outputs]
        self.variables.finish(graph)
        return graph

    def _called(self, file: TfliteFile) -> Variables:
        """What becomes of the variables in a subgraph without inputs."""
        reader = _TfliteReader(file, TfliteBuilder("once"), opaque=False)
        values = dict[int, Value]()
        for o in file.operators():
            reader._operator(o, values)
        return reader.variables

    def _border_in(self, i: int) -> Value:
        self.file.check_unwritten(i)
        name = self.file.name(i)
        file_type = self.file.type(i)
        value = self.build.input(name, file_type)
        type_ = inner(file_type)
        if type_ == file_type:
            return value
        if type_.dtype == "float32":
            return self.build.add(Dequantize(), [value], f"{name}_float32")
        return self.build.add(Quantize(), [value], f"{name}_int8", type_.quant)

    def _border_out(self, i: int, values: dict[int, Value]) -> Value:
        value = self._value(i, values)
        name = self.file.name(i)
        file_type = self.file.type(i)
        file_type = file_type.with_shape(value.type.shape)
        if file_type == value.type:
            return value
        if not file_type.is_quantized:
            what = f"output {name} is {file_type} in the file, and {value.type} is computed"
            raise UnsupportedError(
                what, str(self.file.path), "the file is damaged: export it again"
            )
        # the file's name belongs to what the caller gets
        value.name = self.build.name(f"{name}_{value.type.dtype}")
        outer = Value(name, file_type)
        self.build.source = name
        self.build.write(Quantize(file_type.dtype), [value], [outer])
        return outer

    def _operator(self, o: FileOperator, values: dict[int, Value]) -> None:
        if o.name in OPERATORS:
            with suppress(*((UnsupportedError,) if self.opaque else ())):
                self.variables.operator(
                    o, values, lambda i: self._value(i, values), self._called
                )
            return
        # before its tensors
        definition = by_name("tflite", o.name) if self.opaque else definition_of(o)
        keeps_state = definition is not None and definition.keeps_state
        inputs = [self._input(i, values, keeps_state) for i in o.inputs]
        variables = [
            v
            for i, v in zip(o.inputs, inputs, strict=True)
            if v is not None and i not in values and v.const is None
        ]
        if o.int16:
            inputs = [v and self._real(v) for v in inputs]
        for i in o.outputs:
            self.file.check_unwritten(i)
            if i not in values:
                values[i] = self.build.declared(self.file, i)
        outputs = [values[i] for i in o.outputs]
        ops = self.build.graph.ops
        mark = len(ops)
        try:
            self.variables.keep(add_operator(self.build, o, inputs, outputs, variables))
            for i in o.outputs if o.int16 else ():
                self._bounded(i, values[i], mark)
        except UnsupportedError as e:
            if not self.opaque:
                raise
            add_opaque(
                self.build,
                o,
                [None if v in variables else v for v in inputs],
                outputs,
                e.what,
            )
        ops[mark:] = [
            op for op in ops[mark:] if isinstance(op.spec, Opaque) or not fold(op)
        ]

    def _real(self, v: Value) -> Value:
        """A constant beside int16, which is computed in floats, as the floats that it
        stands for.
        """
        if v.const is None or v.type.quant is None:
            return v
        return self.build.const(dequantize(v.const, v.type), v.name)

    def _bounded(self, i: int, v: Value, mark: int) -> None:
        """What an operator computes in floats where the file has int16 ends where those
        end.
        """
        ops = self.build.graph.ops
        op = next((op for op in ops[mark:] if v in op.outputs), None)
        if (
            op is None
            or not self.file.is_int16(i)
            or op.spec.moves()
            or op.spec.quant is QuantRule.FIXED
        ):
            return
        scale, (low, high) = (
            self.file.type(i).scale,
            ACTIVATIONS[getattr(op.spec, "act", "none")],
        )
        # no more than a step is lost
        if low >= -32768 * scale and high <= 32768 * scale:
            return
        free = self.build.value(f"{v.name}_unbounded", v.type)
        op.outputs = [free if y is v else y for y in op.outputs]
        self.build.write(Clamp.of_int16(scale), [free], [v])

    def _input(
        self, i: int, values: dict[int, Value], keeps_state: bool
    ) -> Value | None:
        """An operator's input: absent, a variable that it keeps, or a value."""
        if i < 0:
            return None
        if i in values or self.file.has_data(i):
            return self._value(i, values)
        if keeps_state and self.file.is_variable(i):
            return self.variables.tensor(i)
        return None if self.opaque else self._value(i, values)

    def _value(self, i: int, values: dict[int, Value]) -> Value:
        if i not in values:
            if not self.file.has_data(i):
                raise InputError(
                    f"tensor {self.file.name(i)} is read before anything writes it",
                    str(self.file.path),
                )
            values[i] = self.build.constant(self.file, i)
        return values[i]
