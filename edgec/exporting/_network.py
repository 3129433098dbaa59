"""What the exports of a camera's program and of a camera's stage say about a network: how a
frame becomes its input, and what its outputs mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgec_runtime import Bundle, Preprocess
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.classification import Classification
from edgec_runtime.vision.tasks.detection import Detection

from edgec.errors import InputError
from edgec.exporting._pictures import picture_input
from edgec.report.wording import plain

OUTPUTS = ("boxes", "scores", "classes", "count")
"""The outputs that a task may read, by the names of its parameters."""
_READABLE = ("<f4", "|i1", "|u1")
"""Element types of outputs that the C makes numbers of."""
_CORNERS = {"xywh": (0, 1, 2, 3), "xyxy": (0, 1, 2, 3)}
_TURNED = {"yxyx": (1, 0, 3, 2), "yxhw": (1, 0, 3, 2)}
_ORDERS = {**_CORNERS, **_TURNED}
"""Positions of x, y, x or width, y or height among a box's numbers."""


@dataclass(frozen=True)
class Decoding:
    """How the outputs become a result.

    Attributes:
        kind: "classes"; "picked": boxes of which the C picks the best; "given": boxes that
            the network has picked; "tensors": nobody said what the outputs mean
        reason: why it is "tensors", else empty
        activation: "auto", "none", "sigmoid" or "softmax", for classes
        threshold: the least score
        limit: the most classes or boxes
        most: the most boxes that the C picks
        numbers: of a row that the C picks
        anchors: numbers of all anchors, one after the other
        order: positions of x, y, x or width, y or height among a box's four numbers
        is_centred: whether a box is given by its centre and size
        unit: width and height that a box's numbers are multiplied by
        positions: for each of `OUTPUTS` its position among the outputs, -1 for none
    """

    kind: str
    reason: str = ""
    activation: str = "none"
    threshold: float = 0.0
    limit: int = 0
    most: int = 1
    numbers: int = 1
    anchors: Sequence[float] = ()
    order: tuple[int, int, int, int] = (0, 1, 2, 3)
    is_centred: bool = False
    unit: tuple[int, int] = (1, 1)
    positions: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(OUTPUTS, -1)
    )


@dataclass(frozen=True)
class CameraNetwork:
    """A network whose one input is a picture.

    Attributes:
        preprocess: how a frame becomes the input
        layout: shape of the input
        labels: names of the classes, without characters that a terminal obeys
        scales: of each output, 1 for float32
        zero_points: of each output
        decoding: how the outputs become a result
    """

    preprocess: Preprocess
    layout: ImageLayout
    labels: tuple[str, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    decoding: Decoding


def camera_network(bundle: Bundle) -> CameraNetwork:
    """Return the network of a bundle.

    Raises InputError unless its one input is a picture, and for a detector or classifier
    with an output that the C does not read.
    """
    manifest = bundle.manifest
    _, preprocess, layout = picture_input(bundle)
    quants = [info.quant for info in manifest.output_infos()]
    return CameraNetwork(
        preprocess,
        layout,
        tuple(plain(text) for text in manifest.labels or ()),
        tuple(1.0 if q is None else float(q.scale[0]) for q in quants),
        tuple(0 if q is None else int(q.zero_point[0]) for q in quants),
        _decoding(bundle, layout),
    )


def _decoding(bundle: Bundle, layout: ImageLayout) -> Decoding:
    task = bundle.manifest.task
    if isinstance(task, Classification):
        _check_readable(bundle, {"scores": task.output})
        return replace(
            Decoding("classes", activation=task.activation),
            threshold=task.threshold,
            limit=task.top,
            positions=_positions(bundle, {"scores": task.output}),
        )
    if isinstance(task, Detection) and task.angle_column is None:
        return _boxes(bundle, task, layout)
    reason = "nobody said what its outputs mean"
    if task is not None:
        is_turned = isinstance(task, Detection)
        reason = "its boxes are turned" if is_turned else f"it is for {task.kind}"
    return Decoding("tensors", reason)


def _boxes(bundle: Bundle, task: Detection, layout: ImageLayout) -> Decoding:
    names = {name: getattr(task, name) for name in OUTPUTS}
    _check_readable(bundle, names)
    outputs = {info.name: info for info in bundle.manifest.output_infos()}
    size = (layout.width, layout.height)
    anchors: Sequence[float] = ()
    if task.anchors is not None:
        files = {name: bundle.read(name) for name in task.files()}
        anchors = task.anchors.made(size, files).reshape(-1).tolist()
    return Decoding(
        "picked" if task.one_pass else "given",
        threshold=task.threshold,
        limit=task.limit,
        most=task.most(outputs) if task.one_pass else 1,
        numbers=task.width,
        anchors=anchors,
        order=_ORDERS[task.order],
        is_centred=task.order in ("xywh", "yxhw"),
        unit=size if task.units == "relative" else (1, 1),
        positions=_positions(bundle, names),
    )


def _positions(bundle: Bundle, names: dict[str, str | None]) -> dict[str, int]:
    """Return for each of `OUTPUTS` its position among the model's outputs."""
    outputs = [info.name for info in bundle.manifest.output_infos()]
    used = {key: names.get(key) for key in OUTPUTS}
    return {
        key: -1 if name is None else outputs.index(name) for key, name in used.items()
    }


def _check_readable(bundle: Bundle, names: dict[str, str | None]) -> None:
    """Raise InputError for an output that the C does not make numbers of."""
    outputs = {info.name: info for info in bundle.manifest.output_infos()}
    for name in names.values():
        if name is None:
            continue
        quant = outputs[name].quant
        is_by_channel = quant is not None and quant.axis is not None
        if outputs[name].dtype not in _READABLE or is_by_channel:
            raise InputError(
                f"an output is {outputs[name].dtype}, and the C reads float32, int8 "
                "and uint8 of one scale",
                at=name,
                hint="export another form of the network",
            )
