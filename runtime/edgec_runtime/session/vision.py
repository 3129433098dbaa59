"""Frames in, results out: the code of a bundle before and after its segments.

`Vision(bundle)` prepares inputs and decodes outputs; a `Session` runs the segments.
Both halves may be called from several threads at once.
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
    """The pre- and post-processing of an opened bundle, by its own C where it has that
    for this machine.

    native: False computes all with numpy.
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
        """The bundle's C for effects (effects.Painter), where it has some."""
        self._decode = self._decoder(bundle, library)

    def _decoder(self, bundle: Bundle, library: Any) -> Optional[Decode]:
        task = self.manifest.task
        if task is None or self.image is None:
            return None
        outputs = {info.name: info for info in self.manifest.output_infos()}
        files = {name: bundle.read(name) for name in task.files()}
        call = function(library, "edgec_boxes")

        # Only boxes have C of their own; numpy decodes the rest fast enough.
        detect = None
        if call is not None and isinstance(task, Detection):
            detect = FoundBoxes(call, task, outputs)
        return task.decoder(
            DecoderSetting(self.image, outputs, self.manifest.labels, files, detect)
        )

    @property
    def native(self) -> bool:
        """Whether C makes all image inputs."""
        return len(self._inputs) == len(self.manifest.preprocess)

    def input(self, name: str, photo: Array) -> Array:
        """One image input made of a photo: uint8 [H,W,3], [H,W,4] or [H,W].

        Raises InputError for an empty one.
        """
        info = self.manifest.tensors[name]
        made = self._inputs.get(name)
        out = np.empty(info.shape, info.numpy_dtype)

        # The C refuses what it has no code for, and numpy gives the same bits.
        if made is None or photo.size == 0 or not made(CameraFrame.of(photo), out):
            return prepared(self.manifest, name, photo)
        return out

    def prepare(
        self, frame: Any, out: Optional[Mapping[str, Array]] = None
    ) -> Dict[str, Array]:
        """Return the image inputs made of a CameraFrame or a photo, by name.

        Args:
            out: arrays of their types to write to

        Raises:
            InputError: it is no frame, or an array is of another type or shape
        """
        given = CameraFrame.of(frame)
        found: Dict[str, Array] = {}
        for name in self.manifest.preprocess:
            info = self.manifest.tensors[name]
            target = _room(info, out)
            made = self._inputs.get(name)
            if made is None or not target.flags.c_contiguous or not made(given, target):
                np.copyto(target, prepared(self.manifest, name, given.rgb()))
            found[name] = target
        return found

    def cropped(self, frame: CameraFrame, crop: Crop) -> Dict[str, Array]:
        """Return the image inputs made of a crop of a frame, by name."""
        found: Dict[str, Array] = {}
        for name, how in self.manifest.preprocess.items():
            info = self.manifest.tensors[name]
            made = self._crops.get(name)
            out = np.empty(info.shape, info.numpy_dtype)
            # The C refuses what it has no code for, and numpy gives the same bits.
            if made is None or not made(frame, crop, out):
                out = cropped(frame.rgb(), crop, how, info)
            found[name] = out
        return found

    @property
    def before(self) -> Tuple[str, Callable[[Any], None]]:
        """Return a stage that writes the image inputs of frames or photos in place."""

        def stage(shot: Any) -> None:
            self.prepare(shot.source, shot.inputs)

        return "prepare", stage

    @property
    def after(self) -> Tuple[str, Callable[[Any], Result]]:
        """Return a stage for results of outputs."""

        def stage(shot: Any) -> Result:
            return self.result(shot.value, CameraFrame.of(shot.source).size)

        return "decode", stage

    def view(self, frame: Tuple[int, int]) -> View:
        """Where a frame of this width and height lies in the first image input."""
        if self.image is None:
            raise InputError("the model has no image input", hint="give it arrays")
        return View.of(frame, self.image, self._fit)

    def result(self, outputs: Mapping[str, Array], frame: Tuple[int, int]) -> Result:
        """Return the result for a frame of this width and height.

        Raises:
            InputError: the bundle has no task
        """
        decode = self._decoder_of_task()
        return decode(self._reals(outputs), self.view(frame))

    def result_of_crop(
        self, outputs: Mapping[str, Array], crop: Crop, frame: Tuple[int, int]
    ) -> Result:
        """Return the result for a crop, in pixels of the frame that it is of.

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
                "compile it with --task classification, detection, segmentation, "
                "landmarks, pose or image"
            )
            raise InputError("the bundle does not say what its outputs mean", hint=hint)
        return self._decode

    def _reals(self, outputs: Mapping[str, Array]) -> Dict[str, Array]:
        """Return outputs as real numbers; raises InputError for what are none."""
        found: Dict[str, Array] = {}
        for info in self.manifest.output_infos():
            array = outputs.get(info.name)
            if array is None:
                raise InputError(
                    f'the output "{info.name}" is missing',
                    hint="give all that Session.run returns",
                )
            _check(info, array)
            found[info.name] = reals(array, info)
        return found


def _room(info: TensorInfo, out: Optional[Mapping[str, Array]]) -> Array:
    """Return memory for an input: new memory, or the caller's own."""
    if out is None:
        return np.empty(info.shape, info.numpy_dtype)
    _check(info, out[info.name])
    return out[info.name]


def _check(info: TensorInfo, array: Array) -> None:
    """Raise InputError for an array of another type or shape than a tensor."""
    if array.dtype != info.numpy_dtype or array.shape != info.shape:
        raise InputError(
            f'the array for "{info.name}" is {array.dtype} {array.shape}, not '
            f"{info.numpy_dtype} {info.shape}",
            hint="give one of the tensor's type and shape",
        )
