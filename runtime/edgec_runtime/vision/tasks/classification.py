"""Classification: the most probable classes, with their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...rows import said
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
    """The parameters of the task."""

    kind: ClassVar[str] = "classification"
    output: Optional[str] = said(
        "the output with a number for each class; default: the only one", None
    )
    activation: str = said(
        "what makes probabilities of them; auto: softmax, unless all are in 0…1",
        "auto",
        choices=("auto", *ACTIVATIONS),
    )
    top: int = said("how many classes are told", 5, low=1, high=1000)
    threshold: float = said("the least probability that is told", 0.0, low=0, high=1)

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Classification:
        """See Task."""
        name = output_for(
            self.output,
            "class scores",
            outputs,
            lambda shape: math.prod(shape) == max((0, *shape)) > 1,
        )
        return replace(self, output=name)

    def files(self) -> Tuple[str, ...]:
        """None."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """See Task."""

        def decode(outputs: Outputs, view: View) -> Classes:
            scores = self._probabilities(outputs[str(self.output)].reshape(-1))
            best = np.argsort(-scores, kind="stable")[: self.top]
            found = [
                (int(i), float(scores[i])) for i in best if scores[i] >= self.threshold
            ]
            return Classes(
                tuple(Class(i, setting.label(i), score) for i, score in found)
            )

        return decode

    def _probabilities(self, scores: Array) -> Array:
        if self.activation != "auto":
            return activated(scores, self.activation)
        return scores if scores.min() >= 0 and scores.max() <= 1 else softmax(scores)


@dataclass(frozen=True)
class Class:
    """One class and its probability."""

    index: int
    label: str
    score: float


@dataclass(frozen=True)
class Classes:
    """The most probable first."""

    classes: Tuple[Class, ...]

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        return {
            "classes": [
                {"class": c.index, "label": c.label, "score": round(c.score, 4)}
                for c in self.classes
            ]
        }

    def lines(self) -> List[str]:
        """See Result."""
        return [f"{c.score:7.1%}  {c.label}" for c in self.classes] or ["nothing"]

    def draw(self, frame: Array) -> Array:
        """The first three, at the top left."""
        return caption(frame, [f"{c.score:.0%} {c.label}" for c in self.classes[:3]])
