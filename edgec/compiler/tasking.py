"""The task of a model in a compile: bound to the outputs, and as C."""

from __future__ import annotations

from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import DecoderSetting, Task

from edgec.compiler.lower import Lowered
from edgec.emit.vision import VISION_FILE, vision_source
from edgec.errors import InputError
from edgec.frontends.task_file import TaskFile
from edgec.ir.tensors import tensor_info


def bound(wanted: TaskFile, lowered: Lowered) -> Task | None:
    """Return the task with the names of its outputs; None without a task.

    Raises InputError if a person wants a task that does not suit the model.
    """
    task = wanted.headless if lowered.read.headless else wanted.task
    if task is None:
        return None
    try:
        return _bound(task, lowered, wanted)
    except InputError:
        # A task stated by the model file is no wish of the person: the model compiles
        # without it.
        if wanted.stated:
            return None
        raise


def _bound(task: Task, lowered: Lowered, wanted: TaskFile) -> Task:
    """Bind a task to the size of the first image input, and to the outputs.

    Raises InputError if these, the labels or the files do not suit the task.
    """
    preprocess = lowered.read.preprocess
    outputs = {info.name: info for info in _outputs(lowered)}
    # Boxes are in pixels of an image, so the task needs its size.
    for info in _inputs(lowered):
        if info.name not in preprocess:
            continue
        layout = ImageLayout.of(info, preprocess[info.name].layout)
        if layout is not None:
            size = (layout.width, layout.height)
            found = task.bind(outputs, size)
            # What a device would refuse is an error now, not there.
            found.decoder(DecoderSetting(size, outputs, wanted.labels, wanted.files))
            return found
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
    """Return the inputs of the model without state."""
    return [tensor_info(v.name, v.type) for v in lowered.graph.given()]


def _outputs(lowered: Lowered) -> list[TensorInfo]:
    """Return the outputs of the model without state."""
    return [tensor_info(v.name, v.type) for v in lowered.graph.returned()]
