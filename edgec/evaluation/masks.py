"""Intersection over union of masks, on pairs of photo and mask.

For each class IoU = pixels of both / pixels of either, summed over all pictures; mIoU
is the mean over the classes that a label or a result has (Everingham et al., The PASCAL
Visual Object Classes Challenge: A Retrospective, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.errors import InputError
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.label_files import check_sizes, listed, photo_size
from edgec.evaluation.measure import (
    LabelledPicture,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
    whole_view,
)
from edgec.evaluation.pairs import MASKS, PairReader
from edgec.ir import Array

UNJUDGED = 255
"""The level of pixels that belong to no class, as on the rims of PASCAL VOC's objects."""
MASK = 1
"""The class of pixels inside a mask of one class; the others are of class 0."""


@dataclass(frozen=True)
class MaskOverlap(Measure):
    """Judges classes of pixels; the label is a picture whose levels are classes.

    Attributes:
        labels: names of classes
        index: the only class whose mask the network finds, of which every level but 0
            is; None: it finds the class of each pixel
        pictures: the folder that names of pictures are relative to, if given
    """

    labels: tuple[str, ...] = ()
    index: int | None = None
    pictures: Path | None = None

    @property
    def one(self) -> bool:
        """Whether the network finds one mask."""
        return self.index is not None

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """mIoU; of a single class its own IoU first."""
        mean = MeasuredFigure(
            "miou", "mIoU", "%", "the mean over classes of pixels of both / of either"
        )
        if not self.one:
            return (mean,)
        own = MeasuredFigure("iou", "IoU", "%", "pixels of both masks / of either")
        return own, mean

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return photos and masks. Raises InputError for masks of another size."""
        pairs = PairReader(MASKS, self.pictures).read(data)
        faults = []
        for pair in pairs:
            assert pair.beside is not None
            photo = photo_size(pair.file)
            mask = photo_size(pair.beside)
            if photo == mask:
                continue
            name = pair.beside.name
            faults.append(
                f"{name} is {mask[0]} x {mask[1]}, its photo {photo[0]} x {photo[1]}"
            )
        check_sizes(faults, data, "give each mask the size of its photo")
        return pairs

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return for each class the pixels of both, of the result, and of the label."""
        assert isinstance(result, Segments)
        truth = self._classes(picture)
        if self.one:
            predicted = result.within()
        else:
            # Pixels that nobody labelled are right whatever they are.
            judged = truth != UNJUDGED
            predicted = result.classes_of_frame()[judged]
            truth = truth[judged]

        counts = {}
        for index in np.union1d(predicted, truth).tolist():
            in_result = predicted == index
            in_label = truth == index
            both = in_result & in_label
            areas = (both, in_result, in_label)
            pixels = [int(area.sum()) for area in areas]
            counts[str(int(index))] = pixels
        return {"pixels": counts}

    def _classes(self, picture: LabelledPicture) -> Array:
        """Return the classes of a label, int64 [H, W].

        Raises InputError for levels that are no class of the network.
        """
        assert picture.beside is not None
        levels = _levels(picture.beside)
        if self.one:
            return (levels > 0).astype(np.int64)
        present = np.unique(levels[levels != UNJUDGED])
        unknown = [str(i) for i in present.tolist() if self._is_unknown(i)]
        if unknown:
            raise InputError(
                f"{picture.beside.name} has levels that are not a class: {listed(unknown)}",
                str(picture.beside),
                f"use 0 to {len(self.labels) - 1}, and {UNJUDGED} for what is not judged",
            )
        return levels

    def _is_unknown(self, index: int) -> bool:
        """Return whether a level is no class; without labels every one may be."""
        return bool(self.labels) and index >= len(self.labels)

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return the pixels of all pictures."""
        return MaskScores.of(observations, self.one)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the label as classes of pixels."""
        classes = self._classes(picture)
        # What nobody labelled is drawn as background.
        classes = np.where(classes == UNJUDGED, 0, classes).astype(np.uint16)
        view = whole_view(classes)
        mask = (classes > 0).astype(np.float32)
        names = ClassNames(0, self.labels)
        if self.index is not None:
            # The class of the mask, which need not be its level.
            named = self.index < len(self.labels)
            name = names.label(self.index) if named else "mask"
            return Segments(mask, None, view, labels=((self.index, name),))

        labels = []
        for index in np.unique(classes).tolist():
            label = (index, names.label(index))
            labels.append(label)
        return Segments(mask, classes, view, labels=tuple(labels))

    def loss(self, result: Result, picture: LabelledPicture, frame: Array) -> float:
        """Return 1 less the mIoU of the picture."""
        observation = self.observe(result, picture, frame)
        figures = MaskScores.of([observation], self.one).figures()
        return 1 - figures["miou"] / 100


@dataclass(frozen=True)
class MaskScores:
    """The pixels of masks.

    Attributes:
        classes: the classes that labels or results have
        pixels: of both, of the result, of the label; int64 [pictures, classes, 3]
        one: whether IoU of class `MASK` is a figure of its own
    """

    classes: tuple[int, ...]
    pixels: Array
    one: bool

    @classmethod
    def of(cls, observations: Sequence[Observation], one: bool) -> MaskScores:
        """Return the pixels of observations."""
        rows: list[Mapping[str, Sequence[int]]] = [o["pixels"] for o in observations]
        names = {name for row in rows for name in row}
        classes = sorted(map(int, names))
        shape = (len(rows), len(classes), 3)

        # A picture has few of the classes: the others keep 0 pixels.
        pixels = np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            for name, numbers in row.items():
                place = classes.index(int(name))
                pixels[i, place] = numbers
        return cls(tuple(classes), pixels, one)

    def figures(self, counts: Array | None = None) -> dict[str, float]:
        """Return the figures, see `Scored.figures`."""
        weights = np.ones(len(self.pixels), np.int64) if counts is None else counts
        both, found, labelled = np.tensordot(weights, self.pixels, 1).T
        either = found + labelled - both
        present = either > 0

        # A class that no counted picture has is no part of the mean.
        overlaps = np.full(len(self.classes), math.nan)
        np.divide(both, either, out=overlaps, where=present)
        mean = float(np.nanmean(overlaps)) if present.any() else math.nan
        figures = {"miou": 100 * mean}
        if self.one:
            own = dict(zip(self.classes, overlaps.tolist(), strict=True))
            figures["iou"] = 100 * own.get(MASK, math.nan)
        return figures


def _levels(path: Path) -> Array:
    """Return the levels of a mask, int64 [H, W]; of a palette its numbers.

    Raises InputError for a picture of several channels, whose colours are no classes.
    """
    # Pillow is imported here, as everywhere that pictures are decoded.
    from PIL import Image

    try:
        with Image.open(path) as image:
            mode = image.mode
            array = np.asarray(image, np.int64)
    except Exception as e:
        raise InputError(
            f"{path.name} cannot be read as a mask: {e or type(e).__name__}",
            str(path),
            "remove it, or save it again",
        ) from e

    # A grey mask that was saved in colour has three equal channels.
    if array.ndim == 3 and np.all(array[..., :3] == array[..., :1]):
        array = array[..., 0]
    if array.ndim != 2:
        raise InputError(
            f"{path.name} has colours ({mode}) where numbers of classes should be",
            str(path),
            "save masks as grey PNG, or with a palette",
        )
    return array
