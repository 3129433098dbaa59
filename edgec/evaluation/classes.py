"""Top-1 and top-5 of a classifier, on a folder for each class or a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.classification import Class, Classes

from edgec.errors import InputError
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.label_files import (
    check_files,
    check_not_empty,
    listed,
    photos_in,
    pictures_folder,
    table_rows_of,
)
from edgec.evaluation.measure import (
    LabelledPicture,
    Means,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
)
from edgec.ir import Array

_WANTED = (
    "give a folder with a folder of pictures for each class, or a .csv: file,label"
)
_FEW = 5
"""The classes that top-5 looks at."""
_TOP_1 = MeasuredFigure(
    "top1", "top-1", "%", "pictures whose first class is the true one"
)
_TOP_5 = MeasuredFigure(
    "top5", "top-5", "%", "pictures whose true class is among the first five"
)


@dataclass(frozen=True)
class RankedClasses(Measure):
    """Judges the ranks of true classes; the label is the number of a class.

    Attributes:
        names: the classes of the bundle
        pictures: the folder that names of pictures are relative to, if given
    """

    names: ClassNames
    pictures: Path | None = None

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """Top-1, and top-5 where there are more than five classes."""
        return (_TOP_1, _TOP_5) if self.names.count > _FEW else (_TOP_1,)

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of a folder for each class, or of a table."""
        if data.is_dir():
            return self._of_folders(data)
        if data.suffix.lower() == ".csv":
            return self._of_table(data)
        raise InputError(f"{data.name} has no labels of classes", str(data), _WANTED)

    def _of_folders(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of the folders of classes, class by class."""
        folders = {}
        for folder in sorted(data.iterdir()):
            if folder.name.startswith(".") or not folder.is_dir():
                continue
            # An empty folder may have any name.
            photos = photos_in(folder)
            if photos:
                folders[folder.name] = photos

        numbers = self.names.indices(folders, str(data))
        pictures = []
        for name, photos in folders.items():
            number = numbers[name]
            pictures += [LabelledPicture(photo, number) for photo in photos]
        check_not_empty(pictures, data, _WANTED)
        return pictures

    def _of_table(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of a table of file,label lines."""
        rows = [*table_rows_of(data)]
        short = [f"line {row.line}" for row in rows if len(row.cells) < 2]
        if short:
            raise InputError(
                f"{data.name} has lines without a label: {listed(short)}",
                str(data),
                "write file,label lines",
            )
        folder = pictures_folder(data, self.pictures)
        files = [folder / row.cells[0] for row in rows]
        check_files(files, data)

        labels = [row.cells[1] for row in rows]
        numbers = self.names.indices(labels, str(data))
        pictures = []
        for file, row in zip(files, rows, strict=True):
            label = row.cells[1]
            number = numbers[label]
            pictures.append(LabelledPicture(file, number))
        check_not_empty(pictures, data, _WANTED)
        return pictures

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return whether the true class is first, and among the first five."""
        assert isinstance(result, Classes)
        # The reader sorts them, the most probable first.
        ranked = [c.index for c in result.classes]

        # Percents, as people read the mean of them.
        is_first = picture.truth in ranked[:1]
        is_among = picture.truth in ranked[:_FEW]
        return {"top1": 100.0 * is_first, "top5": 100.0 * is_among}

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return the means of the pictures."""
        return Means.of(self.figures, observations)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the true class, with certainty."""
        index = int(picture.truth)
        return Classes((Class(index, self.names.label(index), 1.0),))

    def loss(self, result: Result, picture: LabelledPicture, frame: Array) -> float:
        """Return 1 less the probability of the true class; 1 more where it is not first."""
        assert isinstance(result, Classes)
        for rank, c in enumerate(result.classes):
            if c.index != picture.truth:
                continue
            # A wrong answer is worse than any hesitation.
            wrong = float(rank > 0)
            return wrong + 1 - c.score
        return 2.0

    def shown(self, result: Result) -> Result:
        """Return the first five classes."""
        assert isinstance(result, Classes)
        return Classes(result.classes[:_FEW])
