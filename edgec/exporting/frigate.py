"""A detector for Frigate: model, label map, and the lines of its configuration.

Frigate's detectors read the model file themselves. Facts, from Frigate at commit
d55b6226 (frigate/detectors/plugins/edgetpu_tfl.py, cpu_tfl.py), 68f806bb (onnx.py) and
its documentation (docs/docs/configuration/object_detectors.md):

- `edgetpu` with model_type yolo-generic reads two int8 outputs: logits of boxes
  [1, N, 64] and of classes [1, N, classes], the latter of another count than 1 and 64;
- `edgetpu` with model_type ssd, and `cpu`, read four outputs: boxes (y, x, y, x in
  0…1), classes, scores and the count, as TFLite_Detection_PostProcess has them;
- `onnx` with model_type yolo-generic reads [1, 4 + classes, N]: centre and size in
  pixels and probabilities, as Ultralytics' exporter writes them.

All give pixels 0…255 as uint8 [1, height, width, 3], unless input_dtype says otherwise.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_partitioner.legalize import legalize
from edgec_partitioner.stock import stock_places
from edgec_runtime import Bundle, Preprocess, TensorInfo
from edgec_runtime.vision.tasks.detection import Detection

from edgec.emit.anchors_file import ANCHORS_FILE
from edgec.emit.tflite import write_tflite
from edgec.emit.tflite_detections import with_detections
from edgec.errors import BundleError, InputError
from edgec.exporting._pictures import picture_input, with_pixels
from edgec.exporting._whole_graph import check_weights, joined_graph
from edgec.exporting._yolo import BINS, FOUND, SIDES, HeadWriter, anchors, raw_heads
from edgec.ir import Graph, Op
from edgec.ops.detection import Detections
from edgec.ops.matmul import BatchMatMul
from edgec.report.wording import plain
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.runners import LocalRunner

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
"""Text that means itself without quotes (YAML 1.2.2, 7.3.3), but for words of YAML."""
_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
"""Of YAML 1.1, which Frigate's parser reads, and of YAML 1.2."""

Section = Mapping[str, "str | int | Section"]


def document(section: Section) -> str:
    """Return a mapping as the lines of a document; its sections are indented."""
    return "".join(f"{line}\n" for line in _yaml_lines(section, ""))


def _yaml_lines(section: Section, indent: str) -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield f"{indent}{quoted(key)}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            text = str(value) if isinstance(value, int) else quoted(value)
            yield f"{indent}{quoted(key)}: {text}"


def quoted(text: str) -> str:
    """Return text as it is where that is safe, else in double quotes (7.3.1)."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    characters = []
    for character in text:
        number = ord(character)
        if character in '"\\':
            characters.append(f"\\{character}")
        elif character.isprintable():
            characters.append(character)
        elif number > 0xFFFF:
            characters.append(f"\\U{number:08x}")
        else:
            characters.append(f"\\u{number:04x}")
    return f'"{"".join(characters)}"'


def suppression(graph: Graph) -> Op | None:
    """Return the operation that picks boxes; None in a network without one."""
    for op in graph.ops:
        if isinstance(op.spec, Detections):
            return op
    return None


def up_to(graph: Graph, op: Op) -> Graph:
    """Return the graph with the boxes and scores that the suppression reads."""
    # The third input is the table of anchors.
    graph.outputs = op.inputs[:2]
    graph.drop_unused()
    return graph


def with_suppression(bundle: Bundle, graph: Graph, op: Op) -> bytes:
    """Return the .tflite of boxes and scores, followed by the suppression.

    Raises:
        BundleError: the bundle has no anchors
    """
    if ANCHORS_FILE not in bundle.names:
        raise BundleError(
            f"the bundle has no {ANCHORS_FILE}",
            str(bundle.path),
            "compile the model again with this version of edgec",
        )
    anchors = np.load(io.BytesIO(bundle.read(ANCHORS_FILE)), allow_pickle=False)
    spec = op.spec
    assert isinstance(spec, Detections)
    # The operator counts classes without background, which comes first.
    classes = op.inputs[1].type.shape[2] - spec.background
    return with_detections(write_tflite(graph), spec, anchors, classes)


CORAL = "coral"
"""The file for the Edge TPU, before and (with _edgetpu behind it) after its compiler."""
CPU = "cpu"
LABELS = "labels.txt"
WITHOUT_ATTENTION = "YOLOv8n or YOLOv9t"
"""Detectors for Frigate's `edgetpu` that map whole (docs/frigate.md)."""
PLACE = "/config/model_cache"
"""The folder of Frigate's container for models of one's own."""


@dataclass(frozen=True)
class DetectorInput:
    """The input of a detector.

    Attributes:
        name: of the model, on one line
        info: the input's type
        preprocess: what its numbers are
        size: width and height in pixels
    """

    name: str
    info: TensorInfo
    preprocess: Preprocess
    size: tuple[int, int]


@dataclass(frozen=True)
class ModelFiles:
    """What a network became.

    Attributes:
        coral: the .tflite for the Edge TPU
        coral_type: Frigate's model_type of it
        cpu: the .tflite with four outputs
        graph: of `coral`, without the operator that picks boxes
    """

    coral: bytes
    coral_type: str
    cpu: bytes
    graph: Graph


def write(bundle: Bundle, folder: Path) -> Sequence[str]:
    """Write the model files, the label map and a configuration for each detector.

    Raises InputError for other networks than YOLO with raw heads, and SSD.
    """
    picture = _picture(bundle)
    files = _model_files(bundle, picture)
    (folder / f"{CORAL}.tflite").write_bytes(files.coral)
    (folder / f"{CPU}.tflite").write_bytes(files.cpu)
    (folder / LABELS).write_text(_label_map(bundle), encoding="utf-8")

    compiled = _compile(files.coral, folder)
    configurations = {
        CORAL: _configuration(picture, "edgetpu", files.coral_type),
        CPU: _configuration(picture, "cpu", "ssd"),
    }
    if _is_for_onnx(bundle, picture):
        configurations["onnx"] = _configuration(picture, "onnx", "yolo-generic")
    for name, text in configurations.items():
        (folder / f"config_{name}.yml").write_text(text, encoding="utf-8")
    return _lines(picture.name, files, configurations, compiled)


def _picture(bundle: Bundle) -> DetectorInput:
    """Return the input; raises InputError for a model without one picture of RGB."""
    info, preprocess, layout = picture_input(bundle)
    if preprocess.color == "gray":
        raise InputError(
            "the model takes grey pictures, and Frigate gives colours",
            at=info.name,
            hint="export a model of three channels",
        )
    size = layout.width, layout.height
    return DetectorInput(plain(bundle.manifest.name), info, preprocess, size)


def _model_files(bundle: Bundle, picture: DetectorInput) -> ModelFiles:
    """Return the files of the network; raises InputError for one of another kind."""
    graph = joined_graph(bundle)
    at = str(bundle.path)
    # A network with the operator that picks boxes is read as it is.
    op = suppression(graph)
    if op is not None:
        cut = with_pixels(up_to(graph, op), picture.info, picture.preprocess)
        check_weights(cut, at)
        cut = _for_edgetpu(cut)
        data = with_suppression(bundle, cut, op)
        return ModelFiles(data, "ssd", data, cut)

    classes = _class_count(bundle)
    # Only what leads to the heads: anchors and decoding become another form.
    heads = raw_heads(graph, picture.size, classes)
    graph.outputs = [v for head in heads for v in (head.boxes, head.classes)]
    graph.drop_unused()
    pixels = with_pixels(graph, picture.info, picture.preprocess)
    check_weights(pixels, at)
    writer = HeadWriter(pixels, heads)
    codes = _for_edgetpu(writer.codes())
    four = with_detections(write_tflite(codes), FOUND, anchors(heads), classes)
    # Frigate knows boxes by their 64 channels, and classes by not being one.
    has_bins = heads[0].boxes.type.shape[3] == SIDES * BINS
    if has_bins and classes not in (1, SIDES * BINS):
        rows = _for_edgetpu(HeadWriter(pixels, heads).rows())
        return ModelFiles(write_tflite(rows), "yolo-generic", four, rows)
    return ModelFiles(four, "ssd", four, codes)


def _for_edgetpu(graph: Graph) -> Graph:
    """Return the graph with what is too large for the Edge TPU cut into parts.

    The rewrites are bit-exact. What was in the bundle went through them before; the
    reshapes of a head are new.
    """
    return legalize(graph, exact=True)[0]


def _class_count(bundle: Bundle) -> int:
    """Return the number of classes of a network whose boxes edgec picks."""
    task = bundle.manifest.task
    if not isinstance(task, Detection):
        why = "nobody said what its outputs mean"
        if task is not None:
            why = f"its outputs are taken for {task.kind}"
        raise InputError(
            f"the bundle is not a detector: {why}",
            at=str(bundle.path),
            hint="compile it with --task yolov8, yolo26 or tflite-ssd",
        )
    # Without labels the columns behind a box are its scores.
    if bundle.manifest.labels:
        return len(bundle.manifest.labels)
    info = bundle.manifest.tensors[task.scores or bundle.manifest.outputs[0]]
    columns = info.shape[1] if task.transposed else info.shape[-1]
    return columns - task.score_column


def _is_for_onnx(bundle: Bundle, picture: DetectorInput) -> bool:
    """Return whether the network's .onnx has the output that Frigate reads.

    One that picks its boxes itself has rows of corners instead.
    """
    task = bundle.manifest.task
    if not isinstance(task, Detection) or len(bundle.manifest.outputs) != 1:
        return False
    is_planar = picture.preprocess.layout == "nchw"
    is_plain = picture.preprocess.values.range in ("0_1", "0_255")
    is_pixels = task.order == "xywh" and task.units == "pixels"
    return is_planar and is_plain and is_pixels and task.transposed


def _columns(bundle: Bundle) -> int:
    """Return the number of classes, or -1 for no detector."""
    return _class_count(bundle) if isinstance(bundle.manifest.task, Detection) else -1


def _label_map(bundle: Bundle) -> str:
    """Return a line with number and label for each class, as Frigate reads them."""
    labels = bundle.manifest.labels
    # Without any Frigate would call all of them unknown.
    if labels is None:
        labels = tuple(f"class{n}" for n in range(max(0, _columns(bundle))))
    # A label is the rest of its line.
    return "".join(f"{number}  {plain(label)}\n" for number, label in enumerate(labels))


def _configuration(picture: DetectorInput, detector: str, model_type: str) -> str:
    """Return the lines of config.yml for a detector."""
    width, height = picture.size
    # That file is the float model, whose input Frigate converts to.
    is_onnx = detector == "onnx"
    file = {
        "edgetpu": f"{CORAL}_edgetpu.tflite",
        "cpu": f"{CPU}.tflite",
        "onnx": f"{picture.name}.onnx",
    }[detector]
    kind = {"type": detector}
    if detector == "edgetpu":
        kind["device"] = "usb"
    folder = f"{PLACE}/{picture.name}"
    return document(
        {
            "detectors": {detector: kind},
            "model": {
                "path": f"{folder}/{file}",
                "labelmap_path": f"{folder}/{LABELS}",
                "model_type": model_type,
                "width": width,
                "height": height,
                "input_tensor": "nchw" if is_onnx else "nhwc",
                "input_pixel_format": picture.preprocess.color,
                "input_dtype": _dtype(picture) if is_onnx else "int",
            },
        }
    )


def _dtype(picture: DetectorInput) -> str:
    """Return Frigate's word for the floats of the model's own input."""
    return "float" if picture.preprocess.values.range == "0_1" else "float_denorm"


def _compile(model: bytes, folder: Path) -> bool:
    """Run edgetpu_compiler where it is installed; return whether it made a file."""
    runner = LocalRunner.on_path()
    # It is a closed program of another machine, often.
    if runner is None:
        return False
    data = runner.compile({CORAL: model}).files.get(CORAL)
    if data is None:
        return False
    (folder / f"{CORAL}_edgetpu.tflite").write_bytes(data)
    return True


def _lines(
    name: str, files: ModelFiles, configurations: Mapping[str, str], compiled: bool
) -> Sequence[str]:
    """Return the paragraphs of the README."""
    texts = ", ".join(f"`config_{n}.yml`" for n in configurations)
    compiled_text = (
        f"`{CORAL}.tflite` (model_type {files.coral_type}) is for detectors on a Coral, "
        f"`{CPU}.tflite` for those on the CPU; both take uint8 pixels. `{LABELS}` is "
        f"the label map. Copy all to {PLACE}/{name} of Frigate, and one of {texts} into "
        "its config.yml."
    )
    # A bundle does not have the model file that it was made of.
    if "onnx" in configurations:
        compiled_text += f" The onnx detector takes your own {name}.onnx."
    if compiled:
        how = f"{PROGRAM} ran: `{CORAL}_edgetpu.tflite` is the file for the Coral."
    else:
        how = f"First compile it for the Coral: `{PROGRAM} -s {CORAL}.tflite`"
    # The command prints the last paragraph.
    return (compiled_text, f"{mapping(files)} {how}")


def mapping(files: ModelFiles) -> str:
    """Return a sentence on the part of `coral` that the stock compiler maps."""
    graph = files.graph
    places = stock_places(graph)
    on_tpu = [op for op in graph.ops if places[op] == "edgetpu"]
    all_macs = sum(op.spec.macs(op) for op in graph.ops)
    macs = sum(op.spec.macs(op) for op in on_tpu)
    share = 100 * macs / all_macs if all_macs else 0.0
    # What picks the boxes is no part of the graph.
    count = len(graph.ops) + (files.coral_type == "ssd")
    text = (
        f"Stock column: {PROGRAM} alone maps {len(on_tpu)} of {count} operations of "
        f"`{CORAL}.tflite`, {share:.1f} % of its multiply-accumulates, by edgec's rules "
        "for it (docs/edgetpu-compiler.md)"
    )
    first = next((op for op in graph.ops if places[op] == "cpu"), None)
    if first is None:
        return f"{text}."
    where = f"{first.spec.kind}, {plain(first.outputs[0].name)}"
    text = f"{text}; the first on the CPU is {where}"
    if any(op.kind == BatchMatMul.kind for op in graph.ops):
        return (
            f"{text}. The network's attention multiplies two results, which the Edge TPU "
            f"cannot, and {PROGRAM} leaves all behind it on the CPU: take a network "
            f"without attention, as {WITHOUT_ATTENTION}, all of which maps."
        )
    return f"{text}."
