"""What a search of schedules found, as `edgec tune` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from pathlib import Path


@dataclass(frozen=True)
class TunedCall:
    """The best way to compute one kind of call. functions: of the bundle, that make
    such a call. what: its tensors.

    ms, default_ms: of one call, as found and as analysis prefers. tried: ways. new:
    found by this search.
    """

    functions: tuple[str, ...]
    what: str
    variant: str
    schedule: Mapping[str, int]
    ms: float
    default_ms: float
    tried: int
    new: bool

    @property
    def gain(self) -> float:
        """How many times as fast as the default."""
        return self.default_ms / self.ms if self.ms > 0 else 1.0


@dataclass(frozen=True)
class Tuning:
    """A search that has ended. path: the database. on: the device's URL. core: as the
    compiler calls it.
    """

    path: Path
    on: str
    estimated: bool
    core: str
    choices: tuple[TunedCall, ...]

    @property
    def ms(self) -> float:
        """Of all calls of one inference, as found."""
        return fsum(c.ms * len(c.functions) for c in self.choices)

    @property
    def default_ms(self) -> float:
        """Of the same calls as analysis prefers."""
        return fsum(c.default_ms * len(c.functions) for c in self.choices)
