"""The task that a model file states: TFLite's metadata with its labels, what Ultralytics' exporter writes, and an ONNX
file's output that is an image.

Only where it leaves no doubt. What cannot be read is no task: such a file compiles all the same.
"""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgec_runtime.tasks import parse_task

from edgec.frontends import MAX_MODEL_BYTES
from edgec.frontends.stated import pixels, properties
from edgec.frontends.task_file import TaskFile
from edgec.frontends.task_formats import FORMATS
from edgec.frontends.tflite_metadata import read_outputs

if TYPE_CHECKING:
    from onnx import ModelProto

_MAX_LABELS = 1 << 20
"""Bytes of a file of labels, and of names in a property."""


def stated_task(path: Path) -> TaskFile:
    """What the file at `path` says of its outputs. Raises nothing."""
    if not path.is_file() or path.stat().st_size > MAX_MODEL_BYTES:  # which its reader refuses
        return TaskFile()
    try:
        found = {".tflite": _of_tflite, ".onnx": _of_onnx}.get(path.suffix.lower(), _nothing)(path)
    except Exception:  # a damaged file can fail anywhere; whether it is a model is for its reader to say
        return TaskFile()
    return found


def _nothing(path: Path) -> TaskFile:
    return TaskFile()


def _of_tflite(path: Path) -> TaskFile:
    """One output with features is a classification; four, the first with boxes, are TFLite_Detection_PostProcess."""
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

    model = onnx.load(str(path), format="protobuf", load_external_data=False)
    return _of_ultralytics(model) or _of_images(model)


def _of_ultralytics(model: ModelProto) -> TaskFile | None:
    """A detection of x, y, width, height and a score for each of the names; or a classification."""
    said = {p.key: p.value for p in model.metadata_props}
    if said.get("author") != "Ultralytics" or len(said.get("names", "")) > _MAX_LABELS:
        return None
    names = ast.literal_eval(said["names"])
    labels = tuple(str(names[i]) for i in range(len(names)))
    shape = [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    if said.get("task") == "detect" and len(shape) == 3 and shape[1] == 4 + len(labels):
        return _stated("yolov8", labels)
    return _stated("classification", labels) if said.get("task") == "classify" else None


def _of_images(model: ModelProto) -> TaskFile:
    """Windows ML's samples and others: one image, in the range and the order of colours that the properties say."""
    images = [o.name for o in model.graph.output if o.type.denotation == "IMAGE"]
    said = pixels(properties(model))
    if len(images) != 1 or said is None:
        return TaskFile()
    keys = {"task": "image", "output": images[0], "range": said[0], "color": "bgr" if said[1] == "bgr" else "rgb"}
    return TaskFile(parse_task(keys), stated=True)


def _stated(name: str, labels: tuple[str, ...] | None) -> TaskFile:
    """Without preprocessing, of which stated.py reads what the file says."""
    rest = {k: v for k, v in FORMATS.get(name, {"task": name}).items() if k not in ("preprocess", "labels")}
    return TaskFile(parse_task(rest), labels=labels, stated=True)
