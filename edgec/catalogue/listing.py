"""Lists the catalogue, with what is in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgec.catalogue.entries import (
    PREFIX,
    CatalogueWheel,
    Entry,
    ReadyCascade,
    catalogue,
    entries,
    ready_cascades,
)
from edgec.catalogue.fetching import in_cache


@dataclass(frozen=True)
class ListedModel:
    """An entry of the catalogue, as `edgec models` lists it.

    Attributes:
        entry: the entry.
        wheel: the wheel with its file.
        path: the file in the cache; None: it is not there.
    """

    entry: Entry
    wheel: CatalogueWheel
    path: Path | None

    @property
    def name(self) -> str:
        """The name where a path is expected: "models:face-mesh"."""
        return f"{PREFIX}{self.entry.name}"

    @property
    def license(self) -> str:
        """The SPDX identifier of the file's licence."""
        return self.entry.license or self.wheel.license

    @property
    def license_text(self) -> str:
        """The path of the licence's text in the wheel."""
        return self.entry.license_text or self.wheel.license_text

    def to_json(self) -> dict[str, Any]:
        """Return the entry in JSON's types."""
        entry = self.entry
        wheel = self.wheel
        return {
            "name": self.name,
            "kind": entry.kind,
            "purpose": entry.purpose,
            "macs": entry.macs,
            "task": dict(entry.task),
            "license": self.license,
            "license_text": self.license_text,
            "project": wheel.project,
            "version": wheel.version,
            "wheel": wheel.name,
            "wheel_sha256": wheel.sha256,
            "wheel_bytes": wheel.bytes,
            "file": entry.path,
            "sha256": entry.sha256,
            "path": None if self.path is None else str(self.path),
        }


@dataclass(frozen=True)
class ListedCascade:
    """A ready cascade, as `edgec models` lists it.

    Attributes:
        cascade: the cascade.
        macs: multiply-accumulates of one run of each of its networks.
        here: whether all of its networks are in the cache.
    """

    cascade: ReadyCascade
    macs: int
    here: bool

    @property
    def name(self) -> str:
        """The name where a path is expected: "models:faces"."""
        return f"{PREFIX}{self.cascade.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the cascade in JSON's types."""
        return {
            "name": self.name,
            "kind": "cascade",
            "purpose": self.cascade.purpose,
            "macs": self.macs,
            "networks": [f"{PREFIX}{name}" for name in self.cascade.networks],
            "path": str(self.cascade.file),
        }


def license_of(sha256: str) -> tuple[str, str] | None:
    """Return the SPDX identifier of a file's licence, and where its text is.

    sha256: the hash of the file. None: it is no file of the catalogue.
    """
    for one in catalogue():
        for entry in one.entries:
            if entry.sha256 == sha256:
                listed = ListedModel(entry, one.wheel, None)
                wheel = f"{one.wheel.project} {one.wheel.version}"
                return listed.license, f"{wheel}, {listed.license_text}"
    return None


def listed_cascades() -> tuple[ListedCascade, ...]:
    """Return all ready cascades."""
    listed: list[ListedCascade] = []
    for one in ready_cascades().values():
        networks = entries(one.networks)
        macs = sum(entry.macs for entry in networks)
        here = all(in_cache(entry) is not None for entry in networks)
        listed.append(ListedCascade(one, macs, here))
    return tuple(listed)


def listing() -> tuple[ListedModel, ...]:
    """Return all entries of the catalogue."""
    listed: list[ListedModel] = []
    for one in catalogue():
        for entry in one.entries:
            listed.append(ListedModel(entry, one.wheel, in_cache(entry)))
    return tuple(listed)
