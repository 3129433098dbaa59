"""Which preprocessing a model's inputs have, and photos made into calibration samples
by it (docs/preprocessing.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgec_runtime import Preprocess, prepare, read_photo
from edgec_runtime.vision.preprocess import NOTHING, ImageLayout, Wish, bind, parse

from edgec.errors import InputError
from edgec.ir import Array, TensorType, Value
from edgec.ir.tensors import tensor_info

_IMAGE_TYPES = ("float32", "int8", "uint8")


def choose(
    inputs: Sequence[Value], given: str | None, stated: Mapping[str, Wish]
) -> dict[str, Preprocess]:
    """The preprocessing of each input that is an image, by name.

    given: what a person said, which goes for all of them. stated: what the model's file
    says, by input. Raises InputError where what is given cannot be read, or does not
    suit an input, or there is no image for it.
    """
    wish = parse(given) if given is not None else NOTHING
    found: dict[str, Preprocess] = {}
    for v in inputs:
        if v.type.dtype not in _IMAGE_TYPES:
            continue
        info = tensor_info(v.name, v.type)
        if ImageLayout.of(info) is not None:
            found[v.name] = bind(info, wish, stated.get(v.name, NOTHING))
    if wish and not found:
        have = ", ".join(f"{v.name} {v.type}" for v in inputs)
        raise InputError(
            f"no input is an image of 1 or 3 channels: {have}",
            "--preprocess",
            "leave the option out",
        )
    return found


def photo_input(
    path: Path, name: str, t: TensorType, preprocess: Preprocess | None = None
) -> Array:
    """The input `name` of type `t` made from one photo; preprocess: by default what is
    usual for the type.
    """
    info = tensor_info(name, t)
    return prepare(read_photo(path), preprocess or bind(info), info)
