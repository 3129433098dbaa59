"""Byte code beside the root file system's Python files, as the packages' installation scripts would leave it.

Without it the guest, whose user may not write there, compiles what it imports each time: seconds that no Pi takes.
"""

from __future__ import annotations

import py_compile
import sys
from pathlib import PurePosixPath

from edgec_devices.temporary import temporary_folder

from .tree import Tree


def compile_python(tree: Tree) -> None:
    """Of the guest's Python, where it is of the release that runs this program: byte code of another is not read."""
    library = f"usr/lib/python3.{sys.version_info.minor}"
    names = [n for n in tree.owners if n.startswith(f"{library}/") and n.endswith(".py")]
    with temporary_folder("bytecode") as folder:
        made = folder / "made.pyc"
        for name in names:
            try:
                py_compile.compile(str(tree.folder / name), str(made), f"/{name}", doraise=True)
            except (py_compile.PyCompileError, OSError):
                continue  # some files of a library are meant to be wrong
            tree.write(cached(name), made.read_bytes())


def cached(name: str) -> str:
    """Where Python looks for the byte code of a file: json/decoder.py in json/__pycache__/decoder.cpython-311.pyc."""
    path = PurePosixPath(name)
    return str(path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc")
