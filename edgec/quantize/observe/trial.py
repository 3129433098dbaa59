"""The trial of a candidate: its figures on held-back samples and labelled pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgec.measure.agreement import Agreement, Tally
from edgec.quantize.observe.judgement import Judgement
from edgec.quantize.observe.score import Score


@dataclass(frozen=True)
class Trial:
    """The figures of a candidate.

    Attributes:
        name: the candidate's name.
        outputs: the agreement of each output over all held-back samples.
        means: the signal-to-noise ratio of each output, in dB (`Score.db`).
        judged: the candidate on labelled pictures, where there are some.
        refused: by how much it is below its guard, where that is too much.
    """

    name: str
    outputs: Mapping[str, Agreement]
    means: Mapping[str, float]
    judged: Judgement | None = None
    refused: str = ""

    @classmethod
    def of(cls, name: str, score: Score, judged: Judgement | None = None) -> Trial:
        """Return the trial of a candidate with this name and score."""
        # The states of all folds make one tally of each output.
        tallies = score.tallies.items()
        outputs = {output: Tally.of(states).result() for output, states in tallies}
        return cls(name, outputs, score.db(), judged)

    @property
    def db(self) -> float:
        """The mean over the outputs."""
        return float(np.mean([*self.means.values()]))

    def is_worth(self, before: Trial, worth_db: float) -> bool:
        """Return whether it is enough better than another to take longer.

        Labelled pictures decide where there are some: by more than chance.
        """
        if self.judged is not None and before.judged is not None:
            return self.judged.is_better_than(before.judged)
        return self.db - before.db >= worth_db

    def against(self, guard: Trial, within_db: float) -> Trial:
        """Return the trial with a refusal where it is too much below its guard.

        Labelled pictures decide where they can tell the two apart, noise else.

        within_db: the most that it may lose, in dB.
        """
        below = guard.db - self.db
        refused = f"{below:.1f} dB below the first" if below > within_db else ""
        if self.judged is not None and guard.judged is not None:
            if self.judged.is_better_than(guard.judged):
                refused = ""
            elif guard.judged.is_better_than(self.judged):
                value = f"{self.judged.title} {self.judged.value:.2f}"
                refused = f"{value}, the first {guard.judged.value:.2f}"
        return replace(self, refused=refused)

    def to_json(self) -> dict[str, Any]:
        """Return a row of the bundle's report."""
        rows = {
            name: {**a.as_dict(), "mean_db": round(self.means[name], 3)}
            for name, a in self.outputs.items()
        }
        return {
            "name": self.name,
            "db": round(self.db, 3),
            "refused": self.refused,
            "outputs": rows,
            "judged": None if self.judged is None else self.judged.to_json(),
        }
