"""The task that a model file states: TFLite's metadata with its labels, what
Ultralytics' exporter writes, and an ONNX file's output that is an image.

Only where it leaves no doubt. What cannot be read is no task: such a file compiles all
the same.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_runtime.vision.tasks import parse_task

from edgec.frontends import MAX_MODEL_BYTES
from edgec.frontends.stated import pixels, properties
from edgec.frontends.task_file import TaskFile
from edgec.frontends.task_formats import FORMATS
from edgec.frontends.tflite_metadata import read_outputs

if TYPE_CHECKING:
    from onnx import ModelProto

_MAX_LABELS = 1 << 20
"""Bytes of a file of labels."""


def stated_task(path: Path) -> TaskFile:
    """What the file at `path` says of its outputs. Raises nothing."""
    # which its reader refuses
    if not path.is_file() or path.stat().st_size > MAX_MODEL_BYTES:
        return TaskFile()
    try:
        found = {".tflite": _of_tflite, ".onnx": _of_onnx}.get(
            path.suffix.lower(), _nothing
        )(path)
    except Exception:
        # a damaged file can fail anywhere; whether it is a model is for its reader to
        # say
        return TaskFile()
    return found


def _nothing(path: Path) -> TaskFile:
    return TaskFile()


def _of_tflite(path: Path) -> TaskFile:
    """One output with features is a classification; four, the first with boxes, are
    TFLite_Detection_PostProcess.
    """
    outputs = read_outputs(path.read_bytes())
    named = next((o.labels for o in outputs if o.labels is not None), None)
    labels = _packed(path, named) if named is not None else None
    if len(outputs) == 4 and outputs[0].boxes:
        return _stated("tflite-ssd", labels)
    if len(outputs) == 1 and outputs[0].features and labels:
        return _stated("classification", labels)
    return TaskFile()


def _packed(path: Path, name: str) -> tuple[str, ...] | None:
    """The lines of a file that is packed behind the model, as a zip."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive, archive.open(name) as file:
        data = file.read(_MAX_LABELS + 1)
    lines = tuple(line.strip() for line in data.decode().splitlines() if line.strip())
    return lines if len(data) <= _MAX_LABELS and lines else None


def _of_onnx(path: Path) -> TaskFile:
    """By Ultralytics' exporter, or with an output whose type denotation is IMAGE."""
    import onnx

    from edgec.frontends.ultralytics import exported, head_of

    model = onnx.load(str(path), format="protobuf", load_external_data=False)
    found = exported(model)
    if found is None:
        return _of_images(model)
    task = _of_keys(found.task(), found.labels)
    head = head_of(model, found)
    if head is None:
        return task
    return replace(task, head=head, headless=parse_task(found.task_of_candidates(head)))


def _of_images(model: ModelProto) -> TaskFile:
    """Windows ML's samples and others: one image, in the range and the order of colours
    that the properties say.
    """
    images = [o.name for o in model.graph.output if o.type.denotation == "IMAGE"]
    said = pixels(properties(model))
    if len(images) != 1 or said is None:
        return TaskFile()
    keys = {
        "task": "image",
        "output": images[0],
        "range": said[0],
        "color": "bgr" if said[1] == "bgr" else "rgb",
    }
    return TaskFile(parse_task(keys), stated=True)


def _stated(name: str, labels: tuple[str, ...] | None) -> TaskFile:
    """Without preprocessing, of which stated.py reads what the file says."""
    rest = {
        k: v
        for k, v in FORMATS.get(name, {"task": name}).items()
        if k not in ("preprocess", "labels")
    }
    return _of_keys(rest, labels)


def _of_keys(keys: Mapping[str, Any], labels: tuple[str, ...] | None) -> TaskFile:
    return TaskFile(parse_task(keys), labels=labels, stated=True)
