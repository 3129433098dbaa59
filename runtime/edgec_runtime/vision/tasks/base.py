"""What all tasks share: a row of parameters becomes a function from a network's outputs
to a result.
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


@dataclass(frozen=True)
class View:
    """Where a frame of the size `frame` lies in an input of the size `image`."""

    frame: Size
    image: Size
    place: Placement

    @classmethod
    def of(cls, frame: Size, image: Size, fit: Fit) -> View:
        """For a frame that is fitted so."""
        return cls(frame, image, Placement.of(frame, image, fit))

    def to_frame(self, points: Array) -> Array:
        """[..., 2], x and y in pixels of the input, as pixels of the frame."""
        left, top, width, height = self.place.box
        x, y, w, h = self.place.target
        scale = np.array([width / w, height / h])
        return np.asarray(
            (points - np.array([x, y])) * scale + np.array([left, top]), np.float32
        )

    def seen(self) -> Tuple[float, float, float, float]:
        """The part of the frame that is in the input: left, top, width, height; all,
        where half a pixel is missing.
        """
        left, top, width, height = self.place.box
        x, y = (
            (0.0, float(of))
            if max(abs(start), abs(start + n - of)) <= 0.51 * n / pixels
            else (start, n)
            for start, n, pixels, of in zip(
                (left, top), (width, height), self.place.target[2:], self.frame
            )
        )
        return x[0], y[0], x[1], y[1]

    def within(self, width: int, height: int) -> Tuple[float, float, float, float]:
        """The whole frame (left, top, width, height) in an image that shows the input
        at another size.
        """
        left, top, wide, high = self.place.box
        x, y, w, h = self.place.target
        per_x = width / self.image[0]
        per_y = height / self.image[1]
        scale_x = w / wide * per_x
        scale_y = h / high * per_y
        return (
            x * per_x - left * scale_x,
            y * per_y - top * scale_y,
            self.frame[0] * scale_x,
            self.frame[1] * scale_y,
        )


class Result(Protocol):
    """What was found in one frame, in its pixels."""

    def to_json(self) -> Dict[str, Any]:
        """Plain types; large arrays only as figures."""
        ...

    def lines(self) -> List[str]:
        """A table for a terminal."""
        ...

    def draw(self, frame: Array) -> Array:
        """A picture of the frame, uint8 [H,W,3], with the result in it; the frame stays
        as it is.
        """
        ...


Detect = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class DecoderSetting:
    """What is the same for every frame.

    image: the size of the input.  outputs: the model's.  files: those of the bundle
    that the task names, by path. detect: the bundle's C for boxes (see detection.py),
    None where there is none for this machine.
    """

    image: Size
    outputs: Mapping[str, TensorInfo]
    labels: Optional[Tuple[str, ...]] = None
    files: Mapping[str, bytes] = ()  # type: ignore[assignment]
    detect: Optional[Detect] = None

    def label(self, index: int) -> str:
        """The name of a class."""
        named = self.labels is not None and 0 <= index < len(self.labels)
        if named and self.labels is not None:
            return self.labels[index]
        return f"class {index}"


Outputs = Mapping[str, Array]
Decode = Callable[[Outputs, View], Result]


class Task(Protocol):
    """The parameters of a task, all that a manifest says of it."""

    kind: ClassVar[str]

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Task:
        """The same with names for what was left open.

        Raises InputError where the model's outputs do not suit.
        """
        ...

    def files(self) -> Tuple[str, ...]:
        """Paths in the bundle."""
        ...

    def decoder(self, setting: DecoderSetting) -> Decode:
        """The function for a bound task.  It gets real numbers (`reals`)."""
        ...


def reals(array: Array, info: TensorInfo) -> Array:
    """float32, dequantized; integers without a scale stay as they are."""
    q = info.quant
    if q is None or array.dtype.kind not in "iu":
        return array if array.dtype.kind in "iub" else np.asarray(array, np.float32)
    if q.axis is not None:
        shape = [-1 if i == q.axis else 1 for i in range(array.ndim)]
    else:
        shape = []
    scale = np.array(q.scale, np.float32).reshape(shape)
    return np.asarray(
        (array.astype(np.int32) - np.array(q.zero_point).reshape(shape)) * scale,
        np.float32,
    )


def named(name: Optional[str], outputs: Mapping[str, TensorInfo]) -> Optional[str]:
    """The name of an output that is given by its position."""
    if (
        name is not None
        and name not in outputs
        and name[:1] == "#"
        and name[1:].isascii()
        and name[1:].isdigit()
    ):
        return dict(enumerate(outputs)).get(int(name[1:]), name)
    return name


def output_for(
    name: Optional[str],
    what: str,
    outputs: Mapping[str, TensorInfo],
    suits: Callable[[Tuple[int, ...]], bool],
) -> str:
    """The output of this name, or "#0" for the first; else the only one whose shape
    suits.  Raises InputError.
    """
    name = named(name, outputs)
    there = "its outputs are " + ", ".join(
        f'"{n}" {list(o.shape)}' for n, o in outputs.items()
    )
    if name is not None and name not in outputs:
        raise InputError(
            f'the model has no output "{name}"{did_you_mean(name, outputs)}',
            at=what,
            hint=there,
        )
    if name is None:
        fitting = [n for n, o in outputs.items() if suits(o.shape)]
    else:
        fitting = [name]
    if len(fitting) != 1:
        if fitting:
            found = f"{len(fitting)} outputs could be"
        else:
            found = "no output has the shape of"
        raise InputError(
            f"{found} the {what}", at=what, hint=f"name one in the task's file; {there}"
        )
    if not suits(outputs[fitting[0]].shape):
        shape = list(outputs[fitting[0]].shape)
        raise InputError(
            f'the output "{fitting[0]}" {shape} has not the shape of the {what}',
            at=what,
            hint=there,
        )
    return fitting[0]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.asarray(0.5 * np.tanh(0.5 * np.asarray(x, np.float64)) + 0.5, np.float32)


def softmax(x: Array) -> Array:
    """Along the last axis."""
    e = np.exp(np.asarray(x, np.float64) - np.max(x, axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)


def activated(x: Array, activation: str) -> Array:
    """x after one of ACTIVATIONS."""
    if activation == "sigmoid":
        return sigmoid(x)
    return softmax(x) if activation == "softmax" else x
