"""Files of data sets: tables, JSON, folders of pictures; faults are named together."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.decoding import LARGEST_JSON
from edgec_runtime.device_end.disk import given
from edgec_runtime.vision.photo import PHOTO_SUFFIXES

from edgec.errors import InputError

LONGEST_NAME = 200
"""Characters of a fault in a message: names come from files."""
MOST_NAMED = 5
"""Faults of one kind that a message names; the others are counted."""
_ORIENTATION = 0x0112
"""EXIF's tag of the orientation."""
_QUARTER_TURNS = (5, 6, 7, 8)
"""Orientations in which width and height change places (EXIF 2.3, 4.6.4)."""
_HEADS = ("file", "filename", "file_name", "image", "path", "picture", "name")
"""First cells by which a table's first row is known to be its header."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table: the line in the file, from 1 on, and the cells."""

    line: int
    cells: tuple[str, ...]


def shortened(name: str) -> str:
    """Return a name for a message: of a long one the beginning."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def listed(names: Iterable[str]) -> str:
    """Return names with commas; of many the first few, and the number of the others."""
    every = [*names]
    text = ", ".join(shortened(name) for name in every[:MOST_NAMED])
    rest = len(every) - MOST_NAMED
    return f"{text} and {rest} more" if rest > 0 else text


def photos_in(folder: Path) -> list[Path]:
    """Return the pictures of a folder, sorted by name."""
    photos = []
    for path in sorted(folder.iterdir()):
        # Hidden files are left by file managers.
        if path.name.startswith("."):
            continue
        suffix = path.suffix.lower()
        if suffix in PHOTO_SUFFIXES and path.is_file():
            photos.append(path)
    return photos


def is_there(path: Path, folder: bool = False) -> bool:
    """Return whether a file, or a folder, of a name is there, which may be no name."""
    try:
        return path.is_dir() if folder else path.is_file()
    except OSError:
        # Such as a name that is too long for the file system.
        return False


def check_there(path: Path) -> None:
    """Raise InputError for a data set that is not there."""
    if not is_there(path) and not is_there(path, folder=True):
        raise InputError(
            f"there is no data set {shortened(str(path))}",
            "--data",
            "give a folder, a .csv or a .json file (docs/eval.md)",
        )


def check_not_empty(pictures: Sequence[object], path: Path, wanted: str) -> None:
    """Raise InputError for a data set without pictures; `wanted`: what it should have."""
    if not pictures:
        raise InputError(f"{path.name} has no labelled picture", str(path), wanted)


def check_files(paths: Iterable[Path], at: Path) -> None:
    """Raise InputError that names the pictures that are not there."""
    missing = [str(path) for path in paths if not is_there(path)]
    count = len(missing)
    if not count:
        return
    are = "picture is" if count == 1 else "pictures are"
    raise InputError(
        f"{count} {are} not there: {listed(missing)}",
        str(at),
        "put them there, or give their folder by --pictures",
    )


def read_text(path: Path) -> str:
    """Return a text file. Raises InputError for one that cannot be read."""
    try:
        # Spreadsheets put a byte order mark before UTF-8.
        return given(path, LARGEST_JSON).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InputError(
            f"{path.name} is not text in UTF-8: byte {e.start}",
            str(path),
            "save it as UTF-8",
        ) from e
    except (OSError, ValueError) as e:
        raise InputError(
            f"cannot read {path.name}: {e}", str(path), "check the file"
        ) from e


def table_rows_of(path: Path) -> Iterator[TableRow]:
    """Yield the rows of a .csv file with commas, semicolons or tabs, without header."""
    text = read_text(path)
    first_line = text.partition("\n")[0]
    separator = ","
    # Spreadsheets of many countries write semicolons, where commas are in numbers.
    for other in ("\t", ";"):
        if other in first_line:
            separator = other

    file = io.StringIO(text)
    try:
        reader = csv.reader(file, delimiter=separator)
        for cells in reader:
            row = tuple(cell.strip() for cell in cells)
            if not any(row):
                continue
            # Only the first line can be the header.
            if reader.line_num == 1 and row[0].lower() in _HEADS:
                continue
            yield TableRow(reader.line_num, row)
    except csv.Error as e:
        raise InputError(
            f"{path.name} is not a table: {e}", str(path), "write file,label lines"
        ) from e


def pictures_folder(data: Path, pictures: Path | None) -> Path:
    """Return the folder that names of pictures are relative to.

    Args:
        data: the file that names them
        pictures: the folder that a person gave
    """
    if pictures is None:
        return data.parent
    if not is_there(pictures, folder=True):
        raise InputError(
            f"{shortened(str(pictures))} is not a folder",
            "--pictures",
            "give the pictures' folder",
        )
    return pictures


def photo_size(path: Path) -> tuple[int, int]:
    """Return width and height of a picture, upright, without decoding its pixels.

    Raises InputError for a file that is no picture.
    """
    # Pillow is imported here: many data sets state no sizes to compare.
    from PIL import Image

    try:
        with Image.open(path) as image:
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION, 1) in _QUARTER_TURNS
    except Exception as e:
        # Pillow raises a dozen kinds for a damaged file.
        raise InputError(
            f"{path.name} cannot be read as a picture: {e or type(e).__name__}",
            str(path),
            "remove it, or save it again",
        ) from e
    return (height, width) if turned else (width, height)


def check_sizes(faults: Sequence[str], at: Path, hint: str) -> None:
    """Raise InputError for pictures of unequal sizes; `faults` names each of them."""
    if faults:
        have = "picture has" if len(faults) == 1 else "pictures have"
        raise InputError(
            f"{len(faults)} {have} another size than stated: {listed(faults)}",
            str(at),
            hint,
        )
