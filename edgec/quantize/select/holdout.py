"""Tries candidates on samples that are held back from calibration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.executors import cores, in_order
from edgec.ir import Array, Run
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.calibration import Sample, chosen
from edgec.quantize.observe.judgement import Judge, Judgement
from edgec.quantize.observe.score import Score
from edgec.quantize.observe.trial import Trial

MIN_SAMPLES = 4
"""Of fewer samples none is held back."""
HELD_PART = 4
"""One sample in so many is held back."""
MAX_HELD = 16
ENOUGH_HELD = 12
"""Where fewer would be held back, every sample is held back once, in thirds."""
THIRDS = 3
SHUFFLE_SEED = 1
"""Drawn with the recipe's seed, so that the folds are not those of another draw."""

Fold = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the samples that a model is made of, and of those held back from it."""


def folds(numbers: Sequence[int], seed: int) -> list[Fold]:
    """Divide samples into those that a model is made of and those held back from it."""
    order = np.random.default_rng((seed, SHUFFLE_SEED)).permutation(len(numbers))
    # Neighbouring photos are alike: the samples of a part come from all of the folder.
    shuffled = [numbers[i] for i in order.tolist()]

    held = min(len(shuffled) // HELD_PART, MAX_HELD)
    if held >= ENOUGH_HELD:
        parts = [shuffled[:held]]
    else:
        parts = [shuffled[i::THIRDS] for i in range(THIRDS)]

    divided = []
    for part in parts:
        fit = tuple(sorted({*shuffled} - {*part}))
        divided.append((fit, tuple(sorted(part))))

    return divided


def held_out_parts(
    state: QuantizationState,
) -> Iterator[tuple[QuantizationState, Sequence[Sample]]]:
    """Yield the model with samples to make it of, and the samples to score it on.

    Where there are few samples, it is scored on those that it is made of.
    """
    if len(state.samples) < MIN_SAMPLES:
        yield state, state.samples
        return

    for fit, held in folds(range(len(state.samples)), state.seed):
        fit_state = state.with_samples(chosen(state.samples, fit))
        yield fit_state, chosen(state.samples, held)


def judgement(
    pipeline: StepPipeline, candidate: Candidate, judge: Judge | None
) -> Judgement | None:
    """Return a candidate, made of all samples, on labelled pictures; None without them."""
    if judge is None:
        return None
    state = pipeline.of(candidate)
    runs = state.passes * judge.pictures
    return judge(state.runners.int8(state.int8().graph, runs))


@dataclass
class Holdout:
    """A float model, its samples, and the folds that candidates are tried on.

    Attributes:
        pipeline: the model with all samples.
        reference: the candidate whose float graph gives the outputs that are wanted.
        folds: for each, the samples to make a candidate of and those to score it on.
        judge: judges candidates on labelled pictures too; None: there are none.
    """

    pipeline: StepPipeline
    reference: Candidate
    folds: Sequence[Fold]
    judge: Judge | None = None
    _latest: tuple[tuple[int, ...], StepPipeline] | None = None

    @property
    def count(self) -> int:
        """The number of samples that are held back in one fold or another."""
        return sum(len(held) for _, held in self.folds)

    def trials(
        self, candidates: Sequence[Candidate], more: Collection[int] = ()
    ) -> list[Trial]:
        """Try each candidate on all folds.

        more: the numbers of samples that are added to those a candidate is made of.
        """
        # Fold by fold, so that one pipeline serves all candidates.
        totals = [Score() for _ in candidates]
        count = len(self.folds) * len(candidates)
        done = 0
        for fit, held in self.folds:
            pipeline = self._fold_pipeline(tuple(sorted({*fit, *more})))
            for candidate, total in zip(candidates, totals, strict=True):
                done += 1
                self.pipeline.state.say(f"try {done}/{count}")
                total.add(self._score(pipeline, candidate, held))

        # Labelled pictures do not calibrate: candidates made of all samples are judged.
        trials = []
        for candidate, total in zip(candidates, totals, strict=True):
            judged = judgement(self.pipeline, candidate, self.judge)
            trials.append(Trial.of(candidate.name, total, judged))
        return trials

    def _score(
        self, pipeline: StepPipeline, candidate: Candidate, held: tuple[int, ...]
    ) -> Score:
        """Score a candidate made by `pipeline` on the samples of these numbers."""
        samples = chosen(self.pipeline.state.samples, held)
        # The float model's outputs are the same for all candidates of a fold.
        base = pipeline.after(self.reference.rewrites)
        wanted = base.cached(
            ("outputs", held), lambda: [*_outputs(base.float_run(), samples)]
        )

        quantized = pipeline.of(candidate)
        runs = quantized.passes * len(samples)
        run = quantized.runners.int8(quantized.int8().graph, runs)

        return Score.of(zip(wanted, _outputs(run, samples), strict=True))

    def _fold_pipeline(self, fit: tuple[int, ...]) -> StepPipeline:
        """Return the model on some samples, with the steps that were done on them.

        Only the latest is kept: one takes hundreds of MB.
        """
        if self._latest is None or self._latest[0] != fit:
            state = self.pipeline.state
            fit_state = state.with_samples(chosen(state.samples, fit))
            self._latest = (fit, StepPipeline(fit_state))

        return self._latest[1]


def _outputs(run: Run, samples: Sequence[Sample]) -> Iterator[Mapping[str, Array]]:
    """Yield the outputs for each sample; several run at once."""
    return in_order(lambda sample: run(sample, None), samples, cores())
