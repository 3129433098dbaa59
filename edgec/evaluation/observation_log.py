"""Keeps the observation of each picture, so that an interrupted evaluation goes on.

There is a file for each side, and a line for each picture in it: the key and the
observation. A line is written at once, so that an interruption can damage only the last
one, and a damaged line is as good as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from edgec_runtime.bundle.cache import cache_dir

from edgec.evaluation.measure import LabelledPicture, Observation
from edgec.version import VERSION

FOLDER = "evaluation"
MAX_FILES = 64
"""The files that are kept; those that were used least lately go first."""


def picture_key(picture: LabelledPicture) -> str:
    """Return the hash of a picture and its label."""
    digest = sha256(picture.file.read_bytes())
    # The key of a label must not depend on the order of its parts.
    truth = json.dumps(picture.truth, sort_keys=True)
    digest.update(truth.encode())
    if picture.beside is not None:
        digest.update(picture.beside.read_bytes())
    return digest.hexdigest()


@dataclass
class KeptObservations:
    """The observations of one side.

    Attributes:
        path: the file
        known: the observations of earlier evaluations, by the key of the picture
    """

    path: Path
    known: dict[str, Observation] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[str], fresh: bool = False) -> KeptObservations:
        """Return the observations of a side.

        Args:
            parts: texts on which the observations depend: hashes of files, the device
            fresh: whether those of earlier evaluations do not count
        """
        # Another version of edgec may decode otherwise.
        name = sha256("\n".join((VERSION, *parts)).encode()).hexdigest()
        folder = cache_dir(FOLDER)
        path = folder / f"{name[:32]}.jsonl"
        if fresh:
            path.unlink(missing_ok=True)
        _leave_newest(folder)
        return cls(path, _read(path))

    def add(self, key: str, observation: Observation) -> None:
        """Note the observation of a picture."""
        self.known[key] = observation
        line = json.dumps([key, observation], separators=(",", ":"))

        # One call for the whole line: two evaluations at once do not mix theirs. It
        # begins with a newline, which ends a line that was interrupted.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = os.open(self.path, flags, 0o600)
        try:
            os.write(file, f"\n{line}\n".encode())
        finally:
            os.close(file)


def _read(path: Path) -> dict[str, Observation]:
    """Return the observations of a file; lines that are none are left out."""
    observations: dict[str, Observation] = {}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return observations
    for line in text.splitlines():
        try:
            key, observation = json.loads(line)
        except (ValueError, TypeError):
            continue
        if isinstance(key, str) and isinstance(observation, dict):
            observations[key] = observation
    # It was used just now, so it is not among those that go.
    os.utime(path)
    return observations


def _leave_newest(folder: Path) -> None:
    """Remove the files that were used least lately, if there are too many."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: -path.stat().st_mtime)
    for path in files[MAX_FILES:]:
        path.unlink(missing_ok=True)
