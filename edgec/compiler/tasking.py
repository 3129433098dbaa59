"""The task of a model that is being compiled: bound to its outputs, and its C."""

from __future__ import annotations

from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import Task

from edgec.compiler.lower import Lowered
from edgec.emit.vision import VISION_FILE, vision_source
from edgec.errors import InputError
from edgec.frontends.task_file import TaskFile
from edgec.ir.tensors import tensor_info


def bound(wanted: TaskFile, lowered: Lowered) -> Task | None:
    """The task with names for what was left open; none where the model's own file
    states one that does not suit it.

    Raises InputError where somebody else did.
    """
    task = wanted.headless if lowered.read.headless else wanted.task
    if task is None:
        return None
    try:
        return _bound(task, lowered)
    except InputError:
        if wanted.stated:
            return None
        raise


def _bound(task: Task, lowered: Lowered) -> Task:
    for info in _inputs(lowered):
        if info.name in lowered.read.preprocess:
            layout = ImageLayout.of(info, lowered.read.preprocess[info.name].layout)
        else:
            layout = None
        if layout is not None:
            outputs = {o.name: o for o in _outputs(lowered)}
            return task.bind(outputs, (layout.width, layout.height))
    raise InputError(
        f"{lowered.graph.name} has no image input for a {task.kind}",
        "--task",
        "leave it out",
    )


def vision_texts(lowered: Lowered, task: Task | None) -> dict[str, str]:
    """The C file before and after the segments, if there is any."""
    text = vision_source(
        _inputs(lowered), lowered.read.preprocess, task, _outputs(lowered)
    )
    return {VISION_FILE: text} if text else {}


def _inputs(lowered: Lowered) -> list[TensorInfo]:
    return [tensor_info(v.name, v.type) for v in lowered.graph.given()]


def _outputs(lowered: Lowered) -> list[TensorInfo]:
    return [tensor_info(v.name, v.type) for v in lowered.graph.returned()]
