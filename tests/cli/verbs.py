"""The command line in this process: starting Python and importing takes longer than
most of what is tried.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

from edgec.cli.main import run_verb


@dataclass
class Result:
    code: int
    out: str
    err: str


def edgec(*args: object, cwd: Path) -> Result:
    """`edgec ARGS` in a folder."""
    out = io.StringIO()
    err = io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = run_verb(list(map(str, args)))
        except SystemExit as e:
            code = int(e.code or 0)
    return Result(code, out.getvalue(), err.getvalue())
