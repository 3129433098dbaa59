"""How far estimates are from published times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median


@dataclass(frozen=True)
class Errors:
    """Estimates divided by published values, for some networks.

    Attributes:
        ratios: by network; above 1 the estimate is too high
    """

    ratios: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Return the geometric mean of the ratios, less 1."""
        return math.exp(fmean(map(math.log, self.ratios.values()))) - 1

    @property
    def rms(self) -> float:
        """Return the root mean square of the ratios less 1."""
        return math.sqrt(fmean((r - 1) ** 2 for r in self.ratios.values()))

    @property
    def median(self) -> float:
        """Return the median of the absolute errors."""
        return median(abs(r - 1) for r in self.ratios.values())

    @property
    def worst(self) -> tuple[str, float]:
        """Return the network with the largest absolute error, and its error."""
        name = max(self.ratios, key=lambda n: abs(self.ratios[n] - 1))
        return name, self.ratios[name] - 1

    def cells(self) -> Sequence[str]:
        """Return the count, mean, rms, median and worst as cells of a table."""
        if not self.ratios:
            return ["0", "–", "–", "–", "–"]
        name, error = self.worst
        figures = (f"{self.mean:+.0%}", f"{self.rms:.0%}", f"{self.median:.0%}")
        return [str(len(self.ratios)), *figures, f"{error:+.0%} {name}"]
