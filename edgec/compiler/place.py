"""Where the ops of a graph run on a target, and what that costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from edgec_devices.boards import Target
from edgec_partitioner.comparison import column
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import Partition, Wishes, partition

from edgec.compiler.optimise import disabled, simplify
from edgec.compiler.options import Options
from edgec.ir import Graph, Refusal
from edgec.quantize.float_ops.limits import Price, Pricer
from edgec.quantize.select.apply import QuantizedModel

_TOLD = 0.0005
"""A smaller part of the MACs is not worth a word."""
_LONGER = 0.005
"""Nor is a smaller part of the time."""


def place(graph: Graph, target: Target, wishes: Wishes) -> Partition:
    """Split a graph for a target."""
    return partition(
        graph, target.board.coral if target.coral else None, cpu_cost(target), wishes
    )


def wishes_of(options: Options) -> Wishes:
    """Return the share of the Edge TPU that a person wants."""
    _, rewrites_off = disabled(options.disable)
    everything = options.edgetpu == "all"
    return Wishes(options.optimistic, rewrites_off, everything=everything)


def cpu_cost(target: Target) -> CpuCost:
    """How fast the CPU of a target's board is."""
    return CpuCost.of(target.board)


def pricer(target: Target, wishes: Wishes, passes_off: Collection[str]) -> Pricer:
    """What a quantized graph will cost on a target."""

    def price(graph: Graph) -> Price:
        parts = place(simplify(graph.copy(), passes_off), target, wishes)
        found = column(
            parts.regions, {}, cpu_cost(target).within(parts.graph), parts.link
        )
        return Price(
            found.est_ms, found.tpu_macs_share if parts.link is not None else None
        )

    return price


def costs(found: QuantizedModel) -> Iterator[str]:
    """What there is to say where the candidate that was kept has less on the Edge TPU
    than the first, or is slower.
    """
    if found.prices is None:
        return
    first, kept = found.prices
    name, before = found.candidate.name, found.recipe.candidates[0].name
    db = {t.name: t.db for t in found.tried}
    time = (
        f"an estimated {kept.ms:.2f} ms in place of {first.ms:.2f}, "
        "and buys "
        f"{db[name] - db[before]:.1f} dB"
    )
    now = kept.tpu_share
    then = first.tpu_share
    if now is not None and then is not None and now <= then - _TOLD:
        shares = (
            f"keeps {now:.1%} of the MACs on the Edge TPU, "
            f"{before} would keep {then:.1%}"
        )
        yield f"{name} {shares}: it costs {time} on held-back samples"
    elif kept.ms > first.ms * (1 + _LONGER):
        yield f"{name} takes {time} over {before} on held-back samples"


def left_in_float(found: QuantizedModel) -> Mapping[str, Refusal]:
    """Why the Edge TPU gets none of the ops that a person, or limits of a person,
    wanted in float, by their results.
    """
    why = "left in float32, so that the model keeps its accuracy"
    fix = "allow it to lose more (--accuracy), or leave it out of --float-ops"
    return {
        n: Refusal("precision", "what int8 would hurt too much stays float32", why, fix)
        for n in found.floating
    }
