"""Writes compiled files without edgetpu_compiler (--edgetpu-compiler own)."""

from __future__ import annotations

from collections.abc import Mapping

from edgec.edgetpu_file.writing.file import written
from edgec.toolchain.edgetpu.reuse import answer
from edgec.toolchain.edgetpu.runners import Answer

OWN = "own"
"""The value of --edgetpu-compiler for it."""


class OwnRunner:
    """Writes the programs of the networks that edgec can write them for."""

    name = "edgec's own programs"

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Return the compiled files, see Runner.

        Raises InputError: a model has something that is not written.
        """
        return answer(models, {name: written(d, name) for name, d in models.items()})
