"""`run`: one inference of a bundle on a device, from a file to a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from edgec_devices.device import Device, device_for
from edgec_devices.options import path_of
from edgec_runtime import Bundle, Manifest, TensorInfo, read_photo
from edgec_runtime.bundle.arrays import read_arrays, write_npz
from edgec_runtime.bundle.atomic_write import atomic_write
from edgec_runtime.bundle.manifest import image_size
from edgec_runtime.cascade.networks import OpenedNetworks
from edgec_runtime.cascade.result import CascadeResult
from edgec_runtime.model.inputs import check_inputs
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.drawing import PALETTE
from edgec_runtime.vision.photo import PHOTO_SUFFIXES, is_photo
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import Result, reals
from edgec_runtime.vision.tasks.classification import Classes, Classification
from edgec_runtime.vision.tasks.image import levels
from edgec_runtime.vision.tasks.segmentation import Segments
from edgec_runtime.webcam.effects import OVERLAY, Painter, effect
from PIL import Image

from edgec.catalogue.fetching import local_file
from edgec.errors import InputError, check_folder
from edgec.evaluation.results import ResultReader
from edgec.ir import Array
from edgec.ir.tensors import tensor_type
from edgec.ir.types import dequantize
from edgec.options.run import RunOptions
from edgec.verbs.networks import result_on

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
OUTPUT_SUFFIXES = (".npz", ".json", *IMAGE_SUFFIXES)
RANGES = {"0_1": "0…1", "m1_1": "-1…1", "0_255": "pixels of 0…255"}
"""The ranges that an image of an unknown task may have, in words."""
GREY_LEVEL = 128
SOFTMAX_ERROR = 0.05
"""How far from 1 the sum of a softmax's outputs may be: int8 rounds each of them."""
MAX_PALETTE = 256
"""The most classes of an image with a palette."""


class RunResult(dict[str, Array]):
    """One inference: the outputs by name.

    Attributes:
        result: what they mean; None where nobody stated it, or nobody wanted it.
        notes: lines on what was done.
    """

    def __init__(
        self,
        outputs: Mapping[str, Array],
        result: Result | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(outputs)
        self.result = result
        self.notes = notes

    def text(self) -> str:
        """Return the result for a terminal."""
        if self.result is not None:
            return "\n".join([*self.notes, *self.result.lines()])
        lines = [
            f"{name}: {a.dtype}{list(a.shape)}, {a.min():g} to {a.max():g}"
            for name, a in self.items()
        ]
        return "\n".join([*self.notes, *lines])

    def to_json(self) -> dict[str, Any]:
        """Return the result, or the figures of the outputs."""
        if self.result is not None:
            return self.result.to_json()
        figures = {}
        for name, a in self.items():
            figures[name] = {
                "dtype": a.dtype.name,
                "shape": list(a.shape),
                "min": a.min().item(),
                "max": a.max().item(),
            }
        return {"outputs": figures}


def run_bundle(options: RunOptions) -> RunResult:
    """Run one inference, and write its result.

    Raises EdgecError.
    """
    # What cannot be reached or written is an error before the inference, not after it.
    device = device_for(options.url, options.timeout)
    output = path_of(options.output)
    suffix = _output_suffix(output)
    with Bundle.open(options.bundle) as bundle:
        if bundle.manifest.cascade is None:
            result, canvas = _run_network(options, bundle, device)
        else:
            result, canvas = _run_cascade(options, bundle, device)

        picture = None
        if options.mask and not _is_raw(options):
            picture = _class_map(result.result, output)
        elif (
            result.result is not None
            and canvas is not None
            and suffix in IMAGE_SUFFIXES
        ):
            # A portrait's face is found where the photo's is: its points are comparable.
            find = partial(result_on, device, bundle, threads=options.threads)
            with OpenedNetworks(bundle) as opened:
                painter = Painter(opened.painting)
                draw = effect(options.effect or OVERLAY, painter, find)
                picture = Image.fromarray(draw(canvas, result.result))

    if output is not None:
        image_range = _save(output, result, picture, bundle.manifest)
        note = _written_note(options, result, bundle.manifest, image_range)
        result.notes = [*result.notes, note]
    return result


def _is_raw(options: RunOptions) -> bool:
    """Return whether the outputs are wanted as they are, whatever they mean.

    An .npz gets them so, and so does a caller who gives arrays and names no file.
    """
    if options.output is None:
        return options.raw or isinstance(options.inputs, Mapping)
    return options.raw or Path(options.output).suffix.lower() == ".npz"


def _run_network(
    options: RunOptions, bundle: Bundle, device: Device
) -> tuple[RunResult, Array | None]:
    """Run the only network on its inputs, and return the picture to draw into too."""
    manifest = bundle.manifest
    file = None
    inputs: Mapping[str, Array]
    if isinstance(options.inputs, Mapping):
        inputs = options.inputs
    else:
        # A photo of the catalogue may have to be downloaded first.
        file = local_file(Path(options.inputs))
        inputs = load_inputs(file, manifest)
    prepared = check_inputs(manifest, inputs)
    outputs = device.run(bundle, prepared, options.threads)

    result = None
    canvas = _canvas(inputs, manifest)
    if not _is_raw(options):
        if manifest.task is None:
            result = _classes(bundle, outputs)
        else:
            assert canvas is not None, "a task has an image input"
            result = Vision(bundle).result(outputs, CameraFrame.of(canvas).size)
    notes = []
    for name, a in inputs.items():
        if file is not None and is_photo(a) and name in manifest.preprocess:
            how = manifest.preprocess[name].explained()
            notes.append(f'{file.name} became "{name}" by {how}')
    if result is None and options.output is None and not _is_raw(options):
        notes.append(
            "nobody said what the outputs mean: --task of compile does, and for a "
            "classifier --labels too"
        )
    return RunResult(outputs, result, notes), canvas


def _run_cascade(
    options: RunOptions, bundle: Bundle, device: Device
) -> tuple[RunResult, Array]:
    """Run the networks of a cascade on one photo, and return that too."""
    if isinstance(options.inputs, Mapping):
        raise InputError(
            "a cascade takes a photo, not arrays by name",
            at="inputs",
            hint="give a photo's file, or run one of its networks",
        )
    if options.mask or _is_raw(options):
        option = "--raw" if options.raw else "--mask"
        raise InputError(
            "a cascade has objects, and no outputs of its own",
            at=option if options.raw or options.mask else str(options.output),
            hint="give a .json or .png file, or run one of its networks",
        )
    photo = _photo(local_file(Path(options.inputs)))
    result = result_on(device, bundle, photo, options.threads)
    return RunResult({}, result), photo


def _classes(bundle: Bundle, outputs: Mapping[str, Array]) -> Result | None:
    """Return the classes of a network whose task nobody stated; None if it is another.

    A picture's only output is taken for them where its elements add up to 1, as those of
    a softmax do. Landmarks and embeddings are vectors too.
    """
    try:
        reader = ResultReader.of(bundle)
    except InputError:
        return None
    (info,) = reader.outputs.values()
    total = float(reals(outputs[info.name], info).sum())
    if abs(total - 1) > SOFTMAX_ERROR or not isinstance(reader.task, Classification):
        return None
    classes = reader.result(outputs, reader.image)
    assert isinstance(classes, Classes)
    return Classes(classes.classes[: reader.task.top])


def _class_map(result: Result | None, output: Path | None) -> Image.Image:
    """Return the class of each pixel as an image with a palette.

    Raises InputError for other results, and files that would not keep the numbers.
    """
    if not isinstance(result, Segments):
        raise InputError(
            "the bundle has no segmentation, so no class for each pixel",
            "--mask",
            "leave it out, or compile with --task segmentation",
        )
    if output is None or output.suffix.lower() != ".png":
        raise InputError(
            "the classes of pixels go into a .png file",
            "--mask" if output is None else str(output),
            "give --out mask.png",
        )
    by_pixel = result.class_map()
    if by_pixel.max() >= MAX_PALETTE:
        raise InputError(
            f"a picture has {MAX_PALETTE} classes, and the result class {by_pixel.max()}",
            "--mask",
            "give an .npz file: the outputs as they are",
        )
    image = Image.fromarray(by_pixel.astype(np.uint8), "P")
    # The first class is the background, as in the data set Pascal VOC.
    colors = itertools.islice(itertools.cycle(PALETTE), MAX_PALETTE - 1)
    image.putpalette([0, 0, 0, *itertools.chain.from_iterable(colors)])
    return image


def _check_input_file(path: Path, hint: str) -> None:
    """Raise InputError unless the input is a file."""
    if path.is_dir():
        raise InputError(f"the input {path} is a folder", "--input", hint)
    if not path.is_file():
        raise InputError(f"no such input file: {path}", hint=hint)


def _photo(path: Path) -> Array:
    """Return the pixels of a photo or an .npy file, uint8 [H, W, 3]."""
    _check_input_file(path, "give a photo")
    if path.suffix.lower() in PHOTO_SUFFIXES:
        return read_photo(path)
    if path.suffix.lower() == ".npy":
        (array,) = read_arrays(path).values()
        if is_photo(array) and array.size:
            return np.ascontiguousarray(CameraFrame.of(array).rgb())
    raise InputError(
        f"{path.name} is not a photo, and a cascade takes one",
        at=str(path),
        hint="give a photo, or an .npy of uint8 [height, width, 3]",
    )


def _written_note(
    options: RunOptions, result: RunResult, manifest: Manifest, image_range: str
) -> str:
    """Return what was written, in words."""
    if result.result is None:
        content = ", ".join(
            f"{name} {a.dtype}{list(a.shape)}" for name, a in result.items()
        )
    elif isinstance(result.result, CascadeResult):
        count = len(result.result.objects)
        content = f"{count} object{'' if count == 1 else 's'}"
    else:
        content = "classification" if manifest.task is None else manifest.task.kind
    note = f"{options.output}: {content} (from {options.url})"
    if image_range and manifest.task is None:
        note += (
            f"; its values were taken to be {RANGES[image_range]}: "
            "--task of compile says what they are"
        )
    return note


def _output_suffix(output: Path | None) -> str | None:
    """Return the suffix of the output file. Raises InputError where it cannot be written."""
    if output is None:
        return None
    check_folder(output.parent, str(output))
    suffix = output.suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        raise InputError(
            f"cannot write {output.suffix or output.name} files",
            at=str(output),
            hint="give .npz or .png",
        )
    return suffix


def _canvas(inputs: Mapping[str, Array], manifest: Manifest) -> Array | None:
    """Return the picture to draw into, uint8 [height, width, 3].

    It is the photo that was given, or else a grey one of the size of the image input;
    None where there is no such input.
    """
    for name, array in inputs.items():
        if name in manifest.preprocess and is_photo(array):
            return np.ascontiguousarray(CameraFrame.of(array).rgb())
    size = image_size(manifest)
    if size is None:
        return None
    return np.full((size[1], size[0], 3), GREY_LEVEL, np.uint8)


def _save(
    path: Path, result: RunResult, picture: Image.Image | None, manifest: Manifest
) -> str:
    """Write the result aside, and rename it when it is whole.

    Return the range that an image of an unknown task seems to have, else "".
    """
    suffix = path.suffix.lower()
    with atomic_write(path) as aside:
        if suffix == ".npz":
            write_npz(aside, result)
        elif suffix == ".json":
            aside.write_text(json.dumps(result.to_json(), indent=1) + "\n")
        elif picture is not None:
            picture.save(aside)
        else:
            info = _single(manifest.output_infos(), "output", path)
            image, image_range = _image(path, result[info.name], info)
            image.save(aside)
            return image_range
    return ""


def load_inputs(path: Path, manifest: Manifest) -> dict[str, Array]:
    """Return the model's inputs from a file, photos as pixels.

    Raises InputError; types and shapes are not checked.
    """
    _check_input_file(path, "give an .npz, .npy or photo")
    suffix = path.suffix.lower()
    if suffix in PHOTO_SUFFIXES:
        info = _single(manifest.input_infos(), "input", path)
        if info.name not in manifest.preprocess:
            raise InputError(
                f"input {info} is not an image, so it cannot take a photo",
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
    """Assign arrays to inputs.

    They are named as the inputs, or in0_0, in0_1, … (sample 0 of calibration data); the
    only array goes to the only input.
    """
    # State that is kept between calls can be given too.
    names = (*manifest.inputs, *manifest.kept)
    if any(name in names for name in arrays):
        return {name: arrays[name] for name in arrays if name in names}
    if "in0_0" in arrays:
        numbered = enumerate(manifest.inputs)
        return {n: arrays[f"in0_{j}"] for j, n in numbered if f"in0_{j}" in arrays}
    if len(arrays) == 1 and len(manifest.inputs) == 1:
        return {manifest.inputs[0]: next(iter(arrays.values()))}
    raise InputError(
        f"{path.name} has the arrays {', '.join(arrays)}, none of them an input",
        at=str(path),
        hint=f"name the arrays {', '.join(manifest.inputs)}",
    )


def _single(infos: tuple[TensorInfo, ...], what: str, path: Path) -> TensorInfo:
    """Return the only input or output. Raises InputError where there are several."""
    if len(infos) != 1:
        names = ", ".join(i.name for i in infos)
        raise InputError(
            f"the model has {len(infos)} {what}s: {names}",
            at=str(path),
            hint="use an .npz file",
        )
    return infos[0]


def _image(path: Path, array: Array, info: TensorInfo) -> tuple[Image.Image, str]:
    """Return an image output as a picture, and the range that its reals seem to have.

    The range is "" of uint8, which is as it is. path: the file to write. Raises
    InputError for another output.
    """
    layout = ImageLayout.of(info)
    if layout is None:
        raise InputError(
            f"output {info} is not an image of 1 or 3 channels",
            str(path),
            "give an .npz file, or compile with --task, which says what it means",
        )
    image = array[0].transpose(1, 2, 0) if layout.channels_first else array[0]
    # uint8 without a scale is a picture already.
    image_range = ""
    if info.quant is not None or image.dtype == np.float32:
        real = image
        if info.quant is not None:
            real = dequantize(image, tensor_type(info).with_shape(image.shape))
        image_range = _range(float(real.min()), float(real.max()))
        image = levels(real, image_range)
    pixels = image[..., 0] if layout.channels == 1 else image
    return Image.fromarray(pixels), image_range


def _range(low: float, high: float) -> str:
    """Return the range of an image whose task is not known.

    A network's picture reaches over the ends of its range by less than half.
    """
    if low >= -0.5 and high <= 1.5:
        return "0_1"
    if low >= -1.5 and high <= 1.5:
        return "m1_1"
    return "0_255"
