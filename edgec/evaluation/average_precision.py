"""Mean average precision of COCO, by pycocotools.

For each class and each limit of the overlap (0.50, 0.55, … 0.95), what was found is
sorted by score, and the average precision is the mean over 101 recalls r of the largest
precision at a recall of r or more; mAP is the mean over classes and limits, mAP 50 that
at 0.50 (Lin et al., Microsoft COCO, 2014; https://cocodataset.org/#detection-eval).

pycocotools matches what was found with the labels, picture by picture, once. A draw of
the bootstrap counts pictures several times or not at all, so only the sums over
pictures are made anew for it, here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgec.errors import ToolError
from edgec.ir import Array

_ALL_AREAS = 0
"""The place of the range of all areas in pycocotools' list of ranges."""


def coco_module(name: str) -> Any:
    """Return a module of pycocotools. Raises ToolError where it is not installed."""
    try:
        return importlib.import_module(f"pycocotools.{name}")
    except ImportError as e:
        raise ToolError(
            f"COCO's figures need pycocotools, which is not here: {e}",
            hint='python3 -m pip install "edgec[eval]"',
        ) from e


@dataclass(frozen=True)
class _ClassMatches:
    """What was found of a class in all pictures, sorted by score.

    Attributes:
        picture: the picture of each, int [found]
        hit: whether it is an object of the class, bool [limits, found]
        miss: whether it is none, bool [limits, found]; neither for what does not count
        objects: how many objects each picture has, int [pictures]
    """

    picture: Array
    hit: Array
    miss: Array
    objects: Array

    def precision(self, counts: Array, recalls: Array) -> Array | None:
        """Return the precision at each recall, float64 [limits, recalls].

        None where the counted pictures have no object of the class.
        """
        total = int(self.objects @ counts)
        if not total:
            return None
        # What is found in a picture counts as often as the picture.
        weights = counts[self.picture]
        hits = np.cumsum(self.hit * weights, axis=1).astype(float)
        misses = np.cumsum(self.miss * weights, axis=1).astype(float)

        recall = hits / total
        precision = hits / (misses + hits + np.spacing(1))
        # The largest precision from here on: a running maximum from the end.
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]

        precisions = np.zeros((len(best), len(recalls)))
        for limit, row in enumerate(best):
            places = np.searchsorted(recall[limit], recalls, side="left")
            # A recall that is never reached has the precision 0.
            reached = places < len(row)
            precisions[limit, reached] = row[places[reached]]
        return precisions


class AveragePrecision:
    """mAP of boxes, masks or points on a set of pictures."""

    def __init__(
        self,
        truth: Mapping[str, Any],
        found: Sequence[Mapping[str, Any]],
        kind: str,
    ) -> None:
        """Match what was found with the labels.

        Args:
            truth: a data set as COCO's files have it, with ids from 1 on
            found: results as COCO's servers take them
            kind: "bbox", "segm" or "keypoints"

        Raises ToolError where pycocotools is not installed.
        """
        # It prints its progress, which belongs to no report.
        with contextlib.redirect_stdout(io.StringIO()):
            labels = coco_module("coco").COCO()
            labels.dataset = truth
            labels.createIndex()
            self._has_objects = bool(truth["annotations"])
            self._is_empty = not found
            if found:
                results = labels.loadRes([*found])
                self._run = coco_module("cocoeval").COCOeval(labels, results, kind)
                self._run.evaluate()
        self._pictures = len(truth["images"])

    def figures(self, counts: Array | None = None) -> tuple[float, float]:
        """Return mAP 50 and mAP 50-95, in percent; NaN without any object.

        counts: how often each picture counts; None: once, by pycocotools alone.
        """
        if not self._has_objects:
            return math.nan, math.nan
        # The library takes no empty list of results.
        if self._is_empty:
            return 0.0, 0.0
        if counts is None:
            return self._own_figures()

        parts = []
        for matches in self._matches:
            precision = matches.precision(counts, self._run.params.recThrs)
            if precision is not None:
                parts.append(precision.mean(axis=1))
        if not parts:
            return math.nan, math.nan
        # Every class weighs the same, however many objects it has.
        by_limit = np.mean(parts, axis=0)
        return 100 * float(by_limit[0]), 100 * float(by_limit.mean())

    def _own_figures(self) -> tuple[float, float]:
        """Return the figures as pycocotools sums them up."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.accumulate()
            self._run.summarize()
        whole, at_half = self._run.stats[:2]
        # It says -1 where there is nothing to find.
        if whole < 0:
            return math.nan, math.nan
        return 100 * float(at_half), 100 * float(whole)

    @cached_property
    def _matches(self) -> list[_ClassMatches]:
        """The matches of each class, of objects of any area."""
        params = self._run.params
        ranges = len(params.areaRng)
        matches = []
        for k in range(len(params.catIds)):
            # Its list is ordered by class, range of areas and picture.
            first = (k * ranges + _ALL_AREAS) * self._pictures
            rows = self._run.evalImgs[first : first + self._pictures]
            matches.append(_of_class(rows, params.maxDets[-1], len(params.iouThrs)))
        return matches


def _of_class(
    rows: Sequence[Mapping[str, Any] | None], most: int, limits: int
) -> _ClassMatches:
    """Return the matches of one class.

    Args:
        rows: pycocotools' result for each picture; None where it has nothing of the
            class
        most: how many of a picture count, the best first
        limits: how many limits of the overlap there are
    """
    objects = np.zeros(len(rows), np.int64)
    scores = [np.zeros(0)]
    pictures = [np.zeros(0, np.int64)]
    matched = [np.zeros((limits, 0), bool)]
    ignored = [np.zeros((limits, 0), bool)]
    for i, row in enumerate(rows):
        if row is None:
            continue
        objects[i] = np.count_nonzero(np.asarray(row["gtIgnore"]) == 0)
        own = np.asarray(row["dtScores"][:most])
        scores.append(own)
        pictures.append(np.full(len(own), i))
        matched.append(np.asarray(row["dtMatches"])[:, :most] > 0)
        ignored.append(np.asarray(row["dtIgnore"], bool)[:, :most])

    # The same sort as pycocotools': of equal scores the first stays first.
    order = np.argsort(-np.concatenate(scores), kind="mergesort")
    hit = np.concatenate(matched, axis=1)[:, order]
    counted = ~np.concatenate(ignored, axis=1)[:, order]
    picture = np.concatenate(pictures)[order]
    return _ClassMatches(picture, hit & counted, ~hit & counted, objects)
