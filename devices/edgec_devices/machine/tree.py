"""A folder that becomes a file system: files as this user can write them, owners and
modes as they shall be there.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from edgec_runtime import ToolError

from .programs import program

# folders of / that are links into /usr on a system with a merged /usr
MERGED = ("bin", "sbin", "lib")


@dataclass
class Tree:
    """`owners` holds (mode, user id, group id) by path relative to `folder`, for all
    but symbolic links.
    """

    folder: Path
    owners: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def make_folder(
        self, name: str, mode: int = 0o755, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """A folder and those above it."""
        for parent in reversed(PurePosixPath(name).parents):
            if str(parent) != "." and str(parent) not in self.owners:
                self.make_folder(str(parent))
        (self.folder / name).mkdir(exist_ok=True)
        self.owners[name] = (stat.S_IFDIR | mode, *owner)

    def write(
        self, name: str, data: bytes, mode: int = 0o644, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """A file, in place of what was there."""
        parent = str(PurePosixPath(name).parent)
        if parent != "." and parent not in self.owners:
            self.make_folder(parent)
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        self.owners[name] = (stat.S_IFREG | mode, *owner)

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        parent = str(PurePosixPath(name).parent)
        if parent != "." and parent not in self.owners:
            self.make_folder(parent)
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
            del self.owners[name]
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        self.owners.pop(name, None)

    def unpack(self, package: Path, wanted: Callable[[str], bool]) -> list[str]:
        """The files of a Debian package for which `wanted` of the name says so; their
        names.  Raises ToolError.
        """
        names = []
        with package_files(package) as members:
            for member, read in members:
                name = merged(member.name)
                if name and wanted(name):
                    self._unpack(name, member, read)
                    names.append(name)
        return names

    def _unpack(
        self, name: str, member: tarfile.TarInfo, read: Callable[[], bytes]
    ) -> None:
        owner = (member.uid, member.gid)
        if member.isdir():
            if not (self.folder / name).is_symlink():
                self.make_folder(name, member.mode, owner)
        elif member.issym():
            if not (self.folder / name).is_dir():
                self.link(name, member.linkname)
        elif member.islnk():
            source = merged(member.linkname)
            self.write(name, (self.folder / source).read_bytes(), member.mode, owner)
        elif member.isfile():
            self.write(name, read(), member.mode, owner)


def merged(name: str) -> str:
    """A package's "./bin/sh" as "usr/bin/sh", "." as ""; never a name that leaves the
    folder.
    """
    parts = [p for p in PurePosixPath(name).parts if p not in (".", "/")]
    if ".." in parts:
        raise ToolError(
            f'a package has a file named "{name}"',
            hint="name another mirror of Debian in /etc/apt",
        )
    if parts and parts[0] in MERGED:
        parts.insert(0, "usr")
    return "/".join(parts)


@contextmanager
def package_files(
    package: Path,
) -> Iterator[Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]]:
    """The members of a Debian package, each with what reads it, in the archive's order.

    Raises ToolError.
    """
    with subprocess.Popen(
        [program("dpkg-deb"), "--fsys-tarfile", package], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                yield ((m, _reader(archive, m)) for m in archive)
        except tarfile.TarError as e:
            raise ToolError(
                f"cannot read {package.name}: {e}",
                hint="try again: it is downloaded anew",
            ) from e
        finally:
            shutil.copyfileobj(process.stdout, _Nowhere())
    if process.returncode:
        raise ToolError(
            f"dpkg-deb ended with status {process.returncode}",
            at=package.name,
            hint="try again",
        )


def _reader(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        file = archive.extractfile(member)
        return file.read() if file else b""

    return read


class _Nowhere(io.RawIOBase):
    def write(self, data: object) -> int:
        """Take the bytes and keep none."""
        return len(data)  # type: ignore[arg-type]


def differs(path: Path, owner: tuple[int, int, int]) -> bool:
    """Whether a file of this machine has another mode or owner than this."""
    status = os.lstat(path)
    return (status.st_mode, status.st_uid, status.st_gid) != owner
