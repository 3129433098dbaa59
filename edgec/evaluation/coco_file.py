"""Reads COCO's annotations: boxes, masks of instances, points of persons.

The form is that of https://cocodataset.org/#format-data; further keys are ignored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgec_devices.decoding import LARGEST_JSON, from_json
from edgec_runtime.device_end.disk import given

from edgec.errors import InputError
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.coco_masks import far_corner, mask_fault
from edgec.evaluation.label_files import (
    check_files,
    check_not_empty,
    check_sizes,
    is_there,
    listed,
    photo_size,
    pictures_folder,
)
from edgec.evaluation.measure import LabelledPicture

_WANTED = "give COCO's .json with images, annotations and categories"
_HINT = "write it as COCO does: https://cocodataset.org/#format-data"
_START = 64
"""Bytes that show how a file begins."""
_BESIDE = "images"
"""The folder beside the file in which pictures often are."""


@dataclass(frozen=True)
class CocoImage:
    """A picture of the file; sizes of 0 are not stated."""

    id: int | str
    file_name: str
    width: int = 0
    height: int = 0


@dataclass(frozen=True)
class CocoCategory:
    """A class of the file."""

    id: int
    name: str


@dataclass(frozen=True)
class CocoObject:
    """An object in a picture.

    Attributes:
        image_id: the picture
        category_id: the class
        bbox: left, top, width and height, px
        area: of its mask, px; by default of its box
        iscrowd: whether it is a group, of which any part may be found
        segmentation: polygons, or lengths of runs
        keypoints: x, y and visibility of each point
    """

    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: int = 0
    segmentation: Any = None
    keypoints: tuple[float, ...] = ()


@dataclass(frozen=True)
class CocoFile:
    """The content of a file of annotations."""

    images: tuple[CocoImage, ...]
    annotations: tuple[CocoObject, ...]
    categories: tuple[CocoCategory, ...] = field(default=())


@dataclass(frozen=True)
class CocoReader:
    """Reads a file of annotations for a bundle.

    Attributes:
        names: the classes of the bundle
        pictures: the folder of the pictures, if given
        masks: whether masks of objects count
        points: how many points of an object count
    """

    names: ClassNames
    pictures: Path | None = None
    masks: bool = False
    points: int = 0

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures with their objects; see `_truth` for them.

        Raises InputError for a damaged file, ids that are not there, classes that the
        bundle does not know, pictures that are missing or of another size.
        """
        path = _annotation_file(data)
        try:
            content = given(path, LARGEST_JSON)
        except OSError as e:
            raise InputError(
                f"cannot read {path.name}: {e.strerror}", str(path), "check the file"
            ) from e
        file = from_json(content, CocoFile, path.name, str(path), _HINT)
        check_not_empty(file.images, path, _WANTED)
        check_not_empty(file.annotations, path, _WANTED)
        _check_ids(file, path)
        classes = self._classes(file, path)
        return self._labelled(file, classes, path)

    def _classes(self, file: CocoFile, path: Path) -> dict[int, int]:
        """Return the class of the bundle of each category that has objects, by its id."""
        if not self.names.labels:
            # Without labels the order says which is which: detectors of one class.
            ordered = sorted(c.id for c in file.categories)
            return {number: i for i, number in enumerate(ordered)}

        # A category that nothing is of may be unknown to the bundle.
        used = {one.category_id for one in file.annotations}
        names = {c.id: c.name for c in file.categories if c.id in used}
        indices = self.names.indices(names.values(), str(path))
        return {number: indices[name] for number, name in names.items()}

    def _labelled(
        self, file: CocoFile, classes: Mapping[int, int], path: Path
    ) -> list[LabelledPicture]:
        """Return the pictures; their files are compared with the stated sizes."""
        folder = pictures_folder(path, self.pictures)
        files = [_picture_file(folder, image.file_name) for image in file.images]
        check_files(files, path)

        objects: dict[str, list[dict[str, Any]]] = {}
        for one in file.annotations:
            rows = objects.setdefault(str(one.image_id), [])
            rows.append(self._truth(one, classes))

        pictures = []
        faults: list[str] = []
        damages: list[str] = []
        for image, picture in zip(file.images, files, strict=True):
            size = photo_size(picture)
            labels = objects.get(str(image.id), [])
            faults += _size_faults(image, size)
            damages += _object_faults(image.file_name, size, labels, self.points)

            # pycocotools needs the size to decode polygons.
            truth = {"size": [*size], "objects": labels}
            pictures.append(LabelledPicture(picture, truth))
        check_sizes(faults, path, "label the pictures in the size that they have")
        if damages:
            raise InputError(
                f"{path.name} has objects that cannot be: {listed(damages)}",
                str(path),
                _HINT,
            )
        return pictures

    def _truth(
        self, annotation: CocoObject, classes: Mapping[int, int]
    ) -> dict[str, Any]:
        """Return the label of an object: class, box, area, crowd, mask and points."""
        area = (
            annotation.bbox[2] * annotation.bbox[3]
            if annotation.area is None
            else annotation.area
        )
        return {
            "class": classes[annotation.category_id],
            "box": [*annotation.bbox],
            "area": area,
            "crowd": int(bool(annotation.iscrowd)),
            "mask": (annotation.segmentation or None) if self.masks else None,
            "points": [*annotation.keypoints] if self.points else [],
        }


def is_coco(data: Path) -> bool:
    """Return whether a data set is a .json file with an object, as COCO's are."""
    if data.suffix.lower() != ".json" or not data.is_file():
        return False
    with data.open("rb") as file:
        start = file.read(_START)
    # A list is of points.
    return start.lstrip().startswith(b"{")


def _annotation_file(data: Path) -> Path:
    """Return the file of annotations: itself, or the only .json of a folder."""
    message = "no labels of boxes"
    files = [data]
    if data.is_dir():
        files = sorted(data.glob("*.json"))
        message = f"{len(files)} .json files"
    # Of several files nobody knows which one is meant.
    if len(files) == 1 and files[0].suffix.lower() == ".json":
        return files[0]
    raise InputError(f"{data.name} has {message}", str(data), _WANTED)


def _picture_file(folder: Path, name: str) -> Path:
    """Return the file of a picture, in a folder or in `images` of it."""
    path = folder / name
    beside = folder / _BESIDE / name
    return beside if is_there(beside) and not is_there(path) else path


def _check_ids(file: CocoFile, path: Path) -> None:
    """Raise InputError for ids that are twice, or that annotations have alone."""
    images = [str(image.id) for image in file.images]
    categories = [str(category.id) for category in file.categories]
    for name, ids in (("images", images), ("categories", categories)):
        twice = [text for text, count in Counter(ids).items() if count > 1]
        if twice:
            raise InputError(
                f"{path.name} has ids of {name} twice: {listed(twice)}",
                str(path),
                "number them",
            )

    known_images = {*images}
    known_categories = {*categories}
    # An annotation without its picture or class was cut off, or is of another file.
    faults = []
    for i, one in enumerate(file.annotations):
        if str(one.image_id) not in known_images:
            faults.append(f"annotation {i} is of image {one.image_id}")
        if str(one.category_id) not in known_categories:
            faults.append(f"annotation {i} is of category {one.category_id}")
    if faults:
        raise InputError(
            f"{path.name} has annotations of ids that are not there: {listed(faults)}",
            str(path),
            "correct the ids",
        )


def _size_faults(image: CocoImage, size: tuple[int, int]) -> Iterator[str]:
    """Yield the fault of a picture whose stated size is not the size of its file."""
    width, height = size
    # A size that is not stated cannot be wrong.
    stated = (image.width or width, image.height or height)
    if stated != size:
        yield (
            f"{image.file_name} is {width} x {height}, stated {stated[0]} x {stated[1]}"
        )


def _object_faults(
    name: str,
    size: tuple[int, int],
    objects: Sequence[Mapping[str, Any]],
    points: int,
) -> Iterator[str]:
    """Yield the objects of a picture with a box, a mask or points that cannot be.

    Args:
        name: the picture
        size: its width and height, px
        objects: their labels
        points: how many points an object has, where it has some
    """
    for one in objects:
        x, y, width, height = one["box"]
        is_box = width >= 0 and height >= 0
        if not is_box or far_corner((x, y, x + width, y + height), size):
            yield f"a box in {name} is {one['box']}"
        if not 0 <= one["area"] < math.inf:
            yield f"an area in {name} is {one['area']}"
        if one["mask"] is not None:
            fault = mask_fault(one["mask"], size)
            if fault:
                yield f"a mask in {name} {fault}"
        # An object without points may be one of which nobody labelled them.
        count = len(one["points"])
        if count not in (0, 3 * points):
            yield f"an object in {name} has {count} numbers for {points} points"
        places = [n for i, n in enumerate(one["points"]) if i % 3 < 2]
        corner = far_corner(places, size) if len(places) % 2 == 0 else ""
        if corner:
            yield f"an object in {name} has a point at {corner}"
