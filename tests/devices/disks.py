"""Disks for tests of the device end: one that waits for nothing, and one that dies and
forgets what was not synced.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from edgec_runtime.device_end.disk import Disk


class Killed(BaseException):
    """The device end, or the whole device, is gone."""


class QuickDisk(Disk):
    """Without waiting for a real disk."""

    def sync(self, path: str) -> None:
        os.stat(path)


class BrittleDisk(Disk):
    """Does `left` operations, then dies in the middle of the next; what was not synced
    can be undone (power_cut).
    """

    def __init__(
        self, left: int, rng: random.Random, trash: Path, error: OSError | None = None
    ) -> None:
        self.left = left
        self.rng = rng
        self.trash = trash
        self.error = error
        self.done = 0
        # unsynced changes of entries, and how to undo them
        self._folders: list[tuple[int, Callable[[], None]]] = []
        # unsynced files by inode: how many bytes are safe
        self._bytes: dict[int, tuple[str, int]] = {}

    def _step(
        self, whole: Callable[[], None], part: Callable[[], None] = lambda: None
    ) -> None:
        self.done += 1
        if self.done > self.left:
            part()
            raise self.error or Killed
        whole()

    def _entry(self, path: str, undo: Callable[[], None]) -> None:
        self._folders.append((os.stat(os.path.dirname(path)).st_ino, undo))

    def mkdir(self, path: str) -> None:
        if not os.path.isdir(path):
            self._step(lambda: os.mkdir(path))
            self._made(path)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        new = not os.path.exists(path)
        if not new:
            inode = os.stat(path).st_ino
            safe = self._bytes.get(inode, (path, os.path.getsize(path)))[1]
            self._bytes[inode] = (path, min(safe, offset))
        some = data[: self.rng.randrange(len(data) + 1)]
        try:
            self._step(
                lambda: Disk.write(self, path, offset, data, mode),
                lambda: Disk.write(self, path, offset, some),
            )
        finally:
            if new and os.path.exists(path):
                self._bytes[os.stat(path).st_ino] = (path, 0)
                self._made(path)

    def _made(self, path: str) -> None:
        """Its undoing finds it wherever it was moved to meanwhile."""
        inode = os.stat(path).st_ino
        self._entry(path, lambda: Disk.remove(self, self._find(inode) or path))

    def sync(self, path: str) -> None:
        self._step(lambda: None)
        inode = os.stat(path).st_ino
        self._bytes.pop(inode, None)
        self._folders = [(f, undo) for f, undo in self._folders if f != inode]

    def rename(self, old: str, new: str) -> None:
        aside = self._keep(new) if os.path.lexists(new) else None
        self._step(lambda: os.rename(old, new))

        def undo() -> None:
            os.rename(new, old)
            if aside:
                os.rename(aside, new)

        self._entry(new, undo)

    def link(self, target: str, path: str) -> None:
        self._step(lambda: os.symlink(target, path))
        self._entry(path, lambda: Disk.remove(self, path))

    def remove(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            for name in sorted(os.listdir(path)):
                self.remove(os.path.join(path, name))
        if os.path.lexists(path):
            aside = str(self.trash / f"{self.done}-{len(self._folders)}")
            self._step(lambda: os.rename(path, aside))
            self._entry(path, lambda: os.rename(aside, path))

    def _keep(self, path: str) -> str:
        aside = str(self.trash / f"kept-{self.done}-{len(self._folders)}")
        if os.path.islink(path):
            os.symlink(os.readlink(path), aside)
        else:
            shutil.copy2(path, aside)
        return aside

    def power_cut(self) -> None:
        """Unsynced bytes are zeros or missing, and of the unsynced changes of folders
        the last ones never were.
        """
        for inode, (path, safe) in self._bytes.items():
            found: str | None
            if os.path.exists(path) and os.stat(path).st_ino == inode:
                found = path
            else:
                found = self._find(inode)
            if found and self.rng.random() < 0.8:
                size = os.path.getsize(found)
                os.truncate(found, self.rng.randint(safe, size))
                if self.rng.random() < 0.5:
                    os.truncate(found, size)
        for _, undo in reversed(
            self._folders[self.rng.randrange(len(self._folders) + 1) :]
        ):
            # the folder around it went, and that was synced
            with contextlib.suppress(FileNotFoundError):
                undo()

    def _find(self, inode: int) -> str | None:
        for folder, folders, names in os.walk(self.trash.parent):
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                if os.lstat(path).st_ino == inode:
                    return path
        return None
