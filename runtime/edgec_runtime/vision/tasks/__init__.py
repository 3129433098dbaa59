"""Tasks: the meaning of a network's outputs, and how they become a result (docs/tasks.md).

A task is one module with the class of its parameters, its decoder, and its result, which
can be printed and drawn.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Type

from ...errors import InputError, did_you_mean
from ...rows import plain, read, schema
from .base import Task
from .classification import Classification
from .detection import Detection
from .image import ImageOutput
from .points import Landmarks, Pose
from .segmentation import Segmentation
from .text_detection import TextDetection
from .text_recognition import TextRecognition

SCHEMA = 1
"""The version of the parameters' format."""
_ROWS = (
    Classification,
    Detection,
    Segmentation,
    Landmarks,
    Pose,
    ImageOutput,
    TextDetection,
    TextRecognition,
)
TASKS: Mapping[str, Type[Any]] = {row.kind: row for row in _ROWS}
"""The classes of tasks by their names in `--task`."""


def parse_task(value: Any, at: str = "the task") -> Task:
    """Return the task of a decoded JSON object.

    Args:
        value: the object
        at: its name in messages

    Raises:
        InputError: the object is not a task
    """
    if not isinstance(value, Mapping):
        raise InputError(
            f"{at} is not an object: {value!r:.80}", hint="see docs/tasks.md"
        )
    rest = dict(value)
    version = rest.pop("schema", SCHEMA)
    kind = rest.pop("task", None)
    # True equals 1 in Python.
    if version != SCHEMA or isinstance(version, bool):
        raise InputError(
            f"{at} has schema {version!r:.20}, this edgec reads {SCHEMA}",
            hint="install the edgec of it",
        )
    if not isinstance(kind, str) or kind not in TASKS:
        guess = did_you_mean(str(kind), TASKS)
        what = f'{at} has no "task"' if kind is None else f"{at}: there is no task "
        what += "" if kind is None else f"{kind!r:.40}{guess}"
        raise InputError(what, hint="use " + ", ".join(TASKS))
    task: Task = read(TASKS[kind], rest, at)
    return task


def task_json(task: Task) -> Dict[str, Any]:
    """Return a task as the manifest stores it."""
    return {"schema": SCHEMA, "task": task.kind, **plain(task)}


def task_schema() -> Dict[str, Any]:
    """Return the JSON schema of a manifest's task."""
    return {"oneOf": [_schema_of(kind, row) for kind, row in TASKS.items()]}


def _schema_of(kind: str, row: Type[Any]) -> Dict[str, Any]:
    """Return the JSON schema of one task."""
    fields = schema(row)
    fields["properties"] = {
        "schema": {"const": SCHEMA},
        "task": {"const": kind},
        **fields["properties"],
    }
    fields["required"] = ["task", *fields.get("required", ())]
    return fields
