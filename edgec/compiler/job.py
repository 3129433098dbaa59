"""What a compile was asked to do, in a form that can be put down and taken up again
(`edgec finish`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgec.compiler.options import COMPILE_RECIPE, Options
from edgec.compiler.tuned import NONE, TuningDatabases
from edgec.errors import InputError
from edgec.frontends.stated_task import stated_task
from edgec.frontends.task_file import TaskFile, read_labels, task_file
from edgec.quantize.change.recipe import Recipe, recipe_file
from edgec.toolchain.edgetpu.handoff import sha256


@dataclass(frozen=True)
class Job:
    """One compile: the model file, the bundle to write, the options, a file of labels,
    a C compiler of this machine; task, anchors: as task_file() takes them.
    """

    model: Path
    output: Path
    options: Options
    labels: Path | None = None
    cc: str | None = None
    task: str | None = None
    anchors: Path | None = None

    def check(self) -> None:
        """Raises InputError where the bundle cannot be written, or what is named not be
        read, before any work.
        """
        TuningDatabases.of(self.options.tuned)
        Recipe.load(self.options.quantize or COMPILE_RECIPE)
        folder = self.output.parent
        if not folder.is_dir():
            raise InputError(
                f"the folder {folder} does not exist",
                at=str(self.output),
                hint=f"mkdir -p {folder}",
            )
        if self.output.is_dir():
            raise InputError(
                f"{self.output} is a folder",
                at="--output",
                hint=f"write {self.output / self.model.stem}.edgec",
            )

    def recipe(self) -> dict[str, Any]:
        """As JSON: absolute paths, and the hashes of all that is read from them."""
        o = self.options
        tuned = None if self._tuned is None else str(self._tuned.absolute())
        calibrate = _absolute(o.calibrate)
        validate = _absolute(o.validate)
        if self._quantize is None:
            quantize = o.quantize
        else:
            quantize = str(self._quantize.absolute())
        options = asdict(
            replace(
                o,
                calibrate=calibrate,
                validate=validate,
                tuned=tuned or o.tuned,
                quantize=quantize,
            )
        )
        return {
            "model": str(self.model.absolute()),
            "output": str(self.output.absolute()),
            "labels": _text(_absolute(self.labels)),
            "cc": self.cc,
            "task": self.task
            if self.task is None or not self._task_file
            else str(self._task_file.absolute()),
            "anchors": _text(_absolute(self.anchors)),
            "options": {
                k: str(v) if isinstance(v, Path) else v for k, v in options.items()
            },
            "hashes": {str(p.absolute()): _hash(p) for p in self._read()},
        }

    @classmethod
    def again(cls, recipe: Mapping[str, Any], at: Path) -> Job:
        """The job of a recipe.

        Raises InputError if what it reads has changed, or the recipe is of another
        version.
        """
        try:
            options = dict(recipe["options"])
            options |= {
                k: Path(options[k])
                for k in ("calibrate", "validate")
                if options.get(k) is not None
            }
            options |= {
                n: {k: tuple(v) for k, v in options[n].items()}
                for n in ("input_shapes", "fix")
            }
            options |= {k: tuple(options[k]) for k in ("disable", "float_ops", "also")}
            labels = recipe["labels"]
            anchors = recipe["anchors"]
            job = cls(
                Path(recipe["model"]),
                Path(recipe["output"]),
                Options(**options),
                None if labels is None else Path(labels),
                recipe["cc"],
                recipe["task"],
                None if anchors is None else Path(anchors),
            )
            hashes = dict(recipe["hashes"])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise InputError(
                f"the folder is of another edgec: {e}", str(at), "compile again"
            ) from e
        for path in job._read():
            if not path.exists():
                raise InputError(
                    f"{path} is gone", str(at), "put it back, or compile again"
                )
            if hashes.get(str(path)) != _hash(path):
                raise InputError(
                    f"{path} is not what it was when the folder was made",
                    str(at),
                    "compile again",
                )
        return job

    @property
    def _tuned(self) -> Path | None:
        """A database of schedules that was named."""
        if self.options.tuned not in (None, NONE):
            return Path(self.options.tuned)
        return None

    @property
    def _quantize(self) -> Path | None:
        """A recipe of a file."""
        if self.options.quantize is None:
            return None
        return recipe_file(self.options.quantize)

    @property
    def _task_file(self) -> Path | None:
        """A file that was named."""
        if self.task is not None and self.task.endswith((".json", ".toml")):
            return Path(self.task)
        return None

    def wanted(self) -> TaskFile:
        """The task, and what belongs to it. Raises InputError."""
        found = task_file(self.model, self.task, self.anchors)
        if found.task is None:
            own = stated_task(self.model)
            if own.task is not None:
                found = replace(own, preprocess=found.preprocess)
            else:
                found = found
        if self.labels is None:
            return found
        return replace(found, labels=tuple(read_labels(self.labels)))

    def _read(self) -> list[Path]:
        paths = (
            self.model,
            self.labels,
            self.options.calibrate,
            self.options.validate,
            self._tuned,
            self._quantize,
            *task_file(self.model, self.task, self.anchors).read,
        )
        return [p for p in paths if p is not None]


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _hash(path: Path) -> str:
    """Of a file, or of all files of a folder with their names.

    Raises InputError if it cannot be read.
    """
    try:
        if not path.is_dir():
            return sha256(path.read_bytes())
        inside = sorted(p for p in path.rglob("*") if p.is_file())
        return sha256(
            "\n".join(
                f"{p.relative_to(path)} {sha256(p.read_bytes())}" for p in inside
            ).encode()
        )
    except OSError as e:
        raise InputError(
            f"cannot read {path}: {e.strerror}",
            str(path),
            "check the path and its permissions",
        ) from e
