"""The task of segmentation: the mask of a class, e.g. persons, or the class of each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...errors import InputError
from ...rows import parameter
from ...tensors import TensorInfo
from ..drawing import PALETTE, tinted
from ..resample import sample
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

EDGE_STEEPNESS = 8
"""Increase of a drawn tint per unit of probability, at the edge of a mask."""


@dataclass(frozen=True)
class Segmentation:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "segmentation"
    output: Optional[str] = parameter(
        "the output with the scores, or the classes, of pixels; default: the only one",
        None,
    )
    activation: str = parameter(
        "what makes probabilities of scores", "none", choices=ACTIVATIONS
    )
    index: Optional[int] = parameter(
        "the class whose mask is wanted; default: the only one, the second of two; "
        "of more, each pixel's best",
        None,
        low=0,
        high=4095,
    )
    threshold: float = parameter(
        "from which probability on a pixel is of it", 0.5, low=0, high=1
    )
    background: int = parameter(
        "the class that is not drawn, where there are several", 0, low=0, high=4095
    )

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Segmentation:
        """Return the task for a model, with defaults replaced by the model's outputs."""

        def is_mask(shape: Tuple[int, ...]) -> bool:
            return planes_of(shape, image) is not None

        name = output_for(self.output, "mask", outputs, is_mask)
        planes = planes_of(outputs[name].shape, image)
        assert planes is not None
        classes = planes[0]
        index = self.index
        # Integers are classes, whose number the model does not tell.
        has_scores = outputs[name].dtype[1] != "i"
        if index is None and classes <= 2 and has_scores:
            index = classes - 1

        if index is not None and 1 < classes <= index:
            raise InputError(
                f"the mask has {classes} classes, none of them {index}",
                at="index",
                hint=f"give 0 to {classes - 1}",
            )
        return replace(self, output=name, index=index)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""
        name = str(self.output)
        shape = setting.outputs[name].shape
        planes = planes_of(shape, setting.image)
        assert planes is not None

        def decode(outputs: Outputs, view: View) -> Segments:
            array = outputs[name]
            if planes[0] == 1:
                # Integers are classes already, floats are scores of a single class.
                flat = array.reshape(planes[1:])
                if flat.dtype.kind in "iu":
                    return self._class_segments(flat, view, setting)
                probability = activated(flat, self.activation)
                return self._mask_segments(probability, view, setting)

            is_channels_last = shape[-1] == planes[0]
            scores = array[0] if is_channels_last else np.moveaxis(array[0], 0, -1)
            if self.index is None:
                classes = scores.argmax(axis=-1)
                return self._class_segments(classes, view, setting)
            return self._mask_segments(self._probability(scores), view, setting)

        return decode

    def _probability(self, scores: Array) -> Array:
        """Return the probability of the class whose mask is the result, [h, w].

        Args:
            scores: the scores of all classes, [h, w, classes]
        """
        assert self.index is not None
        # Softmax needs all classes; for other activations one plane is less work.
        if self.activation == "softmax":
            return activated(scores, "softmax")[..., self.index]
        return activated(scores[..., self.index], self.activation)

    def _mask_segments(
        self, probability: Array, view: View, setting: DecoderSetting
    ) -> Segments:
        """Return the result for the mask of one class."""

        index = self.index or 0
        has_label = setting.labels is not None and index < len(setting.labels)

        label = setting.label(index) if has_label else "mask"
        mask = np.asarray(probability, np.float32)
        return Segments(mask, None, view, self.threshold, ((index, label),))

    def _class_segments(
        self, classes: Array, view: View, setting: DecoderSetting
    ) -> Segments:
        """Return the result for classes of pixels: all of them, or the mask of one."""
        if self.index is not None:
            mask = (classes == self.index).astype(np.float32)
            return self._mask_segments(mask, view, setting)

        by_pixel = classes.astype(np.uint16)
        # The mask for effects is everything but the background.
        mask = (by_pixel != self.background).astype(np.float32)

        present = [int(i) for i in np.unique(by_pixel)]

        labels = tuple((i, setting.label(i)) for i in present)
        return Segments(mask, by_pixel, view, self.threshold, labels)


def planes_of(shape: Tuple[int, ...], image: Size) -> Optional[Tuple[int, int, int]]:
    """Return number of classes, height and width of an output; None if it is not a mask.

    A mask of the input's size may also be flat.
    """
    inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    if len(inner) == 3:
        # A mask has fewer classes than rows or columns of pixels.
        classes_last = inner[2] <= inner[0]
        if classes_last:
            return inner[2], inner[0], inner[1]
        return inner[0], inner[1], inner[2]
    if len(inner) == 2 and min(inner) > 1:
        return 1, inner[0], inner[1]
    if math.prod(inner) == image[0] * image[1]:
        return 1, image[1], image[0]
    return None


@dataclass(frozen=True)
class Segments:
    """The mask of a frame, or the classes of its pixels.

    Attributes:
        probability: probability of the mask, float32 [h, w], in the output's size
        classes: class of each pixel, uint16 [h, w]; None for the mask of one class
        view: the place of the frame in the input
        threshold: the probability from which a pixel belongs to the mask
        labels: number and name of the classes that occur, or of the mask's class
    """

    probability: Array
    classes: Optional[Array]
    view: View
    threshold: float = 0.5
    labels: Tuple[Tuple[int, str], ...] = ()

    def mask(self) -> Array:
        """Return the probability in the frame's size, interpolated, float32 [H, W]."""
        height, width = self.probability.shape

        box = self.view.within(width, height)

        return sample(self.probability, box, self.view.frame)

    def within(self) -> Array:
        """Return whether each pixel of the frame belongs to the mask, bool [H, W]."""
        return self.mask() >= self.threshold

    def classes_of_frame(self) -> Array:
        """Return the nearest class for each pixel of the frame, uint16 [H, W]."""
        assert self.classes is not None
        height, width = self.classes.shape
        left, top, w, h = self.view.within(width, height)

        # Classes cannot be interpolated.
        columns = _nearest(width, left, w, self.view.frame[0])
        rows = _nearest(height, top, h, self.view.frame[1])
        return np.asarray(self.classes[rows][:, columns])

    def class_map(self) -> Array:
        """Return the class of each pixel of the frame, uint16 [H, W].

        For the mask of one class it is the class, at least 1, inside and 0 outside.
        """
        if self.classes is not None:
            return self.classes_of_frame()
        index = max(1, self.labels[0][0])
        return np.where(self.within(), np.uint16(index), np.uint16(0))

    def shares(self) -> List[Tuple[str, float]]:
        """Return the share of each label in the frame, the largest first."""
        if self.classes is None:
            label = self.labels[0][1]
            return [(label, float(self.within().mean()))]

        by_pixel = self.classes_of_frame()
        shares: List[Tuple[str, float]] = []
        for i, label in self.labels:
            share = float((by_pixel == i).mean())
            # A class may occur only in the letterbox.
            if share:
                shares.append((label, share))
        return sorted(shares, key=lambda pair: -pair[1])

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        return {
            "areas": [
                {"label": label, "share": round(share, 4)}
                for label, share in self.shares()
            ]
        }

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        return [
            f"{share:7.1%}  of the picture: {label}" for label, share in self.shares()
        ]

    def draw(self, frame: Array) -> Array:
        """Return the frame with the mask as a tint, or classes in their colours."""
        if self.classes is None:
            # The tint rises steeply at the threshold, but without jagged edges.
            mask = np.clip((self.mask() - self.threshold) * EDGE_STEEPNESS + 0.5, 0, 1)
            return tinted(frame, mask, PALETTE[2])

        picture = frame
        by_pixel = self.classes_of_frame()
        for n, (i, _) in enumerate(self.labels):
            if i == 0:
                continue
            mask = (by_pixel == i).astype(np.float32)

            picture = tinted(picture, mask, PALETTE[n % len(PALETTE)])
        return picture


def _nearest(length: int, start: float, extent: float, count: int) -> Array:
    """Return the element nearest to the middle of each of `count` pixels.

    Args:
        length: number of elements
        start: where the pixels begin, in elements
        extent: the length of all of them, in elements
        count: number of pixels
    """
    middles = start + (np.arange(count) + 0.5) * (extent / count)
    return np.asarray(np.clip(middles, 0, length - 1), np.int64)
