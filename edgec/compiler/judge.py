"""Judges forms of a model on labelled pictures, for the choice of the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from edgec_runtime.vision.preprocess import ImageLayout

from edgec.compiler.read import ReadModel
from edgec.compiler.samples import Samples
from edgec.compiler.task import bound, output_infos
from edgec.errors import InputError
from edgec.evaluation.bootstrap import draws
from edgec.evaluation.label_files import check_there, photo_size
from edgec.evaluation.measure import LabelledPicture, Measure, MeasuredFigure
from edgec.evaluation.results import ResultReader, classifier
from edgec.evaluation.tasks import DataOptions, measure_of
from edgec.executors import cores, in_order
from edgec.frontends.task_file import TaskFile
from edgec.ir import Array, Graph, Run, Value
from edgec.ir.interp import initial
from edgec.ir.tensors import tensor_info
from edgec.quantize.observe.calibration import CachedSamples, Photos, Sample
from edgec.quantize.observe.judgement import Judgement
from edgec.steps import Progress, each

DRAWS = 200
"""Draws of the bootstrap: a choice needs no second digit of an interval."""
_OPTION = "--data"


@dataclass(frozen=True)
class LabelledData:
    """Labelled pictures by which a compile chooses.

    Attributes:
        data: the data set, as `edgec eval` takes it.
        task_file: what the outputs mean.
        say: is called with each step.
    """

    data: Path
    task_file: TaskFile
    say: Progress = lambda text: None

    def judge(self, read: ReadModel, graph: Graph, samples: Samples) -> TaskJudge:
        """Return the judge of a canonical float graph and its int8 forms.

        samples: the samples to calibrate with, which are not judged on.

        Raises InputError for a model without an image or a task with a measure, and for
        labels that do not fit it.
        """
        check_there(self.data)
        v = _image_input(graph, read)
        reader = self._reader(read, graph, v)
        measure = measure_of(reader, DataOptions(self.data), _OPTION)
        pictures = _others(measure.read(self.data), samples.calibrate)
        if not pictures:
            raise InputError(
                f"every picture of {self.data.name} calibrates already",
                _OPTION,
                "give labelled pictures that --calibrate has not",
            )
        paths = [picture.file for picture in pictures]
        photos = CachedSamples(Photos(paths, v, read.preprocess[v.name]))
        return TaskJudge(reader, measure, pictures, photos, initial(graph), self.say)

    def _reader(self, read: ReadModel, graph: Graph, v: Value) -> ResultReader:
        """Return the reader of the outputs. v: the image input."""
        preprocess = read.preprocess[v.name]
        layout = ImageLayout.of(tensor_info(v.name, v.type), preprocess.layout)
        assert layout is not None, "the input has a preprocessing of images"
        size = (layout.width, layout.height)
        outputs = {info.name: info for info in output_infos(graph)}

        # Scores of classes need no word of a person.
        task = bound(self.task_file, read, graph)
        if task is None:
            task = classifier(outputs, size, _OPTION)
        labels = self.task_file.labels
        files = self.task_file.files
        return ResultReader(task, size, preprocess.fit, outputs, labels, files)


def _image_input(graph: Graph, read: ReadModel) -> Value:
    """Return the only input, an image. Raises InputError where there are others."""
    inputs = graph.given()
    if len(inputs) == 1 and inputs[0].name in read.preprocess:
        return inputs[0]
    names = ", ".join(v.name for v in inputs)
    raise InputError(
        f"pictures with labels feed one image input, and the model has {names}",
        _OPTION,
        "leave it out: decibels choose then",
    )


def _others(
    pictures: Sequence[LabelledPicture], calibrate: Sequence[Sample]
) -> list[LabelledPicture]:
    """Return the pictures that do not calibrate, by the content of their files."""
    # Arrays were prepared elsewhere: nobody can tell which picture one was.
    paths = calibrate.paths if isinstance(calibrate, Photos) else ()
    known = {sha256(path.read_bytes()).digest() for path in paths}
    return [p for p in pictures if sha256(p.file.read_bytes()).digest() not in known]


@dataclass
class TaskJudge:
    """Judges forms of a model by the first figure of its task's measure.

    Attributes:
        reader: makes results of outputs.
        measure: judges results.
        labelled: the labelled pictures.
        photos: the same as inputs.
        state: the first values of the graph's state.
        say: is called with each step.
    """

    reader: ResultReader
    measure: Measure
    labelled: Sequence[LabelledPicture]
    photos: Sequence[Sample]
    state: Sample
    say: Progress
    _float_figures: tuple[float, Array] | None = None
    _frames: dict[int, Array] = field(default_factory=dict)

    @property
    def pictures(self) -> int:
        """The number of labelled pictures."""
        return len(self.labelled)

    @property
    def figure(self) -> MeasuredFigure:
        """The first figure of the measure, by which forms of the model are compared."""
        return self.measure.figures[0]

    def compare_with(self, run: Run) -> None:
        """Take the model that `run` runs as the float model."""
        self._float_figures = self._figures(run)

    def __call__(self, run: Run) -> Judgement:
        """Return the judgement of a form of the model, see `Judge`."""
        assert self._float_figures is not None, "the float model is judged first"
        float_value, float_draws = self._float_figures
        value, own_draws = self._figures(run)

        losses = float_draws - own_draws
        if not self.figure.rises:
            losses = -losses
        loss = self.figure.loss(float_value, value)
        title = self.figure.title
        return Judgement(title, self.figure.unit, value, float_value, losses, loss)

    def _figures(self, run: Run) -> tuple[float, Array]:
        """Return the figure on the pictures, and on each draw, [draws]."""

        def outputs(i: int) -> Sample:
            return run({**self.state, **self.photos[i]}, None)

        numbers = range(self.pictures)
        results = in_order(outputs, numbers, cores())
        observations = []
        for i, found in enumerate(each(results, self.pictures, "judge", self.say)):
            frame = self._frame(i)
            size = (frame.shape[1], frame.shape[0])
            result = self.reader.result(found, size)
            observation = self.measure.observe(result, self.labelled[i], frame)
            observations.append(observation)

        scored = self.measure.score(self.labelled, observations)
        name = self.figure.name
        values = []
        # The same draws for every form: differences are of the form alone.
        for counts in draws(self.pictures, DRAWS):
            values.append(scored.figures(counts)[name])
        return scored.figures()[name], np.array(values)

    def _frame(self, i: int) -> Array:
        """Return black pixels in the size of a picture: measures look at it alone."""
        if i not in self._frames:
            width, height = photo_size(self.labelled[i].file)
            self._frames[i] = np.broadcast_to(np.uint8(0), (height, width, 3))
        return self._frames[i]
