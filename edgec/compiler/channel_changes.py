"""The channel changes of a recipe in a bundle's list of values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.comparing.changes import Change, Changes
from edgec.emit.values_file import ValuesFile
from edgec.ir import Array


def with_changes(file: ValuesFile, changes: Changes) -> ValuesFile:
    """Return the list with the changes of a recipe."""
    factors = {}
    moves = {}
    orders: dict[str, tuple[int, ...]] = {}
    counts = {}
    for name, change in changes.items():
        factors[name] = _rounded(change.times)
        moves[name] = _rounded(change.plus)
        # Only split channels have an order and a count.
        if change.order is not None:
            orders[name] = tuple(change.order.tolist())
        if change.count is not None:
            counts[name] = change.count
    return replace(file, factors=factors, moves=moves, orders=orders, counts=counts)


def changes_in(file: ValuesFile) -> Changes:
    """Return the changes of a list, of an older edgec as well."""
    changes = {}
    for name, times in file.factors.items():
        # Older lists have no moves, and no orders and counts of split channels.
        plus = np.array(file.moves.get(name, (0.0,)))
        order = np.array(file.orders[name]) if name in file.orders else None
        changes[name] = Change(np.array(times), plus, order, file.counts.get(name))
    return changes


def _rounded(channels: Array) -> tuple[float, ...]:
    """Return numbers with the seven digits of a float32."""
    return tuple(float(f"{x:.7g}") for x in channels)
