"""Extracts files of a bundle: libraries, programs and weights have to be on disk."""

from __future__ import annotations

from pathlib import Path
from typing import List

from .archive import Bundle
from .cache import keep, kept


def extract(bundle: Bundle, name: str) -> Path:
    """Return the path of a bundle's file in the cache, to which it is written if missing.

    It is executable if it is code.  A file in the cache is used only if it belongs to
    this user and has the hash of the manifest.
    """
    path = kept(name, bundle.manifest.files[name].sha256)
    return keep(name, bundle.read(name)) if path is None else path


def program_command(bundle: Bundle, target: str) -> List[str]:
    """Return the command line that starts the bundle's program for a target.

    More options may follow. The bundle must have such a program.
    """
    words = [
        str(extract(bundle, bundle.manifest.programs[target])),
        "--graph",
        bundle.manifest.graph,
    ]
    weights = bundle.manifest.weights.get(target)
    if weights is not None:
        return [*words, "--weights", str(extract(bundle, weights))]
    return words
