"""Runs the steps of candidates, which share the steps that they begin with."""

from __future__ import annotations

from edgec.quantize.change.recipe import Candidate
from edgec.quantize.change.state import QuantizationState, RecipeStep


class StepPipeline:
    """A cache of the states of a model after every step: each step runs once.

    Attributes:
        state: the model before any step.
    """

    def __init__(self, state: QuantizationState) -> None:
        self.state = state
        self._done: dict[tuple[RecipeStep, ...], QuantizationState] = {}

    def of(self, candidate: Candidate) -> QuantizationState:
        """Return the model after all steps of a candidate."""
        return self.after(candidate.steps)

    def after(self, steps: tuple[RecipeStep, ...]) -> QuantizationState:
        """Return the model after these steps."""
        if not steps:
            return self.state

        # Steps are frozen dataclasses: those with the same options are equal.
        if steps not in self._done:
            before = self.after(steps[:-1])
            self._done[steps] = before.after(steps[-1])

        return self._done[steps]
