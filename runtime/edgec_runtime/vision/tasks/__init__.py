"""What a network is for: the task that a manifest states, and how its outputs become a
result (docs/tasks.md).

A task is one file: its parameters as a row, how it decodes, and a result that can be
told and drawn.
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

SCHEMA = 1
TASKS: Mapping[str, Type[Any]] = {
    row.kind: row
    for row in (Classification, Detection, Segmentation, Landmarks, Pose, ImageOutput)
}
"""By the name that `--task` has for them."""


def parse_task(value: Any, at: str = "the task") -> Task:
    """Of a decoded JSON object.  Raises InputError."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{at} is not an object: {value!r:.80}", hint="see docs/tasks.md"
        )
    rest = dict(value)
    version = rest.pop("schema", SCHEMA)
    kind = rest.pop("task", None)
    if version != SCHEMA or isinstance(version, bool):
        raise InputError(
            f"{at} has schema {version!r:.20}, this edgec reads {SCHEMA}",
            hint="install the edgec of it",
        )
    if not isinstance(kind, str) or kind not in TASKS:
        what = f"{at} is no task: {kind!r:.40}{did_you_mean(str(kind), TASKS)}"
        raise InputError(what, hint="use " + ", ".join(TASKS))
    found: Task = read(TASKS[kind], rest, at)
    return found


def task_json(task: Task) -> Dict[str, Any]:
    """As the manifest has it."""
    return {"schema": SCHEMA, "task": task.kind, **plain(task)}


def task_schema() -> Dict[str, Any]:
    """The JSON schema of a manifest's task."""
    return {"oneOf": [_schema_of(kind, row) for kind, row in TASKS.items()]}


def _schema_of(kind: str, row: Type[Any]) -> Dict[str, Any]:
    own = schema(row)
    own["properties"] = {
        "schema": {"const": SCHEMA},
        "task": {"const": kind},
        **own["properties"],
    }
    own["required"] = ["task", *own.get("required", ())]
    return own
