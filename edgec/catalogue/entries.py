"""The entries of the catalogue: one for each file of a wheel."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from edgec_devices.decoding import from_toml

from edgec.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent
"""The folder of the .toml files."""

PREFIX = "models:"
"""The beginning of an entry's name where a path is expected."""

_WHEEL = re.compile(
    r"(?P<project>[^-]+)-(?P<version>[^-]+)"
    r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)
"""The name of a wheel (PEP 427), without a build number."""

Kind = Literal["network", "photo"]
"""What a file is: a photo is for demos and tests of a network."""


@dataclass(frozen=True)
class CatalogueWheel:
    """A wheel of the package index.

    Attributes:
        name: its file name, which says project, version and tags.
        sha256: the hash of the wheel.
        bytes: the size of the download.
        license: the SPDX identifier.
        license_text: the path of the licence's text in the wheel.
    """

    name: str
    sha256: str
    bytes: int
    license: str
    license_text: str

    @property
    def project(self) -> str:
        """The name in the package index."""
        # Names of wheels have "_" in place of "-", since "-" separates their parts.
        return self._part("project").replace("_", "-")

    @property
    def version(self) -> str:
        """The version of the project."""
        return self._part("version")

    @property
    def platform(self) -> str:
        """One platform of the wheel's tags: "any", or for example
        "manylinux_2_28_x86_64".
        """
        # The tags are sorted: the last one is of the newest system.
        return self._part("platform").rpartition(".")[2]

    def _part(self, name: str) -> str:
        # The name says these facts, so that a row need not repeat them.
        match = _WHEEL.fullmatch(self.name)
        assert match is not None, self.name
        return match[name]


@dataclass(frozen=True)
class Entry:
    """A file of a wheel.

    Attributes:
        name: the name in the catalogue, without the prefix.
        path: the path in the wheel.
        sha256: the hash of the file.
        purpose: what the file is for, in one line.
        kind: a network, or a photo.
        macs: multiply-accumulates of an inference.
        task: the task of a network, with the keys of a task file (docs/tasks.md).
        license, license_text: those of the file, where they are not the wheel's.
    """

    name: str
    path: str
    sha256: str
    purpose: str
    kind: Kind = "network"
    macs: int = 0
    task: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""
    license_text: str = ""

    @property
    def file_name(self) -> str:
        """The name of the file in the cache."""
        # A bundle is named after its model, so the catalogue's name goes before the
        # wheel's. The ending says how the file is read.
        return self.name + Path(self.path).suffix


@dataclass(frozen=True)
class WheelEntries:
    """A wheel and its entries: a .toml file of this folder."""

    wheel: CatalogueWheel
    entries: tuple[Entry, ...]


@cache
def catalogue() -> tuple[WheelEntries, ...]:
    """Return all wheels with their entries."""
    # One file for each wheel, found by its ending: there is no list to add it to.
    paths = sorted(FOLDER.glob("*.toml"))
    return tuple(from_toml(path, WheelEntries) for path in paths)


@dataclass(frozen=True)
class ReadyCascade:
    """A cascade of networks of the catalogue: a cascade.toml of the folder `cascades`.

    Attributes:
        name: the name in the catalogue, without the prefix.
        file: the cascade.toml.
        purpose: what it finds, in one line.
        networks: the names of its networks in the catalogue, without the prefix.
    """

    name: str
    file: Path
    purpose: str
    networks: tuple[str, ...]


@cache
def ready_cascades() -> dict[str, ReadyCascade]:
    """Return the ready cascades by name."""
    paths = sorted((FOLDER / "cascades").glob("*.toml"), key=lambda path: path.stem)
    return {path.stem: _ready_cascade(path) for path in paths}


def _ready_cascade(path: Path) -> ReadyCascade:
    text = path.read_text()
    # The first line, a comment, says the purpose.
    purpose = text.partition("\n")[0].removeprefix("# ")
    # A network on several crops names its model once.
    rows = tomllib.loads(text)["networks"]
    models = [row["model"] for row in rows if "model" in row]
    networks = tuple(model.removeprefix(PREFIX) for model in models)
    return ReadyCascade(path.stem, path, purpose, networks)


def entries(names: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of these names, with or without the prefix.

    The name of a cascade stands for all of its networks. Raises InputError for an
    unknown name.
    """
    by_name: dict[str, Entry] = {}
    for one in catalogue():
        for entry in one.entries:
            by_name[entry.name] = entry
    cascades = ready_cascades()

    chosen: list[str] = []
    for name in names:
        # A person copies the name from the list, where it has the prefix.
        short = name.removeprefix(PREFIX)
        if short not in by_name and short not in cascades:
            guess = did_you_mean(short, (*by_name, *cascades))
            message = f'the catalogue has no "{short}"{guess}'
            raise InputError(message, name, "see the names: edgec models")
        chosen += cascades[short].networks if short in cascades else (short,)
    # Two cascades may share a network.
    return tuple(by_name[name] for name in dict.fromkeys(chosen))
