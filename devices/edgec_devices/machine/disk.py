"""ext4 file systems in files, made and changed without mounting them, so without root."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edgec_runtime import ToolError

from .programs import run
from .tree import Tree, differs

_HINT = "see that the disk has 2 GB free: df -h"


def make(image: Path, tree: Tree, size: int) -> None:
    """An ext4 file system of `size` bytes with what is in the tree.

    Raises ToolError.
    """
    with image.open("wb") as f:
        f.truncate(size)
    run(
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-E",
        "root_owner=0:0",
        "-L",
        "rootfs",
        "-d",
        tree.folder,
        image,
        hint=_HINT,
    )
    changes = [
        line
        for name, owner in tree.owners.items()
        if differs(tree.folder / name, owner)
        for line in _inode(f"/{name}", *owner)
    ]
    _change(image, changes)


def write(image: Path, files: Mapping[str, tuple[Path, int, int]]) -> None:
    """Puts files into an image that nobody has mounted: path there -> (path here, mode,
    user and group id).
    """
    lines = []
    for name, (source, mode, user) in files.items():
        lines += [
            f'write "{source}" "{name}"',
            *_inode(name, 0o100000 | mode, user, user),
        ]
    _change(image, lines)


def release(image: Path) -> str:
    """The name of the Debian release that is in an image, as its os-release has it.

    The image may be of a machine whose power was cut.  Raises ToolError.
    """
    # Until the guest has replayed the journal, bitmaps may not fit their checksums: with
    # -c they are not read.
    done = run("debugfs", "-c", "-R", "cat /usr/lib/os-release", image, hint=_HINT)
    match = re.search(r"^VERSION_CODENAME=(\S+)$", done.stdout, re.MULTILINE)
    if "Filesystem not open" in done.stderr:
        raise ToolError(
            f"the disk cannot be read: {done.stderr.strip().splitlines()[1]}",
            at=str(image),
            hint=f"repair it: e2fsck -f {image}",
        )
    if match is None:
        raise ToolError(
            "the disk has no Debian on it",
            at=str(image),
            hint="start with a new one: --fresh",
        )
    return match[1]


def copy(image: Path, to: Path) -> None:
    """A copy that takes no more space than the original: holes stay holes, and blocks
    are shared where they can be.
    """
    run("cp", "--sparse=always", "--reflink=auto", image, to, hint=_HINT)


def _inode(name: str, mode: int, user: int, group: int) -> list[str]:
    fields = {"mode": f"0{mode:o}", "uid": user, "gid": group}
    return [
        f'set_inode_field "{name}" {field} {value}' for field, value in fields.items()
    ]


def _change(image: Path, lines: list[str]) -> None:
    if not lines:
        return
    done = run(
        "debugfs", "-w", "-f", "-", image, given="\n".join(lines) + "\n", hint=_HINT
    )
    # after its version debugfs says what went wrong, goes on, and ends with status 0
    errors = done.stderr.strip().splitlines()[1:]
    if errors:
        raise ToolError(f"debugfs: {errors[0]}", at=str(image), hint=_HINT)
