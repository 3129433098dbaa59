"""Hands edgetpu_compiler over to a person: a folder goes to another machine and back.

    handoff.json            how to go on (written and read here only), with the hashes of all that
                            edgec wrote
    compile.sh, README.txt  for the person
    call-01/                one call of the program: seg1.tflite, …, `models` (their order), and
                            after compile.sh
                            edgec.out (what was printed), code (exit code), seg1_edgetpu.tflite,
                            …, done

edgec remembers nothing else: to go on, it starts over, finds the answers to earlier
calls by the hashes of the files, and stops at the first new call.
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

from edgec.errors import EdgecError, InputError, check_folder, shell_word
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.runners import Answer, answer

SCHEMA = 1
STATE = "handoff.json"
MAX_MODEL_BYTES = 1 << 30
MAX_TEXT_BYTES = 64 << 20
"""Limits of a model, and of the printed text: the folder comes from elsewhere."""
COPY_HINT = "copy the folder again, or compile again"
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
    """Says that the folder waits for a person to run compile.sh."""

    def __init__(self, folder: Path, what: str) -> None:
        hint = (
            f"run compile.sh of that folder where {PROGRAM} is, then: "
            f"edgec finish {shell_word(folder)}"
        )
        super().__init__(what, at=str(folder), hint=hint)


@dataclass(frozen=True)
class Call:
    """One call of the program.

    Attributes:
        folder: name of its folder
        models: SHA-256 of each model by its name, in order
        unless: the call that makes this one unnecessary if it succeeds
    """

    folder: str
    models: Mapping[str, str]
    unless: str | None = None


class HandOff:
    """A hand-off folder, as a runner that knows the answers in it.

    Attributes:
        name: the folder, for people
        recipe: how the caller goes on, as JSON
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
        """Return a new folder, which is written at the first call.

        Raises InputError if the folder is in use.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"{folder} is not empty",
                "--edgetpu-compiler",
                "name a new folder, or remove that one",
            )
        # Checked now, although the folder is written minutes later.
        check_folder(folder.parent, "--edgetpu-compiler")
        return cls(folder, recipe)

    @classmethod
    def open(cls, folder: Path) -> HandOff:
        """Return a folder that came back.

        Raises InputError for other folders, and if a file of edgec was changed.
        """
        state = _read_state(folder / STATE)
        # The person may have edited models, or copied a part of the folder only.
        calls = [Call(c.folder, dict(c.models), c.unless) for c in state.calls]
        for call in calls:
            for name, digest in call.models.items():
                path = folder / call.folder / f"{name}.tflite"
                if not _has_digest(path, digest):
                    problem = "changed" if path.exists() else "missing"
                    raise InputError(
                        f"{path} is {problem}",
                        str(folder),
                        "copy the folder again, whole, or compile again",
                    )
        return cls(folder, state.recipe, calls)

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Return the answer in the folder.

        Raises Pending if there is none yet; compile.sh then gets it.
        """
        call = self._call_of(models)
        if call is None:
            again = "once more" if self._calls else "by hand"
            self._ask(models)
            raise Pending(self._folder, f"{PROGRAM} has to run {again}")
        folder = self._folder / call.folder
        if not (folder / "done").is_file() or not (folder / "edgec.out").is_file():
            raise Pending(self._folder, f"{PROGRAM} has not run on {call.folder} yet")
        try:
            return answer(_printed(folder), models, _compiled(folder))
        except OSError as e:
            raise InputError(
                f"{e.filename} cannot be read: {e.strerror}", str(folder), COPY_HINT
            ) from e

    def _call_of(self, models: Mapping[str, bytes]) -> Call | None:
        """Return the call of the same models in the same order, or None."""
        # The order counts: models share the on-chip memory in it.
        hashes = list(_hashes(models).items())
        for call in self._calls:
            if list(call.models.items()) == hashes:
                return call
        return None

    def _ask(self, models: Mapping[str, bytes]) -> None:
        """Write a call of all models together and, for several, calls of each alone.

        The latter are for the case that the first call fails.
        """
        self._folder.mkdir(exist_ok=True)
        together = self._write(models, None)
        if len(models) > 1:
            for name, data in models.items():
                self._write({name: data}, together.folder)
        # Each time, since a copy may have lost the script or its mode.
        script = self._folder / "compile.sh"
        script.write_text(_SCRIPT)
        script.chmod(0o755)
        (self._folder / "README.txt").write_text(_README)
        self._write_state()

    def _write_state(self) -> None:
        """Write handoff.json, whole or not at all."""
        calls = []
        for call in self._calls:
            record = _CallRecord(call.folder, list(call.models.items()), call.unless)
            calls.append(asdict(record))
        state = {"schema": SCHEMA, "recipe": self.recipe, "calls": calls}
        signed = {**state, "sha256": _digest(state)}
        temporary = self._folder / f".{STATE}"
        # A finish that is stopped must not leave half a file.
        temporary.write_text(json.dumps(signed, indent=1, sort_keys=True) + "\n")
        temporary.replace(self._folder / STATE)

    def _write(self, models: Mapping[str, bytes], unless: str | None) -> Call:
        """Write the folder of a call; `unless` is the call that may replace it."""
        number = len(self._calls) + 1
        call = Call(f"call-{number:02d}", _hashes(models), unless)
        folder = self._folder / call.folder
        # A finish that was stopped may have left it.
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        for name, data in models.items():
            (folder / f"{name}.tflite").write_bytes(data)

        names = " ".join(f"{name}.tflite" for name in models)
        (folder / "models").write_text(names + "\n")

        if unless is not None:
            (folder / "unless").write_text(f"{unless}\n")
        self._calls.append(call)
        return call


def sha256(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _hashes(models: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256(data) for name, data in models.items()}


def _digest(state: Mapping[str, Any]) -> str:
    return sha256(json.dumps(state, sort_keys=True).encode())


@dataclass(frozen=True)
class _CallRecord:
    """A call in handoff.json, whose models are a list: JSON objects have no order.

    The patterns matter because names become paths.
    """

    folder: Annotated[str, Meta(pattern=r"^call-[0-9]{2,4}\Z")]
    models: Annotated[list[tuple[_Name, _Sha256]], Meta(min_length=1)]
    unless: Annotated[str, Meta(pattern=r"^call-[0-9]{2,4}\Z")] | None


@dataclass(frozen=True)
class _State:
    """The content of handoff.json without its checksum."""

    schema: int
    recipe: dict[str, Any]
    calls: list[_CallRecord]


def _compiled(folder: Path) -> dict[str, bytes]:
    """Return the files that the program wrote for a call, by name."""
    files = {}
    for path in folder.iterdir():
        if path.is_file() and "_edgetpu." in path.name:
            files[path.name] = given(path, MAX_MODEL_BYTES)
    return files


def _printed(folder: Path) -> str:
    """Return the text that the program printed, or its exit code if there is none."""
    data = given(folder / "edgec.out", MAX_TEXT_BYTES)
    text = data.decode("utf-8", "replace")
    # A program that cannot be started prints nothing, but the shell knows its code.
    code_file = folder / "code"
    if text.strip() or not code_file.is_file():
        return text
    code = given(code_file, 99).decode("utf-8", "replace")
    return f"it ended with exit code {code.strip()[:10]}\n"


def _has_digest(path: Path, digest: str) -> bool:
    """Return whether a file has this SHA-256."""
    try:
        return sha256(given(path, MAX_MODEL_BYTES)) == digest
    except OSError:
        return False


def _read_state(path: Path) -> _State:
    """Read handoff.json; raises InputError if it was changed or is of another edgec."""
    hint = COPY_HINT
    try:
        data = given(path, MAX_TEXT_BYTES)
    except FileNotFoundError as e:
        other = "give the folder of edgec compile --edgetpu-compiler folder:…"
        raise InputError(
            f"{path.parent} is not a hand-off folder: it has no {STATE}",
            str(path),
            other,
        ) from e
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}", str(path), hint) from e

    # The checksum goes first: a folder that was damaged on its way is not "invalid".
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
