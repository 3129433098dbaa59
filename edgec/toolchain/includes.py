"""Finds the headers that C texts include."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def included(texts: Iterable[str], csrc: Path) -> dict[str, str]:
    """Return the files of csrc that texts include, directly or through other headers.

    The result maps a path in csrc to the text of the file, sorted by path.
    """
    # Resolved, since a header that is reached by two paths must count once.
    root = csrc.resolve()
    headers = dict[Path, str]()
    pending = [(root, text) for text in texts]
    while pending:
        folder, text = pending.pop()

        for name in _INCLUDE.findall(text):
            # Headers of the system are in angle brackets, which the pattern leaves out.
            path = _find(name, folder, root)
            if path is not None and path not in headers:
                header = path.read_text()
                headers[path] = header
                pending.append((path.parent, header))

    by_name = {}
    for path in sorted(headers):
        by_name[path.relative_to(root).as_posix()] = headers[path]
    return by_name


def _find(name: str, folder: Path, root: Path) -> Path | None:
    """Return an included file: beside the including one, else in csrc, else None."""
    for path in ((folder / name).resolve(), root / name):
        if path.is_file():
            return path
    return None
