"""`eval`: how accurate a bundle is on labelled pictures, beside its float model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from edgec_devices.options import path_of
from edgec_devices.requirement import Requirement
from edgec_runtime import Bundle, read_photo
from edgec_runtime.vision.tasks.base import Result

from edgec.catalogue.fetching import local_file
from edgec.evaluation.bootstrap import BOOTSTRAP, ResampledSides
from edgec.evaluation.budgets import check_budgets, parse_budgets
from edgec.evaluation.drawings import captions, drawing
from edgec.evaluation.label_files import check_there
from edgec.evaluation.measure import LabelledPicture, Measure, Observation
from edgec.evaluation.observation_log import KeptObservations, picture_key
from edgec.evaluation.report import (
    BUNDLE,
    DEVICE,
    FLOAT,
    EvaluatedSide,
    EvaluationReport,
    WorstPicture,
)
from edgec.evaluation.results import ResultReader
from edgec.evaluation.tasks import DataOptions, measure_of
from edgec.ir import Array
from edgec.options.evaluate import EvalOptions
from edgec.report.evaluation.junit import to_junit
from edgec.report.evaluation.page import page
from edgec.report.files import check_places, write_whole
from edgec.steps import Progress, Steps, each
from edgec.verbs.eval_sides import (
    BundleHereSide,
    BundleOnDeviceSide,
    FloatModelSide,
    PictureSide,
    runs_here,
)
from edgec.version import VERSION

FILES = ("json", "junit", "html")
"""The fields of a request that are files to write."""


def run_evaluation(
    request: EvalOptions, say: Progress = lambda text: None
) -> EvaluationReport:
    """Evaluate a bundle, and write the files of the request, each as a whole.

    Raises EdgecError.
    """
    # What can be wrong with the request is an error before minutes of work.
    places = {name: path_of(getattr(request, name)) for name in FILES}
    check_places(places)
    data = DataOptions(Path(request.data), path_of(request.pictures), request.normalise)
    check_there(data.data)
    with Bundle.open(request.bundle) as bundle:
        manifest = bundle.manifest
        manifest.check_alone(str(bundle.path), "evaluate its networks alone")
        manifest.check_threads(request.threads, str(bundle.path))
        reader = ResultReader.of(bundle)
        measure = measure_of(reader, data, str(bundle.path))
        budgets = parse_budgets(request.budgets, measure.figures, _keys(request))
        pictures = _spread(measure.read(data.data), request.samples)
        evaluation = _Evaluation(request, reader, measure, pictures, say)
        report = evaluation.report(bundle, budgets)

    # Functions, since a page takes time and is not always asked for.
    writers: Mapping[str, Callable[[], str]] = {
        "json": lambda: json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n",
        "junit": lambda: to_junit(report),
        "html": lambda: page(report),
    }
    for name, path in places.items():
        if path is not None:
            write_whole(path, writers[name]())
    return report


def _keys(request: EvalOptions) -> tuple[str, ...]:
    """Return the sides of a request, in order."""
    model = (FLOAT,) if request.model is not None else ()
    device = () if request.is_local else (DEVICE,)
    return (*model, BUNDLE, *device)


def _spread(
    pictures: Sequence[LabelledPicture], most: int | None
) -> Sequence[LabelledPicture]:
    """Return at most so many pictures, spread evenly: folders are sorted by class."""
    if most is None or len(pictures) <= most:
        return pictures
    step = len(pictures) / most
    return [pictures[int(i * step)] for i in range(most)]


def _plan(sides: Sequence[PictureSide]) -> list[str]:
    """Return the steps of an evaluation of opened sides, in order."""
    titles = [side.title for side in sides]
    return [*titles, *(_comparison_step(side.key) for side in sides), BOOTSTRAP]


def _comparison_step(key: str) -> str:
    """Return the step of a side's comparison."""
    return f"compare with the labels ({key})"


@dataclass(frozen=True)
class _Evaluation:
    """The work of one evaluation.

    Attributes:
        request: the request
        reader: makes results of outputs
        measure: judges results
        pictures: the labelled pictures
        say: is called with each step
    """

    request: EvalOptions
    reader: ResultReader
    measure: Measure
    pictures: Sequence[LabelledPicture]
    say: Progress

    def report(
        self, bundle: Bundle, budgets: Sequence[Requirement]
    ) -> EvaluationReport:
        """Run all sides on all pictures, and return the report."""
        with ExitStack() as stack:
            sides = []
            for side in self._opened(bundle):
                stack.callback(side.close)
                sides.append(side)
            say = Steps(self.say, plan=_plan(sides))
            observed = {side.key: self._observed(side, say) for side in sides}
            worst = self._worst(sides, observed, say)

        scored = {}
        for key, rows in observed.items():
            # COCO's matching takes a while, and has no turns to count.
            say(_comparison_step(key))
            scored[key] = self.measure.score(self.pictures, rows)
        number = self.request.resamples or self.measure.resamples
        resampled = ResampledSides.of(scored, len(self.pictures), number, say)

        drops = {}
        last = sides[-1].key
        if FLOAT in observed:
            for figure in self.measure.figures:
                drops[figure.name] = resampled.loss(FLOAT, last, figure)
        found = EvaluationReport(
            bundle=bundle.manifest.name,
            bundle_sha256=sha256(bundle.path.read_bytes()).hexdigest(),
            target=bundle.manifest.target,
            data=str(self.request.data),
            task=self.reader.task.kind,
            pictures=len(self.pictures),
            measured=self.measure.figures,
            sides=tuple(self._side(side, resampled) for side in sides),
            drops=drops,
            resamples=number,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            edgec=VERSION,
            worst=worst,
            notes=self._notes(sides),
        )
        return replace(found, verdicts=check_budgets(budgets, found))

    def _opened(self, bundle: Bundle) -> list[PictureSide]:
        """Return the sides that are wanted, and can run."""
        request = self.request
        sides: list[PictureSide] = []
        if request.model is not None:
            model = local_file(Path(request.model), self.say)
            sides.append(FloatModelSide(model, bundle, len(self.pictures), self.say))
        # A bundle for a board alone may be judged there without being judged here.
        if request.is_local or runs_here(bundle):
            tpu = request.url.partition(":")[2] if request.is_local else ""
            sides.append(BundleHereSide(bundle, tpu or "auto", request.threads))
        if not request.is_local:
            device = BundleOnDeviceSide(
                bundle, request.url, request.threads, request.timeout
            )
            sides.append(device)
        return sides

    def _notes(self, sides: Sequence[PictureSide]) -> tuple[str, ...]:
        """Return what a person should know about the sides."""
        if BUNDLE in [side.key for side in sides]:
            return ()
        return ("the bundle has no code for this machine: it ran on the device alone",)

    def _side(self, side: PictureSide, resampled: ResampledSides) -> EvaluatedSide:
        """Return the figures of a side."""
        figures = {}
        for figure in self.measure.figures:
            figures[figure.name] = resampled.estimate(side.key, figure)
        return EvaluatedSide(side.key, side.title, side.how, figures)

    # ---- pictures

    def _observed(self, side: PictureSide, say: Progress) -> list[Observation]:
        """Return the observation of every picture, from an earlier call if it is kept."""
        labels = "\n".join(self.reader.labels or ())
        parts = (*side.parts, repr(self.reader.task), labels, repr(self.measure))
        log = KeptObservations.of(parts, self.request.fresh)
        rows = []
        turns = each(self.pictures, len(self.pictures), side.title, say)
        for picture in turns:
            key = picture_key(picture)
            if key not in log.known:
                frame = read_photo(picture.file)
                result = self._result(side, frame)
                observation = dict(self.measure.observe(result, picture, frame))
                observation["loss"] = self.measure.loss(result, picture, frame)
                log.add(key, observation)
            rows.append(log.known[key])
        return rows

    def _result(self, side: PictureSide, frame: Array) -> Result:
        """Return the result of a side for a picture."""
        size = (frame.shape[1], frame.shape[0])
        return self.reader.result(side.outputs(frame), size)

    def _worst(
        self,
        sides: Sequence[PictureSide],
        observed: Mapping[str, list[Observation]],
        say: Progress,
    ) -> tuple[WorstPicture, ...]:
        """Return the pictures with the worst results of the last side, worst first."""
        losses = {key: [row["loss"] for row in rows] for key, rows in observed.items()}
        last = losses[sides[-1].key]
        first = losses[sides[0].key]

        def rank(i: int) -> float:
            """Return the place of a picture: the lowest number is the worst."""
            # What the float model did better counts twice: a hard picture says little
            # of int8.
            return float(first[i]) - 2 * float(last[i])

        order = sorted(range(len(last)), key=rank)
        chosen = [i for i in order if last[i] != 0][: self.request.worst]
        worst = []
        for i in each(chosen, len(chosen), "worst pictures", say):
            of_picture = {key: numbers[i] for key, numbers in losses.items()}
            worst.append(self._worst_picture(sides, self.pictures[i], of_picture))
        return tuple(worst)

    def _worst_picture(
        self,
        sides: Sequence[PictureSide],
        picture: LabelledPicture,
        losses: Mapping[str, float],
    ) -> WorstPicture:
        """Return a picture with what each side finds in it."""
        frame = read_photo(picture.file)
        results = {"truth": self.measure.truth(picture, frame)}
        for side in sides:
            results[side.key] = self.measure.shown(self._result(side, frame))

        lines = {key: result.lines() for key, result in results.items()}
        worst = WorstPicture(self._name(picture), losses, lines)
        if self.request.html is None:
            return worst
        drawings = {key: drawing(result, frame) for key, result in results.items()}
        return replace(
            worst,
            captions={key: captions(result) for key, result in results.items()},
            drawings={"picture": frame, **drawings},
        )

    def _name(self, picture: LabelledPicture) -> str:
        """Return the path of a picture, relative to the data set where it is in it."""
        data = Path(self.request.data)
        folder = data if data.is_dir() else data.parent
        if picture.file.is_relative_to(folder):
            return str(picture.file.relative_to(folder))
        return str(picture.file)
