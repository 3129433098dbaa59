"""What a network's task is, by whoever says so: `--task`, a file beside the model, or
the model's own metadata.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from edgec_devices.decoding import from_json, from_toml
from edgec_runtime.bundle.arrays import read_arrays
from edgec_runtime.device_end.disk import given
from edgec_runtime.vision.preprocess import NOTHING, Wish, parse
from edgec_runtime.vision.tasks import TASKS, parse_task
from edgec_runtime.vision.tasks.anchors import Anchors
from edgec_runtime.vision.tasks.base import Task
from edgec_runtime.vision.tasks.detection import Detection

from edgec.errors import InputError, did_you_mean
from edgec.frontends.task_formats import FORMATS

if TYPE_CHECKING:
    from edgec.frontends.ultralytics import Head

ENDINGS = (".edgec-task.json", ".edgec-task.toml")
"""Of a file beside the model, after its name without .onnx or .tflite."""

ANCHORS_FILE = "task/anchors.npy"
"""In the bundle."""

_MAX_BYTES = 16 << 20
_SEE = "see docs/tasks.md"


@dataclass(frozen=True)
class TaskFile:
    """What is wanted: the task, unbound; how photos become inputs; labels; files for
    the bundle, by path.

    read: the files that it came from. stated: nobody but the model's own file said so.
    head: where a network that picks its boxes itself may end; headless: the task if it
    does.
    """

    task: Task | None = None
    preprocess: Wish = NOTHING
    labels: tuple[str, ...] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    read: tuple[Path, ...] = ()
    stated: bool = False
    head: Head | None = None
    headless: Task | None = None

    def with_preprocess(self, given: str | None) -> str | None:
        """What --preprocess says, and what this says of the rest, as text."""
        wish = parse(given) if given is not None else NOTHING
        both = Wish(**{**self.preprocess.parts(), **wish.parts()})
        return str(both) or None


def task_file(
    model: Path, task: str | None = None, anchors: Path | None = None
) -> TaskFile:
    """By `task`: a name of TASKS or FORMATS, or a .json or .toml file; else by the file
    beside the model, if any.

    anchors: in place of those that it names. Raises InputError.
    """
    if task is not None and not task.endswith((".json", ".toml")):
        found = _of(_named(task), Path(), "--task", ())
    else:
        path = Path(task) if task is not None else _beside(model)
        if path is None:
            found = TaskFile()
        else:
            found = _of(_decoded(path), path.parent, path.name, (path,))
    if anchors is None:
        return found
    if not isinstance(found.task, Detection):
        raise InputError(
            "anchors are for a detection", "--anchors", "give --task detection too"
        )
    kept = replace(found.task, anchors=Anchors(file=ANCHORS_FILE))
    return replace(
        found,
        task=kept,
        files={ANCHORS_FILE: _anchors(anchors)},
        read=(*found.read, anchors),
    )


def _named(name: str) -> dict[str, Any]:
    if name in FORMATS:
        return dict(FORMATS[name])
    if name not in TASKS:
        known = [*TASKS, *FORMATS]
        what = f'there is no task "{name}"{did_you_mean(name, known)}'
        raise InputError(
            what,
            "--task",
            f"use {', '.join(known)}, or a .json or .toml file (docs/tasks.md)",
        )
    return {"task": name}


def _beside(model: Path) -> Path | None:
    found = [p for end in ENDINGS if (p := model.with_name(model.stem + end)).is_file()]
    if len(found) > 1:
        raise InputError(
            f"{model.name} has two files that say its task",
            str(found[0]),
            f"remove {found[1].name}",
        )
    return found[0] if found else None


def _decoded(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".toml":
            return from_toml(path, dict[str, Any], _SEE)
        return from_json(
            given(path, _MAX_BYTES), dict[str, Any], "the task's file", str(path), _SEE
        )
    except OSError as e:
        raise InputError(
            f"the task's file cannot be read: {e.strerror}", str(path), _SEE
        ) from e


def _of(
    value: dict[str, Any], folder: Path, at: str, read: tuple[Path, ...]
) -> TaskFile:
    """Of a decoded file; what it names lies in `folder`."""
    if "format" in value:
        rest = {**_named(_text(value, "format", at)), **value}
    else:
        rest = dict(value)
    rest.pop("format", None)
    text = rest.pop("preprocess", None)
    labels = rest.pop("labels", None)
    files = dict[str, bytes]()
    rest.pop("$schema", None)
    if text is not None and not isinstance(text, str):
        raise InputError(f"preprocess is {text!r:.80}, not a text", at, _SEE)
    own = rest.get("anchors")
    if isinstance(own, dict) and isinstance(own.get("file"), str):
        path = folder / own["file"]
        rest["anchors"], files, read = (
            {**own, "file": ANCHORS_FILE},
            {ANCHORS_FILE: _anchors(path)},
            (*read, path),
        )
    if isinstance(labels, str):
        read = (*read, folder / labels)
        labels = read_labels(folder / labels)
    elif labels is not None and not (
        isinstance(labels, list) and all(isinstance(n, str) for n in labels)
    ):
        raise InputError(
            f"labels are {labels!r:.80}, not a list of texts or a file's name", at, _SEE
        )
    try:
        task = parse_task(rest)
    except InputError as e:
        raise InputError(e.what, at, e.hint) from e
    return TaskFile(
        task,
        parse(text) if text else NOTHING,
        tuple(labels) if labels else None,
        files,
        read,
    )


def _text(value: Mapping[str, Any], key: str, at: str) -> str:
    if not isinstance(value[key], str):
        raise InputError(f"{key} is {value[key]!r:.80}, not a text", at, _SEE)
    return str(value[key])


def read_labels(path: Path) -> list[str]:
    """One a line. Raises InputError."""
    try:
        return [
            line.strip()
            for line in given(path, _MAX_BYTES).decode().splitlines()
            if line.strip()
        ]
    except (OSError, ValueError) as e:
        # of bytes that are no text, and of a name that no file can have
        said = e.strerror if isinstance(e, OSError) else e
        raise InputError(
            f"cannot read the labels: {said}",
            str(path),
            "give a text file, one label a line",
        ) from e


def _anchors(path: Path) -> bytes:
    """An .npy, .csv or .json file of [N,4] as the bundle has it. Raises InputError."""
    try:
        if path.suffix.lower() == ".npy":
            array = read_arrays(path).get("", np.zeros(0))
        elif path.suffix.lower() == ".json":
            array = np.array(json.loads(given(path, _MAX_BYTES)), np.float64)
        else:
            rows = [
                row
                for row in csv.reader(given(path, _MAX_BYTES).decode().splitlines())
                if row
            ]
            array = np.array(rows, np.float64)
        with np.errstate(over="ignore"):  # what becomes infinite is told of
            array = np.ascontiguousarray(array, np.float32)
    except (
        InputError,
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        csv.Error,
    ) as e:
        said = str(e)
        if isinstance(e, InputError):
            said = e.what
        elif isinstance(e, OSError):
            said = str(e.strerror)
        raise InputError(
            f"the anchors cannot be read: {said}",
            str(path),
            "give an .npy, .csv or .json file",
        ) from e
    if array.ndim != 2 or array.shape[1] != 4 or not np.isfinite(array).all():
        hint = (
            "a row each: x and y of the centre, width and height, each 0…1 of the input"
        )
        raise InputError(
            f"anchors are finite numbers [N,4], not {list(array.shape)}",
            str(path),
            hint,
        )
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()
