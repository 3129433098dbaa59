"""The text form of a graph, printed and parsed back: parse(print_graph(g)) == g.

    graph "name"
    input %x : float32[1,4]
    const %w : float32[4] = [1.0, 2.0, 3.0, 4.0]
    %y = add(%x, %w) {act='none'} : float32[1,4] from "node name"
    output %y
    state %x = %y : float32[1,4] = [0.0, 0.0, 0.0, 0.0]

A quantized type reads `int8[1,4] q(0.5, -128)`, per channel `q([…], [0, …], axis=0)`;
long constants are base64.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from dataclasses import fields
from enum import Enum
from typing import Any

import numpy as np

from edgec.ir.graph import Graph, State
from edgec.ir.opdef import Op, OpDef
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value

_PLAIN = re.compile(r"[\w./:-]+")
"""Names that need no quotes."""
_NAME = r'%(?:[\w./:-]+|"(?:[^"\\]|\\.)*")'
"""A name, quoted unless it is plain."""
_TYPE = r"\w+\[[\d,]*\](?: q\([^)]*\))?"
"""A type with its quantization."""
MAX_LITERAL_ELEMENTS = 8
"""Elements of a constant that is written as numbers, not in base64."""


class ParseError(ValueError):
    """Text that is not the text form of a graph."""


def print_graph(graph: Graph, constants: bool = True) -> str:
    """Return the text form of a graph.

    Without `constants` their elements are left out, and are zero when the text is
    parsed back.
    """
    lines = [f"graph {json.dumps(graph.name)}"]
    for value in graph.inputs:
        lines.append(f"input {_name(value)} : {_type(value.type)}")

    # Constants come before the ops that read them.
    for value in graph.constants():
        line = f"const {_name(value)} : {_type(value.type)}"
        if constants and value.const is not None:
            line += f" = {_data(value.const)}"
        lines.append(line)

    for op in graph.ops:
        lines.append(_op(op))

    for value in graph.outputs:
        lines.append(f"output {_name(value)}")

    for state in graph.state:
        lines.append(_state(state))

    return "\n".join(lines) + "\n"


def _name(v: Value) -> str:
    """Return the text of a value's name."""
    return _quoted(v.name)


def _quoted(name: str) -> str:
    """Return a name after a "%", in quotes where it needs them."""
    return "%" + (name if _PLAIN.fullmatch(name) else json.dumps(name))


def _state(s: State) -> str:
    """Return the line of a state."""
    array = s.initial
    type_ = _type(TensorType(array.shape, str(array.dtype)))
    names = f"{_quoted(s.input)} = {_quoted(s.output)}"
    return f"state {names} : {type_} = {_data(array)}"


def _type(t: TensorType) -> str:
    """Return the text of a type, with its quantization."""
    q = t.quant
    if q is None:
        return str(t)

    if q.axis is None and len(q.scale) == 1:
        return f"{t} q({q.scale[0]!r}, {q.zero_point[0]})"

    scales = list(q.scale)
    zero_points = list(q.zero_point)

    return f"{t} q({scales}, {zero_points}, axis={q.axis})"


def _data(array: Array) -> str:
    """Return the text of elements: numbers, or base64 of long and not finite ones."""
    if array.size <= MAX_LITERAL_ELEMENTS and np.isfinite(array).all():
        return repr(array.reshape(-1).tolist())

    # base64 keeps every bit.
    raw = np.ascontiguousarray(array).tobytes()
    return f'b64"{base64.b64encode(raw).decode()}"'


def _op(op: Op) -> str:
    """Return the line of an op."""
    # All attributes are written, also those with their default.
    attrs: list[str] = []
    for field in fields(op.spec):
        attrs.append(f"{field.name}={_attr(getattr(op.spec, field.name))}")

    outputs = ", ".join(map(_name, op.outputs))
    inputs = ", ".join(map(_name, op.inputs))
    types = ", ".join(_type(v.type) for v in op.outputs)
    line = f"{outputs} = {op.kind}({inputs}) {{{', '.join(attrs)}}} : {types}"
    if op.source:
        line += f" from {json.dumps(op.source)}"

    return line


def _attr(value: object) -> str:
    """Return the literal of an attribute.

    Infinity, which has none, is written as a number too large for a double.
    """
    if isinstance(value, str):
        return repr(value)

    if isinstance(value, Enum):
        return repr(value.value)

    return re.sub(r"\binf\b", "1e999", repr(value))


_HEAD = re.compile(r"graph (.*)")
_INPUT = re.compile(rf"input ({_NAME}) : ({_TYPE})")
_CONST = re.compile(rf"const ({_NAME}) : ({_TYPE})(?: = (.*))?")
_STATE = re.compile(rf"state ({_NAME}) = ({_NAME}) : ({_TYPE}) = (.*)")
_OUTPUT = re.compile(rf"output ({_NAME})")
_OP = re.compile(
    rf"({_NAME}(?:, {_NAME})*) = (\w+)\(((?:{_NAME}(?:, {_NAME})*)?)\) \{{(.*)\}} : "
    rf'({_TYPE}(?:, {_TYPE})*)(?: from ("(?:[^"\\]|\\.)*"))?'
)
"""The lines of the text form, with their parts as groups."""

PARSE_ERRORS = (
    LookupError,
    ValueError,
    SyntaxError,
    TypeError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Errors that a damaged line may raise while it is parsed."""


def parse(text: str) -> Graph:
    """Return the graph of a text form.

    Raises ParseError with the line.
    """
    parser = _Parser()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            parser.parse_line(line.strip())
        except PARSE_ERRORS as e:
            raise ParseError(f"line {number}: {e}: {line[:120]}") from e

    return parser.graph


class _Parser:
    """The state of parsing: the graph so far, and its values by name."""

    def __init__(self) -> None:
        """Begin with an empty graph."""
        self.graph = Graph("")
        self.values: dict[str, Value] = {}

    def parse_line(self, line: str) -> None:
        """Add one line to the graph; raises one of `PARSE_ERRORS` for a damaged one."""
        readers = (
            (_HEAD, self._head),
            (_INPUT, self._input),
            (_CONST, self._const),
            (_OUTPUT, self._output),
            (_STATE, self._state),
            (_OP, self._op),
        )
        for pattern, read in readers:
            match = pattern.fullmatch(line)
            if match:
                read(match)
                return

        raise ValueError("not a graph, input, const, op, output or state")

    def _head(self, match: re.Match[str]) -> None:
        """Read the name of the graph."""
        self.graph.name = json.loads(match[1])

    def _input(self, match: re.Match[str]) -> None:
        """Read a graph input."""
        value = self._define(match[1], _parse_type(match[2]))
        self.graph.inputs.append(value)

    def _const(self, match: re.Match[str]) -> None:
        """Read a constant, which is zero where the elements are left out."""
        name, type_text, data = match.groups()
        type_ = _parse_type(type_text)
        if data is None:
            # An array of any size that takes no memory.
            zero = np.zeros((), type_.np_dtype)
            elements = np.broadcast_to(zero, type_.shape)
            self._define(name, type_).const = elements
        else:
            elements = _parse_data(data, type_)
            self._define(name, type_).const = elements

    def _output(self, match: re.Match[str]) -> None:
        """Read a graph output, which must be defined."""
        self.graph.outputs.append(self.values[_parse_name(match[1])])

    def _state(self, match: re.Match[str]) -> None:
        """Read a state."""
        initial = _parse_data(match[4], _parse_type(match[3]))
        state = State(_parse_name(match[1]), _parse_name(match[2]), initial)
        self.graph.state.append(state)

    def _op(self, match: re.Match[str]) -> None:
        """Read an op, whose inputs must be defined."""
        inputs = [self.values[_parse_name(n)] for n in re.findall(_NAME, match[3])]
        types = [_parse_type(t) for t in re.findall(_TYPE, match[5])]
        names = re.findall(_NAME, match[1])
        outputs: list[Value] = []
        for name, type_ in zip(names, types, strict=True):
            outputs.append(self._define(name, type_))

        spec = _parse_spec(match[2], match[4])
        source = json.loads(match[6]) if match[6] else ""
        self.graph.ops.append(Op(spec, inputs, outputs, source))

    def _define(self, text: str, type_: TensorType) -> Value:
        """Return a new value; raises ValueError for a name defined before."""
        name = _parse_name(text)
        if name in self.values:
            raise ValueError(f"{name} is defined twice")

        value = Value(name, type_)
        self.values[name] = value

        return value


def _parse_name(text: str) -> str:
    """Return the name of `_quoted`'s text."""
    return str(json.loads(text[1:])) if text.startswith('%"') else text[1:]


def _parse_type(text: str) -> TensorType:
    """Return the type of `_type`'s text."""
    match = re.fullmatch(r"(\w+)\[([\d,]*)\](?: q\(([^)]*)\))?", text)
    if match is None:
        raise ValueError(f"not a type: {text}")

    # Scalars have no sizes.
    dtype, sizes, quant = match.groups()
    shape = tuple(int(size) for size in sizes.split(",") if size)

    return TensorType(shape, dtype, _parse_quant(quant) if quant else None)


def _call(arguments: str) -> ast.Call:
    """Return the syntax tree of a call with these arguments, which is never run."""
    call = ast.parse(f"f({arguments})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError(f"not a list of values: {arguments[:120]}")
    return call


def _parse_quant(text: str) -> Quant:
    """Return the quantization of the text between the parentheses of `q(…)`."""
    call = _call(text)

    # literal_eval runs no code.
    scale, zero_point = (ast.literal_eval(argument) for argument in call.args)
    if call.keywords:
        axis = ast.literal_eval(call.keywords[0].value)
        quant = Quant(tuple(scale), tuple(zero_point), axis)
    else:
        quant = Quant((scale,), (zero_point,))

    are_ints = all(type(z) is int for z in quant.zero_point)
    if not are_ints or not np.isfinite(quant.scale).all():
        raise ValueError(f"not scales and zero points: {text[:120]}")

    return quant


def _parse_data(text: str, type_: TensorType) -> Array:
    """Return the elements of `_data`'s text."""
    if text.startswith('b64"'):
        raw = base64.b64decode(text[4:-1])
        flat = np.frombuffer(raw, type_.np_dtype)
    else:
        numbers = ast.literal_eval(text)
        flat = np.array(numbers, type_.np_dtype)

    return flat.reshape(type_.shape)


def _parse_spec(kind: str, attrs: str) -> OpDef:
    """Return the op of a kind with attributes as keyword arguments."""
    call = _call(attrs)
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        values[str(keyword.arg)] = ast.literal_eval(keyword.value)

    # The registry holds the ops of all imported modules.
    if kind not in OpDef.registry:
        raise ValueError(f"unknown op {kind}")

    cls = OpDef.registry[kind]

    # An attribute that is an enumeration is written as the value of its member.
    for field in fields(cls):
        if isinstance(field.default, Enum) and field.name in values:
            values[field.name] = type(field.default)(values[field.name])

    return cls(**values)
