"""Latencies with the noise of a shared machine, as it was seen, with a known truth."""

from __future__ import annotations

import numpy as np

Times = np.ndarray[tuple[int], np.dtype[np.float64]]


def shared_machine(rng: np.random.Generator, n: int, ms: float = 2.0) -> Times:
    """Times of one launch.

    Lognormal jitter; an offset of the launch; phases of a neighbour on the same core,
    +20 %, in which an inference follows another with a probability of 0.95; and
    preemption: now and then a scheduler's slice of 4 ms.
    """
    values = ms * np.exp(rng.normal(0, 0.003) + np.abs(rng.normal(0, 0.004, n)))
    busy = rng.random() < 0.1
    phase = rng.random(n)
    for i in range(n):
        busy = phase[i] < (0.95 if busy else 0.006)
        values[i] *= 1.2 if busy else 1.0
    return np.asarray(values + 4.0 * (rng.random(n) < 0.03))


def bench(
    rng: np.random.Generator, launches: int = 10, n: int = 60, ms: float = 2.0
) -> list[list[float]]:
    """The steady inferences of several launches."""
    return [shared_machine(rng, n, ms).tolist() for _ in range(launches)]
