"""The score of an int8 model: how near its outputs are to the float model's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgec.ir import Array
from edgec.measure.agreement import Tally, tally
from edgec.measure.decibels import bounded_decibels

SIGNAL_FLOOR = 0.01
"""The least power of a sample's signal, as a part of the samples' mean power.

Where a mask is empty, the ratio of that sample alone is meaningless.
"""
Outputs = Mapping[str, Array]


@dataclass
class Score:
    """The noise of a candidate on some samples.

    Attributes:
        tallies: for each output, sums over the samples (`Tally.state`).
        powers: for each output, the signal's and the noise's power of each sample.
    """

    tallies: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    powers: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Outputs, Outputs]]) -> Score:
        """Return the score of outputs: for each sample, the float model's and the int8 model's."""
        score = cls()
        # One pair of outputs at a time: those of all samples would not fit in memory.
        sums: dict[str, Tally] = {}
        for reference, outputs in pairs:
            for name, y in reference.items():
                sums.setdefault(name, Tally()).add(y, outputs[name])
                # Each sample has a ratio of its own beside that of all together.
                signal, noise = tally(y, outputs[name]).powers()
                score.powers.setdefault(name, []).append((float(signal), float(noise)))

        score.tallies = {name: [total.state()] for name, total in sums.items()}

        return score

    def add(self, other: Score) -> None:
        """Take in a score on other samples, of another fold.

        other: a score of the same outputs.
        """
        for name in other.powers:
            self.powers.setdefault(name, []).extend(other.powers[name])
            self.tallies.setdefault(name, []).extend(other.tallies[name])

    def db(self) -> dict[str, float]:
        """Return the signal-to-noise ratio of each output in dB.

        It is the mean of two figures: the ratio over all samples together, which the
        samples with the most noise decide, and the mean of the samples' own ratios. So
        no single photo decides.
        """
        ratios: dict[str, float] = {}
        for name, rows in self.powers.items():
            signal, noise = np.array(rows, np.float64).T
            # An empty sample would otherwise count with a ratio of minus infinity.
            floored = np.maximum(signal, SIGNAL_FLOOR * signal.mean())
            own = bounded_decibels(floored, noise)
            together = bounded_decibels(signal.sum(), noise.sum())
            ratios[name] = float((own.mean() + together) / 2)

        return ratios
