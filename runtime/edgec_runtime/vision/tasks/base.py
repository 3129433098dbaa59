"""Defines what all tasks have: parameters, which become a function from outputs to a
result, and the view, which maps points of the input to the frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    List,
    Mapping,
    Optional,
    Protocol,
    Tuple,
)

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, did_you_mean
from ...tensors import TensorInfo
from ..photo import Placement
from ..preprocess import Fit

Array = NDArray[Any]
Size = Tuple[int, int]
"""Width and height."""

ACTIVATIONS = ("none", "sigmoid", "softmax")
"""Functions that turn a network's scores into probabilities."""

MAX_MISSING_PIXELS = 0.51
"""Pixels of an input that a frame may lack at a border and still count as whole, since
rounding takes up to half a pixel.
"""


@dataclass(frozen=True)
class View:
    """The place of a frame in an input.

    Attributes:
        frame: width and height of the frame
        image: width and height of the input
        place: the part of the frame that is used, and its place in the input
    """

    frame: Size
    image: Size
    place: Placement

    @classmethod
    def of(cls, frame: Size, image: Size, fit: Fit) -> View:
        """Return the view of a frame that fills an input by `fit`."""
        return cls(frame, image, Placement.of(frame, image, fit))

    def to_frame(self, points: Array) -> Array:
        """Return points in pixels of the input as pixels of the frame.

        Args:
            points: x and y, [..., 2]
        """
        left, top, width, height = self.place.box
        x, y, w, h = self.place.target

        # The inverse of the placement: target to box.
        scale = np.array([width / w, height / h])
        relative = points - np.array([x, y])
        return np.asarray(relative * scale + np.array([left, top]), np.float32)

    def depth_to_frame(self, depth: Array) -> Array:
        """Return depths in pixels of the input as pixels of the frame."""
        # Networks measure depth in the unit of x.
        frame_width = self.place.box[2]
        input_width = self.place.target[2]
        return np.asarray(depth * (frame_width / input_width), np.float32)

    def seen(self) -> Tuple[float, float, float, float]:
        """Return the part of the frame that the input shows: left, top, width, height.

        If only half a pixel of the input is missing, it is the whole frame.
        """
        left, top, width, height = self.place.box
        _, _, w, h = self.place.target

        # Each axis is treated alone, since a letterbox has a border along one of them.
        x, visible_width = _whole_if_nearly(left, width, w, self.frame[0])
        y, visible_height = _whole_if_nearly(top, height, h, self.frame[1])
        return x, y, visible_width, visible_height

    def within(self, width: int, height: int) -> Tuple[float, float, float, float]:
        """Return the place of the whole frame in the input, scaled to another size.

        Args:
            width: width to which the input is scaled
            height: height to which it is scaled

        Returns:
            left, top, width, height, which may be outside the scaled input
        """
        left, top, box_width, box_height = self.place.box
        x, y, w, h = self.place.target

        per_x = width / self.image[0]
        per_y = height / self.image[1]

        # These are pixels of the scaled input per pixel of the frame.
        scale_x = w / box_width * per_x
        scale_y = h / box_height * per_y

        return (
            x * per_x - left * scale_x,
            y * per_y - top * scale_y,
            self.frame[0] * scale_x,
            self.frame[1] * scale_y,
        )


def _whole_if_nearly(
    start: float, length: float, pixels: int, frame: int
) -> Tuple[float, float]:
    """Return start and length of a frame's visible part along an axis.

    It becomes the whole frame if at most MAX_MISSING_PIXELS are missing.

    Args:
        start: start of the part in the frame
        length: length of the part
        pixels: pixels of the input that the part fills
        frame: length of the frame
    """
    missing = max(abs(start), abs(start + length - frame))
    if missing <= MAX_MISSING_PIXELS * length / pixels:
        return 0.0, float(frame)
    return start, length


class Result(Protocol):
    """The result of a task for one frame, in pixels of the frame."""

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON's types, with summaries of large arrays."""
        ...

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        ...

    def draw(self, frame: Array) -> Array:
        """Return a picture of the frame with the result, uint8 [H, W, 3].

        The frame itself is not changed.
        """
        ...


Detect = Callable[[Array, Array, Array], Array]
"""Finds boxes like `find_boxes`, from the outputs of boxes and scores, and anchors."""


@dataclass(frozen=True)
class DecoderSetting:
    """The inputs of a decoder that are the same for all frames.

    Attributes:
        image: width and height of the input
        outputs: the model's outputs
        labels: names of classes
        files: the files of the bundle that the task names, by path
        detect: the bundle's C for boxes; None if it has none for this machine
    """

    image: Size
    outputs: Mapping[str, TensorInfo]
    labels: Optional[Tuple[str, ...]] = None
    files: Mapping[str, bytes] = ()  # type: ignore[assignment]
    detect: Optional[Detect] = None

    def label(self, index: int) -> str:
        """Return the name of a class."""
        if self.labels is not None and 0 <= index < len(self.labels):
            return self.labels[index]
        return f"class {index}"


Outputs = Mapping[str, Array]
"""A model's outputs as real numbers, by name."""
Decode = Callable[[Outputs, View], Result]
"""Makes a result of a frame's outputs."""


class Task(Protocol):
    """The parameters of a task as a manifest has them."""

    kind: ClassVar[str]

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Task:
        """Return the task for a model, with defaults replaced by the model's outputs.

        Args:
            outputs: the model's outputs
            image: width and height of its input

        Raises:
            InputError: the outputs do not suit the task
        """
        ...

    def files(self) -> Tuple[str, ...]:
        """Return the paths of the task's files in the bundle."""
        ...

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task.

        That takes outputs as real numbers (`reals`).
        """
        ...


def reals(array: Array, info: TensorInfo) -> Array:
    """Return an output dequantized, in float32; integers without a scale stay unchanged."""
    q = info.quant
    is_integer = array.dtype.kind in "iu"
    if q is None or not is_integer:
        if array.dtype.kind in "iub":
            return array
        return np.asarray(array, np.float32)

    shape: List[int] = []
    if q.axis is not None:
        shape = [1] * array.ndim
        shape[q.axis] = -1

    scale = np.array(q.scale, np.float32).reshape(shape)
    zero_point = np.array(q.zero_point).reshape(shape)

    # The difference of an int8 and its zero point needs more than 8 bits.
    steps = array.astype(np.int32) - zero_point
    return np.asarray(steps * scale, np.float32)


def output_name(
    name: Optional[str], outputs: Mapping[str, TensorInfo]
) -> Optional[str]:
    """Return the name of the output that "#" and a position stand for.

    Any other name is returned unchanged, also one that begins with #.
    """
    if name is None or name in outputs or name[:1] != "#":
        return name
    digits = name[1:]
    # `isdigit` alone would accept digits of other scripts.
    if not (digits.isascii() and digits.isdigit()):
        return name

    by_position = dict(enumerate(outputs))
    return by_position.get(int(digits), name)


def output_for(
    name: Optional[str],
    what: str,
    outputs: Mapping[str, TensorInfo],
    suits: Callable[[Tuple[int, ...]], bool],
) -> str:
    """Return the name of the output for a purpose.

    Args:
        name: its name, or "#" and its position; None: the only one whose shape suits
        what: the purpose, for messages
        outputs: the outputs among which it is
        suits: returns whether a shape suits the purpose

    Raises:
        InputError: there is no such output, or there are several
    """
    name = output_name(name, outputs)

    texts = [f'"{n}" {list(o.shape)}' for n, o in outputs.items()]
    hint = "its outputs are " + ", ".join(texts)
    if name is None:
        name = _only_output(what, outputs, suits, hint)
    elif name not in outputs:
        raise InputError(
            f'the model has no output "{name}"{did_you_mean(name, outputs)}',
            at=what,
            hint=hint,
        )

    if not suits(outputs[name].shape):
        shape = list(outputs[name].shape)
        raise InputError(
            f'the output "{name}" {shape} has not the shape of the {what}',
            at=what,
            hint=hint,
        )
    return name


def _only_output(
    what: str,
    outputs: Mapping[str, TensorInfo],
    suits: Callable[[Tuple[int, ...]], bool],
    hint: str,
) -> str:
    """Return the only output whose shape suits.

    Args:
        what: the purpose, for messages
        outputs: the outputs among which it is
        suits: returns whether a shape suits the purpose
        hint: a list of the outputs, for messages
    """
    candidates = [n for n, o in outputs.items() if suits(o.shape)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        problem = f"{len(candidates)} outputs could be"
    else:
        problem = "no output has the shape of"
    raise InputError(
        f"{problem} the {what}", at=what, hint=f"name one in the task's file; {hint}"
    )


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) = tanh(x / 2) / 2 + 1 / 2, which cannot overflow."""
    wide = np.asarray(x, np.float64)
    return np.asarray(0.5 * np.tanh(0.5 * wide) + 0.5, np.float32)


def softmax(x: Array) -> Array:
    """Return exp(x) / sum(exp(x)) along the last axis."""
    wide = np.asarray(x, np.float64)

    # The largest is subtracted, so that exp cannot overflow; the quotient is the same.
    e = np.exp(wide - np.max(x, axis=-1, keepdims=True))

    total = e.sum(axis=-1, keepdims=True)
    return np.asarray(e / total, np.float32)


def activated(x: Array, activation: str) -> Array:
    """Return x after an activation, one of `ACTIVATIONS`."""
    if activation == "sigmoid":
        return sigmoid(x)
    if activation == "softmax":
        return softmax(x)
    return x
