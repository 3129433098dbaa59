"""A compile as a job that can be interrupted and finished later (`edgec finish`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from edgec_devices.options import path_of
from edgec_runtime.vision.tasks.detection import Detection

from edgec.compiler.tuning_databases import NONE, TuningDatabases
from edgec.errors import InputError, check_folder
from edgec.frontends.task_file import TaskFile, read_labels, task_file
from edgec.frontends.task_metadata import stated_task
from edgec.options.compile import COMPILE_RECIPE, CompileOptions
from edgec.options.declaration import declared
from edgec.quantize.change.recipe import Recipe, recipe_file
from edgec.toolchain.edgetpu.handoff import sha256

_BACKGROUND = "__background__"
"""The label of no object."""
_NEW_FOLDER = "compile again"
"""The hint for a hand-off folder of other files or another version."""


@dataclass(frozen=True)
class Job:
    """One compile.

    Attributes:
        model: the model file.
        options: the options of the compile.
    """

    model: Path
    options: CompileOptions

    @property
    def output(self) -> Path:
        """The bundle to write."""
        return path_of(self.options.output) or Path(f"{self.model.stem}.edgec")

    @property
    def tuned(self) -> str | None:
        """The database of schedules, "none", or None for the default one."""
        return _text(self.options.tuned)

    def check(self) -> None:
        """Raise InputError for a file that cannot be read or written, before any work."""
        TuningDatabases.of(self.tuned)
        Recipe.load(_text(self.options.quantize) or COMPILE_RECIPE)

        check_folder(self.output.parent, str(self.output))
        if self.output.is_dir():
            raise InputError(
                f"{self.output} is a folder",
                at="--output",
                hint=f"write {self.output / self.model.stem}.edgec",
            )

    def recipe(self) -> dict[str, Any]:
        """Return the job as JSON, with absolute paths and the hashes of all files."""
        # Options that were not given are left out, so that a newer edgec may drop some.
        options: dict[str, Any] = {}
        for name, value in asdict(self.options).items():
            if value not in (None, (), {}):
                options[name] = value

        # The folder may be finished from anywhere.
        for name, path in self._files().items():
            options[name] = str(path.absolute())
        options["output"] = str(self.output.absolute())

        return {
            "model": str(self.model.absolute()),
            "options": options,
            "hashes": {str(path.absolute()): _hash(path) for path in self._read()},
        }

    @classmethod
    def again(cls, recipe: Mapping[str, Any], at: Path) -> Job:
        """Return the job of a recipe from the folder `at`.

        Raises InputError if a file has changed, or the recipe is of another version.
        """
        try:
            job = cls(Path(recipe["model"]), CompileOptions(**recipe["options"]))
            hashes = dict(recipe["hashes"])
            job.options.check()
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            what = f"the recipe of the hand-off folder cannot be read: {e!r}"
            raise InputError(what, str(at), _NEW_FOLDER) from e

        # Results of edgetpu_compiler for another model would be put into the bundle.
        for path in job._read():
            if not path.exists():
                hint = f"put it back, or {_NEW_FOLDER}"
                raise InputError(f"{path} is gone", str(at), hint)
            if hashes.get(str(path)) != _hash(path):
                what = f"{path} is not what it was when the folder was made"
                raise InputError(what, str(at), _NEW_FOLDER)
        return job

    def wanted(self) -> TaskFile:
        """Return the task of the outputs with its labels; raises InputError."""
        # A person's word goes first, then a file beside the model, then the model itself.
        wanted = task_file(self.model, self.options.task, path_of(self.options.anchors))
        if wanted.task is None:
            stated = stated_task(self.model)
            if stated.task is not None:
                wanted = replace(stated, preprocess=wanted.preprocess)
        elif wanted.labels is None:
            # Labels in the model are of use to a task of the same kind.
            stated = stated_task(self.model)
            if isinstance(stated.task, type(wanted.task)):
                wanted = replace(wanted, labels=stated.labels)

        labels = path_of(self.options.labels)
        if labels is not None:
            # A person's word is refused where it does not fit, and never left out.
            names = tuple(read_labels(labels))
            wanted = replace(wanted, labels=names, stated=False)
        return _of_objects(wanted)

    def _files(self) -> dict[str, Path]:
        """Return the files and folders among the options, by the option."""
        files: dict[str, Path] = {}
        for one in declared(CompileOptions):
            value = getattr(self.options, one.name)
            if value is not None and Path in get_args(one.type):
                files[one.name] = Path(value)

        # The bundle is written, not read. The options `tuned`, `quantize` and `task` may
        # also be names.
        files.pop("output", None)
        if files.get("tuned") == Path(NONE):
            del files["tuned"]

        recipe = recipe_file(str(files.pop("quantize", "")))
        if recipe is not None:
            files["quantize"] = recipe

        task = self.options.task
        if task is not None and task.endswith((".json", ".toml")):
            files["task"] = Path(task)
        return files

    def _read(self) -> Iterator[Path]:
        """Yield every file and folder of the compile's input, once."""
        files = self._files()
        beside = task_file(self.model, self.options.task, path_of(self.options.anchors))
        paths = [self.model, *files.values(), *beside.read]
        yield from dict.fromkeys(paths)


def _of_objects(wanted: TaskFile) -> TaskFile:
    """Return a task without a label of the background, where it counts no such class.

    torchvision's lists of classes begin with one.
    """
    labels = wanted.labels or ()
    has_background = isinstance(wanted.task, Detection) and wanted.task.background
    if has_background and labels[:1] == (_BACKGROUND,):
        return replace(wanted, labels=labels[1:])
    return wanted


def _text(file: str | Path | None) -> str | None:
    """Return an option as text; None if it was not given."""
    return None if file is None else str(file)


def _hash(path: Path) -> str:
    """Return the sha256 of a file, or of all files of a folder with their names.

    Raises InputError if it cannot be read.
    """
    try:
        if not path.is_dir():
            return sha256(path.read_bytes())

        # With the names, since they decide about the order of samples.
        lines: list[str] = []
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            lines.append(f"{file.relative_to(path)} {sha256(file.read_bytes())}")
        return sha256("\n".join(lines).encode())
    except OSError as e:
        what = f"cannot read {path}: {e.strerror}"
        raise InputError(what, str(path), "check the path and its permissions") from e
