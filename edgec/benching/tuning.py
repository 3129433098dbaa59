"""Holds the result of a search of schedules by `edgec tune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from pathlib import Path


@dataclass(frozen=True)
class TunedCall:
    """The best schedule for one kind of call.

    Attributes:
        functions: functions of the bundle that make such a call
        what: shapes of its tensors
        variant: the kernel
        schedule: parameters of the kernel
        ms: time of one call with this schedule, ms
        default_ms: time of one call with the default of the cost analysis, ms
        tried: number of schedules that were timed
        new: whether this search found it; otherwise it was in the database
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
        """Return the speed relative to the default."""
        return self.default_ms / self.ms if self.ms > 0 else 1.0


@dataclass(frozen=True)
class Tuning:
    """The result of a search.

    Attributes:
        path: the database of schedules
        on: URL of the device
        estimated: whether times are estimates
        core: the CPU core, by the compiler's name
        choices: the best schedule for each kind of call
    """

    path: Path
    on: str
    estimated: bool
    core: str
    choices: tuple[TunedCall, ...]

    @property
    def ms(self) -> float:
        """Return the time of all calls of an inference with the schedules found, ms."""
        return fsum(c.ms * len(c.functions) for c in self.choices)

    @property
    def default_ms(self) -> float:
        """Return the time of the same calls with the default schedules, ms."""
        return fsum(c.default_ms * len(c.functions) for c in self.choices)
