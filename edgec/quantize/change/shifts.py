"""Values that may be moved, each channel by a constant: one op adds it, and those that
read the value take it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Value
from edgec.quantize.change.products import LinearLayer, linear_layers


@dataclass(frozen=True)
class Shiftable:
    """What is around such a value. maker: adds to its bias. readers: take from theirs
    what becomes of it there, for all windows the same: nothing lies between, and no
    window has padding, which nobody moves.
    """

    maker: LinearLayer
    readers: Sequence[LinearLayer]


def shiftable_values(graph: Graph) -> dict[Value, Shiftable]:
    """Of a graph: in networks of separable convolutions most of what depthwise ones
    write.
    """
    layers = {
        op: p
        for op, p in linear_layers(graph.ops).items()
        if all(v.const is not None for v in op.inputs[1:])
    }
    users = graph.users()
    found = dict[Value, Shiftable]()
    for op, maker in layers.items():
        v = op.output
        readers = [
            layers[u]
            for u in users.get(v, ())
            if u in layers and _reads_whole(layers[u])
        ]
        plain = getattr(op.spec, "act", "none") == "none" and v not in graph.outputs
        if plain and readers and len(readers) == len(users[v]):
            found[v] = Shiftable(maker, readers)
    return found


def _reads_whole(p: LinearLayer) -> bool:
    """Whether each window holds channels of the input alone."""
    if p.op.inputs[1].type.rank == 2:
        return p.op.inputs[0].type.shape[-1] == p.depth
    return p.op.spec.border() is None
