"""Kernel, initial RAM disk and root file system of the emulated machine, made once and
kept in edgec's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime.bundle.cache import cache_dir

from . import debian, disk
from .initramfs import CAMERA_MODULES, MODULES, USB_MODULES, initramfs, read_kernel
from .processes import alone
from .programs import require, run
from .rootfs import add_modules, root_tree
from .tree import Tree

DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Image:
    """What a machine is started from; `disk` is copied for each."""

    release: str
    kernel: Path
    initrd: Path
    disk: Path


def image(
    release: str,
    progress: Callable[[str], None] = lambda _: None,
    full: bool = False,
) -> Image:
    """Made if need be: some 75 MB of Debian packages are downloaded then, 170 MB for
    one with the full kernel.

    release: one of debian.RELEASES.  full: with drivers of cameras and of USB.  Raises
    ToolError.
    """
    folder = cache_dir(
        "machine-images", f"{release}-{_recipe()}" + ("-full" if full else "")
    )
    machine_image = Image(
        release, folder / "vmlinuz", folder / "initrd.gz", folder / "root.ext4"
    )
    if not machine_image.disk.exists():
        with alone(folder):
            if not machine_image.disk.exists():
                _make(folder, machine_image, release, progress, full)
    return machine_image


def _make(
    folder: Path,
    image: Image,
    release: str,
    progress: Callable[[str], None],
    full: bool,
) -> None:
    require("apt-get", "apt-cache", "dpkg-deb", "mke2fs", "debugfs")
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        progress(f"downloading packages of Debian {release}")
        kernel_package, packages = debian.fetch(work / "apt", release, full)
        progress("making the disk")
        kernel = read_kernel(kernel_package)
        tree = root_tree(work / "root", packages)
        compile_python(
            tree, debian.fetch_python(work / "python-apt", release), work / "python"
        )
        if full:
            add_modules(tree, kernel, CAMERA_MODULES)
        aside = work / "root.ext4"
        disk.make(aside, tree, DISK_BYTES)
        image.kernel.write_bytes(kernel.image)
        busybox = (tree.folder / "usr/bin/busybox").read_bytes()
        names = (*MODULES, *(USB_MODULES if full else ()))
        image.initrd.write_bytes(initramfs(busybox, kernel.ordered(names)))
        os.replace(aside, image.disk)  # last: its presence says that all is there
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _recipe() -> str:
    """Changes with whatever the image is made by."""
    here = Path(__file__).parent
    sources = [
        here / f"{name}.py"
        for name in (
            "accounts",
            "debian",
            "disk",
            "image",
            "initramfs",
            "rootfs",
            "tree",
        )
    ]
    digest = hashlib.sha256()
    for path in sorted(
        [*sources, *(p for p in (here / "guest").rglob("*") if p.is_file())]
    ):
        digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


# Names of files come on standard input; the names of those that are made go to standard
# output.  Some files of a library are meant to be wrong, and some are links that lead
# nowhere yet.
_COMPILE = """
import py_compile, sys
for name in sys.stdin.read().splitlines():
    try:
        made = py_compile.compile(f"{sys.argv[1]}/{name}", dfile=f"/{name}", doraise=True)
    except (py_compile.PyCompileError, OSError):
        continue
    print(made.removeprefix(f"{sys.argv[1]}/"))
"""


def compile_python(tree: Tree, interpreter: Iterable[Path], folder: Path) -> None:
    """Of all that the guest's Python can import.

    Raises ToolError.

    interpreter: packages with that Python and its libraries for this machine.  folder:
    for them, and not there yet.
    """
    folder.mkdir()
    native = Tree(folder)
    for package in interpreter:
        native.unpack(
            package, lambda name: name.startswith(("usr/bin/python3.", "usr/lib"))
        )
    loader = next(folder.rglob("ld-linux*.so.*"))
    loader.chmod(0o755)
    names = [
        name
        for name in tree.owners
        if name.startswith("usr/lib/python3") and name.endswith(".py")
    ]
    compiled = run(
        *(
            loader,
            "--library-path",
            loader.parent,
            next(folder.glob("usr/bin/python3.*")),
        ),
        *("-S", "-s", "-c", _COMPILE, tree.folder),
        given="\n".join(names),
        hint="report it",
        variables={"PYTHONHOME": str(tree.folder / "usr")},
    )
    for name in compiled.stdout.splitlines():
        tree.write(name, (tree.folder / name).read_bytes())
