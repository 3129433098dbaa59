"""How channels of a float network differ from what they were before a recipe's steps:
`equalize` multiplies them, `centre` adds to them, `separate` puts them in another order
and gives some of them tensors of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from edgec.comparing.channels import Weights
from edgec.ir import Array, Graph, Op
from edgec.ops.binary import Mul
from edgec.ops.concat import Concat
from edgec.ops.slice import Slice
from edgec.quantize.domains import role
from edgec.quantize.links import links
from edgec.quantize.lower import lower
from edgec.quantize.products import product
from edgec.quantize.strands import Parts, filled, part, part_name, strands, used_name

_ONE = 1e-3
_MOVED = 1e-5
"""Of the larger bias: floats tell no less."""

Factors = Mapping[str, Array]
"""By the name of a value: what its channels (of the last axis) are multiplied by."""


@dataclass(frozen=True)
class Change:
    """Of the channels of a value, the last axis: they became `x[order] * times + plus`.
    order: None where that is as it was. count: of a part of the channels: how many
    there were in all.
    """

    times: Array = field(default_factory=lambda: np.ones(1))
    plus: Array = field(default_factory=lambda: np.zeros(1))
    order: Array | None = None
    count: int | None = None

    def done(self, x: Array) -> Array:
        """What became of it."""
        return np.asarray(
            (x if self.order is None else x[..., self.order]) * self.times + self.plus
        )

    def undone(self, x: Array) -> Array:
        """What it was; not of a part."""
        assert self.count is None
        was = (x - self.plus) / self.times
        return np.asarray(
            was if self.order is None else was[..., np.argsort(self.order)]
        )


Changes = Mapping[str, Change]
"""By the name of a value."""


def channel_changes(
    before: Graph, after: Graph, parts: Mapping[str, Parts] | None = None
) -> dict[str, Change]:
    """Of the values of `after` that are not what they were, from the weights and biases
    of both. parts: see `Work`.
    """
    lowered = lower(before)
    found = _parted(lowered, parts) if parts else {}
    were = {op.output.name: op for op in lowered.ops if len(op.outputs) == 1}
    times = _factors(were, after)
    plus = _moves(were, after, times)
    for name, factor in times.items():
        found[name] = replace(found.get(name, Change()), times=factor)
    for name, more in plus.items():
        found[name] = replace(found.get(name, Change()), plus=more)
    return found


def _parted(graph: Graph, parts: Mapping[str, Parts]) -> dict[str, Change]:
    """Part the channels of a graph as `separate` did, and tell what became of its
    values.
    """
    found = dict[str, Change]()
    there = {s.maker.output.name: s for s in strands(graph)}
    for name, each in parts.items():
        strand = there[name]
        orders = part(graph, strand, each)
        assert orders is not None, name
        values = [v.name for v in strand.values]
        found |= {
            v: Change(order=order)
            for v, order in orders.items()
            if v not in values[:-1]
        }
        for number, order in enumerate(each, 1):
            some = Change(order=filled(order), count=sum(map(len, each)))
            found |= {part_name(v, number): some for v in values}
            found[used_name(part_name(values[-1], number))] = replace(some, order=order)
    return found


def change_of(changes: Changes, name: str) -> Change | None:
    """That of a value or of another form of it; None where it is as it came."""
    for ending in ("", "_int8", "_f32"):
        if (
            name.endswith(ending)
            and (found := changes.get(name.removesuffix(ending))) is not None
        ):
            return found
    return None


def _moves(were: Mapping[str, Op], after: Graph, times: Factors) -> dict[str, Array]:
    """What was added to the channels of values, beyond what their factors make of
    biases.
    """
    found: dict[str, Array] = {}
    for v, link in links(after).items():
        op = link.maker.op
        old = were.get(v.name)
        if old is None or (w := op.inputs[1].const) is None:
            continue
        now = _bias(op)
        then = times.get(v.name, 1.0) * _bias(old)
        if now.shape != then.shape:
            continue
        if (read := found.get(op.inputs[0].name)) is not None:
            now = now + product(link.maker.matrix(w), link.maker.everywhere(read))
        if (
            np.abs(now - then) > _MOVED * max(np.abs(now).max(), np.abs(then).max())
        ).any():
            found[v.name] = now - then
    return found


def _factors(were: Mapping[str, Op], scaled: Graph) -> dict[str, Array]:
    """What the channels of values were multiplied by."""
    found: dict[str, Array] = {}
    for op in scaled.ops:
        if len(op.outputs) != 1 or (old := were.get(op.output.name)) is None:
            continue
        factor = _by_weights(op, old, found)
        if factor is None:
            factor = _kept(op, found)
        if factor is not None and (np.abs(factor - 1) > _ONE).any():
            found[op.output.name] = factor
    return found


def _by_weights(op: Op, old: Op, found: Factors) -> Array | None:
    """Of what multiplies by constants."""
    now = Weights.of(op)
    then = Weights.of(old)
    if now is None or then is None or now.real.shape != then.real.shape:
        return None
    read = found.get(op.inputs[0].name)
    rows = now.real
    if read is not None and now.own:
        rows = rows * np.repeat(read, -(-len(rows) // len(read)))[: len(rows), None]
    elif read is not None and rows.shape[1] % len(read) == 0:
        rows = (rows.reshape(len(rows), -1, len(read)) * read).reshape(rows.shape)
    known = then.real != 0
    ratios = np.where(known, rows / np.where(known, then.real, 1.0), np.nan)
    alive = known.any(1)
    # not the mean: what reads a channel that is nothing at all may have divided it by
    # anything
    times = np.nanmedian(np.where(alive[:, None], ratios, 1.0), axis=1)
    return np.where(alive, times, _by_bias(op, old, len(rows)))


def _by_bias(op: Op, old: Op, count: int) -> Array:
    """Where a channel has no weight: by its bias, which is all that it is."""
    now = _bias(op)
    then = _bias(old)
    if now.shape != then.shape or len(now) != count:
        return np.ones(count)
    # a bias that is nothing now was moved away: that is no factor
    return np.where((then != 0) & (now != 0), now / np.where(then != 0, then, 1), 1.0)


def _bias(op: Op) -> Array:
    """Of each output channel."""
    bias = next(
        (v.const for i, v in enumerate(op.inputs) if role(op, i) == "bias"), None
    )
    if bias is None:
        return np.zeros(op.output.type.shape[-1])
    return bias.reshape(-1).astype(np.float64)


def _kept(op: Op, found: Factors) -> Array | None:
    """Of what keeps the channels of what it reads, adds or multiplies them, or puts
    them beside each other.
    """
    acts = [
        v for i, v in enumerate(op.inputs) if role(op, i) == "act" and v.const is None
    ]
    if not any(v.name in found for v in acts):
        return None
    each = [found.get(v.name, np.ones(v.type.shape[-1:] or 1)) for v in acts]
    last = op.output.type.shape[-1:]
    if isinstance(op.spec, Concat) and sum(map(len, each)) == last[0]:
        return np.concatenate(each)
    if isinstance(op.spec, Slice) and len(each[0]) == op.inputs[0].type.shape[-1]:
        return each[0][op.spec.index()[-1]]
    if not last or any(len(f) not in (1, last[0]) for f in each):
        return None
    if isinstance(op.spec, Mul):
        return np.asarray(np.prod(np.broadcast_arrays(*each), axis=0))
    return np.broadcast_to(max(each, key=len), last)
