"""Channel pruning: channels that add little are taken out of a float model.

A channel adds to a layer that reads it its mean, which moves into the layer's bias, and
its variation, which is lost. With the variance v_c of channel c and the power |w_c|² of
its weights, its share in the layer is

    v_c |w_c|² / Σ over channels of v |w|²

Channels that add least over all layers go first. Held-back samples decide how many, and
the estimated price whether it pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgec.analysis.channels import FIXED, ChannelGroups
from edgec.ir import Array, Graph, Op, Run, Value
from edgec.measure.agreement import Agreement, Tally
from edgec.passes._channel_edits import without
from edgec.quantize.change.convert import evenly
from edgec.quantize.change.state import Runners
from edgec.quantize.float_ops.limits import AccuracyGoal, Price, Pricer
from edgec.quantize.observe.calibration import Sample

CHANNEL_BLOCKS = (1, 4, 8)
"""Kernels compute channels in blocks: layers that keep a multiple of a block may be
faster than layers that keep fewer channels.
"""
COUNT_TOLERANCE = 0.04
"""The precision to which the number of channels is found, as a part of it."""
MAX_TIME_RATIO = 0.99
"""A pruned model that takes a larger part of the time before is no gain."""


@dataclass(frozen=True)
class Pruning:
    """A float graph with some of its channels taken out.

    Attributes:
        graph: the graph.
        channels: the number of channels taken out of convolutions and fully connected
            layers.
        of: the number of channels before.
        macs: the multiply-accumulates after.
        price: the cost of the int8 model.
        outputs: the agreement with the model before on held-back samples.
    """

    graph: Graph
    channels: int
    of: int
    macs: int
    price: Price
    outputs: Mapping[str, Agreement]

    def to_json(self) -> dict[str, Any]:
        """Return the figures for the bundle's report."""
        return {
            "channels": self.channels,
            "of": self.of,
            "macs": self.macs,
            "price": asdict(self.price),
            "outputs": {name: a.as_dict() for name, a in self.outputs.items()},
        }


@dataclass(frozen=True)
class Pruned:
    """The result of pruning.

    Attributes:
        before: the model without pruning.
        most: the pruning with the most channels that the goal allows, however fast;
            None where it allows none.
        kept: the fastest pruning; None where none that the goal allows is any faster.
        samples: the number of held-back samples.
        ms_here: the times of the int8 forms before and after pruning, measured on this
            machine, in milliseconds; empty where nothing was measured.
    """

    before: Pruning
    most: Pruning | None
    kept: Pruning | None
    samples: int
    ms_here: tuple[float, ...] = ()

    @property
    def graph(self) -> Graph:
        """The pruned graph; as it was where no pruning is kept."""
        return (self.kept or self.before).graph

    def to_json(self) -> dict[str, Any]:
        """Return the figures for the bundle's report."""
        rows = {"before": self.before, "most": self.most, "kept": self.kept}
        prunings = {k: None if p is None else p.to_json() for k, p in rows.items()}
        return {"samples": self.samples, **prunings}


def prune(
    graph: Graph,
    fit: Sequence[Sample],
    held: Sequence[Sample],
    runners: Runners,
    drop: float,
    price: Pricer,
) -> Pruned:
    """Take as many channels out of a float graph as its outputs allow.

    fit: the samples that tell which channels.
    held: other samples, which tell how many.
    drop: as `AccuracyGoal.max_drop`, of the float model's outputs.
    """
    run = runners.floats(graph, len(fit) + len(held))
    order, means = _order(graph, fit, run)
    want = [run(sample, None) for sample in held]
    goal = AccuracyGoal(max_drop=drop)

    def pruned(count: int, block: int = 1) -> Pruning:
        """Take out `count` groups of channels, and measure the result."""
        smaller = _without(graph, order[:count], means, block) if count else graph
        outputs = _agreement(runners.floats(smaller, len(held)), want, held)
        return Pruning(
            graph=smaller,
            channels=_output_channels(graph) - _output_channels(smaller),
            of=_output_channels(graph),
            macs=_macs(smaller),
            price=price(evenly(smaller)),
            outputs=outputs,
        )

    def is_allowed(pruning: Pruning) -> bool:
        return not any(goal.misses(pruning.outputs))

    # The order is fixed: more channels only lose more accuracy, nearly.
    before = pruned(0)
    count = _largest(len(order), lambda n: is_allowed(pruned(n)))
    prunings = []
    for block in CHANNEL_BLOCKS if count else ():
        pruning = pruned(count, block)
        if pruning.channels and is_allowed(pruning):
            prunings.append(pruning)

    most = max(prunings, key=lambda p: p.channels, default=None)
    best = min(prunings, key=lambda p: p.price.ms, default=before)
    is_faster = best.price.ms <= MAX_TIME_RATIO * before.price.ms
    return Pruned(before, most, best if is_faster else None, len(held))


def _largest(limit: int, is_allowed: Callable[[int], bool]) -> int:
    """Return about the largest number up to `limit` that is allowed, by bisection."""
    # 0 is allowed, and one more than there are channels is not.
    low = 0
    high = limit + 1
    while high - low > max(1, low * COUNT_TOLERANCE):
        middle = (low + high) // 2
        if middle <= limit and is_allowed(middle):
            low = middle
        else:
            high = middle

    return low


def _order(
    graph: Graph, samples: Sequence[Sample], run: Run
) -> tuple[list[int], dict[Value, Array]]:
    """Return the groups of channels that can go, those that add least first.

    Also return the mean of every channel that layers read.
    """
    channels = ChannelGroups(graph)
    values = {op.inputs[0] for op in channels.consumers}
    # Σ x and Σ x² of each channel.
    sums = {v: np.zeros((2, v.type.shape[-1])) for v in values}
    counts = dict.fromkeys(values, 0)

    def observe(v: Value, array: Array) -> None:
        """Add the elements of a value that layers read to its sums."""
        if v in values:
            x = array.reshape(-1, array.shape[-1]).astype(np.float64)
            sums[v] += np.stack([x.sum(0), np.square(x).sum(0)])
            counts[v] += len(x)

    for sample in samples:
        run(sample, observe)

    means = {}
    variances = {}
    for v, (first, second) in sums.items():
        count = max(1, counts[v])
        means[v] = first / count
        variances[v] = np.maximum(0.0, second / count - means[v] ** 2)

    # A group of channels goes from all layers together: its shares add up.
    lost: dict[int, float] = {}
    for op in channels.consumers:
        x = op.inputs[0]
        power = variances[x] * _weight_power(op)
        shares = power / (power.sum() or 1.0)
        for group, part in zip(channels.groups(x).tolist(), shares, strict=True):
            lost[group] = lost.get(group, 0.0) + float(part)

    # Channels of outputs and of operations that mix them must stay.
    removable = [group for group in lost if group != FIXED]

    return sorted(removable, key=lambda g: (lost[g], g)), means


def _weight_power(op: Op) -> Array:
    """Return the power of each input channel's weights, [C]."""
    w = op.inputs[1].const
    assert w is not None
    # Input channels are the last axis of every layer's weights.
    axes = tuple(range(w.ndim - 1))
    return np.asarray(np.square(w.astype(np.float64)).sum(axes))


def _without(
    graph: Graph, groups: Sequence[int], means: Mapping[Value, Array], block: int
) -> Graph:
    """Return a copy without these groups of channels, the last ones of which may stay.

    Each value keeps as many more as make a multiple of `block`.

    groups: those that add least first.
    means: of the channels that go, which move into biases.
    """
    smaller = graph.copy()
    channels = ChannelGroups(smaller)
    removed = {*groups}
    rank = {group: i for i, group in enumerate(groups)}
    if block > 1:
        for op in channels.consumers:
            of_input = dict.fromkeys(channels.groups(op.inputs[0]).tolist())
            gone = [group for group in of_input if group in removed]
            left = op.inputs[0].type.shape[-1] - len(gone)
            # The channels that add most come back.
            count = min(len(gone), -left % block)
            gone.sort(key=lambda g: -rank[g])
            removed -= {*gone[:count]}

    by_name = {v.name: array for v, array in means.items()}
    copied_means = {v: by_name[v.name] for v in smaller.values() if v.name in by_name}
    without(channels, removed, copied_means)

    return smaller


def _agreement(
    run: Run, want: Sequence[Mapping[str, Array]], samples: Sequence[Sample]
) -> dict[str, Agreement]:
    """Return the agreement of each output with the outputs that are wanted."""
    # One sample at a time: outputs of all would not fit in memory.
    tallies: dict[str, Tally] = {}
    for outputs, sample in zip(want, samples, strict=True):
        got = run(sample, None)
        for name, y in outputs.items():
            tallies.setdefault(name, Tally()).add(y, got[name])

    return {name: t.result() for name, t in tallies.items()}


def _output_channels(graph: Graph) -> int:
    """Return the number of output channels of all products."""
    return sum(op.output.type.shape[-1] for op in graph.ops if op.spec.macs(op))


def _macs(graph: Graph) -> int:
    return sum(op.spec.macs(op) for op in graph.ops)
