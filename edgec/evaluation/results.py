"""Decodes outputs as a bundle does, with limits that leave nothing out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from edgec_runtime import Bundle, TensorInfo
from edgec_runtime.vision.preprocess import Fit, ImageLayout
from edgec_runtime.vision.tasks.base import (
    Decode,
    DecoderSetting,
    Result,
    Size,
    Task,
    View,
    reals,
)
from edgec_runtime.vision.tasks.classification import Classification
from edgec_runtime.vision.tasks.detection import Detection

from edgec.errors import InputError
from edgec.ir import Array

LEAST_SCORE = 0.001
"""From this score on boxes are judged, as is usual for mAP: the curve of precision over
recall needs the improbable ones too.
"""
MOST_BOXES = 100
"""Boxes of a picture that COCO's mAP looks at."""
_HINT = (
    "compile it with --task classification, detection, segmentation, landmarks, pose or "
    "image (docs/tasks.md)"
)


@dataclass(frozen=True)
class ResultReader:
    """Makes results of outputs, and leaves no class and no box out.

    Attributes:
        task: the task, bound to the outputs
        image: width and height of the image input
        fit: how a frame fills the input
        outputs: the outputs, by name
        labels: the names of classes
        files: the files that the task names, by path
    """

    task: Task
    image: Size
    fit: Fit
    outputs: Mapping[str, TensorInfo]
    labels: tuple[str, ...] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, bundle: Bundle) -> ResultReader:
        """Return the reader of a bundle's outputs.

        Raises InputError for a bundle without image input, or without a task whose
        outputs are not the scores of classes.
        """
        manifest = bundle.manifest
        at = str(bundle.path)
        image, fit = _image_input(bundle)
        outputs = {info.name: info for info in manifest.output_infos()}
        task = manifest.task or classifier(outputs, image, at)
        files = {name: bundle.read(name) for name in task.files()}
        return cls(task, image, fit, outputs, manifest.labels, files)

    @property
    def classes(self) -> int:
        """The number of classes: of scores, or else of labels; 0 where it is unknown."""
        if isinstance(self.task, Classification):
            return max(self.outputs[str(self.task.output)].shape)
        return len(self.labels or ())

    @cached_property
    def _decode(self) -> Decode:
        """The decoder, by numpy: the C has the thresholds of the bundle inside."""
        setting = DecoderSetting(self.image, self.outputs, self.labels, self.files)
        return _without_limits(self.task, self.classes).decoder(setting)

    def result(self, outputs: Mapping[str, Array], frame: Size) -> Result:
        """Return the result of outputs, floats or as the bundle stores them.

        frame: width and height of the picture.
        """
        numbers = {}
        for name, info in self.outputs.items():
            # Floats of the float model stay as they are.
            numbers[name] = reals(outputs[name], info)
        view = View.of(frame, self.image, self.fit)
        return self._decode(numbers, view)


def _image_input(bundle: Bundle) -> tuple[Size, Fit]:
    """Return width and height of the first image input, and how a frame fills it."""
    manifest = bundle.manifest
    if len(manifest.inputs) != 1:
        names = ", ".join(manifest.inputs)
        raise InputError(
            f"a picture feeds one input, and {bundle.path.name} has {names}",
            str(bundle.path),
            "evaluate a network of one input",
        )
    for info in manifest.input_infos():
        how = manifest.preprocess.get(info.name)
        if how is None:
            continue
        # The first image is what boxes and points are in the pixels of.
        layout = ImageLayout.of(info, how.layout)
        if layout is not None:
            size = (layout.width, layout.height)
            return size, how.fit
    raise InputError(
        f"{bundle.path.name} has no image input, so no picture can be judged",
        str(bundle.path),
        "give the bundle of a network on pictures",
    )


def classifier(outputs: Mapping[str, TensorInfo], image: Size, at: str) -> Task:
    """Return the task of a network that nobody stated, if it can only be one.

    Raises InputError unless its only output has a number for each class.
    """
    try:
        if len(outputs) == 1:
            return Classification().bind(outputs, image)
    except InputError:
        # The shape is of no vector: the message below says what to do.
        pass
    shapes = ", ".join(f'"{name}" {list(o.shape)}' for name, o in outputs.items())
    raise InputError(
        f"the bundle does not say what its outputs mean: {shapes}", at, _HINT
    )


def _without_limits(task: Task, classes: int) -> Task:
    """Return a task that tells every class, and boxes of any score that counts."""
    if isinstance(task, Classification):
        return replace(task, top=classes, threshold=0.0)
    if isinstance(task, Detection):
        threshold = min(task.threshold, LEAST_SCORE)
        limit = max(task.limit, MOST_BOXES)
        return replace(task, threshold=threshold, limit=limit)
    # The others have no limits that leave anything out.
    return task
