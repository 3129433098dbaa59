"""edgetpu_compiler by hand: a folder that is carried to a machine with the program, and
back.

    handoff.json            how to go on (written and read here only), with the hashes of all that
                            edgec wrote
    compile.sh, README.txt  for the person
    call-01/                one call of the program: seg1.tflite, …, `models` (their order), and
                            after compile.sh
                            edgec.out (what was printed), code (exit code), seg1_edgetpu.tflite,
                            …, done

Nothing else is remembered: to go on, edgec starts over, finds the answers to all that
it asked before by the hashes of the files, and stops at the first question that is new.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from edgec_devices.decoding import from_json
from edgec_runtime.device_end.disk import given
from msgspec import Meta

from edgec.errors import EdgecError, InputError
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.runners import Answer, answer

SCHEMA = 1
STATE = "handoff.json"
_LARGEST = 1 << 30
_LARGEST_TEXT = 64 << 20  # bytes of a model, and of what was printed
_AGAIN = "copy the folder again, or compile again"
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

_SCRIPT = """#!/bin/sh
# Runs edgetpu_compiler on what edgec asks for. Needs x86-64 Linux with the program on the
# PATH, or its path:
#     EDGETPU_COMPILER=/path/of/edgetpu_compiler sh compile.sh
compiler=$(command -v "${EDGETPU_COMPILER:-edgetpu_compiler}") || {
    echo "there is no ${EDGETPU_COMPILER:-edgetpu_compiler} here; see README.txt" >&2
    exit 127
}
case $compiler in /*) ;; *) compiler=$PWD/$compiler ;; esac
cd "$(dirname "$0")" || exit 1
for call in call-*; do
    [ -f "$call/done" ] && continue
    # needed only where the models of another call were not compiled together
    if [ -f "$call/unless" ]; then
        other=$(cat "$call/unless") missing=no
        for model in $(cat "$other/models"); do
            [ -f "$other/${model%.tflite}_edgetpu.tflite" ] || missing=yes
        done
        [ $missing = no ] && continue
    fi
    echo "$call: $(cat "$call/models")"
    (
        cd "$call" || exit 1
        rm -f ./*_edgetpu.*
        "$compiler" -s -o . $(cat models) </dev/null >edgec.out 2>&1
        echo $? >code
    )
    : >"$call/done"
done
echo "Done. Take this folder back to where edgec is, and run there: edgec finish $(basename "$PWD")"
"""

_README = f"""Models for {PROGRAM}, which this folder was made without.

1. Copy the folder to an x86-64 Linux machine that has {PROGRAM} (coral.ai/docs/edgetpu/compiler).
2. There: sh compile.sh
3. Copy the folder back, and run: edgec finish FOLDER

Should the compiler refuse an operation, edgec finish splits the model again and asks for
one more round of this.
"""


class Pending(EdgecError):
    """The folder waits for a person: compile.sh must run."""

    def __init__(self, folder: Path, what: str) -> None:
        hint = (
            f"run compile.sh of that folder where {PROGRAM} is, then: "
            f"edgec finish {folder}"
        )
        super().__init__(what, at=str(folder), hint=hint)


@dataclass(frozen=True)
class Call:
    """One call of the program. models: sha256 by name, in order. unless: the call that
    may make this one needless.
    """

    folder: str
    models: Mapping[str, str]
    unless: str | None = None


class HandOff:
    """A hand-off folder, as a runner that knows the answers in it.

    `recipe`: how the caller goes on, as JSON.
    """

    def __init__(
        self, folder: Path, recipe: Mapping[str, Any], calls: list[Call] | None = None
    ) -> None:
        self.name = f"the folder {folder}"
        self.recipe = recipe
        self._folder = folder
        self._calls = calls if calls is not None else []

    @classmethod
    def new(cls, folder: Path, recipe: Mapping[str, Any]) -> HandOff:
        """Nothing is written until something is asked.

        Raises InputError if the folder is in use.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"{folder} is not empty",
                "--edgetpu-compiler",
                "name a new folder, or remove that one",
            )
        if not folder.parent.is_dir():
            hint = f"mkdir -p {folder.parent}"
            raise InputError(
                f"the folder {folder.parent} does not exist", "--edgetpu-compiler", hint
            )
        return cls(folder, recipe)

    @classmethod
    def open(cls, folder: Path) -> HandOff:
        """A folder that came back.

        Raises InputError if it is none, or if what edgec wrote into it was changed.
        """
        state = _read_state(folder / STATE)
        calls = [Call(c.folder, dict(c.models), c.unless) for c in state.calls]
        for call in calls:
            for name, wanted in call.models.items():
                path = folder / call.folder / f"{name}.tflite"
                if not _is(path, wanted):
                    what = f"{path} is {'changed' if path.exists() else 'missing'}"
                    raise InputError(
                        what,
                        str(folder),
                        "copy the folder again, whole, or compile again",
                    )
        return cls(folder, state.recipe, calls)

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """The answer that is there.

        Raises Pending where there is none yet; then compile.sh will get it.
        """
        wanted = list(_hashes(models).items())
        call = next((c for c in self._calls if list(c.models.items()) == wanted), None)
        if call is None:
            again = "once more" if self._calls else "by hand"
            self._ask(models)
            raise Pending(self._folder, f"{PROGRAM} has to run {again}")
        folder = self._folder / call.folder
        if not (folder / "done").is_file() or not (folder / "edgec.out").is_file():
            raise Pending(self._folder, f"{PROGRAM} has not run on {call.folder} yet")
        try:
            files = {
                p.name: given(p, _LARGEST)
                for p in folder.iterdir()
                if p.is_file() and "_edgetpu." in p.name
            }
            text = given(folder / "edgec.out", _LARGEST_TEXT).decode("utf-8", "replace")
            if not text.strip() and (folder / "code").is_file():
                text = (
                    "it ended with exit code "
                    f"{given(folder / 'code', 99).decode('utf-8', 'replace').strip()[:10]}\n"
                )
        except OSError as e:
            raise InputError(
                f"{e.filename} cannot be read: {e.strerror}", str(folder), _AGAIN
            ) from e
        return answer(text, models, files)

    def _ask(self, models: Mapping[str, bytes]) -> None:
        """A call of all together and, where there are several, one of each, for when
        that fails.
        """
        self._folder.mkdir(exist_ok=True)
        together = self._write(models, None)
        if len(models) > 1:
            for name, data in models.items():
                self._write({name: data}, together.folder)
        (self._folder / "compile.sh").write_text(_SCRIPT)
        (self._folder / "compile.sh").chmod(0o755)
        (self._folder / "README.txt").write_text(_README)
        calls = [
            asdict(_Call(c.folder, list(c.models.items()), c.unless))
            for c in self._calls
        ]
        state = {"schema": SCHEMA, "recipe": self.recipe, "calls": calls}
        aside = self._folder / f".{STATE}"
        aside.write_text(
            json.dumps({**state, "sha256": _digest(state)}, indent=1, sort_keys=True)
            + "\n"
        )
        aside.replace(self._folder / STATE)

    def _write(self, models: Mapping[str, bytes], unless: str | None) -> Call:
        call = Call(f"call-{len(self._calls) + 1:02d}", _hashes(models), unless)
        folder = self._folder / call.folder
        if folder.exists():  # left by a finish that was stopped
            shutil.rmtree(folder)
        folder.mkdir()
        for name, data in models.items():
            (folder / f"{name}.tflite").write_bytes(data)
        (folder / "models").write_text(
            " ".join(f"{name}.tflite" for name in models) + "\n"
        )
        if unless is not None:
            (folder / "unless").write_text(f"{unless}\n")
        self._calls.append(call)
        return call


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _hashes(models: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(data) for name, data in models.items()}


def _digest(state: Mapping[str, Any]) -> str:
    return sha256(json.dumps(state, sort_keys=True).encode())


@dataclass(frozen=True)
class _Call:
    """A call as it is written: JSON objects have no order.

    Checked, since names become paths.
    """

    folder: Annotated[str, Meta(pattern=r"^call-[0-9]{2,4}\Z")]
    models: Annotated[list[tuple[_Name, _Sha256]], Meta(min_length=1)]
    unless: Annotated[str, Meta(pattern=r"^call-[0-9]{2,4}\Z")] | None


@dataclass(frozen=True)
class _State:
    schema: int
    recipe: dict[str, Any]
    calls: list[_Call]


def _is(path: Path, wanted: str) -> bool:
    """Whether it has this sha256."""
    try:
        return sha256(given(path, _LARGEST)) == wanted
    except OSError:
        return False


def _read_state(path: Path) -> _State:
    hint = _AGAIN
    try:
        data = given(path, _LARGEST_TEXT)
    except FileNotFoundError as e:
        other = "give the folder of edgec compile --edgetpu-compiler folder:…"
        raise InputError(
            f"{path.parent} is no hand-off folder: it has no {STATE}", str(path), other
        ) from e
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}", str(path), hint) from e
    raw = from_json(data, dict[str, Any], str(path), str(path), hint)
    if raw.pop("sha256", None) != _digest(raw):
        raise InputError(f"{path} was changed", str(path), hint)
    if raw.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is of another edgec (schema {raw.get('schema')})",
            str(path),
            "compile again",
        )
    return from_json(data, _State, str(path), str(path), hint)
