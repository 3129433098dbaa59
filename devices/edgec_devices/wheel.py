"""Reads wheels for a device, by their files or by names in the package index."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import InputError
from edgec_runtime.device_end.disk import given
from edgec_runtime.device_end.trust import MAX_SIGNATURE_BYTES
from edgec_runtime.device_end.wheels import MAX_UNPACKED_BYTES

_ARCHITECTURES = {
    "linux-aarch64": "aarch64",
    "linux-armv7": "armv7l",
    "linux-x86_64": "x86_64",
}
_NAME = re.compile(
    r"([A-Za-z0-9_.]+)-([^-]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl"
)
_PROJECT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:==[A-Za-z0-9.+!]+)?"
)
"""A project of the index (PEP 508), and perhaps a version."""


@dataclass(frozen=True)
class Wheel:
    """A wheel.

    Attributes:
        name: name of the file
        data: its bytes
        signature: text of the signature file beside it (edgec sign)
    """

    name: str
    data: bytes
    signature: bytes = b""

    @staticmethod
    def of(path: Path) -> Wheel:
        """Read a wheel; raises InputError for other or damaged files."""
        # The name has the tags, and pip refuses other names too.
        if not _NAME.fullmatch(path.name):
            raise InputError(
                f'"{path.name}" is not a name of a wheel',
                at=str(path),
                hint="give a .whl as pip downloads it",
            )
        try:
            data = given(path, MAX_UNPACKED_BYTES)
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                # All of it is read once here, so that a device gets no damaged file.
                bad = archive.testzip()
            beside = signature_path(path)
            signature = given(beside, MAX_SIGNATURE_BYTES) if beside.exists() else b""
        except OSError as e:
            raise InputError(
                f"cannot read the wheel: {e.strerror or e}",
                at=str(path),
                hint="check the path",
            ) from e
        except (
            zipfile.BadZipFile,
            RuntimeError,
            ValueError,
            EOFError,
            zlib.error,
            lzma.LZMAError,
            struct.error,
        ) as e:
            raise InputError(
                f"the wheel is damaged: {e}", at=str(path), hint="download it again"
            ) from e
        if bad is not None:
            raise InputError(
                f'"{bad}" in the wheel is damaged',
                at=str(path),
                hint="download it again",
            )
        return Wheel(path.name, data, signature)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file in it by name, which a signature is of."""
        digests = {}
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith("/"):
                    content = archive.read(entry)
                    digests[entry.filename] = hashlib.sha256(content).hexdigest()
        return digests

    def fits(self, target: str, python: str) -> None:
        """Raise InputError if a device cannot use it, with the command for another one.

        The tags in the file name decide (PEP 425).
        """
        match = _NAME.fullmatch(self.name)
        assert match is not None
        project, _, python_tags, abi_tags, platform_tags = match.groups()
        minor = minor_version(python)
        arch = architecture(target)

        own_tag = f"cp{minor.replace('.', '')}"
        fits_python = False
        for tag in python_tags.split("."):
            # abi3 is the stable ABI: extensions for cp3x also run on later Pythons.
            stable_abi = tag.startswith("cp3") and "abi3" in abi_tags
            if tag in (own_tag, "py3") or stable_abi:
                fits_python = True
        fits_arch = False
        for tag in platform_tags.split("."):
            if tag == "any" or tag.endswith(f"_{arch}"):
                fits_arch = True
        if not (fits_python and fits_arch):
            raise InputError(
                f"{self.name} is not for this device, which is {arch} with Python {minor}",
                hint=f"--wheel {project.replace('_', '-')} downloads the one that is",
            )


def minor_version(python: str) -> str:
    """Return the minor version of a Python: "3.13" for "3.13.5"."""
    return ".".join(python.split(".")[:2])


def architecture(target: str) -> str:
    """Return the name of an architecture in wheels: "aarch64" for "linux-aarch64"."""
    return _ARCHITECTURES.get(target, target)


def signature_path(path: Path) -> Path:
    """Return the file of the signature of the wheel at `path`."""
    return path.with_name(f"{path.name}.sig")


def wheels_or_names(texts: Iterable[str | Path]) -> list[Wheel | str]:
    """Return the values of --wheel: wheels from files, and names of projects.

    Raises InputError for other texts.
    """
    wheels: list[Wheel | str] = []
    for text in map(str, texts):
        # A path is never a project, so that a missing file is not looked up on the index.
        if text.endswith(".whl") or os.sep in text:
            wheels.append(Wheel.of(Path(text)))
        elif _PROJECT.fullmatch(text):
            wheels.append(text)
        else:
            raise InputError(
                f'"{text}" is not a wheel',
                hint="give a .whl, or a name of the package index: ai-edge-litert",
            )
    return wheels
