"""Channels that hardly say anything are taken out of a float model, while it stays as
near to itself as was asked for.

What a channel adds to the layers that read it is its mean, which goes into their
biases, and its variation, which is lost. Those that add least go first. How many,
held-back samples decide; whether it is worth it, the price does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgec.analysis.channels import FIXED, ChannelGroups
from edgec.ir import Array, Graph, Op, Run, Value
from edgec.passes._channel_edits import without
from edgec.quantize.change.convert import evenly
from edgec.quantize.change.state import Runners
from edgec.quantize.float_ops.limits import Limits, Price
from edgec.quantize.observe.accuracy import Agreement, Tally
from edgec.quantize.observe.calibration import Sample

Pricer = Callable[[Graph], Price]

_BLOCKS = (1, 4, 8)
"""Kernels compute channels in blocks: layers that keep a multiple of one may be faster
than those that keep fewer.
"""
_CLOSE = 0.04
"""How well the number of channels is found out, as a part of it."""
_PAYS = 0.99
"""Of the time before: what takes longer is no gain."""


@dataclass(frozen=True)
class Pruning:
    """One way to prune. channels: how many were taken out of convolutions and fully
    connected layers, of how many. macs: multiply-accumulates. price: of the int8 model.
    outputs: on held-back samples, against the model before.
    """

    channels: int
    of: int
    macs: int
    price: Price
    outputs: Mapping[str, Agreement]

    def to_json(self) -> dict[str, Any]:
        """For the bundle's report."""
        outputs = {name: a.as_dict() for name, a in self.outputs.items()}
        return {**asdict(self), "outputs": outputs}


@dataclass(frozen=True)
class Pruned:
    """What became of a model. kept: None where nothing that the goal allows is any
    faster; then the graph is as it was.

    before: without pruning. most: what the goal allows at most, however fast it is;
    None where it allows none.
    """

    graph: Graph
    before: Pruning
    most: Pruning | None
    kept: Pruning | None
    samples: int

    def to_json(self) -> dict[str, Any]:
        """For the bundle's report."""
        rows = {"before": self.before, "most": self.most, "kept": self.kept}
        return {
            "samples": self.samples,
            **{k: None if p is None else p.to_json() for k, p in rows.items()},
        }


def prune(
    graph: Graph,
    fit: Sequence[Sample],
    held: Sequence[Sample],
    runners: Runners,
    drop: float,
    price: Pricer,
) -> Pruned:
    """The float graph with fewer channels. fit: samples that tell which; held: others
    that tell how many.

    drop: as `Limits.max_drop`, of the float model's outputs.
    """
    run = runners.floats(graph, len(fit) + len(held))
    order, means = _order(graph, fit, run)
    want = [run(s, None) for s in held]
    goal = Limits(max_drop=drop)

    def tried(count: int, block: int = 1) -> tuple[Graph, Pruning]:
        made = _without(graph, order[:count], means, block)
        outputs = _agreement(runners.floats(made, len(held)), want, held)
        return made, Pruning(
            _wide(graph) - _wide(made),
            _wide(graph),
            _macs(made),
            price(evenly(made)),
            outputs,
        )

    before = tried(0)[1]
    low = 0
    high = len(order) + 1  # low is near enough, high is not
    while high - low > max(1, low * _CLOSE):
        middle = (low + high) // 2
        near = middle <= len(order) and not any(goal.misses(tried(middle)[1].outputs))
        low, high = (middle, high) if near else (low, middle)
    ways = [tried(low, block) for block in _BLOCKS] if low else []
    ways = [
        way for way in ways if way[1].channels and not any(goal.misses(way[1].outputs))
    ]
    made, best = min(ways, key=lambda way: way[1].price.ms, default=(graph, before))
    pays = best.price.ms <= _PAYS * before.price.ms
    most = max((p for _, p in ways), key=lambda p: p.channels, default=None)
    return Pruned(
        made if pays else graph, before, most, best if pays else None, len(held)
    )


def _order(
    graph: Graph, samples: Sequence[Sample], run: Run
) -> tuple[list[int], dict[Value, Array]]:
    """The groups of channels that can go, what adds least first, and the mean of every
    channel that products read.
    """
    channels = ChannelGroups(graph)
    read = {op.inputs[0] for op in channels.consumers}
    sums = {v: np.zeros((2, v.type.shape[-1])) for v in read}
    counts = dict.fromkeys(read, 0)

    def observe(v: Value, array: Array) -> None:
        if v in read:
            x = array.reshape(-1, array.shape[-1]).astype(np.float64)
            sums[v] += np.stack([x.sum(0), np.square(x).sum(0)])
            counts[v] += len(x)

    for sample in samples:
        run(sample, observe)
    means = {v: total[0] / max(1, counts[v]) for v, total in sums.items()}
    spread = {
        v: np.maximum(0.0, total[1] / max(1, counts[v]) - means[v] ** 2)
        for v, total in sums.items()
    }
    lost: dict[int, float] = {}
    for op in channels.consumers:
        x = op.inputs[0]
        power = spread[x] * _gain(op)
        for group, part in zip(
            channels.groups(x).tolist(), power / (power.sum() or 1.0), strict=True
        ):
            lost[group] = lost.get(group, 0.0) + float(part)
    return sorted((g for g in lost if g != FIXED), key=lambda g: (lost[g], g)), means


def _gain(op: Op) -> Array:
    """[C]: the power of an input channel's weights."""
    w = op.inputs[1].const
    assert w is not None
    return np.asarray(np.square(w.astype(np.float64)).sum(tuple(range(w.ndim - 1))))


def _without(
    graph: Graph, groups: Sequence[int], means: Mapping[Value, Array], block: int
) -> Graph:
    """A copy without these groups; of each value so many are kept that a multiple of
    `block` is left.
    """
    made = graph.copy()
    channels = ChannelGroups(made)
    dead = {*groups}
    rank = {g: i for i, g in enumerate(groups)}
    for op in channels.consumers if block > 1 else ():
        own = [
            g
            for g in dict.fromkeys(channels.groups(op.inputs[0]).tolist())
            if g in dead
        ]
        left = op.inputs[0].type.shape[-1] - len(own)
        back = min(len(own), -left % block)
        dead -= {*sorted(own, key=lambda g: -rank[g])[:back]}
    named = {v.name: array for v, array in means.items()}
    without(
        channels, dead, {v: named[v.name] for v in made.values() if v.name in named}
    )
    return made


def _agreement(
    run: Run, want: Sequence[Mapping[str, Array]], samples: Sequence[Sample]
) -> dict[str, Agreement]:
    tallies: dict[str, Tally] = {}
    for ys, sample in zip(want, samples, strict=True):
        got = run(sample, None)
        for name, y in ys.items():
            tallies.setdefault(name, Tally()).add(y, got[name])
    return {name: t.result() for name, t in tallies.items()}


def _wide(graph: Graph) -> int:
    """The output channels of all products."""
    return sum(op.output.type.shape[-1] for op in graph.ops if op.spec.macs(op))


def _macs(graph: Graph) -> int:
    return sum(op.spec.macs(op) for op in graph.ops)
