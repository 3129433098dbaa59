"""Segmentation: a mask of one class, such as persons, or the class of each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...errors import InputError
from ...rows import said
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


@dataclass(frozen=True)
class Segmentation:
    """The parameters of the task."""

    kind: ClassVar[str] = "segmentation"
    output: Optional[str] = said(
        "the output with the scores, or the classes, of pixels; default: the only one",
        None,
    )
    activation: str = said(
        "what makes probabilities of scores", "none", choices=ACTIVATIONS
    )
    index: Optional[int] = said(
        "the class whose mask is wanted; default: the only one, the second of two; "
        "of more, each pixel's best",
        None,
        low=0,
        high=4095,
    )
    threshold: float = said(
        "from which probability on a pixel is of it", 0.5, low=0, high=1
    )
    background: int = said(
        "the class that is not drawn, where there are several", 0, low=0, high=4095
    )

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Segmentation:
        """See Task."""
        name = output_for(
            self.output,
            "mask",
            outputs,
            lambda shape: _planes(shape, image) is not None,
        )
        planes = _planes(outputs[name].shape, image)
        assert planes is not None
        index = self.index
        if index is None and planes[0] <= 2 and outputs[name].dtype[1] != "i":
            index = planes[0] - 1
        if index is not None and planes[0] > 1 and index >= planes[0]:
            raise InputError(
                f"the mask has {planes[0]} classes, none of them {index}", at="index"
            )
        return replace(self, output=name, index=index)

    def files(self) -> Tuple[str, ...]:
        """None."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """See Task."""
        name = str(self.output)
        shape = setting.outputs[name].shape
        planes = _planes(shape, setting.image)
        assert planes is not None

        def decode(outputs: Outputs, view: View) -> Segments:
            array = outputs[name]
            if planes[0] == 1:
                flat = array.reshape(planes[1:])
                if flat.dtype.kind in "iu":
                    return self._of_classes(flat, view, setting)
                return self._of_one(activated(flat, self.activation), view, setting)
            if shape[-1] == planes[0]:
                scores = array[0]
            else:
                scores = np.moveaxis(array[0], 0, -1)
            if self.index is None:
                return self._of_classes(scores.argmax(axis=-1), view, setting)
            if self.activation == "softmax":
                return self._of_one(
                    activated(scores, "softmax")[..., self.index], view, setting
                )
            return self._of_one(
                activated(scores[..., self.index], self.activation), view, setting
            )

        return decode

    def _of_one(
        self, probability: Array, view: View, setting: DecoderSetting
    ) -> Segments:
        index = self.index or 0
        named = setting.labels is not None and index < len(setting.labels)
        label = (index, setting.label(index) if named else "mask")
        return Segments(
            np.asarray(probability, np.float32), None, view, self.threshold, (label,)
        )

    def _of_classes(
        self, classes: Array, view: View, setting: DecoderSetting
    ) -> Segments:
        if self.index is not None:
            return self._of_one(
                (classes == self.index).astype(np.float32), view, setting
            )
        own = classes.astype(np.uint16)
        labels = tuple((int(i), setting.label(int(i))) for i in np.unique(own))
        return Segments(
            (own != self.background).astype(np.float32),
            own,
            view,
            self.threshold,
            labels,
        )


def _planes(shape: Tuple[int, ...], image: Size) -> Optional[Tuple[int, int, int]]:
    """Classes, height and width of an output, None if it is no mask: also a flat one of
    the input's size.
    """
    inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    if len(inner) == 3:
        classes_last = inner[2] <= inner[0]
        if classes_last:
            return (inner[2], inner[0], inner[1])
        return (inner[0], inner[1], inner[2])
    if len(inner) == 2 and min(inner) > 1:
        return 1, inner[0], inner[1]
    return (1, image[1], image[0]) if math.prod(inner) == image[0] * image[1] else None


@dataclass(frozen=True)
class Segments:
    """probability: float32 [h,w] of the input, at the network's size.  classes: uint16
    [h,w], where there are several. labels: of the classes that are there, or of the one
    whose mask it is.
    """

    probability: Array
    classes: Optional[Array]
    view: View
    threshold: float = 0.5
    labels: Tuple[Tuple[int, str], ...] = ()

    def mask(self) -> Array:
        """The probability at the frame's size, float32 [H,W], between those of the
        network's pixels.
        """
        height, width = self.probability.shape
        return sample(
            self.probability, self.view.within(width, height), self.view.frame
        )

    def within(self) -> Array:
        """Which of the frame's pixels are of the mask, bool [H,W]."""
        return self.mask() >= self.threshold

    def classes_of_frame(self) -> Array:
        """The class of each of the frame's pixels, uint16 [H,W], that of the nearest of
        the network's.
        """
        assert self.classes is not None
        height, width = self.classes.shape
        left, top, w, h = self.view.within(width, height)
        x = np.clip(
            left + (np.arange(self.view.frame[0]) + 0.5) * (w / self.view.frame[0]),
            0,
            width - 1,
        )
        y = np.clip(
            top + (np.arange(self.view.frame[1]) + 0.5) * (h / self.view.frame[1]),
            0,
            height - 1,
        )
        return np.asarray(self.classes[y.astype(np.int64)][:, x.astype(np.int64)])

    def shares(self) -> List[Tuple[str, float]]:
        """Of what the network saw of the frame, by class, the largest first."""
        if self.classes is None:
            return [(self.labels[0][1], float(self.within().mean()))]
        seen = self.classes_of_frame()
        found = [(label, float((seen == i).mean())) for i, label in self.labels]
        return sorted((f for f in found if f[1]), key=lambda f: -f[1])

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        return {
            "areas": [
                {"label": label, "share": round(share, 4)}
                for label, share in self.shares()
            ]
        }

    def lines(self) -> List[str]:
        """See Result."""
        return [
            f"{share:7.1%}  of the picture: {label}" for label, share in self.shares()
        ]

    def draw(self, frame: Array) -> Array:
        """The mask as a tint, or classes in their colours."""
        if self.classes is None:
            # steep, but without steps
            mask = np.clip((self.mask() - self.threshold) * 8 + 0.5, 0, 1)
            return tinted(frame, mask, PALETTE[2])
        picture = frame
        seen = self.classes_of_frame()
        for n, (i, _) in enumerate(self.labels):
            if i != 0:
                picture = tinted(
                    picture, (seen == i).astype(np.float32), PALETTE[n % len(PALETTE)]
                )
        return picture
