"""The nodes of an ONNX graph by what they write, followed from results to sources.

A reader of a known pattern follows them step by step. Each step raises ValueError or
LookupError where a node is not as the pattern has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from edgec.frontends.onnx_file import subgraphs
from edgec.ir import Array

_SAME_ELEMENTS = (
    "Cast",
    "Flatten",
    "Identity",
    "Reshape",
    "Split",
    "Squeeze",
    "Unsqueeze",
)
"""Operators with one output that leave the elements in their order."""
_COMMUTATIVE = ("Max", "Mul")
_FAR = 1 << 31
"""An end of a slice behind which there is nothing."""


def require(is_so: bool) -> None:
    """Raise ValueError unless something is so."""
    if not is_so:
        raise ValueError("these are other nodes than the pattern's")


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute of a node."""
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return default


@dataclass(frozen=True)
class Wiring:
    """The nodes of a graph and of the branches in it.

    Attributes:
        producers: the node that writes a tensor.
        constants: constants of at most one element.
    """

    producers: dict[str, NodeProto] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: GraphProto) -> Wiring:
        """Return the nodes of a graph."""
        wiring = cls()
        wiring._add(graph)
        return wiring

    def _add(self, graph: GraphProto) -> None:
        """Add the nodes and constants of a graph."""
        for tensor in graph.initializer:
            self._add_constant(tensor.name, tensor)

        for node in graph.node:
            for name in node.output:
                self.producers[name] = node
            # Exporters write each constant as a tensor.
            value = attribute(node, "value", None)
            if node.op_type == "Constant" and value is not None:
                self._add_constant(node.output[0], value)
            for branch in subgraphs(node).values():
                self._add(branch)

    def _add_constant(self, name: str, tensor: Any) -> None:
        """Add a constant. Larger ones are weights, and may lie in another file."""
        if np.prod(tensor.dims) <= 1:
            self.constants[name] = numpy_helper.to_array(tensor)

    def number(self, name: str) -> float:
        """Return a constant of one element."""
        # Exporters give constants the shape that they need.
        source = self.source(name)
        array = self.constants[source]
        return float(array.item())

    def node(self, name: str, kind: str) -> NodeProto:
        """Return the node of an operator that writes a tensor."""
        node = self.producers[name]
        require(node.op_type == kind)
        return node

    def kind(self, name: str) -> str:
        """Return the operator that writes a tensor; "" for an input or initializer."""
        node = self.producers.get(name)
        return "" if node is None else str(node.op_type)

    def inputs(self, name: str, kind: str) -> Sequence[str]:
        """Return what the node of an operator that writes a tensor reads."""
        node = self.node(name, kind)
        return list(node.input)

    def source(self, name: str) -> str:
        """Return the tensor with the same elements that nodes began with."""
        # In a damaged file nodes may form a circle.
        for _ in range(len(self.producers) + 1):
            if self.kind(name) not in _SAME_ELEMENTS:
                return name
            node = self.producers[name]
            if len(node.output) > 1:
                return name
            name = node.input[0]
        raise ValueError("the nodes form a circle")

    def source_inputs(self, name: str, kind: str) -> Sequence[str]:
        """Return what the node at a tensor's source reads."""
        source = self.source(name)
        return self.inputs(source, kind)

    def with_number(self, name: str, kind: str) -> tuple[str, float]:
        """Return the two operands of a node, the second one a constant number.

        Factors, and what a maximum is of, may come in any order.
        """
        one, two = self.inputs(name, kind)

        if kind in _COMMUTATIVE and one in self.constants:
            one, two = two, one
        return one, self.number(two)

    def column(self, name: str) -> tuple[str, int]:
        """Return the tensor that a column was gathered from, and its number."""
        node = self.node(name, "Gather")
        axis = attribute(node, "axis", 0)
        require(axis == 1)
        table, index = node.input
        number = self.number(index)
        return table, int(number)

    def columns(self, name: str, step: int) -> tuple[str, int]:
        """Return the tensor of which each `step`th column was taken, and the first."""
        # The inputs are in the order of the operator.
        table, *bounds = self.inputs(name, "Slice")
        first, end, axis, by = map(self.number, bounds)
        require(axis == 1)
        require(by == step)
        require(end > _FAR)
        return table, int(first)

    def first_rows(self, name: str) -> tuple[str, int]:
        """Return the tensor of which the first rows were taken, and how many."""
        table, *bounds = self.inputs(name, "Slice")
        start, end, axis, by = map(self.number, bounds)
        require(start == 0)
        require(axis == 0)
        require(by == 1)
        return table, int(end)
