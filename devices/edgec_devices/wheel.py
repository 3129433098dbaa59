"""A wheel that is given for a device, by its file or by its name in the package index."""

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
"""A project of the index (PEP 508), and perhaps the version that is wanted."""


@dataclass(frozen=True)
class Wheel:
    """A wheel: file name and bytes, and the text of the file beside it that says who
    made it (edgec sign).
    """

    name: str
    data: bytes
    signature: bytes = b""

    @staticmethod
    def of(path: Path) -> Wheel:
        """Reads one.  Raises InputError for a file that is none."""
        if not _NAME.fullmatch(path.name):
            raise InputError(
                f'"{path.name}" is no name of a wheel',
                at=str(path),
                hint="give a .whl as pip downloads it",
            )
        try:
            data = given(path, MAX_UNPACKED_BYTES)
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
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
        """sha256 of the files in it, by name: what is signed of it."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            entries = [e for e in archive.infolist() if not e.filename.endswith("/")]
            return {
                e.filename: hashlib.sha256(archive.read(e)).hexdigest() for e in entries
            }

    def fits(self, target: str, python: str) -> None:
        """Raises InputError if a device of this kind cannot use it, with the command
        that gets one it can.
        """
        found = _NAME.fullmatch(self.name)
        assert found is not None
        minor = minor_version(python)
        arch = architecture(target)
        wanted = f"cp{minor.replace('.', '')}"
        good_python = any(
            t in (wanted, "py3") or (t.startswith("cp3") and "abi3" in found[4])
            for t in found[3].split(".")
        )
        good_arch = any(
            t == "any" or t.endswith(f"_{arch}") for t in found[5].split(".")
        )
        if not (good_python and good_arch):
            raise InputError(
                f"{self.name} is not for this device, which is {arch} with Python {minor}",
                hint=f"--wheel {found[1].replace('_', '-')} downloads the one that is",
            )


def minor_version(python: str) -> str:
    """Of a Python: "3.13" of "3.13.5"."""
    return ".".join(python.split(".")[:2])


def architecture(target: str) -> str:
    """As wheels are named for it: "aarch64" of "linux-aarch64"."""
    return _ARCHITECTURES.get(target, target)


def signature_path(path: Path) -> Path:
    """Where the signature of the wheel at `path` is."""
    return path.with_name(f"{path.name}.sig")


def wheels_or_names(texts: Iterable[str | Path]) -> list[Wheel | str]:
    """What --wheel was given: files, which are read, and names of projects.

    Raises InputError.
    """
    found: list[Wheel | str] = []
    for text in map(str, texts):
        if text.endswith(".whl") or os.sep in text:
            found.append(Wheel.of(Path(text)))
        elif _PROJECT.fullmatch(text):
            found.append(text)
        else:
            raise InputError(
                f'"{text}" is no wheel',
                hint="give a .whl, or a name of the package index: ai-edge-litert",
            )
    return found
