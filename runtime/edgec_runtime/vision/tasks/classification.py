"""The task of classification: the most probable classes, with their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...rows import parameter
from ...tensors import TensorInfo
from ..drawing import caption
from .base import (
    ACTIVATIONS,
    Array,
    Decode,
    DecoderSetting,
    Outputs,
    Size,
    View,
    activated,
    output_for,
    softmax,
)


@dataclass(frozen=True)
class Classification:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "classification"
    output: Optional[str] = parameter(
        "the output with a number for each class; default: the only one", None
    )
    activation: str = parameter(
        "what makes probabilities of them; auto: softmax, unless all are in 0…1",
        "auto",
        choices=("auto", *ACTIVATIONS),
    )
    top: int = parameter("how many classes are told", 5, low=1, high=1000)
    threshold: float = parameter(
        "the least probability that is told", 0.0, low=0, high=1
    )

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Classification:
        """Return the task for a model, with defaults replaced by the model's outputs."""
        name = output_for(self.output, "class scores", outputs, _is_vector)
        return replace(self, output=name)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""

        def decode(outputs: Outputs, view: View) -> Classes:
            scores = self._probabilities(outputs[str(self.output)].reshape(-1))
            # A stable sort keeps equal scores in the order of classes.
            best = np.argsort(-scores, kind="stable")[: self.top]

            classes: List[Class] = []
            for i in best:
                if scores[i] >= self.threshold:
                    label = setting.label(int(i))
                    classes.append(Class(int(i), label, float(scores[i])))
            return Classes(tuple(classes))

        return decode

    def _probabilities(self, scores: Array) -> Array:
        """Return the probabilities of all classes."""

        if self.activation != "auto":
            return activated(scores, self.activation)
        # The logits of a trained network are hardly ever all within 0…1.
        is_probability = scores.min() >= 0 and scores.max() <= 1
        return scores if is_probability else softmax(scores)


def _is_vector(shape: Tuple[int, ...]) -> bool:
    """Return whether only one axis of an output has several elements."""
    return math.prod(shape) == max((0, *shape)) > 1


@dataclass(frozen=True)
class Class:
    """One class.

    Attributes:
        index: its number
        label: its name
        score: its probability
    """

    index: int
    label: str
    score: float


@dataclass(frozen=True)
class Classes:
    """The most probable classes of a frame, the best first."""

    classes: Tuple[Class, ...]

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        return {
            "classes": [
                {"class": c.index, "label": c.label, "score": round(c.score, 4)}
                for c in self.classes
            ]
        }

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        return [f"{c.score:7.1%}  {c.label}" for c in self.classes] or ["nothing"]

    def draw(self, frame: Array) -> Array:
        """Return the frame with the first three classes at the top left."""
        lines = [f"{c.score:.0%} {c.label}" for c in self.classes[:3]]
        return caption(frame, lines)
