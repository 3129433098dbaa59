"""Prepares inputs of frames and decodes outputs to results, before and after the
segments.

`Vision(bundle)` does both, in any number of threads at the same time; a `Session` runs
the segments.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..errors import InputError
from ..model.inputs import prepared
from ..model.native import (
    CropInput,
    FoundBoxes,
    FrameInput,
    Painting,
    function,
    library_of,
)
from ..tensors import TensorInfo
from ..vision.camera import CameraFrame
from ..vision.crop import Crop, CropView, cropped
from ..vision.preprocess import ImageLayout
from ..vision.tasks.base import Decode, DecoderSetting, Result, View, reals
from ..vision.tasks.detection import Detection

Array = NDArray[Any]


class Vision:
    """The pre- and post-processing of an open bundle.

    It uses the bundle's C for this machine if there is some, otherwise numpy.

    Args:
        bundle: the bundle
        native: False to use only numpy

    Attributes:
        image: width and height of the first image input; None without one
        painting: the bundle's C for effects (effects.Painter); None without it
    """

    def __init__(self, bundle: Bundle, native: bool = True) -> None:
        self.manifest = bundle.manifest
        library = library_of(bundle) if native else None
        self._inputs: Dict[str, FrameInput] = {}
        self._crops: Dict[str, CropInput] = {}
        self.image: Optional[Tuple[int, int]] = None
        for i, info in enumerate(self.manifest.input_infos()):
            how = self.manifest.preprocess.get(info.name)
            layout = None if how is None else ImageLayout.of(info, how.layout)
            if how is None or layout is None:
                continue
            size = layout.width, layout.height
            self.image, self._fit = (
                (size, how.fit) if self.image is None else (self.image, self._fit)
            )
            call = function(library, f"edgec_frame_{i}")
            if call is not None:
                self._inputs[info.name] = FrameInput(
                    call, info, size, how.fit, how.filter
                )
            call = function(library, f"edgec_crop_{i}")
            if call is not None:
                self._crops[info.name] = CropInput(call, info, size)
        self.painting = Painting.of(library)
        self._decode = self._decoder(bundle, library)

    def _decoder(self, bundle: Bundle, library: Any) -> Optional[Decode]:
        task = self.manifest.task
        if task is None or self.image is None:
            return None
        outputs = {info.name: info for info in self.manifest.output_infos()}
        files = {name: bundle.read(name) for name in task.files()}
        call = function(library, "edgec_boxes")

        # Only boxes have C; numpy is fast enough for the rest.
        detect = None
        if call is not None and isinstance(task, Detection):
            detect = FoundBoxes(call, task, outputs)
        return task.decoder(
            DecoderSetting(self.image, outputs, self.manifest.labels, files, detect)
        )

    @property
    def native(self) -> bool:
        """Whether C prepares all image inputs."""
        return len(self._inputs) == len(self.manifest.preprocess)

    def input(self, name: str, photo: Array) -> Array:
        """Return an image input made of a photo.

        Raises InputError for an empty photo.

        Args:
            name: the input
            photo: uint8 [H, W, 3], [H, W, 4] or [H, W], red first
        """
        info = self.manifest.tensors[name]
        native = self._inputs.get(name)
        out = np.empty(info.shape, info.numpy_dtype)

        # C refuses cases for which it has no code, and numpy gives the same bits.
        if native is None or photo.size == 0 or not native(CameraFrame.of(photo), out):
            return prepared(self.manifest, name, photo)
        return out

    def prepare(
        self, frame: Any, out: Optional[Mapping[str, Array]] = None
    ) -> Dict[str, Array]:
        """Return the image inputs made of a CameraFrame or a photo, by name.

        Args:
            frame: the frame
            out: arrays to write to, by name; None for new ones

        Raises:
            InputError: it is not a frame, or an array has another type or shape
        """
        picture = CameraFrame.of(frame)
        inputs: Dict[str, Array] = {}
        for name in self.manifest.preprocess:
            info = self.manifest.tensors[name]
            target = _target(info, out)
            native = self._inputs.get(name)
            can_use_c = native is not None and target.flags.c_contiguous
            if native is None or not can_use_c or not native(picture, target):
                np.copyto(target, prepared(self.manifest, name, picture.rgb()))
            inputs[name] = target
        return inputs

    def cropped(self, frame: CameraFrame, crop: Crop) -> Dict[str, Array]:
        """Return the image inputs made of a crop of a frame, by name."""
        inputs: Dict[str, Array] = {}
        for name, how in self.manifest.preprocess.items():
            info = self.manifest.tensors[name]
            native = self._crops.get(name)
            out = np.empty(info.shape, info.numpy_dtype)
            # C refuses cases for which it has no code, and numpy gives the same bits.
            if native is None or not native(frame, crop, out):
                out = cropped(frame.rgb(), crop, how, info)
            inputs[name] = out
        return inputs

    @property
    def before(self) -> Tuple[str, Callable[[Any], None]]:
        """A stage of a stream that writes the image inputs of frames or photos."""

        def stage(shot: Any) -> None:
            self.prepare(shot.source, shot.inputs)

        return "prepare", stage

    @property
    def after(self) -> Tuple[str, Callable[[Any], Result]]:
        """A stage of a stream that turns outputs into results."""

        def stage(shot: Any) -> Result:
            return self.result(shot.value, CameraFrame.of(shot.source).size)

        return "decode", stage

    def view(self, frame: Tuple[int, int]) -> View:
        """Return the place of a frame in the first image input.

        frame: width and height of the frame
        """
        if self.image is None:
            raise InputError("the model has no image input", hint="give it arrays")
        return View.of(frame, self.image, self._fit)

    def result(self, outputs: Mapping[str, Array], frame: Tuple[int, int]) -> Result:
        """Return the result for a frame.

        Args:
            outputs: the model's outputs, by name
            frame: width and height of the frame

        Raises:
            InputError: the bundle has no task
        """
        decode = self._decoder_of_task()
        return decode(self._reals(outputs), self.view(frame))

    def result_of_crop(
        self, outputs: Mapping[str, Array], crop: Crop, frame: Tuple[int, int]
    ) -> Result:
        """Return the result for a crop of a frame, in pixels of the frame.

        Args:
            outputs: the model's outputs, by name
            crop: the crop
            frame: width and height of the frame

        Raises:
            InputError: the bundle has no task
        """
        decode = self._decoder_of_task()
        assert self.image is not None, "a task has an image input"
        view = CropView.of_crop(crop, frame, self.image)
        return decode(self._reals(outputs), view)

    def _decoder_of_task(self) -> Decode:
        if self._decode is None:
            hint = (
                "compile it with --task classification (or --labels FILE), detection, "
                "segmentation, landmarks, pose or image"
            )
            raise InputError("the bundle does not say what its outputs mean", hint=hint)
        return self._decode

    def _reals(self, outputs: Mapping[str, Array]) -> Dict[str, Array]:
        """Return the outputs as real numbers; raise InputError if they do not fit."""
        values: Dict[str, Array] = {}
        for info in self.manifest.output_infos():
            array = outputs.get(info.name)
            if array is None:
                raise InputError(
                    f'the output "{info.name}" is missing',
                    hint="give all that Session.run returns",
                )
            _check(info, array)
            values[info.name] = reals(array, info)
        return values


def _target(info: TensorInfo, out: Optional[Mapping[str, Array]]) -> Array:
    """Return the array for an input: a new one, or the caller's."""
    if out is None:
        return np.empty(info.shape, info.numpy_dtype)
    _check(info, out[info.name])
    return out[info.name]


def _check(info: TensorInfo, array: Array) -> None:
    """Raise InputError unless an array has the type and shape of a tensor."""
    if array.dtype != info.numpy_dtype or array.shape != info.shape:
        raise InputError(
            f'the array for "{info.name}" is {array.dtype} {array.shape}, not '
            f"{info.numpy_dtype} {info.shape}",
            hint="give one of the tensor's type and shape",
        )
