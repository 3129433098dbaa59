"""Checks inputs in the same way on every device, and makes noise inputs."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional

import numpy as np
from numpy.typing import NDArray

from ..bundle.manifest import Manifest
from ..errors import InputError, did_you_mean
from ..tensors import TensorInfo
from ..vision.photo import is_photo
from ..vision.photo import prepare as by_numpy

Array = NDArray[Any]


Prepare = Callable[[str, Array], Array]
"""Returns an input made of a photo, given the input's name and the photo."""


def check_inputs(
    manifest: Manifest, inputs: Mapping[str, Any], prepare: Optional[Prepare] = None
) -> Dict[str, Array]:
    """Return the input arrays by name in the model's order, with photos prepared.

    Nothing else is converted. The inputs may include the model's state, either all of it
    or none; it is last in the result.

    Args:
        manifest: the model's manifest
        inputs: arrays by name
        prepare: replaces numpy's preparation of photos by one with the same bits

    Raises:
        InputError: a name, a type or a shape is wrong
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs are a {type(inputs).__name__}, not a dict by name",
            hint=f'pass {{"{manifest.inputs[0]}": array}}',
        )
    has_state = any(name in manifest.kept for name in inputs)
    kept = manifest.kept if has_state else ()
    for name in inputs:
        if name not in manifest.inputs and name not in kept:
            names = ", ".join(str(t) for t in manifest.input_infos())
            raise InputError(
                "the model has no input "
                f'"{name}"{did_you_mean(str(name), manifest.inputs)}',
                hint=f"its inputs are {names}",
            )

    prepares = prepare or partial(prepared, manifest)
    arrays: Dict[str, Array] = {}
    for name in (*manifest.inputs, *kept):
        is_image = name in manifest.preprocess
        info = manifest.tensors[name]
        arrays[name] = _check(info, inputs, prepares if is_image else None)
    return arrays


def prepared(manifest: Manifest, name: str, photo: Array) -> Array:
    """Return an input made of a photo by numpy."""
    return by_numpy(photo, manifest.preprocess[name], manifest.tensors[name])


def _check(
    info: TensorInfo, inputs: Mapping[str, Any], prepare: Optional[Prepare]
) -> Array:
    if info.name not in inputs:
        raise InputError(
            f'the input "{info.name}" is missing',
            hint=f"give an array {info.dtype} {info.shape}",
        )
    try:
        array = np.asarray(inputs[info.name])
    except (ValueError, TypeError) as e:
        raise InputError(
            f'the input "{info.name}" is not an array: {e}',
            hint=f"give an array {info.dtype} {info.shape}",
        ) from e
    if prepare is not None and is_photo(array):
        return prepare(info.name, array)
    photo = "" if prepare is None else "; or give a photo: uint8 [height, width, 3]"
    if array.dtype != info.numpy_dtype:
        what = f'the input "{info.name}" is {info.numpy_dtype}, not {array.dtype}'
        raise InputError(what, hint=_dtype_hint(info, array) + photo)
    if array.shape != info.shape:
        hint = f"resize or reshape the array to {info.shape}"
        if array.shape == info.shape[1:] and info.shape[0] == 1:
            hint = "add the batch axis: array[None]"
        raise InputError(
            f'the input "{info.name}" takes shape {info.shape}, not {array.shape}',
            hint=hint + photo,
        )
    return array


def _dtype_hint(info: TensorInfo, array: Array) -> str:
    # The most frequent mistake is real numbers for a quantized input.
    kind = info.numpy_dtype.name
    if (
        array.dtype.kind == "f"
        and info.numpy_dtype.kind in "iu"
        and info.quant is not None
    ):
        limits = np.iinfo(info.numpy_dtype)
        scale = info.quant.scale[0]
        zero = info.quant.zero_point[0]
        return (
            f"the model is quantized: pass np.clip(np.round(x / {scale:.9g}) + {zero}, "
            f"{limits.min}, {limits.max})"
            f'.astype("{kind}")'
        )
    return f'convert it: array.astype("{kind}")'


def noise_inputs(manifest: Manifest) -> Dict[str, Array]:
    """Return reproducible inputs, the same bytes as those of csrc/main.c (fill_noise)."""
    return {t.name: _noise(t, i) for i, t in enumerate(manifest.input_infos())}


def _noise(info: TensorInfo, index: int) -> Array:
    n = info.nbytes // info.numpy_dtype.itemsize
    i = np.arange(1, n + 1, dtype=np.uint32)

    # This is the hash of fill_noise in csrc/main.c.
    seed = np.uint32((index + 1) * 2246822519 & 0xFFFFFFFF)
    h = (i * np.uint32(2654435761)) ^ seed
    h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(3266489917)
    h = h ^ (h >> np.uint32(16))

    # Floats are -1…1, halves have a fixed exponent, integers have all values.
    if info.dtype in ("<f4", "<f8"):
        flat: Array = (h >> np.uint32(8)).astype(np.float32) / np.float32(
            8388608
        ) - np.float32(1)
        flat = flat.astype(info.numpy_dtype)
    elif info.dtype == "<f2":
        sign = (h >> np.uint32(16)) & np.uint32(0x8000)
        fraction = (h >> np.uint32(20)) & np.uint32(0x3FF)
        flat = (sign | np.uint32(0x3800) | fraction).astype(np.uint16).view(np.float16)
    elif info.dtype == "|b1":
        flat = (h >> np.uint32(31)).astype(np.bool_)
    else:
        flat = (h >> np.uint32(24)).astype(np.uint8)
        if info.dtype == "|i1":
            flat = flat.view(np.int8)
        else:
            flat = flat.astype(info.numpy_dtype)
    return flat.reshape(info.shape)
