"""Figures are those of scikit-learn, of pycocotools, or of the formula written out."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime.vision.photo import Placement
from edgec_runtime.vision.tasks.base import View
from edgec_runtime.vision.tasks.classification import Class, Classes
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import accuracy_score, jaccard_score, top_k_accuracy_score

from edgec.comparing.tasks import MAX_PSNR_DB
from edgec.evaluation.average_precision import AveragePrecision
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.classes import RankedClasses
from edgec.evaluation.images import PictureFidelity, ssim
from edgec.evaluation.masks import UNJUDGED, MaskOverlap
from edgec.evaluation.measure import LabelledPicture, whole_view
from edgec.evaluation.points import PointError, between_points
from edgec.ir import Array

FRAME = np.zeros((24, 32, 3), np.uint8)


def view(width: int, height: int) -> View:
    return whole_view(np.zeros((height, width)))


# ---- classes


def test_top_1_and_top_5_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((200, 10))
    truth = rng.integers(0, 10, 200)
    # Some are right, so that the figures are no chance.
    scores[np.arange(200), truth] += 0.5 * rng.random(200)

    measure = RankedClasses(ClassNames(10))
    pictures = [LabelledPicture(Path(), int(t)) for t in truth]
    rows = []
    for row, picture in zip(scores, pictures, strict=True):
        ranked = np.argsort(-row)
        result = Classes(tuple(Class(int(i), "", float(row[i])) for i in ranked))
        rows.append(measure.observe(result, picture, FRAME))
    found = measure.score(pictures, rows).figures()
    assert found["top1"] == pytest.approx(
        100 * accuracy_score(truth, scores.argmax(axis=1))
    )
    assert found["top5"] == pytest.approx(
        100 * top_k_accuracy_score(truth, scores, k=5)
    )


def test_five_classes_have_no_top_5() -> None:
    assert [f.name for f in RankedClasses(ClassNames(5)).figures] == ["top1"]
    assert [f.name for f in RankedClasses(ClassNames(6)).figures] == ["top1", "top5"]


# ---- boxes, masks and points of COCO


def data_set(
    rng: np.random.Generator, pictures: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Labels of random objects, and results that find some of them, and some others."""
    truth: dict[str, Any] = {
        "images": [
            {"id": i, "width": 64, "height": 48} for i in range(1, pictures + 1)
        ],
        "categories": [{"id": c, "name": str(c)} for c in (1, 2, 3)],
        "annotations": [],
    }
    found = []
    for i in range(1, pictures + 1):
        for _ in range(int(rng.integers(0, 5))):
            x, y = rng.uniform(0, 30, 2)
            w, h = rng.uniform(6, 18, 2)
            points = np.c_[rng.uniform(x, x + w, 17), rng.uniform(y, y + h, 17)]
            category = int(rng.integers(1, 4))
            box = [x, y, w, h]
            row = {
                "id": len(truth["annotations"]) + 1,
                "image_id": i,
                "category_id": category,
                "iscrowd": int(rng.random() < 0.1),
                "area": w * h,
                "bbox": box,
                "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                "keypoints": np.c_[points, np.full(17, 2)].reshape(-1).tolist(),
                "num_keypoints": 17,
            }
            truth["annotations"].append(row)
            if rng.random() < 0.8:
                off = rng.normal(0, 1.5, 4)
                x, y, w, h = np.array(box) + off
                moved = points + rng.normal(0, 1, (17, 2))
                found.append(
                    {
                        "image_id": i,
                        "category_id": category if rng.random() < 0.9 else 1,
                        # Few levels: equal scores are common in int8.
                        "score": round(float(rng.random()), 1),
                        "bbox": [x, y, w, h],
                        "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                        "keypoints": np.c_[moved, np.ones(17)].reshape(-1).tolist(),
                    }
                )
    return truth, found


def results_of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    key = {"bbox": "bbox", "segm": "segmentation", "keypoints": "keypoints"}[kind]
    names = ("image_id", "category_id", "score", key)
    return [{name: row[name] for name in names} for row in found]


def of_pycocotools(
    truth: dict[str, Any], found: list[dict[str, Any]], kind: str
) -> tuple[float, float]:
    """mAP 50 and mAP, by the library's own functions alone."""
    with contextlib.redirect_stdout(io.StringIO()):
        labels = COCO()
        labels.dataset = truth
        labels.createIndex()
        run = COCOeval(labels, labels.loadRes(results_of_kind(found, kind)), kind)
        run.evaluate()
        run.accumulate()
        run.summarize()
    return 100 * float(run.stats[1]), 100 * float(run.stats[0])


def coco_with_runs(truth: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Results have masks as runs: the library reads no polygons there."""
    with contextlib.redirect_stdout(io.StringIO()):
        labels = COCO()
        labels.dataset = {**truth, "annotations": []}
        for row in found:
            size = {"id": row["image_id"], "width": 64, "height": 48}
            labels.imgs = {row["image_id"]: size}
            row["segmentation"] = labels.annToRLE(row)


@pytest.mark.parametrize("kind", ["bbox", "segm", "keypoints"])
def test_map_is_that_of_pycocotools(kind: str) -> None:
    truth, found = data_set(np.random.default_rng(1), 40)
    coco_with_runs(truth, found)
    want = of_pycocotools(truth, found, kind)
    ours = AveragePrecision(truth, results_of_kind(found, kind), kind)
    assert ours.figures() == pytest.approx(want)
    # The sums of the bootstrap, with every picture counted once.
    assert ours.figures(np.ones(40, int)) == pytest.approx(want, abs=1e-9)
    assert 5 < want[1] < want[0] < 95


@pytest.mark.parametrize("kind", ["bbox", "keypoints"])
def test_a_picture_that_counts_twice_is_there_twice(kind: str) -> None:
    """A draw of the bootstrap equals pycocotools on a data set with copies."""
    rng = np.random.default_rng(2)
    truth, found = data_set(rng, 12)
    counts = np.bincount(rng.integers(0, 12, 12), minlength=12)
    copied: dict[str, Any] = {**truth, "images": [], "annotations": []}
    copied_found = []
    for i, count in enumerate(counts.tolist(), 1):
        for _ in range(count):
            number = len(copied["images"]) + 1
            copied["images"].append({"id": number, "width": 64, "height": 48})
            for row in truth["annotations"]:
                if row["image_id"] == i:
                    own = len(copied["annotations"]) + 1
                    copied["annotations"].append({**row, "image_id": number, "id": own})
            for row in found:
                if row["image_id"] == i:
                    copied_found.append({**row, "image_id": number})
    want = of_pycocotools(copied, copied_found, kind)
    ours = AveragePrecision(truth, results_of_kind(found, kind), kind)
    assert ours.figures(counts) == pytest.approx(want, abs=1e-9)
    assert ours.figures(counts) != pytest.approx(ours.figures(), abs=0.1)


def test_nothing_found_is_0_and_nothing_to_find_is_no_number() -> None:
    truth, found = data_set(np.random.default_rng(3), 6)
    assert AveragePrecision(truth, [], "bbox").figures() == (0.0, 0.0)
    empty = {**truth, "annotations": []}
    ours = AveragePrecision(empty, results_of_kind(found, "bbox"), "bbox")
    assert np.isnan(ours.figures()).all()
    assert np.isnan(ours.figures(np.ones(6, int))).all()


# ---- masks


def mask_file(folder: Path, name: str, levels: Array) -> Path:
    path = folder / name
    Image.fromarray(levels.astype(np.uint8)).save(path)
    return path


def test_miou_is_that_of_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 4, (3, 24, 32))
    found = np.where(
        rng.random(truth.shape) < 0.7, truth, rng.integers(0, 4, truth.shape)
    )
    measure = MaskOverlap(("sky", "road", "tree", "car"))
    pictures = []
    rows = []
    for i in range(3):
        label = mask_file(tmp_path, f"{i}.png", truth[i])
        picture = LabelledPicture(Path(), None, label)
        classes = found[i].astype(np.uint16)
        mask = (classes > 0).astype(np.float32)
        result = Segments(mask, classes, view(32, 24))
        pictures.append(picture)
        rows.append(measure.observe(result, picture, FRAME))
    scored = measure.score(pictures, rows)
    want = jaccard_score(truth.reshape(-1), found.reshape(-1), average="macro")
    assert scored.figures()["miou"] == pytest.approx(100 * want)
    # One picture twice, another not at all.
    want = jaccard_score(
        truth[[0, 0, 2]].reshape(-1), found[[0, 0, 2]].reshape(-1), average="macro"
    )
    again = scored.figures(np.array([2, 0, 1]))
    assert again["miou"] == pytest.approx(100 * want)


def test_pixels_that_are_not_judged_count_for_nothing(tmp_path: Path) -> None:
    truth = np.zeros((24, 32), int)
    truth[:, 16:] = 1
    truth[:, 15:17] = UNJUDGED
    classes = np.zeros((24, 32), np.uint16)
    # Wrong on the rim alone.
    classes[:, 15:] = 1
    measure = MaskOverlap(("ground", "dog"))
    picture = LabelledPicture(Path(), None, mask_file(tmp_path, "a.png", truth))
    mask = (classes > 0).astype(np.float32)
    row = measure.observe(Segments(mask, classes, view(32, 24)), picture, FRAME)
    assert measure.score([picture], [row]).figures() == {"miou": 100.0}


def test_a_mask_of_one_class_takes_every_level_but_0(tmp_path: Path) -> None:
    truth = np.zeros((24, 32), int)
    truth[:, :16] = 255
    probability = np.zeros((24, 32), np.float32)
    probability[:, :8] = 0.9
    measure = MaskOverlap(index=0)
    picture = LabelledPicture(Path(), None, mask_file(tmp_path, "a.png", truth))
    row = measure.observe(Segments(probability, None, view(32, 24)), picture, FRAME)
    found = measure.score([picture], [row]).figures()
    assert found["iou"] == pytest.approx(50)
    # The ground: 16 columns of 24.
    assert found["miou"] == pytest.approx((50 + 100 * 16 / 24) / 2)


# ---- points


def test_errors_of_points_are_relative_to_the_eyes_or_the_box() -> None:
    truth = [[10.0, 10.0], [30.0, 10.0], [20.0, 40.0]]
    found = np.array(truth, np.float32) + np.array([3, 4], np.float32)
    result = Points(found, np.ones(3), np.ones(3, bool), 1.0, None)
    picture = LabelledPicture(Path(), truth)
    eyes = PointError(3, (0, 1)).observe(result, picture, FRAME)
    box = PointError(3).observe(result, picture, FRAME)
    assert eyes["nme"] == pytest.approx(100 * 5 / 20)
    assert box["nme"] == pytest.approx(100 * 5 / np.sqrt(20 * 30))


def test_named_eyes_are_taken_by_themselves() -> None:
    names = ("nose", "left eye", "right eye")
    assert between_points(None, 3, names) == (1, 2)
    assert between_points("box", 3, names) is None
    assert between_points("0,2", 3, names) == (0, 2)
    assert between_points(None, 3, ()) is None


# ---- pictures


def ssim_by_the_formula(a: Array, b: Array) -> float:
    """Window by window, as the paper has it."""
    luma = np.array([0.299, 0.587, 0.114])
    x = a @ luma
    y = b @ luma
    places = np.arange(11) - 5
    row = np.exp(-(places**2) / (2 * 1.5**2))
    weights = np.outer(row, row)
    weights /= weights.sum()
    values = []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            p = x[top : top + 11, left : left + 11]
            q = y[top : top + 11, left : left + 11]
            mean_p = (weights * p).sum()
            mean_q = (weights * q).sum()
            var_p = (weights * (p - mean_p) ** 2).sum()
            var_q = (weights * (q - mean_q) ** 2).sum()
            both = (weights * (p - mean_p) * (q - mean_q)).sum()
            light = (2 * mean_p * mean_q + 2.55**2) / (mean_p**2 + mean_q**2 + 2.55**2)
            rest = (2 * both + 7.65**2) / (var_p + var_q + 7.65**2)
            values.append(light * rest)
    return float(np.mean(values))


def test_ssim_is_the_formula_of_the_paper() -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 256, (20, 26, 3)).astype(np.uint8)
    noise = rng.normal(0, 30, a.shape)
    b = np.clip(a + noise, 0, 255).astype(np.uint8)
    assert ssim(a, b) == pytest.approx(ssim_by_the_formula(a, b), abs=1e-9)
    assert ssim(a, a) == pytest.approx(1)


def test_a_target_is_in_the_networks_or_the_photos_size(tmp_path: Path) -> None:
    pixels = np.full((8, 8, 3), 100, np.uint8)
    size = (16, 16)
    place = Placement((0.0, 0.0, 16.0, 16.0), (0, 0, 8, 8))
    result = Picture(pixels, View(size, (8, 8), place))
    frame = np.zeros((16, 16, 3), np.uint8)
    measure = PictureFidelity()
    for side in (8, 16):
        target = mask_file(tmp_path, f"{side}.png", np.full((side, side), 100))
        row = measure.observe(result, LabelledPicture(Path(), None, target), frame)
        assert row["psnr"] == MAX_PSNR_DB
        assert row["ssim"] == pytest.approx(1)
    wrong = mask_file(tmp_path, "w.png", np.zeros((9, 8)))
    with pytest.raises(Exception, match=r"w.png is 8 x 9, the network paints 8 x 8"):
        measure.observe(result, LabelledPicture(Path(), None, wrong), frame)
