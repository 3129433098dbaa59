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
from typing import Any

import numpy as np

from edgec.ir.graph import Graph, State
from edgec.ir.opdef import Op, OpDef
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value

_PLAIN = re.compile(r"[\w./:-]+")
_NAME = r'%(?:[\w./:-]+|"(?:[^"\\]|\\.)*")'
_TYPE = r"\w+\[[\d,]*\](?: q\([^)]*\))?"
_LITERAL_MAX = 8


class ParseError(ValueError):
    """Text that is not the text form of a graph."""


def print_graph(graph: Graph, constants: bool = True) -> str:
    """The text form; without `constants` their elements are left out, and are zero when
    it is parsed back.
    """
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"input {_name(v)} : {_type(v.type)}" for v in graph.inputs]
    for v in graph.constants():
        data = f" = {_data(v.const)}" if constants and v.const is not None else ""
        lines.append(f"const {_name(v)} : {_type(v.type)}{data}")
    lines += [_op(op) for op in graph.ops]
    lines += [f"output {_name(v)}" for v in graph.outputs]
    lines += [_state(s) for s in graph.state]
    return "\n".join(lines) + "\n"


def _name(v: Value) -> str:
    return _plain(v.name)


def _plain(name: str) -> str:
    return "%" + (name if _PLAIN.fullmatch(name) else json.dumps(name))


def _state(s: State) -> str:
    type_ = TensorType(s.initial.shape, str(s.initial.dtype))
    return (
        f"state {_plain(s.input)} = {_plain(s.output)} : "
        f"{_type(type_)} = {_data(s.initial)}"
    )


def _type(t: TensorType) -> str:
    if t.quant is None:
        return str(t)
    q = t.quant
    if q.axis is None and len(q.scale) == 1:
        return f"{t} q({q.scale[0]!r}, {q.zero_point[0]})"
    return f"{t} q({list(q.scale)}, {list(q.zero_point)}, axis={q.axis})"


def _data(array: Array) -> str:
    if array.size <= _LITERAL_MAX and np.isfinite(array).all():
        return repr(array.reshape(-1).tolist())
    return f'b64"{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"'


def _op(op: Op) -> str:
    attrs = ", ".join(
        f"{f.name}={_attr(getattr(op.spec, f.name))}" for f in fields(op.spec)
    )
    text = (
        f"{', '.join(map(_name, op.outputs))} = "
        f"{op.kind}({', '.join(map(_name, op.inputs))})"
    )
    text += f" {{{attrs}}} : {', '.join(_type(v.type) for v in op.outputs)}"
    return text + (f" from {json.dumps(op.source)}" if op.source else "")


def _attr(value: object) -> str:
    """The literal of an attribute; infinity, which has none, as a number too large for
    a double.
    """
    if isinstance(value, str):
        return repr(value)
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


def parse(text: str) -> Graph:
    """The graph of a text form. Raises ParseError with the line."""
    graph = Graph("")
    env = dict[str, Value]()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                _parse_line(line.strip(), graph, env)
            except (
                LookupError,
                ValueError,
                SyntaxError,
                TypeError,
                OverflowError,
                RecursionError,
                MemoryError,
            ) as e:
                raise ParseError(f"line {number}: {e}: {line[:120]}") from e
    return graph


def _parse_line(line: str, graph: Graph, env: dict[str, Value]) -> None:
    if m := _HEAD.fullmatch(line):
        graph.name = json.loads(m[1])
    elif m := _INPUT.fullmatch(line):
        graph.inputs.append(_define(env, m[1], _parse_type(m[2])))
    elif m := _CONST.fullmatch(line):
        type_ = _parse_type(m[2])
        # of no size in memory
        zeros = np.broadcast_to(np.zeros((), type_.np_dtype), type_.shape)
        if m[3] is None:
            _define(env, m[1], type_).const = zeros
        else:
            _define(env, m[1], type_).const = _parse_data(m[3], type_)
    elif m := _OUTPUT.fullmatch(line):
        graph.outputs.append(env[_parse_name(m[1])])
    elif m := _STATE.fullmatch(line):
        initial = _parse_data(m[4], _parse_type(m[3]))
        graph.state.append(State(_parse_name(m[1]), _parse_name(m[2]), initial))
    elif m := _OP.fullmatch(line):
        inputs = [env[_parse_name(n)] for n in re.findall(_NAME, m[3])]
        types = [_parse_type(t) for t in re.findall(_TYPE, m[5])]
        outputs = [
            _define(env, n, t)
            for n, t in zip(re.findall(_NAME, m[1]), types, strict=True)
        ]
        graph.ops.append(
            Op(
                _parse_spec(m[2], m[4]),
                inputs,
                outputs,
                json.loads(m[6]) if m[6] else "",
            )
        )
    else:
        raise ValueError("not a graph, input, const, op, output or state")


def _define(env: dict[str, Value], name: str, type_: TensorType) -> Value:
    plain = _parse_name(name)
    if plain in env:
        raise ValueError(f"{plain} is defined twice")
    return env.setdefault(plain, Value(plain, type_))


def _parse_name(text: str) -> str:
    return str(json.loads(text[1:])) if text.startswith('%"') else text[1:]


def _parse_type(text: str) -> TensorType:
    m = re.fullmatch(r"(\w+)\[([\d,]*)\](?: q\(([^)]*)\))?", text)
    if m is None:
        raise ValueError(f"not a type: {text}")
    shape = tuple(int(d) for d in m[2].split(",") if d)
    return TensorType(shape, m[1], _parse_quant(m[3]) if m[3] else None)


def _call(arguments: str) -> ast.Call:
    """Of nothing, with these arguments."""
    call = ast.parse(f"f({arguments})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError(f"not a list of values: {arguments[:120]}")
    return call


def _parse_quant(text: str) -> Quant:
    call = _call(text)
    scale, zero = (ast.literal_eval(a) for a in call.args)
    if not call.keywords:
        found = Quant((scale,), (zero,))
    else:
        found = Quant(
            tuple(scale), tuple(zero), ast.literal_eval(call.keywords[0].value)
        )
    if (
        not all(type(z) is int for z in found.zero_point)
        or not np.isfinite(found.scale).all()
    ):
        raise ValueError(f"not scales and zero points: {text[:120]}")
    return found


def _parse_data(text: str, type_: TensorType) -> Array:
    if text.startswith('b64"'):
        flat = np.frombuffer(base64.b64decode(text[4:-1]), type_.np_dtype)
    else:
        flat = np.array(ast.literal_eval(text), type_.np_dtype)
    return flat.reshape(type_.shape)


def _parse_spec(kind: str, attrs: str) -> OpDef:
    call = _call(attrs)
    values: dict[str, Any] = {
        str(k.arg): ast.literal_eval(k.value) for k in call.keywords
    }
    if kind not in OpDef.registry:
        raise ValueError(f"unknown op {kind}")
    return OpDef.registry[kind](**values)
