"""Who tries the candidates of a recipe, and what is remembered of them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest

from edgec.executors import Shared, each_done
from edgec.quantize.trials import (
    CandidateTrial,
    Score,
    ScoreCache,
    SearchSetting,
    judged,
)
from edgec.quantize.work import RecipeStep


@dataclass(frozen=True)
class CandidateExecutor:
    """executor: tries candidates side by side; None: this thread, one after the other.
    memory: of what was judged before, by which a search that was interrupted goes on.
    """

    executor: Executor | None = None
    memory: ScoreCache | None = None

    def judge(
        self, trials: Sequence[CandidateTrial], setting: SearchSetting
    ) -> list[Score]:
        """Of each trial; one that is remembered is not made again. Tells "try 3/9"."""
        found = self._remembered(trials, setting)
        left = [t for t in trials if t not in found]
        setting.say(f"try {len(found) + 1}/{len(trials)}" if left else "")
        with closing(self._done(left, setting)) as done:
            for trial, score in done:
                found[trial] = score
                if self.memory is not None:
                    self.memory.put(
                        trial.key(setting), json.dumps(score.to_json()).encode()
                    )
                setting.say(f"try {min(len(found) + 1, len(trials))}/{len(trials)}")
        return [found[t] for t in trials]

    def _remembered(
        self, trials: Sequence[CandidateTrial], setting: SearchSetting
    ) -> dict[CandidateTrial, Score]:
        if self.memory is None:
            return {}
        known = ((t, self.memory.get(t.key(setting))) for t in trials)
        return {t: Score(**json.loads(data)) for t, data in known if data is not None}

    def _done(
        self, left: Sequence[CandidateTrial], setting: SearchSetting
    ) -> Generator[tuple[CandidateTrial, Score], None, None]:
        if self.executor is None:
            shared = Shared(setting)
            yield from ((t, judged(t, shared)) for t in left)
        else:
            yield from each_done(
                self.executor, judged, _mixed(left), Shared(setting.apart())
            )


def _mixed(trials: Iterable[CandidateTrial]) -> list[CandidateTrial]:
    """Those that begin with other graphs, or are made of other samples, in turn: they
    wait the least for each other.
    """
    groups: dict[
        tuple[tuple[RecipeStep, ...], tuple[int, ...]], list[CandidateTrial]
    ] = {}
    for t in trials:
        groups.setdefault((t.candidate.rewrites, t.fit), []).append(t)
    return [
        t for t in chain.from_iterable(zip_longest(*groups.values())) if t is not None
    ]
