"""Requests of a person for a model's inputs.

An input may become a constant, or be fed back from an output.
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
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], numbers: Sequence[float]
) -> Array:
    """Return the constant for an input: one number for all elements, or one for each.

    Raises InputError.
    """
    size = math.prod(shape)
    if len(numbers) not in (1, size):
        message = (
            f"{len(numbers)} numbers do not fill {name}, which is {dtype}{[*shape]}"
        )
        raise InputError(message, FIX, f"give one, or {size} separated by commas")

    # Float64 holds all numbers that the other types can hold, up to 2^53.
    exact = np.array(numbers, np.float64)
    with np.errstate(invalid="ignore"):
        array = exact.astype(dtype)
    changed = array.astype(np.float64) != exact
    if dtype.kind in "iu" and changed.any():
        limits = np.iinfo(dtype)
        raise InputError(
            f"{float(exact[changed][0])!r} does not fit the input {name} of {dtype}",
            FIX,
            f"give integers from {limits.min} to {limits.max}",
        )
    return np.full(shape, array[0]) if len(numbers) == 1 else array.reshape(shape)


def fix(graph: Graph, fixed: Mapping[str, Sequence[float]]) -> None:
    """Make these inputs constants.

    fixed: one number, or one for each element, by the name of the input. Raises
    InputError.
    """
    check_fixed(fixed, [v.name for v in graph.given()])
    for v in list(graph.inputs):
        if v.name in fixed:
            numbers = fixed[v.name]
            v.const = _filled(v.name, v.type.shape, v.type.np_dtype, numbers)
            graph.inputs.remove(v)


def fix_onnx(
    graph: GraphProto,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Sequence[float]],
) -> None:
    """Make these inputs of an ONNX graph constants, before its nodes are read.

    An input may decide which branch an If takes. shapes: of dynamic inputs. Raises
    InputError, and UnsupportedError for an input without numbers.
    """
    # Old files list initializers among the inputs.
    initializers = {t.name for t in graph.initializer}
    inputs: dict[str, onnx.TypeProto.Tensor] = {}
    for info in graph.input:
        if info.name not in initializers:
            inputs[info.name] = info.type.tensor_type
    check_fixed(fixed, [*inputs])

    for name, numbers in fixed.items():
        tensor = inputs[name]
        dims = [*tensor.shape.dim] if tensor.HasField("shape") else None
        shape = static_shape(name, dims, shapes.get(name), f"input {name}")
        if tensor.elem_type not in ONNX_TYPES:
            message = f"the input {name} is not a tensor of numbers"
            raise UnsupportedError(message, FIX, "leave it out")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        constant = _filled(name, shape, dtype, numbers)
        graph.initializer.append(onnx.numpy_helper.from_array(constant, name))


def end_at(graph: GraphProto, outputs: Sequence[str]) -> None:
    """Make these tensors the outputs of an ONNX graph.

    Nodes needed only for its former outputs are then not read.
    """
    # The type of a former output is known.
    former = {o.name: o for o in graph.output}
    infos: list[onnx.ValueInfoProto] = []
    for name in outputs:
        infos.append(former.get(name, onnx.ValueInfoProto(name=name)))
    del graph.output[:]
    graph.output.extend(infos)


def check_fixed(fixed: Mapping[str, Sequence[float]], inputs: Sequence[str]) -> None:
    """Raise InputError for an unknown name, or if no input remains."""
    for name in fixed:
        if name not in inputs:
            raise _unknown("input", name, inputs, FIX)
    if fixed and len(fixed) == len(inputs):
        hint = "leave out the one that changes from call to call"
        raise InputError("no input is left", FIX, hint)


def keep_state(graph: Graph, pairs: Mapping[str, str]) -> None:
    """Feed outputs back into inputs from one call to the next, zeros at the first.

    pairs: the output for each input. Raises InputError for unsuitable pairs.
    """
    inputs = {v.name: v for v in graph.given()}
    outputs = {v.name: v for v in graph.returned()}
    for name, result in pairs.items():
        if name not in inputs:
            raise _unknown("input", name, [*inputs], STATE)
        if result not in outputs:
            raise _unknown("output", result, [*outputs], STATE)
        before = inputs[name].type
        # An output can be the state of one input only.
        after = outputs.pop(result).type
        if before.shape != after.shape or before.dtype != after.dtype:
            message = f"the input {name} is {before}, and the output {result} {after}"
            hint = "what is kept between calls has one shape and element type"
            raise InputError(message, STATE, hint)
        initial = np.zeros(before.shape, before.np_dtype)
        graph.state.append(State(name, result, initial))

    if pairs and not (graph.given() and graph.returned()):
        message = "all inputs or all outputs are state"
        raise InputError(message, STATE, "leave one of each for callers")


def likely_state(graph: Graph) -> Iterator[tuple[Value, Value]]:
    """Yield inputs and outputs of one type that are likely to be a state.

    Their names suggest that one becomes the other: state and stateN. An input and an
    output are left for callers, as keep_state() demands.
    """
    given, free = graph.given(), graph.returned()
    pairs = list[tuple[Value, Value]]()
    for v in given:
        for out in free:
            if out.type == v.type and v is not out and _becomes(v.name, out.name):
                pairs.append((v, out))
                free.remove(out)
                break
    if free and len(pairs) < len(given):
        yield from pairs


_BEFORE = ("in", "input", "prev", "previous", "past", "old", "i", "0")
_AFTER = ("out", "output", "next", "present", "new", "n", "o", "1", "final", "updated")


def _becomes(before: str, after: str) -> bool:
    """Return whether two names differ only by a word or letter for old and new.

    Both must have the same stem, as state_in and state_out.
    """
    if before.lower() == after.lower():
        return False
    return not _stems(before, _BEFORE).isdisjoint(_stems(after, _AFTER))


def _stems(name: str, words: Sequence[str]) -> set[str]:
    """Return a name as it is, and without each of these words at one of its ends.

    A single letter counts at the end only. A name that is such a word has no stem: a
    network's "input" does not become its "output".
    """
    plain = name.lower()
    if plain in words:
        return set()
    stems = {plain}
    for word in words:
        if plain.endswith(word):
            stems.add(plain.removesuffix(word))
        if plain.startswith(word) and len(word) > 1:
            stems.add(plain.removeprefix(word))
    return {stem.strip("_./:-") for stem in stems} - {""}


def _unknown(what: str, name: str, known: Sequence[str], at: str) -> InputError:
    """Return the error for a name that no input or output has."""
    message = f"the model has no {what} {name}{did_you_mean(name, known)}"
    return InputError(message, at, f"there are: {', '.join(known)}")
