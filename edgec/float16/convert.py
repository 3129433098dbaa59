"""Turns ops of a float32 graph into ops on float16, with casts between both.

An op is turned where csrc has its kernels for float16, float16 has numbers for its
constants, and its island (`islands`) saves more than its casts cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from edgec.float16.islands import worthwhile
from edgec.ir import Array, Graph, Kernel, KernelFamily, Op, TensorType, Value
from edgec.ir.float16 import LARGEST, narrowed, rounded
from edgec.ir.graph import Names
from edgec.ir.meaning import infer
from edgec.ops.cast import Cast

STAYS = ("cast", "quantize", "dequantize")
"""Kinds of ops that convert floats themselves."""


def to_float16(
    graph: Graph, keep: Collection[str] = (), halves: Mapping[str, Array] = {}
) -> Graph:
    """Return a graph whose ops compute with float16, where csrc has the kernels.

    Inputs, outputs and state keep their names and types.

    Args:
        graph: a graph of float32
        keep: names of the first outputs of the ops that stay float32
        halves: constants in float16 by their names, where the nearest numbers are not
            the best
    """
    return _Conversion(graph.copy(), keep, halves).result()


def float16_ops(graph: Graph, keep: Collection[str] = ()) -> set[Op]:
    """Return the ops of a float32 graph that `to_float16` would change."""
    able = [op for op in graph.ops if can_be_float16(op)]
    return worthwhile(graph, computing(able, keep))


def computing(able: Iterable[Op], keep: Collection[str]) -> set[Op]:
    """Return the ops that compute with float16, or move elements of float16.

    Args:
        able: those that can, in the order of the graph
        keep: names of the first outputs of those that stay float32
    """
    chosen: set[Op] = set()
    halves: set[Value] = set()
    for op in able:
        name = op.outputs[0].name
        if name in keep:
            continue

        # A change of place alone is no reason for a cast before it.
        reads_halves = not halves.isdisjoint(op.inputs)
        if computes(op) or reads_halves:
            chosen.add(op)
            halves.update(op.outputs)

    return chosen


def computes(op: Op) -> bool:
    """Return whether an op does more than move elements."""
    return not op.spec.moves() or op.spec.macs(op) > 0


def can_be_float16(op: Op) -> bool:
    """Return whether an op computes floats by kernels that csrc has for float16.

    Its constants must be numbers of float16.
    """
    has_floats = any(v.type.dtype == "float32" for v in op.outputs)
    if op.kind in STAYS or not has_floats:
        return False

    return all(map(_fits, op.inputs)) and _has_kernels(op)


def _fits(value: Value) -> bool:
    """Return whether float16 has no infinity in place of an element of a constant."""
    const = value.const
    if const is None or const.dtype != np.float32:
        return True

    # An infinity that a model has itself, as of a mask, float16 has too.
    is_finite = np.isfinite(const)
    sizes = np.abs(const[is_finite])
    largest = float(sizes.max(initial=0.0))
    return largest <= LARGEST


def _has_kernels(op: Op) -> bool:
    """Return whether csrc has the kernels of an op for float16."""
    twin = _float16_twin(op)
    try:
        inferred = infer(op.spec, [v.type for v in twin.inputs])
        calls = twin.calls()
    except (ValueError, NotImplementedError):
        return False

    # Some ops give float32 whatever they read.
    declared = [v.type.dtype for v in twin.outputs]
    if [t.dtype for t in inferred] != declared:
        return False

    return all(_computes_float16(call.kernel) for call in calls)


def _computes_float16(kernel: Kernel) -> bool:
    """Return whether csrc has the kernel that a call on float16 names."""
    if kernel.dtype == "f32":
        return KernelFamily.registry[kernel.family].has_float16

    return kernel.is_defined


def _float16_twin(op: Op) -> Op:
    """Return the op with float16 in place of float32, in values of its own."""
    # A value that an op reads twice is one value in the twin too.
    twins: dict[Value, Value] = {}
    for v in (*op.inputs, *op.outputs):
        dtype = narrowed(v.type)
        twins[v] = Value(v.name, dtype, _rounded_const(v))

    inputs = [twins[v] for v in op.inputs]
    outputs = [twins[v] for v in op.outputs]
    return replace(op, inputs=inputs, outputs=outputs)


def _rounded_const(value: Value) -> Array | None:
    """Return the constant of a value with float16 in place of float32, if it has one."""
    if value.const is None:
        return None

    return rounded(value.const)


class _Conversion:
    """A graph while it is converted, in place.

    Attributes:
        graph: the graph
        halves: constants in float16 by their names
        ops: the ops so far, with casts
        casts: values in the other type, by the value and that type
    """

    def __init__(
        self, graph: Graph, keep: Collection[str], halves: Mapping[str, Array]
    ) -> None:
        self.graph = graph
        self.halves = halves
        self.ops: list[Op] = []
        self.casts: dict[tuple[Value, str], Value] = {}
        values = graph.values()
        self._names = Names(v.name for v in values)
        self._chosen = float16_ops(graph, keep)

    def result(self) -> Graph:
        """Convert the ops in order, and return the graph."""
        for op in self.graph.ops:
            is_chosen = op in self._chosen
            dtype = "float16" if is_chosen else "float32"
            op.inputs = [self._as(v, dtype) for v in op.inputs]
            self.ops.append(op)
            if is_chosen:
                self._narrow_outputs(op)

        self.graph.ops = self.ops
        self.graph.drop_unused()
        return self.graph

    def _narrow_outputs(self, op: Op) -> None:
        """Let an op write float16."""
        for i, v in enumerate(op.outputs):
            dtype = narrowed(v.type)
            if v not in self.graph.outputs:
                v.type = dtype
            elif v.type != dtype:
                # The caller's name and type stay with the value that is cast back.
                name = self._names.new(f"{v.name}_f16")
                half = Value(name, dtype)
                op.outputs[i] = half
                self.casts[v, "float16"] = half
                self._cast(half, v, op.source)

    def _as(self, v: Value, dtype: str) -> Value:
        """Return a float value in one of both types, by a cast where it has the other."""
        is_float = v.type.dtype in ("float16", "float32")
        if not is_float or v.type.dtype == dtype:
            return v

        # Each value is cast once, however many ops read it.
        cast = self.casts.get((v, dtype))
        if cast is not None:
            return cast

        suffix = "f16" if dtype == "float16" else "f32"
        name = self._names.new(f"{v.name}_{suffix}")
        other_type = TensorType(v.type.shape, dtype)
        const = self.halves.get(v.name, _rounded_const(v))
        other = Value(name, other_type, const)
        if v.const is None:
            self._cast(v, other)

        self.casts[v, dtype] = other
        return other

    def _cast(self, x: Value, y: Value, source: str = "") -> None:
        """Append the cast of one value to another."""
        spec = Cast(y.type.dtype)
        self.ops.append(Op(spec, [x], [y], source))
