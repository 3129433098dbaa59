"""Builds the libraries that stand between a program and the stick."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import builds

TIMEOUT_S = 120


def built_plug(source: str, name: str, *options: str) -> Path:
    """Return the shared library of a C file of this folder.

    Args:
        source: the file
        name: of the library
        options: of the compiler, beside the usual ones
    """

    def make(folder: Path) -> None:
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        file = Path(__file__).with_name(source)
        subprocess.run(
            [*builds.ZIG, *flags, str(file), *options, "-o", str(folder / name)],
            check=True,
            timeout=TIMEOUT_S,
        )

    return builds.once(source, make) / name
