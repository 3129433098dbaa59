"""The task of text recognition: the characters in a picture of one line of text.

The network outputs, for each of many steps from left to right, the probability of each
character and of a blank. The most probable class of each step is taken; equal
neighbours are one character, and blanks are left out (best path decoding of
Connectionist Temporal Classification: Graves et al., 2006, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...errors import InputError
from ...rows import parameter
from ...tensors import TensorInfo
from ..drawing import PALETTE, box_into
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
)

SPACE = " "
"""The character of the class after the last label, for which files of characters have no
line.
"""


@dataclass(frozen=True)
class TextRecognition:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "text-recognition"
    output: Optional[str] = parameter(
        "the output [1, steps, classes]; default: the only one that can be", None
    )
    activation: str = parameter(
        "what makes probabilities of it", "none", choices=ACTIVATIONS
    )
    blank: int = parameter("the class that is not a character", 0, low=0, high=1 << 20)
    threshold: float = parameter(
        "text whose characters have a smaller mean probability is left out",
        0.5,
        low=0,
        high=1,
    )

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> TextRecognition:
        """Return the task for a model, with defaults replaced by the model's outputs."""
        output = output_for(self.output, "characters", outputs, _is_sequence)
        classes = outputs[output].shape[2]
        if self.blank >= classes:
            raise InputError(
                f"class {self.blank} cannot be the blank of {classes} classes",
                "blank",
                "give the class of no character, usually 0",
            )
        return replace(self, output=output)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""
        if not setting.labels:
            raise InputError(
                "the characters of the classes are not known",
                "labels",
                "compile with --labels: a text file, one character a line",
            )
        info = setting.outputs[str(self.output)]
        classes = info.shape[2]
        characters = _characters(setting.labels, self.blank, classes)

        def decode(outputs: Outputs, view: View) -> TextLine:
            array = outputs[str(self.output)]
            # NaN would be taken for the most probable class.
            scores = np.nan_to_num(activated(array[0], self.activation))
            best = scores.argmax(axis=1)
            steps = self._beginnings(best)

            classes = best[steps]
            character_scores = scores[steps, classes]
            score = 0.0
            if len(character_scores):
                score = float(character_scores.mean())

            text = "".join(characters[k] for k in classes)
            if score < self.threshold:
                text = ""
            return TextLine(
                text=text,
                score=score,
                scores=tuple(map(float, character_scores)),
                columns=_columns(steps, len(best), view),
                corner=_corner(view),
            )

        return decode

    def _beginnings(self, best: Array) -> Array:
        """Return the steps at which a character begins.

        Args:
            best: the most probable class of each step
        """
        # A character begins where the best class changes.
        before = np.roll(best, 1)
        before[:1] = self.blank
        is_other = best != before
        is_character = best != self.blank
        return np.flatnonzero(is_other & is_character)


def _corner(view: View) -> Tuple[float, float]:
    """Return the point of the frame at the top left of the input."""
    point = view.to_frame(np.zeros(2))
    return float(point[0]), float(point[1])


def _columns(steps: Array, count: int, view: View) -> Tuple[float, ...]:
    """Return x of the middle of steps in the frame.

    Args:
        steps: numbers of the steps
        count: number of steps of the whole input
        view: the place of the frame in the input
    """
    pixels_per_step = view.image[0] / count
    x = (steps + 0.5) * pixels_per_step
    y = np.zeros(len(x))

    in_input = np.stack([x, y], -1)
    in_frame = view.to_frame(in_input)
    return tuple(map(float, in_frame[:, 0]))


def _is_sequence(shape: Tuple[int, ...]) -> bool:
    """Return whether an output can be [1, steps, classes]."""
    return len(shape) == 3 and shape[0] == 1 and shape[2] > 1


def _characters(labels: Tuple[str, ...], blank: int, classes: int) -> Tuple[str, ...]:
    """Return the character of each class; that of the blank is empty.

    Args:
        labels: characters of the classes except the blank
        blank: class of the blank
        classes: number of classes of the output

    Raises:
        InputError: there are more or fewer labels than classes
    """
    characters = list(labels)
    # If there is one class more than characters and the blank, it is the space.
    if len(characters) + 2 == classes:
        characters.append(SPACE)
    if len(characters) + 1 != classes:
        raise InputError(
            f"{len(labels)} characters are not for {classes} classes",
            "labels",
            "give a character for each class but the blank, and perhaps the space",
        )
    characters.insert(blank, "")
    return tuple(characters)


@dataclass(frozen=True)
class TextLine:
    """A line of text in a frame.

    Attributes:
        text: its characters; empty if there are none, or too doubtful ones
        score: mean probability of the characters; 0 if there are none
        scores: probability of each recognized character
        columns: x of each recognized character in the frame
        corner: x and y of the line's picture (top left) in the frame
    """

    text: str
    score: float
    scores: Tuple[float, ...]
    columns: Tuple[float, ...]
    corner: Tuple[float, float]

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON's types."""
        return {
            "text": self.text,
            "score": round(self.score, 4),
            "scores": [round(score, 4) for score in self.scores],
            "x": [round(x, 2) for x in self.columns],
        }

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        if not self.text:
            return ["nothing"]
        return [f"{self.score:7.1%}  {self.text}"]

    def draw(self, frame: Array) -> Array:
        """Return the frame with the text above the line's picture.

        Pictures have only Latin capitals; other letters are shown as "?".
        """
        picture = frame.copy()
        if self.text:
            # A box without extent draws only the label.
            x, y = self.corner
            box_into(picture, (x, y, x, y), PALETTE[0], self.text)
        return picture
