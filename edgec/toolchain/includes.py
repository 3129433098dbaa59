"""Which headers C texts include."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def included(texts: Iterable[str], csrc: Path) -> dict[str, str]:
    """The files of csrc that texts include, and that those include: path in it → text,
    sorted.
    """
    root = csrc.resolve()
    found = dict[Path, str]()
    waiting = [(root, text) for text in texts]
    while waiting:
        folder, text = waiting.pop()
        for name in _INCLUDE.findall(text):
            path = next(
                (p for p in ((folder / name).resolve(), root / name) if p.is_file()),
                None,
            )
            if path is not None and path not in found:
                found[path] = path.read_text()
                waiting.append((path.parent, found[path]))
    return {path.relative_to(root).as_posix(): found[path] for path in sorted(found)}
