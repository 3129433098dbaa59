"""What `--edgetpu-compiler` says: where the program runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgec.errors import InputError
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.handoff import HandOff
from edgec.toolchain.edgetpu.runners import LocalRunner, Runner
from edgec.toolchain.edgetpu.ssh import SshRunner

FORMS = "a path, ssh://[user@]host[:port], folder:DIR, or none"


def runner_for(where: str | None, recipe: Mapping[str, Any]) -> Runner | None:
    """The runner of `--edgetpu-compiler`: None asks for the one on the PATH, if any;
    "none" for none.

    recipe: what a hand-off folder needs to go on. Raises InputError for what is nothing
    of this.
    """
    if where is None:
        return LocalRunner.on_path()
    if where == "none":
        return None
    if where.startswith("ssh://"):
        return SshRunner(where)
    if where.startswith("folder:"):
        return HandOff.new(Path(where.removeprefix("folder:")), recipe)
    found = shutil.which(where)
    if found is None or not os.path.isfile(found):
        why = "is not executable" if os.path.isfile(where) else "is no program"
        raise InputError(
            f"{where} {why}",
            "--edgetpu-compiler",
            f"give {FORMS}; the program is {PROGRAM}",
        )
    return LocalRunner(os.path.abspath(found))
