"""Finds values whose channels may be shifted by constants.

The bias of the producer adds the constants, and the biases of the consumers take away
what they become there (the formula is in `steps/centre.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, Value
from edgec.quantize.change.products import LinearLayer, linear_layers


@dataclass(frozen=True)
class Shiftable:
    """The layers around a value that may be shifted.

    Attributes:
        maker: the layer that writes it; nothing lies between its bias and the value.
        readers: the layers that read it. None has padding: padded zeros would not be
            shifted, so that windows at the border would change otherwise than others.
    """

    maker: LinearLayer
    readers: Sequence[LinearLayer]


def shiftable_values(graph: Graph) -> dict[Value, Shiftable]:
    """Return the values of a graph that may be shifted.

    In networks of separable convolutions these are most results of depthwise layers.
    """
    layers = _constant_layers(graph)
    users = graph.users()
    shiftable: dict[Value, Shiftable] = {}
    for op, maker in layers.items():
        v = op.output
        # An activation, or a reader outside of the graph, sees the shifted value.
        if getattr(op.spec, "act", "none") != "none" or v in graph.outputs:
            continue
        ops = users.get(v, ())
        readers = [layers[u] for u in ops if u in layers and _reads_alike(layers[u])]
        if readers and len(readers) == len(ops):
            shiftable[v] = Shiftable(maker, readers)

    return shiftable


def _constant_layers(graph: Graph) -> dict[Op, LinearLayer]:
    """Return the layers of a graph whose weights and biases are constants."""
    layers = {}
    for op, layer in linear_layers(graph.ops).items():
        if all(v.const is not None for v in op.inputs[1:]):
            layers[op] = layer

    return layers


def _reads_alike(layer: LinearLayer) -> bool:
    """Return whether every window of a layer holds each channel of the input alike."""
    op = layer.op
    if op.inputs[1].type.rank == 2:
        # A fully connected layer may read several pixels as one row.
        return op.inputs[0].type.shape[-1] == layer.depth
    return op.spec.border() is None
