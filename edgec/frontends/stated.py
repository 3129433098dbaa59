"""The preprocessing that a model file states of its inputs: TFLite's metadata, ONNX's
image properties.

Only what a file says is taken. What cannot be read, or does not suit its input, is left
out with a note: such a file runs all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from edgec_runtime import TensorInfo
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
from edgec.frontends.tflite_metadata import InputMetadata, read_metadata

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
"""How that exporter's tasks fit a photo; the others letterbox."""


@dataclass(frozen=True)
class Stated:
    """by_input: what is said, by the name of the input. notes: what was left out, and
    why.
    """

    by_input: Mapping[str, Wish] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def stated_preprocessing(path: Path, inputs: Sequence[TensorInfo]) -> Stated:
    """What the file at `path` says of `inputs`, which are all of its own in order.

    Raises nothing.
    """
    try:
        wishes = _READERS[path.suffix.lower()](path, inputs)
    except Exception as e:
        # a damaged file can fail anywhere; whether it is a model is for its reader to
        # say
        return Stated(
            notes=(f"{_WHERE} cannot be read and is ignored ({type(e).__name__}: {e})",)
        )
    found = dict[str, Wish]()
    notes = list[str]()
    for info, wish in zip(inputs, wishes, strict=False):
        if not wish or ImageLayout.of(info) is None:
            continue
        try:
            bind(info, NOTHING, wish)
            found[info.name] = wish
        except InputError as e:
            notes.append(f"{_WHERE} is ignored for {info.name}: {e.what}")
    return Stated(found, tuple(notes))


def _of_tflite(path: Path, inputs: Sequence[TensorInfo]) -> list[Wish]:
    return [
        _wish(m, info)
        for m, info in zip(read_metadata(path.read_bytes()), inputs, strict=False)
    ]


def _wish(m: InputMetadata, info: TensorInfo) -> Wish:
    """NormalizationOptions are for pixels of 0…255; mean and std of a quantized input
    are those of its reals.
    """
    values = None
    if m.mean or m.std:
        values = Values("0_255", m.mean or (0.0,), m.std or (1.0,))
        if values.fault() is None:
            values = PRESETS["raw"] if _is_raw(values, info) else _simplest(values)
    return Wish(values, m.color)


def _simplest(values: Values) -> Values:
    """A preset of the same meaning, if there is one."""
    for preset in PRESETS.values():
        factor = 255 if preset.range == "0_1" else 1
        pairs = [(values.mean, preset.mean), (values.std, preset.std)]
        if preset.range != "raw" and all(
            _same(a, [factor * n for n in b]) for a, b in pairs
        ):
            return preset
    return values


def _same(a: Sequence[float], b: Sequence[float]) -> bool:
    return bool(
        np.allclose(np.broadcast_to(a, 3), np.broadcast_to(b, 3), rtol=1e-6, atol=1e-6)
    )


def _is_raw(values: Values, info: TensorInfo) -> bool:
    """Whether quantization brings back the pixels, but for rounding: TFLite's tools
    then hand them over as they are.
    """
    if (
        info.dtype not in ("|i1", "|u1")
        or info.quant is None
        or len(info.quant.scale) != 1
    ):
        return info.dtype in ("|i1", "|u1")
    made = value_table(values, info, 3)
    raw = value_table(PRESETS["raw"], info, 3)
    return bool(np.abs(made.astype(int) - raw.astype(int)).max() <= 1)


def _of_onnx(path: Path, inputs: Sequence[TensorInfo]) -> list[Wish]:
    """The same for all inputs: the properties are of the model."""
    import onnx

    model = onnx.load(str(path), format="protobuf", load_external_data=False)
    return [_properties(properties(model))] * len(inputs)


def pixels(said: Mapping[str, str]) -> tuple[str, str | None] | None:
    """The range and the order of colours that ONNX's Image.* properties state of a
    model's images, in and out (its docs/MetadataProps.md; without a range, 0…255).
    said: properties, all in lower case.
    """
    order = said.get("image.bitmappixelformat")
    range_ = said.get("image.nominalpixelrange")
    if order is None and range_ is None:
        return None
    if (range_ or "nominalrange_0_255") not in _PIXEL_RANGES:
        raise ValueError(f"Image.NominalPixelRange is {range_}")
    if order is not None and order not in _PIXEL_FORMATS:
        raise ValueError(f"Image.BitmapPixelFormat is {order}")
    return _PIXEL_RANGES[range_ or "nominalrange_0_255"], _PIXEL_FORMATS[
        order
    ] if order else None


def properties(model: ModelProto) -> dict[str, str]:
    """An ONNX model's properties, all in lower case."""
    return {p.key.lower(): p.value.strip().lower() for p in model.metadata_props}


def _properties(said: Mapping[str, str]) -> Wish:
    """ONNX's Image.*, and what Ultralytics' models are fed."""
    if found := pixels(said):
        return Wish(PRESETS[found[0]], found[1])
    if said.get("author") == "ultralytics" and "task" in said:
        return Wish(
            PRESETS["0_1"], "rgb", Fit(_ULTRALYTICS.get(said["task"], "letterbox"))
        )
    return NOTHING


_READERS: Mapping[str, Callable[[Path, Sequence[TensorInfo]], list[Wish]]] = {
    ".tflite": _of_tflite,
    ".onnx": _of_onnx,
    pt2.SUFFIX: lambda path, inputs: [],
}
"""By suffix; a .pt2 file says nothing of pictures."""
