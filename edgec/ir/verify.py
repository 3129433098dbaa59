"""What is legal at each stage, as a table; `verify` runs between all passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgec.ir.graph import Graph
from edgec.ir.opdef import Op, QuantRule
from edgec.ir.value import Value

Check = Callable[[Graph], Iterator[str]]


class VerifyError(AssertionError):
    """A graph broke a rule of its stage: a bug of edgec."""


def _defined_before_use(graph: Graph) -> Iterator[str]:
    """Every value is an input, a constant or written exactly once before it is read."""
    known = set(graph.inputs)
    for op in graph.ops:
        for v in op.inputs:
            if v not in known and v.const is None:
                yield f"{op!r} reads {v.name}, which nothing has written"
        for v in op.outputs:
            if v in known or v.const is not None:
                yield f"{v.name} is written twice"
            known.add(v)
    for v in graph.outputs:
        if v not in known and v.const is None:
            yield f"output {v.name} is never written"


def _unique_names(graph: Graph) -> Iterator[str]:
    """No two values have one name."""
    seen: set[str] = set()
    for v in graph.values():
        if v.name in seen:
            yield f"two values are called {v.name}"
        seen.add(v.name)


def _types_inferred(graph: Graph) -> Iterator[str]:
    """Each op's declared output types are those it infers; constants have the shape and
    dtype of their arrays.
    """
    for op in graph.ops:
        try:
            types = op.spec.infer(*(v.type for v in op.inputs))
        except (ValueError, TypeError) as e:
            # TypeError: of an attribute, in a text form
            yield f"{op!r}: {e}"
            continue
        if [(t.shape, t.dtype) for t in types] != [
            (v.type.shape, v.type.dtype) for v in op.outputs
        ]:
            yield f"{op!r} infers {', '.join(map(str, types))}"
    for v in graph.constants():
        if v.const is not None and (v.const.shape, str(v.const.dtype)) != (
            v.type.shape,
            v.type.dtype,
        ):
            yield (
                f"constant {v.name} is {v.const.dtype}{list(v.const.shape)}, "
                f"declared {v.type}"
            )


def _int8_canonical(graph: Graph) -> Iterator[str]:
    """uint8 occurs only at the graph's border: front-ends convert to int8."""
    border = {*graph.inputs, *graph.outputs}
    for op in graph.ops:
        for v in op.outputs:
            if v.type.dtype == "uint8" and v.type.quant is not None and v not in border:
                yield f"{op!r}: uint8 inside the graph"


def wants_scales(op: Op) -> bool:
    """Whether every int8 value of an op needs a scale: its elements do not just stand
    for themselves.
    """
    real = op.spec.quant is not QuantRule.FLOAT and any(
        v.type.is_quantized for v in (*op.inputs, *op.outputs)
    )
    return real or not op.spec.plain_int8


def lacks_scale(op: Op) -> bool:
    """Whether an op that needs scales has an int8 value without: what it computes is
    not known.
    """
    return wants_scales(op) and any(
        v.type.is_plain_int8 for v in (*op.inputs, *op.outputs)
    )


def _quantized_has_scale(graph: Graph) -> Iterator[str]:
    """Every int8 value has a scale, where its elements do not just stand for
    themselves: for an op that computes on reals as well, that is where none of its
    values has one. A constant that no op reads was folded from plain ones.
    """
    plain = set[Value]()
    scaled = set[Value]()
    for op in graph.ops:
        (scaled if wants_scales(op) else plain).update((*op.inputs, *op.outputs))
    folded = {v for v in graph.constants() if v not in plain | scaled}
    for v in graph.values():
        if (
            v.type.dtype == "int8"
            and v.type.quant is None
            and (v in scaled or v not in plain | folded)
        ):
            yield f"{v.name} is int8 without a scale"


def _state_paired(graph: Graph) -> Iterator[str]:
    """State is an input and an output of one shape and element type, as is its initial
    value; each is in one pair.
    """
    inputs, outputs = (
        {v.name: v.type for v in values} for values in (graph.inputs, graph.outputs)
    )
    for s in graph.state:
        if s.input not in inputs or s.output not in outputs:
            yield f"the state {s.input} = {s.output} is no input and output"
            continue
        types = {
            (t.shape, t.dtype) for t in (inputs.pop(s.input), outputs.pop(s.output))
        }
        if types != {(s.initial.shape, str(s.initial.dtype))}:
            yield (
                f"the state {s.input} = {s.output} is {types}, "
                "and begins as "
                f"{s.initial.dtype}{[*s.initial.shape]}"
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
STAGES: dict[str, tuple[Check, ...]] = {
    "imported": _ALWAYS,
    "canonical": (*_ALWAYS, _int8_canonical),
    "quantized": (*_ALWAYS, _int8_canonical, _quantized_has_scale),
    "partitioned": (*_ALWAYS, _int8_canonical, _quantized_has_scale, _has_kernel),
}


def verify(graph: Graph, stage: str) -> None:
    """Raise VerifyError with everything that breaks the rules of the stage."""
    broken = [
        f"{check.__name__.strip('_')}: {text}"
        for check in STAGES[stage]
        for text in check(graph)
    ]
    if broken:
        raise VerifyError(
            f"graph {graph.name} is not a legal {stage} graph:\n  "
            + "\n  ".join(broken[:20])
        )
