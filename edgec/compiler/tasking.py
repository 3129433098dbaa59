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
    """Return the task with the names of the outputs that it reads.

    It is None where there is no task, or the model's own file states one that does not
    suit it.

    Raises InputError where a person asked for a task that does not suit the model.
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
    """Bind a task to the size of the first image input, and to the outputs."""
    preprocess = lowered.read.preprocess
    outputs = {info.name: info for info in _outputs(lowered)}
    for info in _inputs(lowered):
        if info.name not in preprocess:
            continue
        layout = ImageLayout.of(info, preprocess[info.name].layout)
        if layout is not None:
            return task.bind(outputs, (layout.width, layout.height))
    what = f"{lowered.graph.name} has no image input for a {task.kind}"
    raise InputError(what, "--task", "leave it out")


def vision_texts(lowered: Lowered, task: Task | None) -> dict[str, str]:
    """Return the C file that runs before and after the segments, if there is one.

    task: bound to the outputs.
    """
    preprocess = lowered.read.preprocess
    text = vision_source(_inputs(lowered), preprocess, task, _outputs(lowered))
    return {VISION_FILE: text} if text else {}


def _inputs(lowered: Lowered) -> list[TensorInfo]:
    return [tensor_info(v.name, v.type) for v in lowered.graph.given()]


def _outputs(lowered: Lowered) -> list[TensorInfo]:
    return [tensor_info(v.name, v.type) for v in lowered.graph.returned()]
