"""The preprocessing that a model file states for its inputs.

The sources are TFLite's metadata and ONNX's image properties. A statement that cannot
be read, or does not suit its input, is left out with a note: the file runs all the
same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from edgec_runtime import TensorInfo
from edgec_runtime.device_end.printable import printable
from edgec_runtime.vision.photo import value_table
from edgec_runtime.vision.preprocess import (
    NOTHING,
    PRESETS,
    Fit,
    ImageLayout,
    Values,
    Wish,
    bind,
)

from edgec.errors import InputError
from edgec.frontends import pt2
from edgec.frontends.tflite_metadata import (
    InputMetadata,
    read_license,
    read_metadata,
)

if TYPE_CHECKING:
    from onnx import ModelProto

_WHERE = "the file's metadata"
_PIXEL_FORMATS = {
    "gray8": "gray",
    "rgb8": "rgb",
    "bgr8": "bgr",
    "rgba8": "rgb",
    "bgra8": "bgr",
}
_PIXEL_RANGES = {
    "nominalrange_0_255": "0_255",
    "normalized_0_1": "0_1",
    "normalized_1_1": "m1_1",
}
_ULTRALYTICS = {"classify": "crop"}
"""How the tasks of Ultralytics' exporter fit a photo; all others letterbox."""
LONGEST_LICENSE = 200
"""Characters of a licence: a file may have its whole text, whose beginning has its name."""


@dataclass(frozen=True)
class Stated:
    """The preprocessing that a file states.

    Attributes:
        by_input: the statements, by the name of the input.
        notes: sentences on statements that were left out.
    """

    by_input: Mapping[str, Wish] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def stated_preprocessing(path: Path, inputs: Sequence[TensorInfo]) -> Stated:
    """Return the preprocessing that the file at `path` states for `inputs`.

    These are all inputs of the file, in order. Raises nothing.
    """
    try:
        wishes = _READERS[path.suffix.lower()](path, inputs)
    # A damaged file can fail anywhere; its own reader reports whether it is a model.
    except Exception as e:
        note = f"{_WHERE} cannot be read and is ignored ({type(e).__name__}: {e})"
        return Stated(notes=(note,))

    by_input: dict[str, Wish] = {}
    notes: list[str] = []
    for info, wish in zip(inputs, wishes, strict=False):
        # Preprocessing suits images only.
        if not wish or ImageLayout.of(info) is None:
            continue
        try:
            # An attempt tells whether the statement suits the input.
            bind(info, NOTHING, wish)
            by_input[info.name] = wish
        except InputError as e:
            notes.append(f"{_WHERE} is ignored for {info.name}: {e.what}")
    return Stated(by_input, tuple(notes))


def stated_license(path: Path) -> str:
    """Return the licence that the metadata of a model file states, on one line.

    "" if it states none, or cannot be read. Raises nothing.
    """
    try:
        text = _license(path)
    # As above: whether the file is a model is said by its own reader.
    except Exception:
        return ""
    return textwrap.shorten(printable(text), LONGEST_LICENSE, placeholder=" …")


def _license(path: Path) -> str:
    """Return the licence in a file's metadata as it is there."""
    suffix = path.suffix.lower()
    if suffix == ".tflite":
        return read_license(path.read_bytes())
    if suffix != ".onnx":
        return ""
    for p in _load_onnx(path).metadata_props:
        if p.key.lower() == "license":
            return str(p.value)
    return ""


def _of_tflite(path: Path, inputs: Sequence[TensorInfo]) -> list[Wish]:
    """Return the preprocessing that a TFLite file's metadata states."""
    metadata = read_metadata(path.read_bytes())
    return [_wish(m, info) for m, info in zip(metadata, inputs, strict=False)]


def _wish(m: InputMetadata, info: TensorInfo) -> Wish:
    """Return the preprocessing that the metadata of one input states.

    A faulty mean or std is returned as it is, for `bind` to report.
    NormalizationOptions are for pixels of 0…255; mean and std of a quantized input are
    for its dequantized values.
    """
    if not m.mean and not m.std:
        return Wish(None, m.color)
    values = Values("0_255", m.mean or (0.0,), m.std or (1.0,))

    if values.fault() is not None:
        return Wish(values, m.color)
    if _is_raw(values, info):
        return Wish(PRESETS["raw"], m.color)
    return Wish(_simplest(values), m.color)


def _simplest(values: Values) -> Values:
    """Return a preset of the same meaning, or the values themselves.

    A preset has a name that reports can show.
    """
    for preset in PRESETS.values():
        if preset.range == "raw":
            continue
        # A range of 0…1 divides by 255 before the normalisation.
        factor = 255 if preset.range == "0_1" else 1
        mean = [factor * n for n in preset.mean]
        std = [factor * n for n in preset.std]
        if _same(values.mean, mean) and _same(values.std, std):
            return preset
    return values


def _same(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether two means or deviations are equal, one number or one a channel."""
    wide_a = np.broadcast_to(a, 3)
    wide_b = np.broadcast_to(b, 3)
    return bool(np.allclose(wide_a, wide_b, rtol=1e-6, atol=1e-6))


def _is_raw(values: Values, info: TensorInfo) -> bool:
    """Return whether normalisation and quantization cancel but for rounding.

    TFLite's tools then pass the pixels on as they are.
    """
    if info.dtype not in ("|i1", "|u1"):
        return False
    if info.quant is None or len(info.quant.scale) != 1:
        return True
    # Compare both over all pixel values.
    quantized = value_table(values, info, 3).astype(int)
    raw = value_table(PRESETS["raw"], info, 3).astype(int)
    return bool(np.abs(quantized - raw).max() <= 1)


def _of_onnx(path: Path, inputs: Sequence[TensorInfo]) -> list[Wish]:
    """Return the preprocessing that an ONNX file's properties state.

    It is the same for all inputs: the properties are of the model.
    """
    return [_properties(properties(_load_onnx(path)))] * len(inputs)


def _load_onnx(path: Path) -> ModelProto:
    """Return the model in a file, without the data beside it."""
    import onnx

    return onnx.load(str(path), format="protobuf", load_external_data=False)


def pixels(metadata: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the range and the order of colours of a model's images, in and out.

    ONNX's Image.* properties state them (its docs/MetadataProps.md; without a range,
    0…255). None without such a property. metadata: properties, all in lower case.
    """
    order = metadata.get("image.bitmappixelformat")
    range_ = metadata.get("image.nominalpixelrange")
    if order is None and range_ is None:
        return None

    nominal = range_ or "nominalrange_0_255"
    if nominal not in _PIXEL_RANGES:
        raise ValueError(f"Image.NominalPixelRange is {range_}")
    if order is not None and order not in _PIXEL_FORMATS:
        raise ValueError(f"Image.BitmapPixelFormat is {order}")
    color = _PIXEL_FORMATS[order] if order else None
    return _PIXEL_RANGES[nominal], color


def properties(model: ModelProto) -> dict[str, str]:
    """Return an ONNX model's properties, all in lower case."""
    return {p.key.lower(): p.value.strip().lower() for p in model.metadata_props}


def _properties(metadata: Mapping[str, str]) -> Wish:
    """Return the preprocessing of Image.* properties, or of Ultralytics' models."""
    images = pixels(metadata)
    if images is not None:
        range_, color = images
        return Wish(PRESETS[range_], color)
    # Its exporter states a task, but no Image.* properties.
    if metadata.get("author") == "ultralytics" and "task" in metadata:
        fit = Fit(_ULTRALYTICS.get(metadata["task"], "letterbox"))
        return Wish(PRESETS["0_1"], "rgb", fit)
    return NOTHING


_READERS: Mapping[str, Callable[[Path, Sequence[TensorInfo]], list[Wish]]] = {
    ".tflite": _of_tflite,
    ".onnx": _of_onnx,
    pt2.SUFFIX: lambda path, inputs: [],
}
"""The readers by suffix; a .pt2 file states nothing about pictures."""
