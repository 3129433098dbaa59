"""The rules of a legal graph at each stage; `verify` runs between all passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgec.ir.graph import Graph
from edgec.ir.meaning import infer
from edgec.ir.opdef import Op, QuantRule
from edgec.ir.value import Value

Check = Callable[[Graph], Iterator[str]]
"""A rule: yields a message for each violation."""


class VerifyError(AssertionError):
    """A graph breaks a rule of its stage: a bug of edgec."""


def _defined_before_use(graph: Graph) -> Iterator[str]:
    """Every value is an input, a constant or written exactly once before it is read."""
    defined = set(graph.inputs)
    for op in graph.ops:
        for value in op.inputs:
            if value not in defined and value.const is None:
                yield f"{op!r} reads {value.name}, which nothing has written"
        for value in op.outputs:
            if value in defined or value.const is not None:
                yield f"{value.name} is written twice"
            defined.add(value)

    # An output may be an input or a constant.
    for value in graph.outputs:
        if value not in defined and value.const is None:
            yield f"output {value.name} is never written"


def _unique_names(graph: Graph) -> Iterator[str]:
    """No two values have one name."""
    names: set[str] = set()
    for value in graph.values():
        if value.name in names:
            yield f"two values are called {value.name}"
        names.add(value.name)


def _types_inferred(graph: Graph) -> Iterator[str]:
    """Each op's declared output types are those it infers; constants have the shape and
    dtype of their arrays.
    """
    for op in graph.ops:
        try:
            types = infer(op.spec, [v.type for v in op.inputs])
        except (ValueError, TypeError) as e:
            # A text form may have attributes of another type: TypeError.
            yield f"{op!r}: {e}"
            continue

        # Scales come from elsewhere: only shape and element type are inferred.
        inferred = [(t.shape, t.dtype) for t in types]
        declared = [(v.type.shape, v.type.dtype) for v in op.outputs]
        if inferred != declared:
            yield f"{op!r} infers {', '.join(map(str, types))}"

    for value in graph.constants():
        yield from _wrong_constant(value)


def _wrong_constant(value: Value) -> Iterator[str]:
    """Yield a message for a constant whose array has another shape or element type."""
    array = value.const
    if array is None:
        return
    is_same_shape = array.shape == value.type.shape
    if not is_same_shape or str(array.dtype) != value.type.dtype:
        yield (
            f"constant {value.name} is {array.dtype}{list(array.shape)}, "
            f"declared {value.type}"
        )


def _int8_canonical(graph: Graph) -> Iterator[str]:
    """uint8 occurs only at the graph's boundary: front-ends convert to int8."""
    boundary = {*graph.inputs, *graph.outputs}

    # Only at the boundary the type is that of the file.
    for op in graph.ops:
        for value in op.outputs:
            is_uint8 = value.type.dtype == "uint8" and value.type.quant is not None
            if is_uint8 and value not in boundary:
                yield f"{op!r}: uint8 inside the graph"


def wants_scales(op: Op) -> bool:
    """Return whether every int8 value of an op needs a scale.

    It does where elements stand for reals: in an op without kernels for plain int8, and
    in an op on reals of which one value has a scale.
    """
    if not op.spec.plain_int8:
        return True

    if op.spec.quant is QuantRule.FLOAT:
        return False

    return any(v.type.is_quantized for v in (*op.inputs, *op.outputs))


def lacks_scale(op: Op) -> bool:
    """Return whether an op that needs scales has an int8 value without one.

    Its results are then unknown.
    """
    if not wants_scales(op):
        return False

    return any(v.type.is_plain_int8 for v in (*op.inputs, *op.outputs))


def _quantized_has_scale(graph: Graph) -> Iterator[str]:
    """Every int8 value has a scale, if its elements do not just stand for themselves.

    For an op that computes on reals as well, they do where none of its values has a
    scale. A constant that no op reads was folded from plain integers.
    """
    # A value may be read by ops of both sorts.
    plain: set[Value] = set()
    scaled: set[Value] = set()
    for op in graph.ops:
        values = scaled if wants_scales(op) else plain
        values.update((*op.inputs, *op.outputs))

    used = plain | scaled
    folded = {v for v in graph.constants() if v not in used}
    may_be_plain = (plain | folded) - scaled
    for value in graph.values():
        if value.type.is_plain_int8 and value not in may_be_plain:
            yield f"{value.name} is int8 without a scale"


def _state_paired(graph: Graph) -> Iterator[str]:
    """State is an input and an output of one shape and element type, as is its initial
    value; each is in one pair.
    """
    # Found by name, as the file has them.
    inputs = {v.name: v.type for v in graph.inputs}
    outputs = {v.name: v.type for v in graph.outputs}
    for state in graph.state:
        pair = f"{state.input} = {state.output}"
        if state.input not in inputs or state.output not in outputs:
            yield f"the state {pair} is not an input and output"
            continue
        # A name that is in two pairs is missing the second time.
        ends = (inputs.pop(state.input), outputs.pop(state.output))
        types = {(t.shape, t.dtype) for t in ends}
        initial = state.initial
        if types != {(initial.shape, str(initial.dtype))}:
            yield (
                f"the state {pair} is {types}, "
                f"and begins as {initial.dtype}{[*initial.shape]}"
            )


def _has_kernel(graph: Graph) -> Iterator[str]:
    """Every op can be written as C."""
    for op in graph.ops:
        if not op.spec.has_kernel():
            yield f"{op!r} has no C kernel"


_ALWAYS: tuple[Check, ...] = (
    _defined_before_use,
    _unique_names,
    _types_inferred,
    _state_paired,
)
"""Rules of every stage."""
STAGES: dict[str, tuple[Check, ...]] = {
    "imported": _ALWAYS,
    "canonical": (*_ALWAYS, _int8_canonical),
    "quantized": (*_ALWAYS, _int8_canonical, _quantized_has_scale),
    "partitioned": (*_ALWAYS, _int8_canonical, _quantized_has_scale, _has_kernel),
}
"""The rules of each stage, from the front-end's graph to the partitions."""


def verify(graph: Graph, stage: str) -> None:
    """Raise VerifyError with the broken rules of the stage, at most 20 of them."""
    # All rules are checked, so that one message has everything.
    broken: list[str] = []
    for check in STAGES[stage]:
        rule = check.__name__.strip("_")
        broken += [f"{rule}: {text}" for text in check(graph)]

    if broken:
        raise VerifyError(
            f"graph {graph.name} is not a legal {stage} graph:\n  "
            + "\n  ".join(broken[:20])
        )
