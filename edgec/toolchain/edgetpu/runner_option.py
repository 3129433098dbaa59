"""Makes the runner that `--edgetpu-compiler` names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgec.errors import InputError
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.handoff import HandOff
from edgec.toolchain.edgetpu.own import OWN, OwnRunner
from edgec.toolchain.edgetpu.reuse import ReuseRunner
from edgec.toolchain.edgetpu.runners import LocalRunner, Runner
from edgec.toolchain.edgetpu.ssh import SshRunner

FORMS = "a path, ssh://[user@]host[:port], folder:DIR, own, or none"


def runner_for(
    where: str | None, recipe: Mapping[str, Any], reuse: Path | None = None
) -> Runner | None:
    """Return the runner that `--edgetpu-compiler` or `--reuse` names.

    Raises InputError for other values.

    Args:
        where: the value; None asks for the program on the PATH, if it is there, and
            "none" for no runner, "own" for edgec's own programs
        recipe: the state that a hand-off folder needs to go on
        reuse: the compiled file to re-use
    """
    if reuse is not None:
        return ReuseRunner(reuse)
    if where is None:
        return LocalRunner.on_path()
    if where == "none":
        return None
    if where == OWN:
        return OwnRunner()
    if where.startswith("ssh://"):
        return SshRunner(where)
    if where.startswith("folder:"):
        return HandOff.new(Path(where.removeprefix("folder:")), recipe)
    # `which` takes a path as well as a name, and looks at the mode.
    path = shutil.which(where)
    if path is None or not os.path.isfile(path):
        why = "is not executable" if os.path.isfile(where) else "is not a program"
        raise InputError(
            f"{where} {why}",
            "--edgetpu-compiler",
            f"give {FORMS}; the program is {PROGRAM}",
        )
    # The program runs in a temporary folder, where a relative path is another one.
    return LocalRunner(os.path.abspath(path))
