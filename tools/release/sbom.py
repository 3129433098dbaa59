"""The software bill of materials: CycloneDX 1.6 as JSON, from requirements.lock.

Format: https://cyclonedx.org/docs/1.6/json/. The lock has names, versions and hashes;
what needs what, and under which licence, is in the metadata of the packages that are
installed, whose versions have to be those of the lock.
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edgec.errors import InputError
from tools.release.source import Source

_LINE = re.compile(r"^([^=\s]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.M)
_FOR_DEVELOPERS = {"dev", "docs"}
"""Extras that no user installs."""
_OSI = "License :: OSI Approved :: "


@dataclass(frozen=True)
class Locked:
    """A package of the lock: its name, version, and the SHA-256 of its file, in hex."""

    name: str
    version: str
    digest: str

    @property
    def reference(self) -> str:
        """Return its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def sbom(source: Source) -> str:
    """Return the bill of materials of both wheels.

    Raises InputError where other versions are installed than the lock names.
    """
    lock = _lock((source.folder / "requirements.lock").read_text(encoding="utf-8"))
    text = (source.folder / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    needed = [Requirement(line) for line in project["dependencies"]]
    extra = [
        Requirement(line)
        for name, lines in project["optional-dependencies"].items()
        if name not in _FOR_DEVELOPERS
        for line in lines
    ]
    required = _closure(needed, lock)
    # The lock has no torch, which is as large as all others together.
    optional = _closure((r for r in extra if _name(r) in lock), lock)

    edgec = f"pkg:pypi/edgec@{source.version}"
    runtime = f"pkg:pypi/edgec-runtime@{source.version}"
    components = [_own("edgec-runtime", runtime, source.version)]
    for name in sorted(required.keys() | optional.keys()):
        components.append(_component(lock[name], required=name in required))
    links = {edgec: _references(needed, lock), runtime: [lock["numpy"].reference]}
    for name, requirements in {**optional, **required}.items():
        links[lock[name].reference] = _references(requirements, lock)

    made = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, edgec + made)}",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": _own("edgec", edgec, source.version),
        },
        "components": components,
        "dependencies": [
            {"ref": reference, "dependsOn": sorted(set(needs))}
            for reference, needs in sorted(links.items())
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _lock(text: str) -> dict[str, Locked]:
    """Return the packages of requirements.lock by their canonical names."""
    packages: dict[str, Locked] = {}
    for name, version, digest in _LINE.findall(text):
        canonical = canonicalize_name(name)
        packages[canonical] = Locked(canonical, version, digest)
    return packages


def _closure(
    requirements: Iterable[Requirement], lock: Mapping[str, Locked]
) -> dict[str, list[Requirement]]:
    """Return all packages that some requirements lead to, with what each needs."""
    found: dict[str, list[Requirement]] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = _name(requirement)
        known = found.setdefault(name, [])
        new = [need for need in _needs(lock, requirement) if need not in known]
        known += new
        # A package can come again, with an extra that needs more.
        waiting += new
    return found


def _needs(lock: Mapping[str, Locked], requirement: Requirement) -> list[Requirement]:
    """Return what a package needs here, with the extras that are required of it."""
    name = _name(requirement)
    installed = metadata.version(name)
    if name not in lock or installed != lock[name].version:
        wanted = lock[name].version if name in lock else "none"
        raise InputError(
            f"{name} {installed} is installed, and requirements.lock names {wanted}",
            hint="make clean, and make setup LOCKED=1 with the Python that the file names",
        )
    extras = ["", *requirement.extras]
    needs = []
    for line in metadata.requires(name) or []:
        need = Requirement(line)
        marker = need.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in extras):
            needs.append(need)
    return needs


def _name(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def _references(needs: Iterable[Requirement], lock: Mapping[str, Locked]) -> list[str]:
    return [lock[_name(need)].reference for need in needs]


def _own(name: str, reference: str, version: str) -> dict[str, Any]:
    """Return the component of a wheel of ours."""
    return {
        "type": "application" if name == "edgec" else "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": reference,
    }


def _component(package: Locked, *, required: bool) -> dict[str, Any]:
    """Return the component of a package of the index."""
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.reference,
        "name": package.name,
        "version": package.version,
        "scope": "required" if required else "optional",
        "purl": package.reference,
        # The hash is of the file for the system that the lock names.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                "hashes": [{"alg": "SHA-256", "content": package.digest}],
            }
        ],
    }
    licences = _licences(package.name)
    if licences:
        component["licenses"] = licences
    return component


def _licences(name: str) -> list[dict[str, Any]]:
    """Return the licences that a package states: an SPDX expression, or names."""
    about = metadata.metadata(name)
    if "License-Expression" in about:
        return [{"expression": about["License-Expression"]}]
    stated = about.get_all("Classifier") or []
    names = [line.removeprefix(_OSI) for line in stated if line.startswith(_OSI)]
    # The old field is a name, or the whole text of a licence.
    if not names and "License" in about and "\n" not in about["License"]:
        names = [about["License"]]
    return [{"license": {"name": licence}} for licence in names]
