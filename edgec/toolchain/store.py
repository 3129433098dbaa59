"""Caches files that take time to make, by a key of all their inputs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

from edgec_runtime.bundle.cache import only_ours

SUM_BYTES = hashlib.sha256().digest_size
_KEY = re.compile(r"[0-9a-f]{64}")


class Store:
    """A cache of bytes by key, which removes the least recently used beyond a limit.

    Any number of processes may use it.

    A file is a SHA-256 of its key and its content, and then the content. A damaged file
    counts as missing. A file that cannot be written, on a full or read-only disk, is
    not cached: a store only saves time.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        # Its files are executed, so nobody else may write them.
        only_ours(folder)

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        # Damaged, for example by a power cut: it is made again.
        if _sum(key, data[SUM_BYTES:]) != data[:SUM_BYTES]:
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            # The time of the last use, by which `trim` sorts.
            os.utime(path)
        return data[SUM_BYTES:]

    def put(self, key: str, data: bytes) -> None:
        """Store the bytes of a key. A reader sees all of them or none."""
        path = self._path(key)
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "wb") as f:
                f.write(_sum(key, data) + data)
            # Writers of the same key have the same bytes: the last one may win.
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                _remove(Path(temporary))

    def trim(self) -> None:
        """Remove the least recently used files beyond the limit."""
        files = []
        for entry in os.scandir(self._folder):
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Another process removed it meanwhile.
                continue
            files.append((info.st_mtime_ns, info.st_size, entry.path))

        total = sum(size for _, size, _ in files)
        # Oldest use first.
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            _remove(Path(path))
            total -= size

    def _path(self, key: str) -> Path:
        """Return the file of a key."""
        assert _KEY.fullmatch(key)
        return self._folder / key


def _sum(key: str, data: bytes) -> bytes:
    """Return the checksum of a file."""
    # With the key, so that a file renamed to another key counts as damaged.
    return hashlib.sha256(key.encode() + data).digest()


def _remove(path: Path) -> None:
    """Remove a file, unless it is gone or belongs to somebody else."""
    with contextlib.suppress(OSError):
        path.unlink()
