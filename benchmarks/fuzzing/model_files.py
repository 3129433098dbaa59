"""Damages .onnx and .tflite files by their schemas: fields, edges, shapes and buffers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import flatbuffers
import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema

from benchmarks.fuzzing.mutations import FLOATS, TEXTS, odd

Change = Callable[[], None]


def damaged_onnx(rng: random.Random, data: bytes) -> bytes:
    """Return a damaged .onnx file."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if model.graph.node and rng.random() < 0.4:
            rng.choice(
                (_rewired, _rewired, _renamed, _reweighted, _without_node, _retyped)
            )(rng, model.graph)
            continue
        places = list(_messages(model))
        weights = [len(m.ListFields()) for m in places]
        message = rng.choices(places, weights)[0]
        _change(rng, message)
    return bytes(model.SerializeToString())


def _values(graph: Any) -> list[str]:
    """Return the names of all values."""
    made = [name for n in graph.node for name in n.output]
    return [
        *made,
        *(v.name for v in graph.input),
        *(t.name for t in graph.initializer),
        "",
    ]


def _rewired(rng: random.Random, graph: Any) -> None:
    """Let a node or the graph name another value, perhaps a later one."""
    node = rng.choice(graph.node)
    ends = rng.choice((node.input, node.input, node.output))
    if len(ends):
        ends[rng.randrange(len(ends))] = rng.choice(_values(graph))
    elif len(graph.output):
        rng.choice(graph.output).name = rng.choice(_values(graph))


def _renamed(rng: random.Random, graph: Any) -> None:
    """Give one value another name everywhere."""
    old = rng.choice(_values(graph))
    new = rng.choice(TEXTS).encode(errors="replace").decode()
    for ends in (e for n in graph.node for e in (n.input, n.output)):
        for i, name in enumerate(ends):
            if name == old:
                ends[i] = new
    for one in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        one.name = new if one.name == old else one.name


def _reweighted(rng: random.Random, graph: Any) -> None:
    """Give a constant other elements, another shape or another type."""
    floats = [
        t
        for t in graph.initializer
        if t.data_type == onnx.TensorProto.FLOAT and t.raw_data
    ]
    if not floats:
        return
    tensor = rng.choice(floats)
    array = onnx.numpy_helper.to_array(tensor).copy()
    with np.errstate(all="ignore"):
        match rng.randrange(4):
            case 0 if array.size:
                array.flat[rng.randrange(array.size)] = rng.choice(FLOATS)
            case 1:
                array = array * np.float32(rng.choice(FLOATS))
            case 2:
                array = array.astype(
                    rng.choice(("float64", "float16", "int8", "int64", "uint8", "bool"))
                )
            case _:
                shapes = (
                    array.shape[::-1],
                    (array.size,),
                    (1, *array.shape),
                    array.shape[:-1] or (1,),
                )
                array = np.resize(array, rng.choice(shapes))
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _without_node(rng: random.Random, graph: Any) -> None:
    """Remove a node; its readers read its input."""
    at = rng.randrange(len(graph.node))
    node = graph.node[at]
    if node.input and node.output:
        old = node.output[0]
        new = node.input[0]
        del graph.node[at]
        for n in graph.node:
            for i, name in enumerate(n.input):
                n.input[i] = new if name == old else name


def _retyped(rng: random.Random, graph: Any) -> None:
    """Give an input or output another element type or rank."""
    if not graph.input:
        return
    t = rng.choice([*graph.input, *graph.output]).type.tensor_type
    if rng.random() < 0.5:
        t.elem_type = rng.choice((0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 22))
    elif t.shape.dim:
        at = rng.randrange(len(t.shape.dim))
        match rng.randrange(4):
            case 0:
                del t.shape.dim[at]
            case 1:
                t.shape.dim.add().dim_value = rng.choice((0, 1, 2, 5))
            case 2:
                t.shape.dim[at].dim_param = "n"
            case _:
                t.shape.dim[at].dim_value = rng.choice((0, 1, 2, 7, 64, 1 << 40))


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if hasattr(value, "extend") else [value]:
                yield from _messages(one)


def _change(rng: random.Random, message: Any) -> None:
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    if hasattr(value, "extend"):
        _resize(rng, value, scalar=field.message_type is None)
    elif field.message_type is not None or rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        _set(message, field.name, odd(rng, value))


def _set(message: Any, name: str, value: Any) -> None:
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):  # beyond the field's range, or half a character
        message.ClearField(name)


def _resize(rng: random.Random, values: Any, scalar: bool) -> None:
    at = rng.randrange(len(values))
    other = rng.randrange(len(values))
    match rng.randrange(5):
        case 0:
            del values[at]
        case 1:
            values.extend([copy.deepcopy(values[other])] * rng.choice((1, 1, 40)))
        case 2:
            del values[:]
        case _ if scalar:
            try:
                values[at] = rng.choice((odd(rng, values[at]), values[other]))
            except (ValueError, TypeError):
                del values[at]
        case _:
            one = copy.deepcopy(values[at])
            two = copy.deepcopy(values[other])
            values[at].CopyFrom(two)
            values[other].CopyFrom(one)


def damaged_tflite(rng: random.Random, data: bytes) -> bytes:
    """Return a damaged .tflite file."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = [
            (o, name)
            for o in _objects(model)
            for name, v in vars(o).items()
            if v is not None
        ]
        thing, name = rng.choice(places)
        setattr(thing, name, _other(rng, getattr(thing, name)))
    builder = flatbuffers.Builder(len(data) + 1024)
    try:
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    except Exception:
        # the writer has a type for each field, and room for so many bytes
        return data[: rng.randrange(len(data))]
    return bytes(builder.Output())


def _objects(thing: Any) -> Iterator[Any]:
    if type(thing).__module__ == schema.__name__:
        yield thing
        for value in vars(thing).values():
            yield from _objects(value)
    elif isinstance(thing, list):
        for one in thing:
            yield from _objects(one)


def _other(rng: random.Random, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(rng, value)
    if isinstance(value, list):
        found = list(value)
        at, other = (rng.randrange(len(found)) if found else 0 for _ in range(2))
        match rng.randrange(5):
            case 0:
                return found[:at] + found[at + 1 :]
            case 1:
                return found + found[other : other + 1] * rng.choice((1, 40))
            case 2 if found and isinstance(found[at], int | float):
                found[at] = odd(rng, found[at])
            case _ if found:
                found[at], found[other] = found[other], found[at]
        return found
    if isinstance(value, int | float | bytes):
        return odd(rng, value)
    return None


def _array(rng: random.Random, value: Any) -> Any:
    if not value.size:
        return np.array([rng.choice((0, 1, 5))], value.dtype)
    found = value.copy()
    with np.errstate(all="ignore"):
        match rng.randrange(4):
            case 0:
                return found[: rng.randrange(found.size)]
            case 1:
                return np.concatenate(
                    [found, found[:1].repeat(rng.choice((1, 3, 100)))]
                )
            case _:
                new = odd(rng, found.flat[rng.randrange(found.size)].item())
                try:
                    found.flat[rng.randrange(found.size)] = new
                except (OverflowError, ValueError):
                    found.flat[0] = 0
    return found
