"""Classes of a network with one score for each class."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ScoredClass(NamedTuple):
    """A class and its score.

    Attributes:
        id: the number of the class
        score: the score, a real number
    """

    id: int
    score: float


# The name of pycoral.
Class = ScoredClass


def num_classes(interpreter: Any) -> int:
    """Return how many scores the first output has."""
    return int(np.prod(interpreter.get_output_details()[0]["shape"]))


def get_scores(interpreter: Any) -> Array:
    """Return the scores as real numbers, one for each class.

    Integers q become scale · (q − zero point), as their quantization says.
    """
    details = interpreter.get_output_details()[0]
    scores: Array = interpreter.tensor(details["index"])().flatten()
    if not np.issubdtype(details["dtype"], np.integer):
        return scores
    scale, zero_point = details["quantization"]
    # Wider first: q − zero point does not fit into 8 bits.
    real: Array = scale * (scores.astype(np.int64) - zero_point)
    return real


def get_classes_from_scores(
    scores: Array, top_k: float = math.inf, score_threshold: float = -math.inf
) -> List[ScoredClass]:
    """Return the classes with the highest scores, the best first.

    Args:
        scores: real numbers, [classes]
        top_k: at most so many classes
        score_threshold: the lowest score that counts
    """
    count = int(min(top_k, len(scores)))
    # Equal scores keep the order of their numbers.
    best = np.argsort(-np.asarray(scores), kind="stable")[:count]
    classes: List[ScoredClass] = []
    for number in best:
        score = float(scores[number])
        if score >= score_threshold:
            classes.append(ScoredClass(int(number), score))
    return classes


def get_classes(
    interpreter: Any, top_k: float = math.inf, score_threshold: float = -math.inf
) -> List[ScoredClass]:
    """Return the classes of the last inference, as `get_classes_from_scores` does."""
    return get_classes_from_scores(get_scores(interpreter), top_k, score_threshold)
