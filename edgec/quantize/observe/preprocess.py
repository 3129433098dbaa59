"""Chooses the preprocessing of a model's inputs (docs/preprocessing.md).

Photos become calibration samples by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgec_runtime import Preprocess, prepare, read_photo
from edgec_runtime.vision.preprocess import NOTHING, ImageLayout, Wish, bind, parse

from edgec.errors import InputError
from edgec.ir import Array, TensorType, Value
from edgec.ir.tensors import tensor_info

IMAGE_DTYPES = ("float32", "int8", "uint8")


def choose(
    inputs: Sequence[Value], given: str | None, stated: Mapping[str, Wish]
) -> dict[str, Preprocess]:
    """Return the preprocessing of each input that is an image, by name.

    given: the preprocessing that a person gave, for all inputs.
    stated: the preprocessing that the model's file states, by input.

    Raises InputError where `given` cannot be read, does not suit an input, or no input
    is an image.
    """
    wish = parse(given) if given is not None else NOTHING
    preprocesses: dict[str, Preprocess] = {}
    for v in inputs:
        if v.type.dtype not in IMAGE_DTYPES:
            continue
        info = tensor_info(v.name, v.type)
        # A wish of a person goes before the file's; `bind` settles the rest.
        if ImageLayout.of(info) is not None:
            preprocesses[v.name] = bind(info, wish, stated.get(v.name, NOTHING))
    if wish and not preprocesses:
        types = ", ".join(f"{v.name} {v.type}" for v in inputs)
        raise InputError(
            f"no input is an image of 1 or 3 channels: {types}",
            "--preprocess",
            "leave the option out",
        )
    return preprocesses


def photo_input(
    path: Path, name: str, t: TensorType, preprocess: Preprocess | None = None
) -> Array:
    """Return the input `name` of type `t` made from one photo.

    preprocess: by default the usual one for the type.
    """
    info = tensor_info(name, t)
    return prepare(read_photo(path), preprocess or bind(info), info)
