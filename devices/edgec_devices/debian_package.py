"""Debian packages and plain archives, written byte for byte: the same tree gives the
same file (and the same zlib).

A .deb is an `ar` of debian-binary, control.tar.gz and data.tar.gz (deb(5)).  Everything
in it is root's and dated 1980-01-01, as in a bundle.
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
    """One file of a tree.  conffile: the administrator's to change, so an upgrade keeps
    it.
    """

    data: bytes
    mode: int = 0o644
    conffile: bool = False


def tar_gz(files: Mapping[str, File], top: str = ".") -> bytes:
    """A gzipped tar of files by path relative to `top`, with the folders above them,
    sorted.
    """
    folders = {
        PurePosixPath(top, p) for name in files for p in PurePosixPath(name).parents
    }
    members = {_dotted(f): None for f in folders} | {
        _dotted(PurePosixPath(top, n)): f for n, f in files.items()
    }
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
    # gzip.compress() would say which system it is
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as f:
        f.write(out.getvalue())
    return packed.getvalue()


def _dotted(path: PurePosixPath) -> str:
    """ "./usr/bin", as dpkg-deb writes it."""
    text = str(path)
    return text if text == "." else f"./{text}"


def deb(
    control: Mapping[str, str], scripts: Mapping[str, str], files: Mapping[str, File]
) -> bytes:
    """A package.  control: fields in order.  scripts: preinst, postinst, prerm, postrm.
    files: by path, without /.
    """
    # KiB, each file rounded up, as dpkg-gencontrol does
    size = sum(-(-len(f.data) // 1024) for f in files.values())
    lines = [
        f"{key}: {value}\n"
        for key, value in {**control, "Installed-Size": str(size)}.items()
    ]
    sums = [
        f"{hashlib.md5(f.data, usedforsecurity=False).hexdigest()}  {n}\n"
        for n, f in sorted(files.items())
    ]
    kept = [f"/{name}\n" for name, file in sorted(files.items()) if file.conffile]
    members = {
        "control": File("".join(lines).encode()),
        "md5sums": File(
            "".join(s for s in sums if f"/{s.split('  ', 1)[1]}" not in kept).encode()
        ),
        **({"conffiles": File("".join(kept).encode())} if kept else {}),
        **{name: File(text.encode(), 0o755) for name, text in scripts.items()},
    }
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_gz(members)),
        ("data.tar.gz", tar_gz(files)),
    ]
    return ar(parts)


def ar(members: Sequence[tuple[str, bytes]]) -> bytes:
    """An `ar` archive of members with names of at most 16 bytes."""
    out = b"!<arch>\n"
    for name, data in members:
        header = _AR_HEADER.format(
            name=name, date=DATE, owner=0, group=0, mode="100644", size=len(data)
        )
        out += header.encode() + data + b"\n" * (len(data) % 2)
    return out
