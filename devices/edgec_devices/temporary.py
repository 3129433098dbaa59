"""Makes folders that last as long as a task.

edgec leaves nothing in the system's folder for temporary files.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_made: set[Path] = set()


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Make the private folder edgec-<purpose>-…, which is removed at the end.

    The name is recorded before the folder exists: tempfile.TemporaryDirectory leaves
    its folder behind if a signal's exception comes right after it was made.
    """
    path = Path(tempfile.gettempdir()) / f"edgec-{purpose}-{secrets.token_hex(6)}"
    _made.add(path)
    try:
        # Only this user may look into it.
        path.mkdir(0o700)
        yield path
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder, unless this process is a fork: the folder is its parent's.

    A folder that a thread still writes to is removed at the end of the process.
    """
    if path in _made:
        shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        _made.discard(path)


@atexit.register
def _remove_all() -> None:
    for path in list(_made):
        shutil.rmtree(path, ignore_errors=True)


os.register_at_fork(after_in_child=_made.clear)
