"""The end of torchvision's single-shot detectors as torch.onnx writes it.

Source: torchvision/models/detection/ssd.py (`postprocess_detections`) and _utils.py
(`BoxCoder.decode_single`): boxes are decoded from anchors and cut off at the borders of
the image; of each class those above a score are sorted, and the best of them go into
non-maximum suppression. The number of boxes there hangs on the picture, so no graph of
fixed shapes can have these nodes. All numbers are read from them. The graph before them
is what it is: it may normalize and resize pictures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from edgec.frontends.onnx import read_onnx
from edgec.frontends.onnx_file import subgraphs
from edgec.frontends.onnx_wiring import Wiring, attribute, require
from edgec.frontends.ultralytics import Head
from edgec.ir import Array

_LARGEST_LOG = np.log(np.float32(1000 / 16))
"""The limit of a box's log size over its anchor's, which edgec's C does not have.

A box of 62 times its anchor reaches beyond the image on all sides, unless the anchor is
tiny, and is cut off there.
"""
_SIDE = 347
"""Pixels in place of an open side of the input: no detector resizes pictures to it."""


@dataclass(frozen=True)
class Ssd:
    """Such a detector.

    Attributes:
        head: where its graph can end: at boxes [1, N, 4] and scores [1, N, classes], as
            the convolutions compute them.
        keys: of the task's file, without the file of the anchors.
        anchors: the tensors with x and y of the anchors' centres, and with their widths
            and heights, each [N, 1] in pixels of the picture that the graph resizes its
            input to.
        grown: the tensors that the exponentials multiply, and `factor` too: half of the
            widths and heights, as a product or folded into a constant by a simplifier.
        size: the tensors with width and height of that picture.
    """

    head: Head
    keys: dict[str, Any]
    anchors: tuple[str, str, str, str]
    grown: tuple[str, str]
    factor: float
    size: tuple[str, str]

    def anchor_file(self, path: Path, model: ModelProto) -> bytes:
        """Return the anchors as the .npy file of a bundle: float32 [N, 4].

        A row has x and y of the centre, width and height, each 0…1 of the picture. path:
        the file of the model. Raises EdgecError if it cannot be read, ValueError if the
        anchors hang on the input.
        """
        shapes = _stand_in(model)
        names = (*self.anchors, *self.grown, *self.size)
        graph = read_onnx(path, shapes, outputs=names)
        arrays: list[Array] = []
        for v in graph.outputs:
            if v.const is None:
                raise ValueError("the anchors are computed from the picture")
            arrays.append(v.const.reshape(-1))

        *columns, width, height = arrays
        pixels = np.stack(columns[:4], 1)
        image = np.concatenate([width, height])
        if shapes and _SIDE in image:
            raise ValueError("the anchors are for an input of one size")

        halves = self.factor * np.stack(columns[4:], 1)
        require(np.allclose(2 * halves, pixels[:, 2:]))
        return _anchor_file(pixels, image)


def _stand_in(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return a shape of the only input by its name; {} if its shape is static."""
    (info,) = _inputs(model)
    sizes = _sizes(info)
    if 0 not in sizes:
        return {}
    usual = (1, 3, _SIDE, _SIDE)
    pairs = zip(sizes, usual, strict=True)
    shape = tuple(size or other for size, other in pairs)
    return {info.name: shape}


def _anchor_file(pixels: Array, image: Array) -> bytes:
    """Return anchors in pixels as the .npy file of anchors in parts of the image.

    pixels: a row for each anchor. image: width and height.
    """
    rows = pixels / np.tile(image, 2)
    # The file is the same as for --anchors.
    out = io.BytesIO()
    np.save(out, rows.astype(np.float32), allow_pickle=False)
    return out.getvalue()


def ssd_of(model: ModelProto) -> Ssd | None:
    """Return the detector that a model is; None for other models.

    Only a model with one input of one picture is one.
    """
    inputs = _inputs(model)
    if len(inputs) != 1 or len(_sizes(inputs[0])) != 4:
        return None
    outputs = [o.name for o in model.graph.output]
    try:
        return _ssd(Wiring.of(model.graph), outputs)
    # Other nodes, also where there are more or fewer inputs than are unpacked.
    except (ValueError, LookupError):
        return None


def _inputs(model: ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """Return the inputs of a model; old files list initializers among them."""
    initializers = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initializers]


def _sizes(info: onnx.ValueInfoProto) -> Sequence[int]:
    """Return the shape of an input, with 0 for open dimensions."""
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


def _ssd(wiring: Wiring, outputs: Sequence[str]) -> Ssd:
    """Return the detector with these outputs: boxes, scores and classes."""
    require(len(outputs) == 3)
    (scores,) = [o for o in outputs if _are_scores(wiring, o)]
    best, picked = wiring.inputs(scores, "Gather")
    rows, limit = wiring.first_rows(picked)
    every, overlap = _suppression(wiring, rows, best)
    selection = _selection(wiring, every, best)
    clipped, size = _clipped(wiring, selection.boxes)
    x, y = _decoded(wiring, clipped)
    logits = _logits(wiring, selection.probabilities)

    # The keys of docs/tasks.md.
    keys: dict[str, Any] = {
        "task": "detection",
        "boxes": x.numbers,
        "scores": logits,
        "scales": [
            x.centre_scale,
            y.centre_scale,
            x.size_scale,
            y.size_scale,
        ],
        "several": True,
        "background": True,
        "activation": "softmax",
        "threshold": _short(selection.threshold),
        "clipped": True,
        "candidates": int(selection.candidates),
        "iou": _short(overlap),
        "limit": limit,
    }
    head = Head(x.numbers, (x.numbers, logits), transposed=False)
    anchors = (x.centre, y.centre, x.extent, y.extent)
    grown = (x.grown, y.grown)
    return Ssd(head, keys, anchors, grown, x.factor, size)


def _are_scores(wiring: Wiring, name: str) -> bool:
    """Return whether an output is picked from the best scores of the classes."""
    # In torchvision: torch.cat(image_scores)[keep].
    if wiring.kind(name) != "Gather":
        return False
    every, _ = wiring.inputs(name, "Gather")
    if wiring.kind(every) != "Concat":
        return False

    # Each class has its own part, sorted.
    parts = wiring.inputs(every, "Concat")
    return all(wiring.kind(part) == "TopK" for part in parts)


def _suppression(wiring: Wiring, selected: str, best: str) -> tuple[str, float]:
    """Return the boxes of all candidates, and the overlap at which one is dropped.

    selected: places of those that are left, best: the scores of all.
    """
    # The branch for no boxes at all has nothing to suppress.
    if wiring.kind(selected) == "If":
        node = wiring.node(selected, "If")
        branch = subgraphs(node)["else_branch"]
        selected = branch.output[0].name

    # A row is a batch, a class and a box, each of one batch and class.
    places = wiring.source(selected)
    table, column = wiring.column(places)
    require(column == 2)

    # A fifth input would be a least score.
    boxes, scores, _, overlap = wiring.inputs(table, "NonMaxSuppression")
    require(wiring.source(scores) == best)

    # One suppression serves all classes: boxes of each are moved by a multiple of the
    # largest coordinate, and so lie far from those of the others.
    every, offsets = wiring.source_inputs(boxes, "Add")
    offsets = wiring.source(offsets)
    if wiring.kind(offsets) == "Slice":
        offsets, *_ = wiring.inputs(offsets, "Slice")
    require(wiring.kind(offsets) == "Mul")
    return every, wiring.number(overlap)


@dataclass(frozen=True)
class _ClassSelection:
    """The candidates of a class, selected in the same way for all classes.

    Attributes:
        probabilities: of all boxes and classes.
        boxes: all boxes, as corners.
        threshold: a candidate's probability is above it.
        candidates: the largest number of them.
    """

    probabilities: str
    boxes: str
    threshold: float
    candidates: float


def _selection(wiring: Wiring, every: str, best: str) -> _ClassSelection:
    """Return how the candidates of all classes but the background are selected.

    every: their boxes, best: their scores.
    """
    boxes = wiring.inputs(every, "Concat")
    scores = wiring.inputs(best, "Concat")
    pairs = zip(boxes, scores, strict=True)
    selections: set[_ClassSelection] = set()
    for label, (own, score) in enumerate(pairs, start=1):
        selection = _class_selection(wiring, own, score, label)
        selections.add(selection)
    (selection,) = selections
    return selection


def _class_selection(
    wiring: Wiring, own: str, score: str, label: int
) -> _ClassSelection:
    """Return how the candidates of a class are selected.

    own: their boxes, score: their scores, best first. label: the number of the class,
    with the background as 0.
    """
    # In torchvision: score = scores[:, label]; score = score[score > score_thresh].
    sort = wiring.node(score, "TopK")
    sure_scores, count = sort.input
    column, places = wiring.inputs(sure_scores, "GatherND")
    table, number = wiring.column(column)
    compared, threshold = _greater(wiring, places)
    require(compared == column)
    # The columns of the classes follow each other.
    require(number == label)

    # The boxes are those of the same places, in the same order.
    sure_boxes, order = wiring.inputs(own, "Gather")
    require(order == sort.output[1])
    boxes, places = wiring.inputs(sure_boxes, "GatherND")
    compared, other_threshold = _greater(wiring, places)
    require(compared == column)
    require(other_threshold == threshold)

    # There may be fewer than the limit.
    both, *_ = wiring.source_inputs(count, "ReduceMin")
    limit, _ = wiring.inputs(both, "Concat")
    candidates = wiring.number(limit)

    return _ClassSelection(table, boxes, threshold, candidates)


def _greater(wiring: Wiring, places: str) -> tuple[str, float]:
    """Return the tensor whose elements above a number are at these places."""
    (rows,) = wiring.inputs(places, "Transpose")
    (greater,) = wiring.inputs(rows, "NonZero")
    return wiring.with_number(greater, "Greater")


def _logits(wiring: Wiring, probabilities: str) -> str:
    """Return the scores whose softmax over the classes probabilities are."""
    # They are [1, N, classes], as the scores are.
    source = wiring.source(probabilities)
    softmax = wiring.node(source, "Softmax")
    axis = attribute(softmax, "axis", -1)
    require(axis in (-1, 2))

    (logits,) = softmax.input
    return str(logits)


def _clipped(wiring: Wiring, boxes: str) -> tuple[str, tuple[str, str]]:
    """Return the boxes before they are cut off, and width and height of the image."""
    across, down = wiring.source_inputs(boxes, "Concat")
    table, right = _clipped_axis(wiring, across, 0)
    other_table, bottom = _clipped_axis(wiring, down, 1)
    require(table == other_table)
    return table, (right, bottom)


def _clipped_axis(wiring: Wiring, part: str, axis: int) -> tuple[str, str]:
    """Return the boxes of which these are x or y, and where they are cut off."""
    # In torchvision: torch.min(torch.max(x, 0), width).
    positive, end = wiring.source_inputs(part, "Min")
    numbers, zero = wiring.with_number(positive, "Max")
    require(zero == 0)
    table, first = wiring.columns(numbers, 2)
    require(first == axis)
    return table, end


@dataclass(frozen=True)
class _BoxAxis:
    """How x or y of boxes, and their extent along it, are decoded.

    Attributes:
        numbers: the convolutions' four numbers of each box.
        centre, extent: of the anchors.
        grown, factor: what the exponential of a number multiplies to half an extent.
        centre_scale, size_scale: the divisors of the numbers.
    """

    numbers: str
    centre: str
    extent: str
    grown: str
    factor: float
    centre_scale: float
    size_scale: float


def _decoded(wiring: Wiring, boxes: str) -> tuple[_BoxAxis, _BoxAxis]:
    """Return how x and y of these corners are decoded.

    Both must come from the same numbers.
    """
    x1, y1, x2, y2 = wiring.source_inputs(boxes, "Concat")
    x = _decoded_axis(wiring, x1, x2, 0)
    y = _decoded_axis(wiring, y1, y2, 1)

    # Other numbers would be of another head.
    require(x.numbers == y.numbers)
    require(x.factor == y.factor)
    return x, y


def _decoded_axis(wiring: Wiring, low: str, high: str, axis: int) -> _BoxAxis:
    """Return how both ends of boxes along an axis are decoded."""
    # The ends are middle - half and middle + half.
    middle, half = wiring.source_inputs(low, "Sub")
    other_middle, other_half = wiring.source_inputs(high, "Add")
    require(middle == other_middle)
    require(half == other_half)

    # In torchvision: half = 0.5 * (exp(dw) * width), middle = dx * width + centre.
    shift, centre = wiring.inputs(middle, "Add")
    offset, extent = wiring.inputs(shift, "Mul")
    exponential, grown, factor = _half(wiring, half)

    numbers, centre_scale = _scaled(wiring, offset, axis)
    log = _without_limit(wiring, exponential)
    other_numbers, size_scale = _scaled(wiring, log, axis + 2)
    require(numbers == other_numbers)

    return _BoxAxis(
        numbers,
        centre,
        extent,
        grown,
        factor,
        centre_scale,
        size_scale,
    )


def _half(wiring: Wiring, half: str) -> tuple[str, str, float]:
    """Return the exponential in half a size, what it multiplies, and a further factor.

    The factor is 1 where a simplifier has folded it into the second.
    """
    one, two = wiring.inputs(half, "Mul")
    if wiring.kind(one) == "Exp":
        return one, two, 1.0

    size, factor = wiring.with_number(half, "Mul")
    exponential, grown = wiring.inputs(size, "Mul")
    return exponential, grown, factor


def _without_limit(wiring: Wiring, exponential: str) -> str:
    """Return the logarithms of these exponentials before their limit.

    In torchvision: torch.clamp(dw, max=log(1000 / 16)).
    """
    (clipped,) = wiring.inputs(exponential, "Exp")
    log, least, most = wiring.inputs(clipped, "Clip")
    require(least == "")
    largest = wiring.number(most)
    require(bool(np.isclose(largest, _LARGEST_LOG)))
    return log


def _scaled(wiring: Wiring, divided: str, column: int) -> tuple[str, float]:
    """Return the convolutions' numbers of which this column is divided, and by what."""
    # In torchvision: rel_codes[:, column::4] / weight.
    part, scale = wiring.with_number(divided, "Div")
    table, first = wiring.columns(part, 4)
    require(first == column)
    return wiring.source(table), scale


def _short(number: float) -> float:
    """Return the shortest number that is the same in float32."""
    return float(str(np.float32(number)))
