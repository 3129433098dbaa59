"""Pairs of pictures: a photo, and the mask or the picture that belongs to it.

A folder holds two folders of pictures with equal names, whatever their endings; a table
has lines of photo,other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgec.errors import InputError
from edgec.evaluation.label_files import (
    check_files,
    check_not_empty,
    listed,
    photos_in,
    pictures_folder,
    table_rows_of,
)
from edgec.evaluation.measure import LabelledPicture

PHOTOS = ("images", "photos", "inputs", "JPEGImages")
"""Names of the folder with the photos."""
MASKS = ("masks", "labels", "annotations", "SegmentationClass")
"""Names of the folder with the masks."""
TARGETS = ("targets", "wanted", "labels", "outputs")
"""Names of the folder with the pictures that a network should paint."""


@dataclass(frozen=True)
class PairReader:
    """Reads pairs.

    Attributes:
        others: names that the folder of the other pictures may have
        pictures: the folder that names of pictures are relative to, if given
    """

    others: tuple[str, ...]
    pictures: Path | None = None

    @property
    def wanted(self) -> str:
        """What a data set should have, for messages."""
        return (
            f"give a folder with {PHOTOS[0]}/ and {self.others[0]}/, or a .csv: "
            "photo,other"
        )

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the photos, each with its other picture.

        Raises InputError for photos without the other, and others without a photo.
        """
        if data.is_dir():
            pairs = self._of_folders(data)
        elif data.suffix.lower() == ".csv":
            pairs = self._of_table(data)
        else:
            raise InputError(
                f"{data.name} has no pairs of pictures", str(data), self.wanted
            )
        check_not_empty(pairs, data, self.wanted)
        return pairs

    def _of_folders(self, data: Path) -> list[LabelledPicture]:
        """Return the pairs of two folders, by the names without endings."""
        photos = _by_stem(self._folder(data, PHOTOS))
        others = _by_stem(self._folder(data, self.others))
        # A name in one folder alone is a slip of whoever copied the files.
        alone = [photos[name].name for name in photos if name not in others]
        alone += [others[name].name for name in others if name not in photos]
        if alone:
            count = len(alone)
            raise InputError(
                f"{count} pictures have no partner: {listed(alone)}",
                str(data),
                "give the two pictures of a pair one name",
            )

        pairs = []
        for name, file in photos.items():
            pair = LabelledPicture(file, None, others[name])
            pairs.append(pair)
        return pairs

    def _folder(self, data: Path, names: Iterable[str]) -> Path:
        """Return the folder of one of these names."""
        for name in names:
            folder = data / name
            if folder.is_dir():
                return folder
        known = " or ".join(names)
        raise InputError(
            f"{data.name} has no folder {known}",
            str(data),
            self.wanted,
        )

    def _of_table(self, data: Path) -> list[LabelledPicture]:
        """Return the pairs of a table."""
        folder = pictures_folder(data, self.pictures)
        rows = [*table_rows_of(data)]
        short = [f"line {row.line}" for row in rows if len(row.cells) < 2]
        if short:
            raise InputError(
                f"{data.name} has lines without a second picture: {listed(short)}",
                str(data),
                "write photo,other lines",
            )

        pairs = []
        files = []
        for row in rows:
            photo = folder / row.cells[0]
            other = folder / row.cells[1]
            files += [photo, other]
            pairs.append(LabelledPicture(photo, None, other))
        check_files(files, data)
        return pairs


def _by_stem(folder: Path) -> Mapping[str, Path]:
    """Return the pictures of a folder by their names without endings.

    Raises InputError for two of one name.
    """
    by_stem: dict[str, Path] = {}
    for path in photos_in(folder):
        other = by_stem.setdefault(path.stem, path)
        if other is not path:
            raise InputError(
                f"{other.name} and {path.name} have one name",
                str(folder),
                "remove one of them",
            )
    return by_stem
