"""All ways to run graphs, and what is wrong with each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.fuzzing.placed import by_edgetpu
from benchmarks.fuzzing.ways import WAYS, Trial, by_c

PROGRAMS: Mapping[str, Callable[[Sequence[Trial]], list[list[str]]]] = {
    "c": by_c,
    "edgetpu": by_edgetpu,
}
"""The ways that compile C."""
ALL = (*WAYS, *PROGRAMS)


def problems(trials: Sequence[Trial], ways: Sequence[str]) -> list[list[str]]:
    """Return the failures of each trial, each with the way that it came by.

    An exception is a failure.
    """
    found: list[list[str]] = [[] for _ in trials]
    for trial, wrong in zip(trials, found, strict=True):
        try:
            trial.nudged  # noqa: B018 (all others compare with it)
            if trial.is_open:
                trial.refused["all: what floats leave open"] = trial.graph.name
        except Exception as e:
            wrong.append(f"interp: {type(e).__name__}: {str(e)[:400]}")
        for name in ways:
            if name in WAYS and not wrong and not trial.is_open:
                try:
                    wrong += [f"{name}: {why}" for why in WAYS[name](trial)]
                except Exception as e:
                    wrong.append(f"{name}: {type(e).__name__}: {str(e)[:400]}")
    for name, way in PROGRAMS.items():
        if name not in ways:
            continue
        sound = [
            i for i, wrong in enumerate(found) if not wrong and not trials[i].is_open
        ]
        for i, why in zip(sound, way([trials[i] for i in sound]), strict=True):
            found[i] += [f"{name}: {w}" for w in why]
    return found
