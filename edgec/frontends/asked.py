"""What a person says of a model's inputs: which one is a constant, which one comes back
from an output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto

from edgec.errors import InputError, UnsupportedError, did_you_mean
from edgec.frontends.onnx_file import static_shape
from edgec.ir import Array, Graph, State, Value
from edgec.ops.cast import ONNX_TYPES

FIX = "--fix"
STATE = "--state"


def _filled(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], given: Sequence[float]
) -> Array:
    """The constant that an input is: one number for all elements, or one for each.

    Raises InputError.
    """
    size = math.prod(shape)
    if len(given) not in (1, size):
        hint = f"give one, or {size} separated by commas"
        raise InputError(
            f"{len(given)} numbers do not fill {name}, which is {dtype}{[*shape]}",
            FIX,
            hint,
        )
    whole = np.array(given, np.float64)
    with np.errstate(invalid="ignore"):
        array = whole.astype(dtype)
    if dtype.kind in "iu" and (array.astype(np.float64) != whole).any():
        raise InputError(
            f"{name} is of {dtype}, which {given[0]:g} is not",
            FIX,
            "give an integer in its range",
        )
    return np.full(shape, array[0]) if len(given) == 1 else array.reshape(shape)


def fix(graph: Graph, fixed: Mapping[str, Sequence[float]]) -> None:
    """Let these inputs be constants. Raises InputError."""
    check_fixed(fixed, [v.name for v in graph.given()])
    for v in [v for v in graph.inputs if v.name in fixed]:
        v.const = _filled(v.name, v.type.shape, v.type.np_dtype, fixed[v.name])
        graph.inputs.remove(v)


def fix_onnx(
    graph: GraphProto,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Sequence[float]],
) -> None:
    """The same before the nodes are read: which branch an If takes may hang on it.
    shapes: of dynamic inputs.
    """
    known = {t.name for t in graph.initializer}
    inputs = {i.name: i.type.tensor_type for i in graph.input if i.name not in known}
    check_fixed(fixed, [*inputs])
    for name, given in fixed.items():
        tensor = inputs[name]
        dims = [*tensor.shape.dim] if tensor.HasField("shape") else None
        shape = static_shape(name, dims, shapes.get(name), f"input {name}")
        if tensor.elem_type not in ONNX_TYPES:
            raise UnsupportedError(
                f"the input {name} is no tensor of numbers", FIX, "leave it out"
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        graph.initializer.append(
            onnx.numpy_helper.from_array(_filled(name, shape, dtype, given), name)
        )


def end_at(graph: GraphProto, outputs: Sequence[str]) -> None:
    """Let these tensors be the outputs; nodes that only others need are not read."""
    own = {o.name: o for o in graph.output}
    infos = [own.get(name, onnx.ValueInfoProto(name=name)) for name in outputs]
    del graph.output[:]
    graph.output.extend(infos)


def check_fixed(fixed: Mapping[str, Sequence[float]], inputs: Sequence[str]) -> None:
    """Raise InputError for a name that no input has, or where none is left."""
    for name in fixed:
        if name not in inputs:
            raise _unknown("input", name, inputs, FIX)
    if fixed and len(fixed) == len(inputs):
        raise InputError(
            "no input is left", FIX, "leave out the one that changes from call to call"
        )


def keep_state(graph: Graph, pairs: Mapping[str, str]) -> None:
    """Let these inputs be, at each call, what these outputs were at the call before;
    zeros at the first.

    Raises InputError for pairs that cannot be.
    """
    inputs, outputs = (
        {v.name: v for v in values} for values in (graph.given(), graph.returned())
    )
    for name, result in pairs.items():
        if name not in inputs:
            raise _unknown("input", name, [*inputs], STATE)
        if result not in outputs:
            raise _unknown("output", result, [*outputs], STATE)
        before = inputs[name]
        after = outputs.pop(result)
        if (before.type.shape, before.type.dtype) != (
            after.type.shape,
            after.type.dtype,
        ):
            what = (
                f"the input {name} is {before.type}, and the output {result} "
                f"{after.type}"
            )
            raise InputError(
                what, STATE, "what is kept between calls has one shape and element type"
            )
        graph.state.append(
            State(name, result, np.zeros(before.type.shape, before.type.np_dtype))
        )
    if pairs and not (graph.given() and graph.returned()):
        raise InputError(
            "all inputs or all outputs are state",
            STATE,
            "leave one of each for callers",
        )


def likely_state(graph: Graph) -> Iterator[tuple[Value, Value]]:
    """Inputs and outputs that are of one type and whose names say that one becomes the
    other: state and stateN.
    """
    free = graph.returned()
    for v in graph.given():
        for out in free:
            if out.type == v.type and v is not out and _becomes(v.name, out.name):
                yield v, out
                free.remove(out)
                break


_BEFORE = ("in", "input", "prev", "previous", "past", "old", "i", "0")
_AFTER = ("out", "output", "next", "present", "new", "n", "o", "1", "final", "updated")


def _becomes(before: str, after: str) -> bool:
    """Whether two names are the same but for a word or a letter that tells the old from
    the new.
    """
    return (
        bool(_stems(before, _BEFORE) & _stems(after, _AFTER))
        and before.lower() != after.lower()
    )


def _stems(name: str, words: Sequence[str]) -> set[str]:
    """A name without such a word at one of its ends; and as it is."""
    plain = name.lower()
    cut = {plain}
    for word in words:
        cut |= {plain.removesuffix(word)} if plain.endswith(word) else set()
        cut |= (
            {plain.removeprefix(word)}
            if plain.startswith(word) and len(word) > 1
            else set()
        )
    return {c.strip("_./:-") for c in cut} - {""}


def _unknown(what: str, name: str, there: Sequence[str], at: str) -> InputError:
    return InputError(
        f"the model has no {what} {name}{did_you_mean(name, there)}",
        at,
        f"there are: {', '.join(there)}",
    )
