"""Finds how a recipe's steps changed the channels of a float network.

`equalize` multiplies channels by factors (cross-layer equalization, Nagel et al. 2019,
arXiv:1906.04721), `centre` adds constants to them, and `separate` reorders them and
splits outlier channels into tensors of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from edgec.analysis.splittable import splittable_paths
from edgec.comparing.channels import Weights
from edgec.ir import Array, ChannelFlow, Graph, Op, Value
from edgec.ops.slice import Slice
from edgec.quantize.change.channel_groups import (
    Parts,
    filled,
    part,
    part_name,
    used_name,
)
from edgec.quantize.change.domains import role
from edgec.quantize.change.lower import lower
from edgec.quantize.change.products import product
from edgec.quantize.change.shifts import shiftable_values

FACTOR_TOLERANCE = 1e-3
"""Factors this near to 1 are no change."""
SHIFT_TOLERANCE = 1e-5
"""Shifts below this share of the larger bias are rounding of float32."""

Factors = Mapping[str, Array]
"""By the name of a value: the factor of each of its channels (the last axis)."""


@dataclass(frozen=True)
class Change:
    """How the channels of a value changed: to `x[order] * times + plus`.

    Channels are the last axis.

    Attributes:
        times: factor of each channel
        plus: shift of each channel
        order: old number of each new channel; None if the order is the same
        count: number of channels of the original value, if the value has only some of
            them; else None
    """

    times: Array = field(default_factory=lambda: np.ones(1))
    plus: Array = field(default_factory=lambda: np.zeros(1))
    order: Array | None = None
    count: int | None = None

    def done(self, x: Array) -> Array:
        """Return the changed form of the original values `x`."""
        if self.order is not None:
            x = x[..., self.order]
        return np.asarray(x * self.times + self.plus)

    def undone(self, x: Array) -> Array:
        """Return the original form of the changed values `x`, which have all channels."""
        assert self.count is None

        original = (x - self.plus) / self.times
        if self.order is not None:
            # The inverse of a permutation is its argsort.
            original = original[..., np.argsort(self.order)]
        return np.asarray(original)


Changes = Mapping[str, Change]
"""By the name of a value."""


def channel_changes(
    before: Graph, after: Graph, parts: Mapping[str, Parts] | None = None
) -> dict[str, Change]:
    """Return the changes of the values of `after`, from the weights and biases of both.

    `parts` has the channel groups that `separate` made, by the name of the value.
    """
    original = lower(before)
    changes = _split(original, parts) if parts else {}

    producers = {op.output.name: op for op in original.ops if len(op.outputs) == 1}
    factors = _factors(producers, after)
    shifts = _shifts(producers, after, factors)
    for name, factor in factors.items():
        changes[name] = replace(changes.get(name, Change()), times=factor)
    for name, shift in shifts.items():
        changes[name] = replace(changes.get(name, Change()), plus=shift)
    return changes


def _split(graph: Graph, parts: Mapping[str, Parts]) -> dict[str, Change]:
    """Split the channels of `graph` as `separate` did, and return the changes."""
    changes = dict[str, Change]()
    by_name = {path.producer.output.name: path for path in splittable_paths(graph)}
    for name, groups in parts.items():
        path = by_name[name]
        orders = part(graph, path, groups)
        assert orders is not None, name

        # Inside the path only the groups exist, and its last value joined again.
        values = [v.name for v in path.values]
        for value, order in orders.items():
            if value not in values[:-1]:
                changes[value] = Change(order=order)

        count = sum(map(len, groups))
        for number, group in enumerate(groups, 1):
            change = Change(order=filled(group), count=count)
            for value in values:
                changes[part_name(value, number)] = change
            joined = used_name(part_name(values[-1], number))
            changes[joined] = replace(change, order=group)
    return changes


def change_of(changes: Changes, name: str) -> Change | None:
    """Return the change of a value or of its converted form; None if there is none."""
    for suffix in ("", "_int8", "_f32"):
        if name.endswith(suffix):
            change = changes.get(name.removesuffix(suffix))
            if change is not None:
                return change
    return None


def _shifts(
    producers: Mapping[str, Op], after: Graph, factors: Factors
) -> dict[str, Array]:
    """Return the shifts of the channels of values.

    A shift is the difference of the biases, apart from the factor of the value and the
    effect of the shift of its input.
    """
    shifts: dict[str, Array] = {}
    for value, link in shiftable_values(after).items():
        op = link.maker.op
        original = producers.get(value.name)
        weight = op.inputs[1].const
        if original is None or weight is None:
            continue
        new = _bias(op)
        old = factors.get(value.name, 1.0) * _bias(original)
        if new.shape != old.shape:
            continue

        # A shifted input changes the result by the weights times the shift.
        input_shift = shifts.get(op.inputs[0].name)
        if input_shift is not None:
            matrix = link.maker.matrix(weight)
            new = new + product(matrix, link.maker.uniform_window(input_shift))
        shift = new - old
        largest = max(np.abs(new).max(), np.abs(old).max())
        if (np.abs(shift) > SHIFT_TOLERANCE * largest).any():
            shifts[value.name] = shift
    return shifts


def _factors(producers: Mapping[str, Op], scaled: Graph) -> dict[str, Array]:
    """Return the factors of the channels of values, in graph order."""
    factors: dict[str, Array] = {}
    for op in scaled.ops:
        if len(op.outputs) != 1:
            continue
        original = producers.get(op.output.name)
        if original is None:
            continue
        factor = _factor_by_weights(op, original, factors)
        if factor is None:
            factor = _passed_factor(op, factors)
        if factor is not None and (np.abs(factor - 1) > FACTOR_TOLERANCE).any():
            factors[op.output.name] = factor
    return factors


def _factor_by_weights(op: Op, original: Op, factors: Factors) -> Array | None:
    """Return the factors of an op with weights from the ratio of its weights.

    It is None for other ops.
    """
    new = Weights.of(op)
    old = Weights.of(original)
    if new is None or old is None or new.real.shape != old.real.shape:
        return None

    # The factors of the input are part of the weights: take them out.
    rows = new.real
    input_factor = factors.get(op.inputs[0].name)
    if input_factor is not None:
        rows = _times_input(rows, input_factor, depthwise=new.own)

    # A tap that was zero stays zero, whatever the factor.
    nonzero = old.real != 0
    # Divisions by zero become NaN, which the median skips.
    divisors = np.where(nonzero, old.real, 1.0)
    ratios = np.where(nonzero, rows / divisors, np.nan)

    has_weight = nonzero.any(1)
    # The median, not the mean: a reader of a channel that is zero throughout may have
    # divided it by any factor.
    medians = np.nanmedian(np.where(has_weight[:, None], ratios, 1.0), axis=1)
    return np.where(has_weight, medians, _factor_by_bias(op, original, len(rows)))


def _times_input(rows: Array, factor: Array, depthwise: bool) -> Array:
    """Return weights [output channel, taps] times the factor of their input channel."""
    if depthwise:
        multiplier = -(-len(rows) // len(factor))
        per_row = np.repeat(factor, multiplier)[: len(rows)]
        return np.asarray(rows * per_row[:, None])
    if rows.shape[1] % len(factor) == 0:
        taps = rows.reshape(len(rows), -1, len(factor))
        return np.asarray((taps * factor).reshape(rows.shape))
    return rows


def _factor_by_bias(op: Op, original: Op, count: int) -> Array:
    """Return the factors from the ratio of the biases, for channels without weights.

    Such a channel is its bias and nothing else.
    """
    new = _bias(op)
    old = _bias(original)
    if new.shape != old.shape or len(new) != count:
        return np.ones(count)
    # A bias that is zero now was shifted away: that is no factor.

    comparable = (old != 0) & (new != 0)
    divisors = np.where(old != 0, old, 1)
    return np.where(comparable, new / divisors, 1.0)


def _bias(op: Op) -> Array:
    """Return the bias of each output channel, 0 if the op has none."""
    for i, value in enumerate(op.inputs):
        if role(op, i) == "bias":
            if value.const is None:
                break
            return value.const.reshape(-1).astype(np.float64)
    return np.zeros(op.output.type.shape[-1])


def _passed_factor(op: Op, factors: Factors) -> Array | None:
    """Return the factors that an op without weights passes from inputs to its output.

    Known are ops that keep the channels of their inputs, add or multiply them,
    concatenate or slice them. It is None for other ops, and if no input has factors.
    """
    activations = _activations(op)
    if not any(v.name in factors for v in activations):
        return None

    input_factors = []
    for value in activations:
        no_change = np.ones(value.type.shape[-1:] or 1)
        input_factors.append(factors.get(value.name, no_change))
    channels = op.output.type.shape[-1:]
    # A concatenation puts the channels of its inputs beside each other.
    if len(activations) == len(op.inputs):
        moved = op.spec.move_channels(op, input_factors)
        if moved is not None:
            return moved
    if isinstance(op.spec, Slice):
        first = input_factors[0]
        # Only the slice of the last axis selects channels.
        if len(first) == op.inputs[0].type.shape[-1]:
            channel = op.spec.index()[-1]
            return first[channel]

    if not channels:
        return None
    if any(len(factor) not in (1, channels[0]) for factor in input_factors):
        return None

    # The factors of a product multiply.
    if op.spec.channel_flow is ChannelFlow.MULTIPLIES:
        broadcast = np.broadcast_arrays(*input_factors)
        return np.asarray(np.prod(broadcast, axis=0))
    # The summands of an addition have the same factors, else they could not be added.
    return np.broadcast_to(max(input_factors, key=len), channels)


def _activations(op: Op) -> list[Value]:
    """Return the inputs of an op that are neither constant nor weights."""

    activations = []
    for i, value in enumerate(op.inputs):
        if role(op, i) == "act" and value.const is None:
            activations.append(value)
    return activations
