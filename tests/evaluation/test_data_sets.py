"""What can be wrong with a data set ends in one message that names all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.errors import InputError
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.instances import Boxes
from PIL import Image

from edgec.evaluation.average_precision import coco_module
from edgec.evaluation.boxes import BoxPrecision
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.classes import RankedClasses
from edgec.evaluation.images import PictureFidelity
from edgec.evaluation.label_files import check_there
from edgec.evaluation.masks import MaskOverlap
from edgec.evaluation.measure import Measure
from edgec.evaluation.points import PointError, between_points

NAMES = ClassNames(3, ("cat", "sea lion", "dog"))
TASK = Detection()


def photo(path: Path, width: int = 32, height: int = 24, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (width, height)).save(path)
    return path


def refused(measure: Measure, data: Path) -> InputError:
    with pytest.raises(InputError) as e:
        measure.read(data)
    assert e.value.at
    assert e.value.hint
    return e.value


# ---- classes


def test_folders_have_the_names_or_the_numbers_of_classes(tmp_path: Path) -> None:
    for name in ("cat", "Sea_Lion", "2"):
        photo(tmp_path / name / "a.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"")
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    found = RankedClasses(NAMES).read(tmp_path)
    assert [(p.file.parent.name, p.truth) for p in found] == [
        ("2", 2),
        ("Sea_Lion", 1),
        ("cat", 0),
    ]


def test_a_table_names_pictures_and_labels(tmp_path: Path) -> None:
    for name in ("a.png", "b c.jpg"):
        photo(tmp_path / "photos" / name)
    table = tmp_path / "labels.csv"
    table.write_text("file,label\na.png,dog\nb c.jpg,1\n\n", encoding="utf-8-sig")
    measure = RankedClasses(NAMES, tmp_path / "photos")
    assert [p.truth for p in measure.read(table)] == [2, 1]
    table.write_text("a.png;cat\n")
    assert [p.truth for p in measure.read(table)] == [0]


def test_all_unknown_classes_are_named_together(tmp_path: Path) -> None:
    for name in ("cats", "dog", "horse", "3"):
        photo(tmp_path / name / "a.png")
    e = refused(RankedClasses(NAMES), tmp_path)
    assert e.what == (
        'the bundle has no class "3", "cats" (did you mean "cat"?), "horse"'
    )
    assert "cat, sea lion, dog, …, or 0 to 2" in str(e.hint)


def test_missing_pictures_are_named_together(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{i}.png,cat\n" for i in range(8)))
    e = refused(RankedClasses(NAMES), table)
    assert e.what.startswith("8 pictures are not there: ")
    assert e.what.endswith("4.png and 3 more")
    assert "--pictures" in str(e.hint)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "labels.csv has no labelled picture"),
        ("file,label\n", "labels.csv has no labelled picture"),
        ("a.png\n", "labels.csv has lines without a label: line 1"),
        ("\xff".encode("latin-1"), "labels.csv is not text in UTF-8: byte 0"),
    ],
)
def test_a_table_without_labels(
    tmp_path: Path, content: str | bytes, what: str
) -> None:
    table = tmp_path / "labels.csv"
    data = content.encode() if isinstance(content, str) else content
    table.write_bytes(data)
    assert refused(RankedClasses(NAMES), table).what == what


def test_an_empty_folder(tmp_path: Path) -> None:
    e = refused(RankedClasses(NAMES), tmp_path)
    assert "has no labelled picture" in e.what
    assert "a folder of pictures for each class" in str(e.hint)


# ---- COCO


def labels_of(**changes: Any) -> dict[str, Any]:
    """A file of one picture with a dog, with changes of its keys."""
    box = {"id": 1, "image_id": 7, "category_id": 5, "bbox": [1, 2, 10, 8]}
    return {
        "images": [{"id": 7, "file_name": "a.png", "width": 32, "height": 24}],
        "categories": [{"id": 5, "name": "dog"}, {"id": 9, "name": "horse"}],
        "annotations": [box],
        **changes,
    }


def coco(folder: Path, content: Mapping[str, Any]) -> Path:
    path = folder / "labels.json"
    path.write_text(json.dumps(content))
    return path


def test_boxes_of_coco(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    path = coco(tmp_path, labels_of())
    (found,) = BoxPrecision(NAMES, TASK).read(path)
    # A category that nothing is of may be unknown.
    assert found.truth == {
        "size": [32, 24],
        "objects": [
            {
                "class": 2,
                "box": [1.0, 2.0, 10.0, 8.0],
                "area": 80.0,
                "crowd": 0,
                "mask": None,
                "points": [],
            }
        ],
    }
    # The folder alone is enough, and pictures may be in `images`.
    (tmp_path / "images").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "images" / "a.png")
    (again,) = BoxPrecision(NAMES, TASK).read(tmp_path)
    assert again.file == tmp_path / "images" / "a.png"


def with_box(**changes: Any) -> dict[str, Any]:
    return labels_of(annotations=[{**labels_of()["annotations"][0], **changes}])


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (with_box(image_id=8), "annotation 0 is of image 8"),
        (with_box(category_id=6), "annotation 0 is of category 6"),
        (with_box(category_id=9), 'the bundle has no class "horse"'),
        (with_box(bbox=[1, 2, 3]), "labels.json is damaged: "),
        (labels_of(annotations=[]), "labels.json has no labelled picture"),
        (labels_of(images=[]), "labels.json has no labelled picture"),
        (
            labels_of(images=labels_of()["images"] * 2),
            "labels.json has ids of images twice: 7",
        ),
        (
            labels_of(images=[{"id": 7, "file_name": "b.png"}]),
            "1 picture is not there: ",
        ),
        (
            labels_of(
                images=[{"id": 7, "file_name": "a.png", "width": 24, "height": 32}]
            ),
            "1 picture has another size than stated: a.png is 32 x 24, stated 24 x 32",
        ),
        (with_box(bbox=[1, 2, -3, 4]), "a box in a.png is [1.0, 2.0, -3.0, 4.0]"),
        (with_box(bbox=[1, 2, 3, 1e9]), "a box in a.png is [1.0, 2.0, 3.0, 1000000000"),
        (with_box(bbox=[-65, 2, 3, 4]), "a box in a.png is [-65.0, 2.0, 3.0, 4.0]"),
        (with_box(area=-1), "an area in a.png is -1.0"),
        (with_box(bbox=[10**400, 2, 3, 4]), "labels.json is damaged: "),
        (with_box(image_id=10**400), "annotation 0 is of image 1000"),
        (
            labels_of(images=[{"id": 7, "file_name": "a" * 5000}]),
            "1 picture is not there: ",
        ),
        (
            labels_of(categories=[{"id": 5, "name": "dog" * 2000}]),
            'the bundle has no class "dogdog',
        ),
        (
            labels_of(categories=[{"id": 5, "name": "7" * 5000}]),
            'the bundle has no class "777',
        ),
    ],
)
def test_faults_of_coco(tmp_path: Path, content: Mapping[str, Any], what: str) -> None:
    photo(tmp_path / "a.png")
    e = refused(BoxPrecision(NAMES, TASK), coco(tmp_path, content))
    assert what in e.what
    assert len(e.what) < 1500


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        ("text", "is neither polygons nor lengths of runs"),
        ([[1, 2, 3, 4]], "has polygons without three points"),
        ([[1, 2, 3, 4, 5, 6, 7]], "has polygons without three points"),
        ([["a"] * 6], "has polygons without three points"),
        ([1, 2, 3, 4, 5, 6], "has polygons without three points"),
        ({"size": [32, 24], "counts": [768]}, "is of the size [32, 24], its picture"),
        ({"counts": [768]}, "is of the size None"),
        (
            {"size": [24, 32], "counts": [700]},
            "has runs of 700 pixels, its picture 768",
        ),
        ({"size": [24, 32], "counts": [-8, 776]}, "has lengths of runs that cannot be"),
        ({"size": [24, 32], "counts": [7.5, 760.5]}, "has lengths of runs that cannot"),
        ({"size": [24, 32]}, "has lengths of runs that cannot be read"),
        ({"size": [24, 32], "counts": 768}, "has lengths of runs that cannot be read"),
        ({"size": [24, 32], "counts": "o"}, "has lengths of runs that cannot be read"),
        (
            {"size": [24, 32], "counts": "ééé"},
            "has lengths of runs that cannot be read",
        ),
        (
            {"size": [24, 32], "counts": "o" * 2**20},
            "has lengths of runs that cannot be",
        ),
        ({"size": [24, 32], "counts": [10**400]}, "has runs of a number of 401 digits"),
        (
            [[0, 0, 1e9, 0, 0, 1e9]],
            "has a corner at 1e+09, 0, its picture is 32 x 24",
        ),
        ([[0, 0, 0, 49, 1, 1]], "has a corner at 0, 49"),
        ([[0, 0, 10**400, 0, 1, 1]], "has a corner at a number of 401 digits, 0"),
        ([[0, 0, 64, 48] * 100], "has an outline of 12800 px, more than 1088"),
    ],
)
def test_masks_that_cannot_be(tmp_path: Path, mask: Any, what: str) -> None:
    """pycocotools would crash on some of them, or read beside its memory."""
    photo(tmp_path / "a.png")
    path = coco(tmp_path, with_box(segmentation=mask))
    e = refused(BoxPrecision(NAMES, replace(TASK, mask_column=-32)), path)
    assert "labels.json has objects that cannot be: a mask in a.png " in e.what
    assert what in e.what
    # A detector without masks does not look at them.
    assert BoxPrecision(NAMES, TASK).read(path)


def test_compressed_masks_are_read_as_pycocotools_writes_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    photo(tmp_path / "a.png")
    measure = BoxPrecision(NAMES, replace(TASK, mask_column=-32))
    for share in (0.0, 0.1, 0.5, 1.0):
        inside = (rng.random((24, 32)) < share).astype(np.uint8, order="F")
        runs = coco_module("mask").encode(inside)
        runs["counts"] = runs["counts"].decode()
        path = coco(tmp_path, with_box(segmentation=runs))
        (found,) = measure.read(path)
        frame = np.zeros((24, 32, 3), np.uint8)
        result = measure.truth(found, frame)
        assert isinstance(result, Boxes)
        (box,) = result.boxes
        assert box.mask is not None
        left, top, part = box.mask.inside((0, 0, 32, 24))
        assert (left, top) == (0, 0)
        assert np.array_equal(part, inside > 0)


def test_names_that_no_file_has(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    path = coco(tmp_path, labels_of())
    long = tmp_path / ("a" * 5000)
    with pytest.raises(InputError, match="is not a folder"):
        BoxPrecision(NAMES, TASK, long).read(path)
    with pytest.raises(InputError, match="there is no data set"):
        check_there(long)


def test_points_of_persons_outside(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    points = [1, 2, 2] * 16 + [1e300, 2, 2]
    path = coco(tmp_path, with_box(keypoints=points))
    e = refused(BoxPrecision(NAMES, replace(TASK, points=17)), path)
    assert "an object in a.png has a point at 1e+300, 2" in e.what


def test_masks_may_stand_out_of_their_picture(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    path = coco(tmp_path, with_box(segmentation=[[-3, -3, 40, -3, 40, 30, -3, 30]]))
    (found,) = BoxPrecision(NAMES, replace(TASK, mask_column=-32)).read(path)
    assert found.truth["objects"][0]["mask"]


def test_points_of_another_number(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    path = coco(tmp_path, with_box(keypoints=[1, 2, 2] * 5))
    e = refused(BoxPrecision(NAMES, replace(TASK, points=17)), path)
    assert "an object in a.png has 15 numbers for 17 points" in e.what
    assert BoxPrecision(NAMES, TASK).read(path)


def test_two_pictures_of_one_name(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg"):
        photo(tmp_path / "images" / name)
    photo(tmp_path / "masks" / "a.png", mode="L")
    assert "a.jpg and a.png have one name" in refused(MaskOverlap(), tmp_path).what


def test_what_is_no_file_of_coco(tmp_path: Path) -> None:
    measure = BoxPrecision(NAMES, TASK)
    assert "has 0 .json files" in refused(measure, tmp_path).what
    path = tmp_path / "labels.json"
    path.write_text("{")
    assert "labels.json is damaged" in refused(measure, path).what
    assert "cannot read" in refused(measure, tmp_path / "gone.json").what


# ---- pairs


def test_pairs_of_two_folders(tmp_path: Path) -> None:
    photo(tmp_path / "images" / "a.jpg")
    photo(tmp_path / "masks" / "a.png", mode="L")
    (found,) = MaskOverlap(("ground", "dog")).read(tmp_path)
    assert found.beside == tmp_path / "masks" / "a.png"


def test_masks_of_another_size_are_named_together(tmp_path: Path) -> None:
    for name in "ab":
        photo(tmp_path / "images" / f"{name}.png")
        photo(tmp_path / "masks" / f"{name}.png", 31, 24, "L")
    e = refused(MaskOverlap(), tmp_path)
    assert e.what == (
        "2 pictures have another size than stated: a.png is 31 x 24, its photo "
        "32 x 24, b.png is 31 x 24, its photo 32 x 24"
    )


def test_pictures_without_a_partner(tmp_path: Path) -> None:
    photo(tmp_path / "images" / "a.png")
    photo(tmp_path / "images" / "b.png")
    photo(tmp_path / "masks" / "b.png", mode="L")
    photo(tmp_path / "masks" / "c.png", mode="L")
    e = refused(MaskOverlap(), tmp_path)
    assert e.what == "2 pictures have no partner: a.png, c.png"


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    assert "has no folder masks or labels" in refused(MaskOverlap(), tmp_path).what
    assert "has no folder targets" in refused(PictureFidelity(), tmp_path).what
    table = tmp_path / "pairs.csv"
    table.write_text("a.png\n")
    assert "lines without a second picture" in refused(PictureFidelity(), table).what


def test_levels_that_are_no_class(tmp_path: Path) -> None:
    photo(tmp_path / "images" / "a.png")
    levels = np.zeros((24, 32), np.uint8)
    levels[0, :2] = (9, 255)
    mask = tmp_path / "masks" / "a.png"
    mask.parent.mkdir()
    Image.fromarray(levels).save(mask)
    measure = MaskOverlap(("ground", "dog"))
    (pair,) = measure.read(tmp_path)
    frame = np.zeros((24, 32, 3), np.uint8)
    with pytest.raises(InputError, match=r"a.png has levels that are not a class: 9\n"):
        measure.truth(pair, frame)

    Image.new("RGB", (32, 24), (10, 20, 30)).save(mask)
    with pytest.raises(InputError, match=r"a.png has colours \(RGB\)"):
        measure.truth(pair, frame)


# ---- points


def test_points_of_a_table_and_of_json(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    table = tmp_path / "points.csv"
    table.write_text("file,x0,y0,x1,y1\na.png,1,2,3.5,4\n")
    other = tmp_path / "points.json"
    other.write_text(json.dumps([{"file": "a.png", "points": [[1, 2], [3.5, 4]]}]))
    for path in (table, other):
        (found,) = PointError(2).read(path)
        assert found.truth == [[1.0, 2.0], [3.5, 4.0]]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("a.png,1,2,3", "points.csv has lines without pairs of numbers: line 1"),
        ("a.png,1,2,x,4", "points.csv has lines without pairs of numbers: line 1"),
        ("a.png,1,2,nan,4", "points.csv has lines without pairs of numbers: line 1"),
        ("a.png,1,2", "the bundle finds 2 points, but a.png has 1"),
        ("a.png,1,2,1,2", "but a.png has all of them in one place"),
        ("a.png,1,2,3,1e9", "but a.png has one at 3, 1e+09"),
        ("b.png,1,2,3,4", "1 picture is not there: "),
        ("a" * 5000 + ",1,2,3,4", "1 picture is not there: "),
    ],
)
def test_faults_of_points(tmp_path: Path, line: str, what: str) -> None:
    photo(tmp_path / "a.png")
    table = tmp_path / "points.csv"
    table.write_text(f"{line}\n")
    assert what in refused(PointError(2), table).what


@pytest.mark.parametrize(
    "text", ["eyes", "1", "1,1", "0,3", "-1,2", "0,1,2", f"1,{'7' * 5000}"]
)
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="errors cannot be relative to"):
        between_points(text, 3, ())


# ---- all


MEASURES: Sequence[Callable[[], Measure]] = (
    lambda: RankedClasses(NAMES),
    lambda: BoxPrecision(NAMES, TASK),
    lambda: MaskOverlap(),
    lambda: PointError(3),
    lambda: PictureFidelity(),
)


@pytest.mark.parametrize("make", MEASURES)
def test_a_file_of_another_kind(tmp_path: Path, make: Callable[[], Measure]) -> None:
    path = tmp_path / "labels.xml"
    path.write_text("<labels/>")
    assert path.name in refused(make(), path).what
