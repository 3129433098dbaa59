"""Puts wheels on a device: the slim edgec-runtime, made here, and those that are given, for example an interpreter."""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import edgec_runtime
from edgec_runtime import InputError
from edgec_runtime.device_end.trust import MAX_SIGNATURE_BYTES
from edgec_runtime.device_end.wheels import MAX_UNPACKED_BYTES
from edgec_runtime.given import given

from edgec_devices import answers
from edgec_devices.bare import bare
from edgec_devices.protocol import Connection
from edgec_devices.transfer import Recipe, send_parts

PYTHON, REQUIRES = ">=3.9", "numpy>=1.21"  # as runtime/pyproject.toml says
ARCHITECTURES = {"linux-aarch64": "aarch64", "linux-armv7": "armv7l", "linux-x86_64": "x86_64"}
_NAME = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")
_DATE = (1980, 1, 1, 0, 0, 0)
ADOPT_S = 300.0
_SERVING = ("agent", "incoming", "packed", "running", "showing", "slots", "units", "wheels", "wire")
"""Of the device end, what a Session never imports: the host sends it with each connection."""


@dataclass(frozen=True)
class Wheel:
    """A wheel: file name and bytes, and the text of the file beside it that says who made it (edgec sign)."""

    name: str
    data: bytes
    signature: bytes = b""

    @staticmethod
    def of(path: Path) -> Wheel:
        """Reads one.  Raises InputError for a file that is none."""
        if not _NAME.fullmatch(path.name):
            raise InputError(
                f'"{path.name}" is no name of a wheel', at=str(path), hint="give a .whl as pip downloads it"
            )
        try:
            data = given(path, MAX_UNPACKED_BYTES)
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                bad = archive.testzip()
            beside = signature_path(path)
            signature = given(beside, MAX_SIGNATURE_BYTES) if beside.exists() else b""
        except OSError as e:
            raise InputError(f"cannot read the wheel: {e.strerror or e}", at=str(path), hint="check the path") from e
        except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, zlib.error, lzma.LZMAError, struct.error) as e:
            raise InputError(f"the wheel is damaged: {e}", at=str(path), hint="download it again") from e
        if bad is not None:
            raise InputError(f'"{bad}" in the wheel is damaged', at=str(path), hint="download it again")
        return Wheel(path.name, data, signature)

    def digests(self) -> dict[str, str]:
        """sha256 of the files in it, by name: what is signed of it."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            entries = [e for e in archive.infolist() if not e.filename.endswith("/")]
            return {e.filename: hashlib.sha256(archive.read(e)).hexdigest() for e in entries}

    def fits(self, target: str, python: str) -> None:
        """Raises InputError if a device of this kind cannot use it, with the command that gets one it can."""
        found = _NAME.fullmatch(self.name)
        assert found is not None
        minor = ".".join(python.split(".")[:2])
        arch = ARCHITECTURES.get(target, target)
        wanted = f"cp{minor.replace('.', '')}"
        good_python = any(
            t in (wanted, "py3") or (t.startswith("cp3") and "abi3" in found[4]) for t in found[3].split(".")
        )
        good_arch = any(t == "any" or t.endswith(f"_{arch}") for t in found[5].split("."))
        if not (good_python and good_arch):
            what = f"{self.name} is not for this device, which is {arch} with Python {minor}"
            hint = (
                f"pip download --no-deps --only-binary=:all: --python-version {minor} --platform manylinux2014_{arch} "
            )
            raise InputError(what, hint=hint + found[1].replace("_", "-"))


def signature_path(path: Path) -> Path:
    """Where the signature of the wheel at `path` is."""
    return path.with_name(f"{path.name}.sig")


def runtime_wheel() -> Wheel:
    """The slim runtime, of the files that this program uses itself, without what only people read (bare.py).

    The same files give the same bytes.
    """
    version = edgec_runtime.__version__
    folder = Path(edgec_runtime.__file__).parent
    info = f"edgec_runtime-{version}.dist-info"
    paths = [p for p in runtime_sources(folder) if p.parent.name != "device_end" or p.stem not in _SERVING]
    files = {f"edgec_runtime/{p.relative_to(folder)}": _slim(p) for p in paths}
    files["edgec_runtime/py.typed"] = b""
    metadata = f"Metadata-Version: 2.1\nName: edgec-runtime\nVersion: {version}\nLicense: Apache-2.0\n"
    files[f"{info}/METADATA"] = f"{metadata}Requires-Python: {PYTHON}\nRequires-Dist: {REQUIRES}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: edgec\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return Wheel(f"edgec_runtime-{version}-py3-none-any.whl", made.getvalue())


def runtime_sources(folder: Path) -> list[Path]:
    """What of the runtime's folder runs on a device: Python and the webcam's page."""
    return sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".html"))


def _slim(path: Path) -> bytes:
    return bare(path.read_text(encoding="utf-8")).encode() if path.suffix == ".py" else path.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def push(connection: Connection, app: str, wheels: Sequence[Wheel]) -> str:
    """Puts the runtime and these wheels on the device, those that it lacks; it uses them if all work together.

    The runtime is this edgec's, unless a wheel of it is among them (`edgec sign --runtime`).

    Returns what to say of it.  Raises InputError for a wheel of another kind of machine, before anything is sent, and
    what the device says; then it uses what it used before.
    """
    info, _ = connection.ask("info", answers.Info)
    for wheel in wheels:
        wheel.fits(info.target, info.python)
    given = any(wheel.name.startswith("edgec_runtime-") for wheel in wheels)
    all_wheels = [*wheels] if given else [runtime_wheel(), *wheels]
    recipes = [_recipe(wheel, app) for wheel in all_wheels]
    there, _ = connection.ask("site", answers.Site, limit=ADOPT_S, app=app)
    sent = 0
    for wheel, recipe in zip(all_wheels, recipes, strict=True):
        if recipe.sha256 not in there.wheels:
            sent += send_parts(connection, recipe)[0]
            connection.ask("unpack", answers.Done, wheel.signature, limit=ADOPT_S, app=app)
    done, _ = connection.ask("adopt", answers.Adopted, limit=ADOPT_S, app=app, wheels=[r.sha256 for r in recipes])
    return f"runtime {done.runtime}" + ("" if sent else " was there already")


def _recipe(wheel: Wheel, app: str) -> Recipe:
    sha256 = hashlib.sha256(wheel.data).hexdigest()
    return Recipe(wheel.data, sha256, ((0, len(wheel.data), sha256),), b"", app)


def has_runtime(connection: Connection, app: str) -> bool:
    """Whether the device can run the application with a Session."""
    return bool(connection.ask("site", answers.Site, limit=ADOPT_S, app=app)[0].active)
