"""What a recipe did to channels, in a bundle: written into `ValuesFile`, and read
again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.comparing.changes import Change, Changes
from edgec.emit.values_file import ValuesFile
from edgec.ir import Array


def with_changes(file: ValuesFile, changes: Changes) -> ValuesFile:
    """The file with these."""
    return replace(
        file,
        factors={name: _short(c.times) for name, c in changes.items()},
        moves={name: _short(c.plus) for name, c in changes.items()},
        orders={
            name: tuple(c.order.tolist())
            for name, c in changes.items()
            if c.order is not None
        },
        counts={name: c.count for name, c in changes.items() if c.count is not None},
    )


def changes_in(file: ValuesFile) -> Changes:
    """Those of a file, of an older edgec as well."""
    return {
        name: Change(
            np.array(times),
            np.array(file.moves.get(name, (0.0,))),
            np.array(file.orders[name]) if name in file.orders else None,
            file.counts.get(name),
        )
        for name, times in file.factors.items()
    }


def _short(channels: Array) -> tuple[float, ...]:
    return tuple(float(f"{x:.7g}") for x in channels)
