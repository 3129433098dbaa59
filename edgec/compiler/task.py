"""The task of a model in a compile: bound to the outputs, and as C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import DecoderSetting, Task
from edgec_runtime.vision.tasks.classification import Classification
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.segmentation import Segmentation, planes_of

from edgec.compiler.read import ReadModel
from edgec.emit.vision import VISION_FILE, vision_source
from edgec.errors import InputError
from edgec.frontends.task_file import TaskFile
from edgec.ir import Graph
from edgec.ir.tensors import tensor_info

SHOWN_LABELS = 3
"""The labels that the first screen names."""


def bound(wanted: TaskFile, read: ReadModel, graph: Graph) -> Task | None:
    """Return the task with the names of its outputs; None without a task.

    graph: a graph of the model that was read, in whatever precision.

    Raises InputError if a person wants a task that does not suit the model.
    """
    task = wanted.headless if read.headless else wanted.task
    if task is None:
        return _labelled_row(wanted, read, graph)
    try:
        return _bound(task, read, graph, wanted)
    except InputError:
        # A task stated by the model file is no wish of the person: the model compiles
        # without it.
        if wanted.stated:
            return None
        raise


def _labelled_row(wanted: TaskFile, read: ReadModel, graph: Graph) -> Task | None:
    """Return a classification where a person gives labels for an only row of scores.

    None without labels, with other outputs, and without an image input. Raises
    InputError for labels of another number than the scores.
    """
    outputs = output_infos(graph)
    if wanted.labels is None or wanted.stated or len(outputs) != 1:
        return None
    (row,) = outputs
    classes = max(row.shape, default=0)
    if prod(row.shape) != classes or classes <= 1:
        return None
    _check_number(wanted.labels, classes)
    # A network on sounds keeps its labels, and has no task on pictures.
    if _image_size(read, graph) is None:
        return None
    return _bound(Classification(), read, graph, wanted)


def _bound(task: Task, read: ReadModel, graph: Graph, wanted: TaskFile) -> Task:
    """Bind a task to the size of the first image input, and to the outputs.

    Raises InputError if these, the labels or the files do not suit the task.
    """
    size = _image_size(read, graph)
    # Boxes are in pixels of an image, so the task needs its size.
    if size is None:
        what = f"{graph.name} has no image input for a {task.kind}"
        raise InputError(what, "--task", "leave it out")
    outputs = {info.name: info for info in output_infos(graph)}
    found = task.bind(outputs, size)
    # Labels inside a model file are its own; a person's may be another model's.
    if not wanted.stated:
        _check_labels(found, outputs, size, wanted.labels)
    # What a device would refuse is an error now, not there.
    found.decoder(DecoderSetting(size, outputs, wanted.labels, wanted.files))
    return found


def _image_size(read: ReadModel, graph: Graph) -> tuple[int, int] | None:
    """Return width and height of the first image input; None where there is none."""
    for info in _input_infos(graph):
        if info.name in read.preprocess:
            layout = ImageLayout.of(info, read.preprocess[info.name].layout)
            if layout is not None:
                return layout.width, layout.height
    return None


def _check_labels(
    task: Task,
    outputs: Mapping[str, TensorInfo],
    image: tuple[int, int],
    labels: Sequence[str] | None,
) -> None:
    """Raise InputError for labels that are more or fewer than the classes."""
    classes = _classes(task, outputs, image)
    if labels is None or classes is None:
        return
    # A detector with a background has no box of it, and may leave out its label.
    has_background = isinstance(task, Detection) and task.background
    if not has_background or len(labels) != classes - 1:
        _check_number(labels, classes)


def _check_number(labels: Sequence[str], classes: int) -> None:
    """Raise InputError unless there is a label for each class."""
    if len(labels) == classes:
        return
    hint = f"give {classes}, a line for each"
    if len(labels) == classes - 1:
        hint += "; the first class of many networks is the background"
    what = f"there are {len(labels)} labels for {classes} classes"
    raise InputError(what, "--labels", hint)


def _classes(
    task: Task, outputs: Mapping[str, TensorInfo], image: tuple[int, int]
) -> int | None:
    """Return the number of classes of a bound task; None where the outputs do not say."""
    if isinstance(task, Classification):
        return max(outputs[str(task.output)].shape)
    if isinstance(task, Detection):
        # The number of the class is an element of each row then.
        if task.class_column is not None or task.classes is not None:
            return None
        columns = task.table(outputs[str(task.scores)].shape)[1]
        return int(task.score_columns(columns))
    if isinstance(task, Segmentation) and task.index is None:
        planes = planes_of(outputs[str(task.output)].shape, image)
        return planes[0] if planes is not None and planes[0] > 1 else None
    return None


def task_notes(task: Task | None, labels: Sequence[str] | None) -> Iterator[str]:
    """Yield a line on what a bundle's outputs are taken for, if there is a task."""
    if task is None:
        return
    names = ""
    if labels is not None:
        plural = "" if len(labels) == 1 else "s"
        names = f", {len(labels)} label{plural}: {_some(labels)}"
    yield f"its outputs are taken for {task.kind}{names}"


def _some(labels: Sequence[str]) -> str:
    """Return the first labels for a line of text."""
    more = ", …" if len(labels) > SHOWN_LABELS else ""
    return ", ".join(labels[:SHOWN_LABELS]) + more


def vision_texts(read: ReadModel, graph: Graph, task: Task | None) -> dict[str, str]:
    """Return the C file that runs before and after the segments, if there is one.

    task: bound to the outputs.
    """
    preprocess = read.preprocess
    inputs = _input_infos(graph)
    outputs = output_infos(graph)
    text = vision_source(inputs, preprocess, task, outputs)
    return {VISION_FILE: text} if text else {}


def _input_infos(graph: Graph) -> list[TensorInfo]:
    """Return the inputs of a graph without state."""
    return [tensor_info(v.name, v.type) for v in graph.given()]


def output_infos(graph: Graph) -> list[TensorInfo]:
    """Return the outputs of a graph without state."""
    return [tensor_info(v.name, v.type) for v in graph.returned()]
