"""Writes Debian packages and plain archives reproducibly.

The same tree and the same zlib give the same file. A .deb is an `ar` of debian-binary,
control.tar.gz and data.tar.gz (deb(5)). Everything in it belongs to root and is dated
1980-01-01, as in a bundle.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

DATE = 315532800  # 1980-01-01
_AR_HEADER = "{name:<16}{date:<12}{owner:<6}{group:<6}{mode:<8}{size:<10}`\n"


@dataclass(frozen=True)
class File:
    """A file of a tree.

    A `conffile` belongs to the administrator: an upgrade keeps it.
    """

    data: bytes
    mode: int = 0o644
    conffile: bool = False


def tar_gz(files: Mapping[str, File], top: str = ".") -> bytes:
    """Return a gzipped tar of files and their folders, sorted by path.

    Paths are relative to the folder `top`.
    """
    members: dict[str, File | None] = {}
    for name in files:
        for folder in PurePosixPath(name).parents:
            members[_dotted(PurePosixPath(top, folder))] = None
    for name, content in files.items():
        members[_dotted(PurePosixPath(top, name))] = content
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, file in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.mtime = DATE
            info.uname = "root"
            info.gname = "root"
            if file is None:
                info.type = tarfile.DIRTYPE
                info.mode = 0o755
                archive.addfile(info)
            else:
                info.mode = file.mode
                info.size = len(file.data)
                archive.addfile(info, io.BytesIO(file.data))
    packed = io.BytesIO()
    # gzip.compress() would write the operating system into the header.
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as f:
        f.write(out.getvalue())
    return packed.getvalue()


def _dotted(path: PurePosixPath) -> str:
    """Return a path as dpkg-deb writes it: "./usr/bin"."""
    text = str(path)
    return text if text == "." else f"./{text}"


def deb(
    control: Mapping[str, str], scripts: Mapping[str, str], files: Mapping[str, File]
) -> bytes:
    """Return a Debian package.

    Args:
        control: fields of the control file, in order
        scripts: preinst, postinst, prerm and postrm
        files: files by path without the leading /
    """
    # KiB, each file rounded up, as dpkg-gencontrol does.
    size = sum(-(-len(file.data) // 1024) for file in files.values())
    lines = []
    for key, value in {**control, "Installed-Size": str(size)}.items():
        lines.append(f"{key}: {value}\n")

    # Files that the administrator may change have no checksum.
    checksums = []
    conffiles = []
    for name, file in sorted(files.items()):
        if file.conffile:
            conffiles.append(f"/{name}\n")
        else:
            digest = hashlib.md5(file.data, usedforsecurity=False).hexdigest()
            checksums.append(f"{digest}  {name}\n")

    members = {
        "control": File("".join(lines).encode()),
        "md5sums": File("".join(checksums).encode()),
    }
    if conffiles:
        members["conffiles"] = File("".join(conffiles).encode())
    for name, text in scripts.items():
        members[name] = File(text.encode(), 0o755)
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_gz(members)),
        ("data.tar.gz", tar_gz(files)),
    ]
    return ar(parts)


def ar(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Return an `ar` archive of members with names of at most 16 bytes."""
    out = b"!<arch>\n"
    for name, data in members:
        header = _AR_HEADER.format(
            name=name, date=DATE, owner=0, group=0, mode="100644", size=len(data)
        )
        out += header.encode() + data + b"\n" * (len(data) % 2)
    return out
