"""Takes the parts out of a bundle that other tools read, one kind of parts per file.

Each file of this folder is a kind, found by its name: `tflite.py` makes `edgec export
BUNDLE --tflite DIR`. The first sentence of its docstring is the help of the option. The
file has one function,

    write(bundle: Bundle, folder: Path) -> Sequence[str]

which writes files into an empty folder and returns the three lines of its README: what
the files are, the command that uses them, and what to know of the result. A bundle
without such parts raises InputError. The bundle is of one network: each network of a
cascade is exported to a folder of its own. Files whose name begins with an underscore
are helpers.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass
from functools import cache
from pathlib import Path

from edgec_devices.options import FilePath, option
from edgec_runtime import Bundle
from edgec_runtime.cascade.networks import OpenedNetworks

from edgec.errors import InputError, did_you_mean
from edgec.exporting._folders import check_free, whole_folders
from edgec.options.devices import BundleArgument
from edgec.report.wording import plain

README = "README.md"
PARAGRAPH = "\n\n"
"""Between the lines of a README; the last one is what to know of the result."""


@cache
def kinds() -> Mapping[str, str]:
    """Return the help of each kind by its name.

    No kind is imported: `edgec --help` shall not load the compiler.
    """
    helps = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_"):
            # The text of the file, since its imports take their time.
            source = Path(__path__[0], f"{info.name}.py").read_text(encoding="utf-8")
            doc = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "")
            summary = doc.partition("\n\n")[0]
            helps[info.name] = " ".join(summary.split()).removesuffix(".")
    return helps


ExportOptions = make_dataclass(
    "ExportOptions",
    [
        (
            kind,
            FilePath | None,
            field(default=None, metadata=option(text, metavar="DIR")),
        )
        for kind, text in kinds().items()
    ],
    bases=(BundleArgument,),
    frozen=True,
    kw_only=True,
)
"""The options of `edgec export`: for each kind of parts a new folder."""


def export(path: Path, folders: Mapping[str, Path]) -> tuple[Path, ...]:
    """Export parts of a bundle; return the folders that were written.

    Args:
        path: the .edgec file.
        folders: for each kind by name a folder, which is new or empty.

    Raises:
        InputError: an unknown kind, a folder with files in it, or a bundle without such
            parts; no folder is left half-written.
        BundleError: a damaged bundle.
    """
    if not folders:
        options = ", ".join(f"--{name} DIR" for name in kinds())
        raise InputError("nothing to export", at=str(path), hint=f"give {options}")
    # Before the first one is written: a person gets all folders or none.
    for kind, folder in folders.items():
        _check_kind(kind)
        check_free(folder, f"--{kind}")
        _check_other(kind, folders)

    with Bundle.open(path) as bundle, whole_folders([*folders.values()]) as asides:
        for kind, aside in zip(folders, asides, strict=True):
            _write(bundle, kind, aside)
    return tuple(folders.values())


def _check_other(kind: str, folders: Mapping[str, Path]) -> None:
    """Raise InputError if an option before that of a kind has the same folder."""
    for other, folder in folders.items():
        if other == kind:
            return
        if folder.resolve() == folders[kind].resolve():
            raise InputError(
                f"{folder} is also the folder of --{other}",
                f"--{kind}",
                "give each its own folder",
            )


def _check_kind(kind: str) -> None:
    known = kinds()
    if kind not in known:
        raise InputError(
            f'there is no export of kind "{kind}"{did_you_mean(kind, known)}',
            hint=f"kinds: {', '.join(known)}",
        )


def _write(bundle: Bundle, kind: str, folder: Path) -> None:
    """Fill a folder with a kind of parts; for a cascade, a folder for each network."""
    write = importlib.import_module(f"{__name__}.{kind}").write
    with OpenedNetworks(bundle) as opened:
        for name, network in opened.bundles.items():
            network_folder = folder
            if opened.cascade is not None:
                network_folder = folder / name
                network_folder.mkdir()
            _write_readme(
                network_folder, network.manifest.name, write(network, network_folder)
            )


def _write_readme(folder: Path, name: str, lines: Sequence[str]) -> None:
    """Write the README of a folder: a title, and a paragraph for each line."""
    # A name is of a file from anywhere: it stays on one line.
    text = PARAGRAPH.join([f"# {plain(name)}", *lines])
    (folder / README).write_text(f"{text}\n", encoding="utf-8")
