"""`run`: one inference of a bundle on a device, from a file to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from edgec_devices.device import TIMEOUT_S, device_for
from edgec_runtime import Bundle, Manifest, TensorInfo, read_photo
from edgec_runtime.bundle.arrays import read_arrays, write_npz
from edgec_runtime.bundle.manifest import image_size
from edgec_runtime.bundle.whole import whole
from edgec_runtime.model.inputs import check_inputs
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.photo import PHOTO_SUFFIXES, is_photo
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.image import levels
from edgec_runtime.webcam.effects import OVERLAY, Painter, effect
from PIL import Image

from edgec.errors import InputError
from edgec.ir import Array
from edgec.ir.tensors import tensor_type
from edgec.ir.types import dequantize

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
_SUFFIXES = (".npz", ".json", *IMAGE_SUFFIXES)
_SEEMS = {"0_1": "0…1", "m1_1": "-1…1", "0_255": "pixels of 0…255"}


@dataclass(frozen=True)
class RunResult:
    """One inference: the outputs by name, and lines on what was done.

    result: what the outputs mean; None where nobody said, or they were wanted as they
    are.
    """

    outputs: Mapping[str, Array]
    result: Result | None
    notes: tuple[str, ...]

    def text(self) -> str:
        """For a terminal."""
        if self.result is not None:
            told = self.result.lines()
        else:
            told = [_told(n, a) for n, a in self.outputs.items()]
        return "\n".join([*self.notes, *told])

    def to_json(self) -> dict[str, Any]:
        """The result, or the figures of outputs."""
        if self.result is not None:
            return self.result.to_json()
        return {
            "outputs": {
                n: {
                    "dtype": a.dtype.name,
                    "shape": list(a.shape),
                    "min": a.min().item(),
                    "max": a.max().item(),
                }
                for n, a in self.outputs.items()
            }
        }


def _told(name: str, a: Array) -> str:
    return f"{name}: {a.dtype}{list(a.shape)}, {a.min():g} to {a.max():g}"


def run_bundle(
    path: Path,
    inputs: Path,
    output: Path | None,
    device: str,
    timeout: float = TIMEOUT_S,
    threads: int = 1,
    raw: bool = False,
    shown: str = OVERLAY,
) -> RunResult:
    """Run on `device` ("local:", "emulated:pi4", …).

    inputs: an .npz by input name, an .npy or a photo for a single input; arrays of
    pixels, uint8 [height,width,3], are photos too. output: an .npz by output name, a
    .json file, or a picture: the photo with what was found in it; `raw` or without a
    task, a single output of 1 or 3 channels in the range that it seems to have.
    timeout: seconds for which nothing may move on the way to it. threads: of the CPU.
    raw: what outputs mean is not asked. shown: the effect of a picture.
    """
    suffix = _check_output(output)
    with Bundle.open(path) as bundle:
        manifest = bundle.manifest
        given = load_inputs(inputs, manifest)
        prepared = check_inputs(manifest, given)
        photo = next(
            (a for n, a in given.items() if n in manifest.preprocess and is_photo(a)),
            None,
        )
        results = device_for(device, timeout).run(bundle, prepared, threads)
        result = None
        picture = None
        if manifest.task is not None and not raw and suffix != ".npz":
            photo = _seen(prepared, manifest) if photo is None else _rgb(photo)
            vision = Vision(bundle)
            drawn = effect(shown, Painter(vision.painting))
            result = vision.result(results, (photo.shape[1], photo.shape[0]))
            picture = drawn(photo, result) if suffix in IMAGE_SUFFIXES else None
    notes = [
        _prepared(inputs, manifest, name)
        for name, a in given.items()
        if is_photo(a) and name in manifest.preprocess
    ]
    ran = RunResult(results, result, tuple(notes))
    if output is None:
        return ran
    seems = _save(output, ran, picture, manifest)
    shapes = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in results.items())
    wrote = (
        f"{output}: "
        f"{shapes if result is None else manifest.task.kind if manifest.task else ''} "
        f"(from {device})"
    )
    if seems and manifest.task is None:
        wrote += (
            f"; its values were taken to be {_SEEMS[seems]}: "
            "--task of compile says what they are"
        )
    return replace(ran, notes=(*notes, wrote))


def _check_output(output: Path | None) -> str | None:
    if output is None:
        return None
    if not output.parent.is_dir():
        raise InputError(
            f"the folder {output.parent} does not exist",
            at=str(output),
            hint=f"mkdir -p {output.parent}",
        )
    if output.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"cannot write {output.suffix or output.name} files",
            at=str(output),
            hint="give .npz or .png",
        )
    return output.suffix.lower()


def _rgb(photo: Array) -> Array:
    return np.ascontiguousarray(CameraFrame.of(photo).rgb())


def _seen(prepared: Mapping[str, Array], manifest: Manifest) -> Array:
    """A grey picture of the size of the first image input, where there is no photo to
    draw into.
    """
    size = image_size(manifest)
    assert size is not None, "a task has an image input"
    return np.full((size[1], size[0], 3), 128, np.uint8)


def _prepared(path: Path, manifest: Manifest, name: str) -> str:
    return f'{path.name} became "{name}" by {manifest.preprocess[name].explained()}'


def _save(path: Path, ran: RunResult, picture: Array | None, manifest: Manifest) -> str:
    """Written aside and renamed when whole.

    The range that an image seems to have whose task is not known, else "".
    """
    with whole(path) as aside:
        if path.suffix.lower() == ".npz":
            write_npz(aside, ran.outputs)
        elif path.suffix.lower() == ".json":
            aside.write_text(json.dumps(ran.to_json(), indent=1) + "\n")
        elif picture is not None:
            Image.fromarray(picture).save(aside)
        else:
            (info,) = _single(manifest.output_infos(), "output", path)
            return save_image(aside, ran.outputs[info.name], info)
    return ""


def load_inputs(path: Path, manifest: Manifest) -> dict[str, Array]:
    """The model's inputs from a file, photos as pixels.

    Raises InputError; types and shapes are not checked.
    """
    if not path.is_file():
        raise InputError(
            f"no such input file: {path}", hint="give an .npz, .npy or photo"
        )
    suffix = path.suffix.lower()
    if suffix in PHOTO_SUFFIXES:
        (info,) = _single(manifest.input_infos(), "input", path)
        if info.name not in manifest.preprocess:
            raise InputError(
                f"input {info} is no image, so it cannot take a photo",
                str(path),
                "give an .npz file",
            )
        return {info.name: read_photo(path)}
    if suffix not in (".npz", ".npy"):
        raise InputError(
            f"cannot read {path.name} as inputs",
            at=str(path),
            hint="give an .npz, .npy or photo",
        )
    return _by_name(read_arrays(path), manifest, path)


def _by_name(
    arrays: Mapping[str, Array], manifest: Manifest, path: Path
) -> dict[str, Array]:
    """As named; as in0_0, in0_1, … (sample 0); or the only array for the only input."""
    known = (*manifest.inputs, *manifest.kept)
    if any(name in known for name in arrays):
        return {name: arrays[name] for name in arrays if name in known}
    if "in0_0" in arrays:
        return {
            name: arrays[f"in0_{j}"]
            for j, name in enumerate(manifest.inputs)
            if f"in0_{j}" in arrays
        }
    if len(arrays) == 1 and len(manifest.inputs) == 1:
        return {manifest.inputs[0]: next(iter(arrays.values()))}
    hint = f"name the arrays {', '.join(manifest.inputs)}"
    raise InputError(
        f"{path.name} has the arrays {', '.join(arrays)}, none of them an input",
        at=str(path),
        hint=hint,
    )


def _single(
    infos: tuple[TensorInfo, ...], what: str, path: Path
) -> tuple[TensorInfo, ...]:
    if len(infos) != 1:
        names = ", ".join(i.name for i in infos)
        raise InputError(
            f"the model has {len(infos)} {what}s: {names}",
            at=str(path),
            hint="use an .npz file",
        )
    return infos


def save_image(path: Path, array: Array, info: TensorInfo) -> str:
    """An image output as a picture.

    Returns the range that its reals seem to have, "" of uint8, which is as it is.
    """
    layout = ImageLayout.of(info)
    if layout is None:
        raise InputError(
            f"output {info} is no image of 1 or 3 channels",
            str(path),
            "give an .npz file",
        )
    image = array[0].transpose(1, 2, 0) if layout.channels_first else array[0]
    seems = ""
    if info.quant is not None or image.dtype == np.float32:
        if info.quant is not None:
            real = dequantize(image, tensor_type(info).with_shape(image.shape))
        else:
            real = image
        seems = _range(float(real.min()), float(real.max()))
        image = levels(real, seems)
    Image.fromarray(image[..., 0] if layout.channels == 1 else image).save(path)
    return seems


def _range(low: float, high: float) -> str:
    """Of an image whose task is not known.

    What a network paints reaches over the ends by less than half.
    """
    if low >= -0.5 and high <= 1.5:
        return "0_1"
    return "m1_1" if low >= -1.5 and high <= 1.5 else "0_255"
