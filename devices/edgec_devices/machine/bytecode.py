"""Byte code beside the root file system's Python files, as the packages' installation
scripts would leave it.

Without it the guest, whose user may not write there, compiles what it imports each
time: seconds that no Pi takes. Byte code is of one version of Python but of no
architecture, so the guest's release of Python, as it is for this machine, makes it: its
interpreter runs with its own C library, and with the guest's standard library.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .programs import run
from .tree import Tree

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
