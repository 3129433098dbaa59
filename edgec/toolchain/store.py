"""Files that cost time to make, kept in the user's cache under a key that says all that
they depend on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

from edgec_runtime.bundle.cache import only_ours

_SUM = hashlib.sha256().digest_size
_KEY = re.compile(r"[0-9a-f]{64}")


class Store:
    """Bytes by key, up to `limit` bytes in all; those used longest ago go first.

    Any number of processes may use it.

    A file is a SHA-256 of its key and its content, and the content. One that is damaged
    counts as not there. What cannot be written, on a full disk or where nothing may be
    written, is not kept: a store only saves time.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        only_ours(folder)

    def get(self, key: str) -> bytes | None:
        """The bytes, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if _sum(key, data[_SUM:]) != data[:_SUM]:
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now
        return data[_SUM:]

    def put(self, key: str, data: bytes) -> None:
        """Keep them. A reader sees all of them or none."""
        path = self._path(key)
        aside = None
        try:
            handle, aside = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "wb") as f:
                f.write(_sum(key, data) + data)
            os.replace(aside, path)
        except OSError:
            if aside is not None:
                _remove(Path(aside))

    def trim(self) -> None:
        """Remove what is beyond the limit."""
        found = []
        for entry in os.scandir(self._folder):
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another process was quicker
            found.append((info.st_mtime_ns, info.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit:
                break
            _remove(Path(path))
            total -= size

    def _path(self, key: str) -> Path:
        assert _KEY.fullmatch(key)
        return self._folder / key


def _sum(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _remove(path: Path) -> None:
    """Or leave it: it may be gone, and it may not be ours to remove."""
    with contextlib.suppress(OSError):
        path.unlink()
