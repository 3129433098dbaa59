"""The task of a network.

Its source is `--task`, a file beside the model, or the model's own metadata.
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
from edgec.ir import Array

if TYPE_CHECKING:
    from edgec.frontends.ultralytics import Head

ENDINGS = (".edgec-task.json", ".edgec-task.toml")
"""Endings of a file beside the model, after its name without .onnx or .tflite."""

ANCHORS_FILE = "task/anchors.npy"
"""The path of the anchors in the bundle."""

MAX_FILE_BYTES = 16 << 20
"""The largest size of a task's file, of labels, and of anchors."""
_SEE = "see docs/tasks.md"


@dataclass(frozen=True)
class TaskFile:
    """The task of a network, before it is bound to outputs.

    Attributes:
        task: the task; None without one.
        preprocess: how photos become inputs.
        labels: the names of the classes.
        input_shapes: the shapes of dynamic inputs, by name.
        files: files for the bundle, by path.
        read: the files that were read.
        stated: whether the model's own file is the only source.
        head: where a network that picks its boxes itself may end.
        headless: the task if it ends there.
    """

    task: Task | None = None
    preprocess: Wish = NOTHING
    labels: tuple[str, ...] | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    read: tuple[Path, ...] = ()
    stated: bool = False
    head: Head | None = None
    headless: Task | None = None

    def with_preprocess(self, given: str | None) -> str | None:
        """Return --preprocess completed by the task's preprocessing, as text."""
        wish = parse(given) if given is not None else NOTHING
        parts = self.preprocess.parts()
        parts = {**parts, **wish.parts()}
        return str(Wish(**parts)) or None


def task_file(
    model: Path, task: str | None = None, anchors: Path | None = None
) -> TaskFile:
    """Return the task of a model.

    task: a name of TASKS or FORMATS, or a .json or .toml file; without it, the file
    beside the model counts, if any. anchors: a file in place of the task's anchors.
    Raises InputError.
    """
    result = _without_anchors(model, task)
    if anchors is None:
        return result
    if not isinstance(result.task, Detection):
        message = "anchors are for a detection"
        raise InputError(message, "--anchors", "give --task detection too")
    # The bundle has the anchors under a path of its own.
    detection = replace(result.task, anchors=Anchors(file=ANCHORS_FILE))
    files = {ANCHORS_FILE: _anchors(anchors)}
    read = (*result.read, anchors)
    return replace(result, task=detection, files=files, read=read)


def _without_anchors(model: Path, task: str | None) -> TaskFile:
    """Return the task of a model, without the option --anchors."""
    if task is not None and not task.endswith((".json", ".toml")):
        return _of(_named(task), Path(), "--task", ())
    # The option overrules a file beside the model.
    path = Path(task) if task is not None else _beside(model)
    if path is None:
        return TaskFile()
    return _of(_decoded(path), path.parent, path.name, (path,))


def _named(name: str) -> dict[str, Any]:
    """Return the keys of a task or format. Raises InputError for an unknown one."""
    if name in FORMATS:
        return dict(FORMATS[name])
    if name not in TASKS:
        names = [*TASKS, *FORMATS]
        message = f'there is no task "{name}"{did_you_mean(name, names)}'
        hint = f"use {', '.join(names)}, or a .json or .toml file (docs/tasks.md)"
        raise InputError(message, "--task", hint)
    return {"task": name}


def _beside(model: Path) -> Path | None:
    """Return the task's file beside a model, None without one.

    Raises InputError for two of them.
    """
    candidates = [model.with_name(model.stem + ending) for ending in ENDINGS]
    paths = [path for path in candidates if path.is_file()]
    if len(paths) > 1:
        message = f"{model.name} has two files that say its task"
        raise InputError(message, str(paths[0]), f"remove {paths[1].name}")
    return paths[0] if paths else None


def _decoded(path: Path) -> dict[str, Any]:
    """Return the keys of a task's file. Raises InputError."""
    try:
        if path.suffix == ".toml":
            return from_toml(path, dict[str, Any], _SEE)
        data = given(path, MAX_FILE_BYTES)
        return from_json(data, dict[str, Any], "the task's file", str(path), _SEE)
    except OSError as e:
        message = f"the task's file cannot be read: {e.strerror}"
        raise InputError(message, str(path), _SEE) from e


def _of(
    value: dict[str, Any], folder: Path, at: str, read: tuple[Path, ...]
) -> TaskFile:
    """Return the task with these keys. Raises InputError.

    folder: the folder of the files that it names. at: its place, for messages. read:
    the files that were read.
    """
    keys = dict(value)
    if "format" in value:
        # Keys of the file overrule those of its format.
        keys = {**_named(_text(value, "format", at)), **value}
    keys.pop("format", None)
    keys.pop("$schema", None)
    shapes = _shapes(keys.pop("input_shapes", {}), at)
    preprocess = keys.pop("preprocess", None)
    labels = keys.pop("labels", None)
    if preprocess is not None and not isinstance(preprocess, str):
        raise InputError(f"preprocess is {preprocess!r:.80}, not a text", at, _SEE)

    files: dict[str, bytes] = {}
    # Anchors may be numbers in the file itself, or a file beside it.
    anchors = keys.get("anchors")
    if isinstance(anchors, dict) and isinstance(anchors.get("file"), str):
        path = folder / anchors["file"]
        keys["anchors"] = {**anchors, "file": ANCHORS_FILE}
        files[ANCHORS_FILE] = _anchors(path)
        read = (*read, path)

    if isinstance(labels, str):
        path = folder / labels
        read = (*read, path)
        labels = read_labels(path)
    elif labels is not None and not _are_texts(labels):
        message = f"labels are {labels!r:.80}, not a list of texts or a file's name"
        raise InputError(message, at, _SEE)
    try:
        task = parse_task(keys)
    except InputError as e:
        # The place is this file's.
        raise InputError(e.what, at, e.hint) from e
    return TaskFile(
        task=task,
        preprocess=parse(preprocess) if preprocess else NOTHING,
        labels=tuple(labels) if labels else None,
        input_shapes=shapes,
        files=files,
        read=read,
    )


def _shapes(value: Any, at: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs, by name. Raises InputError."""
    wrong = f"input_shapes are {value!r:.80}, not a list of positive sizes by name"
    if not isinstance(value, dict):
        raise InputError(wrong, at, _SEE)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, sizes in value.items():
        # A bool is an int for Python.
        if not isinstance(sizes, list) or not sizes:
            raise InputError(wrong, at, _SEE)
        if any(type(size) is not int or size < 1 for size in sizes):
            raise InputError(wrong, at, _SEE)
        shapes[name] = tuple(sizes)
    return shapes


def _are_texts(labels: Any) -> bool:
    return isinstance(labels, list) and all(isinstance(n, str) for n in labels)


def _text(value: Mapping[str, Any], key: str, at: str) -> str:
    """Return a key's text. Raises InputError for another kind of value."""
    text = value[key]
    if not isinstance(text, str):
        raise InputError(f"{key} is {text!r:.80}, not a text", at, _SEE)
    return text


def read_labels(path: Path) -> list[str]:
    """Return the labels in a text file, one a line.

    Empty lines do not count. Raises InputError.
    """
    try:
        text = given(path, MAX_FILE_BYTES).decode()
    # ValueError: for bytes that are no text, and for a name that no file can have.
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        message = f"cannot read the labels: {reason}"
        hint = "give a text file, one label a line"
        raise InputError(message, str(path), hint) from e
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line]


_ANCHOR_ERRORS = (
    InputError,
    OSError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    csv.Error,
)
"""Errors of the decoders of anchors on a file that is not valid."""


def _anchors(path: Path) -> bytes:
    """Return a file of anchors [N, 4] as the .npy file of a bundle.

    It is an .npy, .csv or .json file. Raises InputError.
    """
    try:
        array = _anchor_array(path)
    except _ANCHOR_ERRORS as e:
        reason = str(e)
        if isinstance(e, InputError):
            reason = e.what
        elif isinstance(e, OSError):
            reason = str(e.strerror)
        message = f"the anchors cannot be read: {reason}"
        hint = "give an .npy, .csv or .json file"
        raise InputError(message, str(path), hint) from e

    if array.ndim != 2 or array.shape[1] != 4 or not np.isfinite(array).all():
        message = f"anchors are finite numbers [N,4], not {list(array.shape)}"
        hint = (
            "a row each: x and y of the centre, width and height, each 0…1 of the input"
        )
        raise InputError(message, str(path), hint)
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _anchor_array(path: Path) -> Array:
    """Return the anchors of a file as float32."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        array = read_arrays(path).get("", np.zeros(0))
    elif suffix == ".json":
        array = np.array(json.loads(given(path, MAX_FILE_BYTES)), np.float64)
    else:
        lines = given(path, MAX_FILE_BYTES).decode().splitlines()
        rows = [row for row in csv.reader(lines) if row]
        array = np.array(rows, np.float64)
    # Numbers that become infinite are reported by the caller.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, np.float32)
