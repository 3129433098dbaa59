"""The drawn set is labelled rightly, and the detector's trainer has the right slopes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from edgec.evaluation.average_precision import coco_module
from fixtures.shapes.make import slopes_of, start, wanted
from fixtures.shapes.pictures import NAMES, SIDE, scenes, write_set


def test_labels_are_of_what_is_drawn(tmp_path: Path) -> None:
    labels = json.loads(write_set(tmp_path, 6).read_text())
    assert [c["name"] for c in labels["categories"]] == [*NAMES]
    assert len(labels["images"]) == 6
    for one in labels["annotations"]:
        size = one["segmentation"]["size"]
        runs = coco_module("mask").frPyObjects(one["segmentation"], *size)
        inside = coco_module("mask").decode(runs) > 0
        assert int(inside.sum()) == one["area"]
        # The mask fills its box, but for the smooth pixels of its edge.
        rows, columns = np.nonzero(inside)
        left, top, width, height = one["bbox"]
        assert abs(columns.min() - left) <= 3
        assert abs(columns.max() + 1 - left - width) <= 3
        assert abs(rows.min() - top) <= 3
        assert abs(rows.max() + 1 - top - height) <= 3
        # What is inside has another colour than what is around it.
        name = f"{one['image_id']:04}.png"
        pixels = np.asarray(Image.open(tmp_path / name), float)
        own = pixels[inside].mean(axis=0)
        around = pixels[max(0, int(top) - 3) : int(top), :].reshape(-1, 3)
        if len(around):
            assert np.abs(own - np.median(around, axis=0)).max() > 20


def test_a_seed_draws_the_same_pictures() -> None:
    one, other = (scenes(3, 5) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.picture, b.picture)
    assert not np.array_equal(one[0].picture, scenes(1, 6)[0].picture)


def test_the_trainers_slopes_are_those_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    (scene,) = scenes(1, 4)
    weights = [w.astype(np.float64) for w in start(rng)]
    x = scene.picture.transpose(2, 0, 1)[None] / 255
    assert x.shape == (1, 3, SIDE, SIDE)
    truth = wanted(scene)
    _, slopes = slopes_of(weights, x, truth)
    for i in (0, 7, 12):
        w = weights[i]
        place = tuple(int(rng.integers(0, n)) for n in w.shape)
        before = w[place]
        losses = []
        for step in (-1e-6, 1e-6):
            w[place] = before + step
            losses.append(slopes_of(weights, x, truth)[0])
        w[place] = before
        slope = (losses[1] - losses[0]) / 2e-6
        assert np.isclose(slope, slopes[i][place], rtol=1e-3, atol=1e-6)
