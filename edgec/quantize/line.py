"""A model through the steps of several candidates, which share the steps that they
begin with.
"""

from __future__ import annotations

from edgec.quantize.once import Memoized
from edgec.quantize.recipe import Candidate
from edgec.quantize.work import QuantizationState, RecipeStep


class StepPipeline:
    """A model through steps; candidates that begin with the same steps share them."""

    def __init__(self, work: QuantizationState) -> None:
        self.work = work
        self._done = Memoized()

    def of(self, candidate: Candidate) -> QuantizationState:
        """After all its steps."""
        return self.after(candidate.steps)

    def after(self, steps: tuple[RecipeStep, ...]) -> QuantizationState:
        """After these."""
        if steps:
            return self._done.get(steps, lambda: self.after(steps[:-1]).do(steps[-1]))
        return self.work
