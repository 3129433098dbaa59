"""The task that a model file states.

The sources are TFLite's metadata with its labels, the properties of Ultralytics'
exporter, the nodes of torchvision's detectors, and an ONNX file's output of images. A
doubtful or unreadable statement is no task: the file compiles all the same.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_runtime.vision.tasks import parse_task
from edgec_runtime.vision.tasks.text_recognition import TextRecognition

from edgec.frontends import MAX_MODEL_BYTES
from edgec.frontends.preprocessing_metadata import pixels, properties
from edgec.frontends.task_file import ANCHORS_FILE, TaskFile
from edgec.frontends.task_formats import FORMATS
from edgec.frontends.tflite_metadata import read_outputs

if TYPE_CHECKING:
    from onnx import ModelProto

_CHARACTERS = "character"
"""The property with the characters of a recogniser's classes."""

MAX_LABEL_BYTES = 1 << 20
"""The largest size of a file of labels."""


def stated_task(path: Path) -> TaskFile:
    """Return the task that the file at `path` states. Raises nothing."""
    # The reader of the model reports an absent or too large file.
    if not path.is_file() or path.stat().st_size > MAX_MODEL_BYTES:
        return TaskFile()
    readers = {".tflite": _of_tflite, ".onnx": _of_onnx}
    reader = readers.get(path.suffix.lower(), _nothing)
    try:
        return reader(path)
    # A damaged file can fail anywhere; its own reader reports whether it is a model.
    except Exception:
        return TaskFile()


def _nothing(path: Path) -> TaskFile:
    return TaskFile()


def _of_tflite(path: Path) -> TaskFile:
    """Return the task that a TFLite file's metadata states.

    One output with features is a classification; four, the first with boxes, are
    TFLite_Detection_PostProcess.
    """
    outputs = read_outputs(path.read_bytes())
    labels: tuple[str, ...] | None = None
    for o in outputs:
        if o.labels is not None:
            labels = _packed(path, o.labels)
            break
    if len(outputs) == 4 and outputs[0].boxes:
        return _stated("tflite-ssd", labels)
    if len(outputs) == 1 and outputs[0].features and labels:
        return _stated("classification", labels)
    return TaskFile()


def _packed(path: Path, name: str) -> tuple[str, ...] | None:
    """Return the lines of a file in the zip archive behind a model.

    None without an archive, for an empty file, and for a too large one.
    """
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive, archive.open(name) as file:
        # One byte more tells a too large file; an archive may claim any size.
        data = file.read(MAX_LABEL_BYTES + 1)
    text = data.decode()
    if len(data) > MAX_LABEL_BYTES:
        return None
    lines = [line.strip() for line in text.splitlines()]
    return tuple(line for line in lines if line) or None


def _of_onnx(path: Path) -> TaskFile:
    """Return the task that an ONNX file's properties, nodes or outputs state.

    The type denotation of an output of images is IMAGE.
    """
    import onnx

    from edgec.frontends.ultralytics import exported, head_of

    model = onnx.load(str(path), format="protobuf", load_external_data=False)
    export = exported(model)
    if export is None:
        return _of_characters(model) or _of_ssd(path, model) or _of_images(model)
    task = _of_keys(export.task(), export.labels)
    head = head_of(model, export)
    if head is None:
        return task
    headless = parse_task(export.task_of_candidates(head))
    return replace(task, head=head, headless=headless)


def _of_characters(model: ModelProto) -> TaskFile | None:
    """Return the task of a recogniser of text; None for another model.

    RapidOCR and PaddleOCR write a line for each character into the property
    "character".
    """
    texts = [p.value for p in model.metadata_props if p.key == _CHARACTERS]
    if not texts:
        return None
    # `splitlines` would also split at characters that are separators of lines.
    labels = tuple(texts[0].removesuffix("\n").split("\n"))
    return _of_keys({"task": TextRecognition.kind}, labels)


def _of_ssd(path: Path, model: ModelProto) -> TaskFile | None:
    """Return the task of a single-shot detector of torchvision; None for another model.

    Its graph can only be read up to the head.
    """
    from edgec.frontends.torchvision_ssd import ssd_of

    ssd = ssd_of(model)
    if ssd is None:
        return None
    task = parse_task({**ssd.keys, "anchors": {"file": ANCHORS_FILE}})
    files = {ANCHORS_FILE: ssd.anchor_file(path, model)}
    return TaskFile(task, files=files, stated=True, head=ssd.head, headless=task)


def _of_images(model: ModelProto) -> TaskFile:
    """Return the task of a model with one output of images.

    Windows ML's samples and others state their range and order of colours in the
    properties.
    """
    images = [o.name for o in model.graph.output if o.type.denotation == "IMAGE"]
    format_ = pixels(properties(model))
    # Without a stated range, an image cannot be shown.
    if len(images) != 1 or format_ is None:
        return TaskFile()
    range_, color = format_
    keys = {
        "task": "image",
        "output": images[0],
        "range": range_,
        "color": "bgr" if color == "bgr" else "rgb",
    }
    return TaskFile(parse_task(keys), stated=True)


def _stated(name: str, labels: tuple[str, ...] | None) -> TaskFile:
    """Return the task of a format, without its preprocessing.

    stated.py reads the preprocessing that the file states.
    """
    keys = dict(FORMATS.get(name, {"task": name}))
    keys.pop("preprocess", None)
    keys.pop("labels", None)
    return _of_keys(keys, labels)


def _of_keys(keys: Mapping[str, Any], labels: tuple[str, ...] | None) -> TaskFile:
    return TaskFile(parse_task(keys), labels=labels, stated=True)
